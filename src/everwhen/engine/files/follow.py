"""`ew.follow`: a query that goes on, exactly once (`live/run.py` says how)."""

from __future__ import annotations

from collections.abc import Mapping

from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.engine.files.live.options import LiveOptions
from everwhen.engine.files.live.run import LiveRun
from everwhen.engine.files.run import Watch
from everwhen.engine.local import Query
from everwhen.formats.input_file import InputFile


def follow(
    query: Query,
    inputs: Mapping[str, str | InputFile],
    out: str,
    *,
    checkpoint: str | None = None,
    consistency: Consistency = MIDDLE,
    emit: str | Emit | None = None,
    batch: int = 10_000,
    every: float | None = None,
    wait: float | None = None,
    keep: str = "all",
    progress: Watch | None = None,
) -> int:
    """Run a query over inputs that grow, until everything is promised; returns how many elements were said in all.

    Inputs are files of JSON lines that are appended to, changelog folders, or files that do not grow.  The answer goes
    to a changelog folder.  Started again after it was killed, the same call goes on: every element is said exactly
    once. `every`: seconds between checkpoints.  `wait`: seconds after which an input that is not there is an error.
    `keep`: "all" epochs of the output, or only those that some reader has yet to read ("unread").

    >>> import everwhen as ew
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> s = ew.source("S", {"x": "int64"})
    >>> with TemporaryDirectory() as place:
    ...     text = '{"vs":1,"ve":5,"row":{"x":2}}\\n{"op":"cti","t":null}\\n'
    ...     _ = Path(place, "s.jsonl").write_text(text)
    ...     ew.follow(s.aggregate(n=ew.count()), {"S": f"{place}/s.jsonl"}, f"{place}/out", consistency=ew.STRONG)
    ...     print(*(element for batch in ew.read_changelog(f"{place}/out") for element in batch.elements()))
    ...
    2
    insert [1, 5) n=1 cti ∞
    """
    level = consistency if emit is None else consistency.changed(emit=emit)
    options = LiveOptions(batch, every, wait, keep, progress=progress or (lambda _: None))
    return LiveRun(query, inputs, out, checkpoint, level, options).run()
