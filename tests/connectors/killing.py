"""Kills a job again and again while its input grows; then lets it end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from connectors import kill_driver
from connectors.forked import forking
from connectors.kill_driver import Spec

_PROCESSES = forking("connectors.kill_driver")


def kill_often(
    source: Spec,
    sink: Spec,
    form: str,
    place: Path,
    kills: int,
    feed: Callable[[int], None],
    time_column: str | None = None,
    lasts: int = 1,
) -> int:
    """`feed(i)` writes more input before the i-th start, the last of it with the item that ends it.  Returns how often
    a job was killed before it had ended."""
    rng, killed = random.Random(kills), 0
    arguments = (source, sink, form, str(place / "steps"), time_column, lasts)
    for i in range(kills):
        feed(i)
        job = _PROCESSES.Process(target=kill_driver.run, args=(*arguments, 20))
        job.start()
        job.join(rng.uniform(0.1, 0.8) if i % 3 else rng.uniform(0.0, 0.3))
        killed += job.exitcode is None
        job.kill()
        job.join()
        assert job.exitcode == -9, f"it ended by itself: {job.exitcode}"
    feed(kills)
    job = _PROCESSES.Process(target=kill_driver.run, args=(*arguments, 1000))
    job.start()
    until = time.monotonic() + 600
    while job.exitcode is None and time.monotonic() < until:
        job.join(0.1)
    job.kill()
    assert job.exitcode == 0
    return killed
