"""Entries of a store written out as punctuations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.punctuation.columns.boxes import BoxTable, Shape
from everwhen.punctuation.columns.column import ColumnPunctuation


def look_up_column(name: str, column: ColumnPunctuation, columns: Mapping[str, pa.Array], out: np.ndarray) -> None:
    column.raise_to(columns[name], out)


def of_column(name: str, column: ColumnPunctuation, c: int) -> list[Punctuation]:
    return [Punctuation({name: pattern}, t) for pattern, t in column.patterns(c)]


def of_table(table: BoxTable, c: int) -> list[Punctuation]:
    return list(table.promises(c))


def asks(shape: Shape, other: Shape) -> bool:
    """Whether promises of the first shape can be looked up for the constants of the second."""
    return not shape.ranges and set(shape.constants) <= set(other.constants)
