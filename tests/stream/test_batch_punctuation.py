"""Punctuation of a batch: in few words, and behind rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.punctuation.api import read_promises
from everwhen.punctuation.table import FEW
from everwhen.stream.batch_punctuation import TrailingPunctuation
from everwhen.stream.element import Punct


@pytest.mark.parametrize("n", [1, FEW - 1, FEW, 3 * FEW])
def test_many_words(n: int) -> None:
    """Many constants in a row are said as a range, and many ranges that touch as one."""
    schema = Schema.of([("k", pa.int64())])
    constants = read_promises([Punctuation({"k": OneOf((i,))}) for i in range(n)], schema)
    assert [type(said.match["k"]) for said in constants] == [OneOf if n < FEW else Range]
    ranges = read_promises([Punctuation({"k": Range(ge=2 * i, lt=2 * i + 2)}) for i in range(n)], schema)
    assert len(ranges) == (n if n < FEW else 1)


def test_behind_rows() -> None:
    """Elements by their places, as a dictionary would have them."""
    said = (Punctuation({"k": OneOf((1,))}), Punctuation({"k": Range(lt=0)}, 7))
    behind = TrailingPunctuation(said, 5)
    assert behind == {5: Punct(said[0]), 6: Punct(said[1])}
    assert 4 not in behind
    assert 7 not in behind
    assert list(behind) == [5, 6]
