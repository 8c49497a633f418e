"""Promises behind rows: as many as there are words, counted before somebody reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.punctuation.api import FEW, PunctuationTable, read_promises
from everwhen.stream.batch_punctuation import TrailingPunctuation
from everwhen.stream.element import Punct
from promise_strategies import COMMON, patterns


def counted(said: PunctuationTable) -> int:
    assert said._words is None, "nobody has read them"
    return len(said)


@given(st.data())
@settings(max_examples=300)
def test_words_are_counted(data: st.DataObject) -> None:
    """Before words are made there are as many as afterwards, of whatever form."""
    types = data.draw(st.lists(st.sampled_from(COMMON), min_size=1, max_size=2))
    schema = Schema.of([(f"c{i}", type_) for i, type_ in enumerate(types)])
    column = st.sampled_from(list(zip(schema.names, schema.types, strict=True)))
    one = column.flatmap(lambda bound: patterns(bound[1]).map(lambda pattern: {bound[0]: pattern}))
    said = data.draw(st.lists(st.builds(Punctuation, one, st.sampled_from([3, 5, INF])), max_size=6))
    read = read_promises(said, schema)
    assert counted(read) == len(read.words)


@pytest.mark.parametrize("n", [1, FEW - 1, FEW, 3 * FEW])
def test_many_words(n: int) -> None:
    """Many constants in a row are said as a range, and many ranges that touch as one."""
    schema = Schema.of([("k", pa.int64())])
    for pattern in (lambda i: OneOf((i,)), lambda i: Range(ge=2 * i, lt=2 * i + 2)):
        read = read_promises([Punctuation({"k": pattern(i)}) for i in range(n)], schema)
        assert counted(read) == len(read.words)


def test_behind_rows() -> None:
    """Elements by their places, as a dictionary would have them."""
    said = (Punctuation({"k": OneOf((1,))}), Punctuation({"k": Range(lt=0)}, 7))
    behind = TrailingPunctuation(said, 5)
    assert behind == {5: Punct(said[0]), 6: Punct(said[1])}
    assert 4 not in behind
    assert 7 not in behind
    assert list(behind) == [5, 6]
