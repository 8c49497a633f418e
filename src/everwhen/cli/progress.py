"""How a run is doing, on the terminal: one line that changes, from the second on, and is gone in the end.

Nothing is shown unless the error output is a terminal, or where elements go to that terminal as they come.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from everwhen.core.time import INF, NEVER, show
from everwhen.engine.files.run import Progress, Watch

_PATIENCE: Final = 1.0
_FRAME: Final = 0.1
_BAR: Final = 20


@contextmanager
def watched(out: str, expected: Callable[[], int | None] = lambda: None) -> Iterator[Watch]:
    """A function to be told of progress; it shows some of it.  `expected`: about how many elements there are to read,
    asked for once something is shown."""
    if not sys.stderr.isatty() or (out == "-" and sys.stdout.isatty()):
        yield lambda _: None
        return
    from rich.console import Console  # only a terminal pays for it

    # A copy of the error output: that itself goes to a file while Spark starts.
    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal,
        _Line(Console(file=terminal), expected=expected) as line,
    ):
        yield line


class _Line:
    """The line.  It appears when there is something to wait for."""

    def __init__(
        self,
        console: Any,
        clock: Callable[[], float] = time.monotonic,
        expected: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._status = console.status("")
        self._expected = cache(expected)
        self._clock = clock
        self._began = self._drawn = clock()
        self._shown = False

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._status.stop()

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        starting = progress.words.startswith("starting")
        if not starting and (now - self._began < _PATIENCE or now - self._drawn < _FRAME):
            return
        self._drawn = now
        self._status.update(line(progress, now - self._began, self._expected()))
        if not self._shown:
            self._shown = True
            self._status.start()


def line(progress: Progress, seconds: float, expected: int | None = None) -> str:
    """Progress in a line; with a bar, where it is known how much there is in all.

    >>> line(Progress("running", 12_000, 34, {"S": 70, "R": 9223372036854775807}), 2.0)
    'running: 12,000 elements read, 6,000 per second; 34 said; final up to S 70'
    >>> line(Progress("running", 12_000, 34), 2.0, expected=16_000)
    '━━━━━━━━━━━━━━━─────  75 % running: 12,000 elements read, 6,000 per second'
    """
    parts = [f"{bar(progress, expected)}{progress.words}: {progress.read:,} elements read"]
    if seconds > 0 and progress.words in ("running", "reading"):
        parts[0] += f", {progress.read / seconds:,.0f} per second"
    if progress.ctis is not None:
        parts.append(f"{progress.said:,} said")
        held = [f"{name} {show(t)}" for name, t in progress.ctis.items() if NEVER < t < INF]
        parts += [f"final up to {', '.join(held)}"] if held else []
    return "; ".join(parts)


def bar(progress: Progress, expected: int | None) -> str:
    """How much is done, as a bar and a percentage; nothing if it is not known.

    >>> bar(Progress("running epoch 1 of 3", 90, share=1 / 3), None)
    '━━━━━━──────────────  33 % '
    """
    share = progress.share
    if share is None and expected and progress.words == "running":
        share = progress.read / expected
    if share is None:
        return ""
    done = min(max(share, 0.0), 0.99)  # what was estimated may be exceeded; all is done when the line goes
    full = int(done * _BAR)
    return f"{'━' * full}{'─' * (_BAR - full)} {int(done * 100):3d} % "
