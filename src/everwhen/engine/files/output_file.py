"""Where an answer goes: a file, a changelog folder, a pipe or the standard output, whole or not at all.

**Guarantee.**  Until the last element is there, nothing is touched: a file is written beside its place and moved there;
of a folder one manifest names all parts;
what cannot be replaced (the standard output, a pipe, a device) is written from a spool in the end.  Only a terminal
gets elements as they come, for there a person looks on.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable
from typing import IO, Final

from everwhen.core.schema import Schema
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import StateError
from everwhen.formats.input_file import is_changelog
from everwhen.formats.parquet import is_parquet, write_elements
from everwhen.sinks.changelog import ChangelogSink, changelog_format
from everwhen.storage.atomic_file import FULL, directory_aside
from everwhen.storage.folder import blame
from everwhen.stream.element_batch import ElementBatch, empty_elements

STANDARD_OUTPUT: Final = "-"


def write_answer(batches: Iterable[ElementBatch], out: str, schema: Schema, axis: TimeAxis = TICKS) -> int:
    """Writes elements, as Parquet if the name ends so, else as JSON lines; returns how many."""
    try:
        return _answered(batches, out, schema, axis)
    except OSError as bad:  # the system names no file when a write finds the disk full
        if bad.errno not in FULL:
            raise
        raise StateError(blame(bad, out, "write the answer")) from bad


def _answered(batches: Iterable[ElementBatch], out: str, schema: Schema, axis: TimeAxis) -> int:
    if out == STANDARD_OUTPUT:
        if sys.stdout.isatty():
            return sum(_shown(batch, axis) for batch in batches)
        return _spooled(batches, "answer.jsonl", sys.stdout.buffer, schema, axis)
    if out.endswith("/") or is_changelog(out):
        return _written(batches, out, schema, axis)
    if _is_endless(out):
        with open(out, "wb") as file:
            return _spooled(batches, "answer.parquet" if is_parquet(out) else "answer.jsonl", file, schema, axis)
    return write_elements(batches, out, schema, axis)


def _written(batches: Iterable[ElementBatch], out: str, schema: Schema, axis: TimeAxis) -> int:
    """All elements as one epoch; what the folder had is of an earlier start."""
    sink = ChangelogSink(out, changelog_format(schema), axis=axis)
    new = not is_changelog(out)
    sink.prepare(schema)
    epoch = sink.committed() + 1
    if epoch:
        sink.begin_anew()
    parts: list[str] = []
    count = 0
    try:
        for batch in batches:
            if len(batch):
                parts.append(sink.write_part(epoch, len(parts), batch))
                count += len(batch)
        sink.commit_parts(epoch, parts, empty_elements(schema))
    except BaseException:
        sink.give_up(epoch, parts, new)
        raise
    return count


def _shown(batch: ElementBatch, axis: TimeAxis) -> int:
    count = write_elements([batch], sys.stdout, axis=axis)
    sys.stdout.flush()
    return count


def _spooled(batches: Iterable[ElementBatch], name: str, file: IO[bytes], schema: Schema, axis: TimeAxis) -> int:
    with directory_aside() as place:
        spool = place / name
        count = write_elements(batches, spool, schema, axis)
        with open(spool, "rb") as written:
            shutil.copyfileobj(written, file)
        file.flush()
    return count


def _is_endless(path: str) -> bool:
    """Whether it is there and no file: then it cannot be replaced."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
