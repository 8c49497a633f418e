"""How much the files of a query hold: which engine suits them, and how much of them a run has done.

Bytes of a text are those of its file; of Parquet, which is compressed, those of its columns as they were written.
What is no regular file has no size that could be known: it is read in this process, as it comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from everwhen.engine.files.checkpoint import engine_of
from everwhen.errors import EverwhenError
from everwhen.formats.input_file import STANDARD_INPUT, InputFile, is_csv, is_folder
from everwhen.formats.parquet import is_parquet
from everwhen.storage.atomic_file import is_regular

SMALL: Final = 256 * 2**20
"""Inputs of up to so many bytes in all run in this process, unless an engine is named."""
_COUNTED: Final = 32 * 2**20
"""Lines of a file that is no larger are counted; of a larger one some are, and the rest estimated."""
_SAMPLE: Final = 2**20


def suited_engine(inputs: Iterable[InputFile], checkpoint: str | None = None) -> tuple[str, str]:
    """The engine for a query over these files, and in words why.  A run that goes on stays where it was begun.

    >>> suited_engine([])
    ('local', 'in process: the inputs are small; --engine spark runs it on Spark')
    """
    begun = None if checkpoint is None else engine_of(Path(checkpoint))
    if begun is not None:
        return begun, f"{'on Spark' if begun == 'spark' else 'in process'}, where the checkpoint {checkpoint} was begun"
    size = sum(map(bytes_of, inputs))
    tiny = size <= min(2**20, SMALL)
    shown = "the inputs are small" if tiny else f"the inputs have {size / 2**20:,.1f} MB in all"
    if size <= SMALL:
        return "local", f"in process: {shown}; --engine spark runs it on Spark"
    if not _has_spark():
        remedy = "pip install 'everwhen[spark]'"
        return "local", f"in process: {shown}, which is much, but Spark is not installed ({remedy})"
    return "spark", f"on Spark: {shown}, which is more than {SMALL >> 20} MB; --engine local runs it in this process"


def _has_spark() -> bool:
    from everwhen.spark import require_pyspark

    try:
        require_pyspark()
    except EverwhenError:
        return False
    return True


def bytes_of(given: InputFile) -> int:
    """The bytes of an input; none if they are not known."""
    if given.file == STANDARD_INPUT:
        return 0
    if is_folder(given.file):
        return sum(path.stat().st_size for path in Path(given.file).rglob("*") if path.is_file())
    if not is_regular(given.file):
        return 0
    if is_parquet(given.file):
        about = _parquet(given.file)
        return 0 if about is None else sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    return os.path.getsize(given.file)


def expected_elements(inputs: Iterable[InputFile]) -> int | None:
    """About how many elements files have in all; None if it cannot be known without reading them."""
    total = 0
    for given in inputs:
        if given.file == STANDARD_INPUT or is_folder(given.file) or not is_regular(given.file):
            return None
        if is_parquet(given.file):
            about = _parquet(given.file)
            if about is None:
                return None
            total += about.num_rows
        else:
            total += max(_lines(given.file) - is_csv(given.file), 0)
    return total


def _parquet(file: str) -> pq.FileMetaData | None:
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError):  # whoever reads it says what is wrong
        return None


def _lines(file: str) -> int:
    """The lines of a file; of a large one an estimate from samples that are spread over it."""
    size = os.path.getsize(file)
    pieces = -(-size // _SAMPLE)
    step = max(pieces * _SAMPLE // _COUNTED, 1)
    lines = looked = 0
    last = b"\n"
    with open(file, "rb") as stream:
        for piece in range(0, pieces, step):
            stream.seek(piece * _SAMPLE)
            data = stream.read(_SAMPLE)
            lines, looked, last = lines + data.count(b"\n"), looked + len(data), data[-1:] or last
    return (lines + (last != b"\n") if step == 1 else round(lines * size / looked)) if looked else 0
