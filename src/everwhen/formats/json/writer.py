"""Elements into JSON lines (what they look like: `everwhen.formats.json.lines`).

Times are numbers of ticks, or on a dated axis ISO 8601 text in UTC; infinity is null.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, cast

import numpy as np

from everwhen.core.scalars import json_texts
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.punctuation.api import write_match
from everwhen.storage.atomic_file import whole_file
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import ADJUST, CTI, EXTERNAL_CTI, INSERT, OPS, PUNCT, ElementBatch


def write_jsonlines(
    batches: Iterable[ElementBatch],
    path_or_file: str | os.PathLike[str] | IO[bytes] | IO[str],
    axis: TimeAxis = TICKS,
) -> int:
    """Writes elements, a line each, and returns how many; a path is written whole or not at all."""
    if isinstance(path_or_file, str | os.PathLike):
        with whole_file(path_or_file) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
            return _write(batches, file, axis)
    if hasattr(path_or_file, "encoding"):
        return _write(batches, cast(IO[str], path_or_file), axis)
    wrapper = io.TextIOWrapper(cast(IO[bytes], path_or_file), encoding="utf-8", newline="\n", write_through=True)
    try:
        return _write(batches, wrapper, axis)
    finally:
        wrapper.detach()


def _write(batches: Iterable[ElementBatch], file: IO[str], axis: TimeAxis) -> int:
    count = 0
    for batch in batches:
        if len(batch):
            file.write("\n".join(jsonlines(batch, axis)) + "\n")
            count += len(batch)
    return count


def jsonlines(batch: ElementBatch, axis: TimeAxis = TICKS) -> Iterator[str]:
    """The lines of a batch, without line ends."""
    keys = ",".join(json.dumps(name, ensure_ascii=False).replace("%", "%%") + ":%s" for name in batch.schema.names)
    template = "{" + keys + "}"
    if batch.columns:
        rows: Iterable[str] = [template % values for values in zip(*map(json_texts, batch.columns), strict=True)]
    else:
        rows = ["{}"] * len(batch)
    ops = batch.op.tolist()
    starts, ends, news = (_times(times, axis) for times in (batch.vs, batch.ve, batch.vnew))
    tails = ["}"] * len(batch) if batch.at is None else [f',"at":{at}}}' for at in batch.at.tolist()]
    for i, (op, vs, ve, vnew, row, tail) in enumerate(zip(ops, starts, ends, news, rows, tails, strict=True)):
        if op == INSERT:
            yield f'{{"op":"insert","vs":{vs},"ve":{ve},"row":{row}{tail}'
        elif op == ADJUST:
            yield f'{{"op":"adjust","vs":{vs},"ve":{ve},"vnew":{vnew},"row":{row}{tail}'
        elif op == CTI:
            yield f'{{"op":"cti","t":{vs}{tail}'
        else:
            yield _promise(batch.promises[i], batch.schema, axis) + tail


def _times(times: np.ndarray, axis: TimeAxis) -> Sequence[object]:
    """Times as JSON: text, or numbers, which are written as they are."""
    if not axis.dated:
        numbers: list[object] = times.tolist()
        return ["null" if t == INF else t for t in numbers] if (times == INF).any() else numbers
    known, place = np.unique(times, return_inverse=True)  # times come again and again, and text takes long
    texts = axis.texts(np.where(known == INF, 0, known))
    plain = [
        "null" if t == INF else f'"{text}"' if text[-1] == "Z" else text
        for t, text in zip(known.tolist(), texts, strict=True)
    ]
    return [plain[at] for at in place.tolist()]


def _promise(promise: Punct | ExternalCti, schema: Schema, axis: TimeAxis) -> str:
    """The line of a promise, without the closing brace."""
    if isinstance(promise, ExternalCti):
        start, end = _times(np.array([promise.vs, promise.ve], np.int64), axis)
        return f'{{"op":"{OPS[EXTERNAL_CTI]}","vs":{start},"ve":{end},"count":{promise.count}'
    match = json.dumps(write_match(promise.promise.match, schema), ensure_ascii=False, separators=(",", ":"))
    t = promise.promise.t
    told = "" if t == INF else f',"t":{_times(np.array([t], np.int64), axis)[0]}'
    return f'{{"op":"{OPS[PUNCT]}","match":{match}{told}'
