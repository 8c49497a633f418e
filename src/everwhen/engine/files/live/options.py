"""How a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everwhen.engine.files.run import Watch


@dataclass(frozen=True)
class LiveOptions:
    """How a run goes on.

    `every`: seconds between checkpoints.  `wait`: seconds after which inputs that are not there are an error.  `keep`:
    which epochs of the output are kept.  `reader`: by which name word is left in the folders that are read.  `seed`:
    the checkpoint to begin with, where there is no state.
    """

    batch: int = 10_000
    every: float | None = None
    wait: float | None = None
    keep: str = "all"
    reader: str | None = None
    seed: str | None = None
    tell: Callable[[str], None] = lambda _: None
    progress: Watch = lambda _: None
