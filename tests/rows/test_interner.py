"""Strings to codes and back: short ones, long ones, empty ones, and nulls behind them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import _NEAR, Interner, TextDictionary, validity

SOME = settings(max_examples=60)
TEXT = st.text(alphabet="ab\0é", max_size=24)


@SOME
@given(
    batches=st.lists(st.lists(TEXT | st.none(), max_size=40), max_size=6),
    nulls=st.integers(0, 9),
    skip=st.integers(0, 3),
)
def test_codes_are_equal_exactly_for_equal_strings(batches: list[list[str | None]], nulls: int, skip: int) -> None:
    dictionary = Interner().dictionary(pa.string())
    known: dict[str, int] = {}
    for given_ in batches:
        array = pa.array(given_, pa.string()).slice(min(skip, len(given_)))
        values = array.to_pylist()
        codes = dictionary.encode(array)
        for value, code in zip(values, codes.tolist(), strict=True):
            if value is not None:
                assert known.setdefault(value, code) == code
        assert len(set(known.values())) == len(known)
        valid = np.array([value is not None for value in values], np.bool_)
        found = dictionary.decode(codes, valid, nulls)
        found.validate(full=True)
        assert found.to_pylist() == values + [None] * nulls


def test_a_table_too_large_for_the_cache_agrees() -> None:
    """With and without asking for memory ahead, short strings only and with long ones among them."""
    rng = random.Random(5)
    dictionary = TextDictionary(pa.string())
    names = [f"{rng.randrange(10**9)}" * rng.choice([1, 1, 2]) for _ in range(9_000)]
    array = pa.array(names)
    first = dictionary.encode(array)
    assert len(dictionary._slots) > _NEAR
    assert (dictionary.encode(array) == first).all() and len(dictionary) == len(set(names))
    assert dictionary.decode(first, None).equals(array)
    used = np.zeros(len(dictionary), np.bool_)
    used[first[:50]] = True
    kept = np.unique(first[:50])
    assert dictionary.keep(used)[kept].tolist() == list(range(len(kept)))
    assert [dictionary.value(i) for i in range(len(kept))] == list(dict.fromkeys(names[:50]))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16])
@pytest.mark.parametrize("nulls", [0, 1, 8, 9])
def test_bits_of_validity(n: int, nulls: int) -> None:
    data = pa.py_buffer(np.zeros(n + nulls, np.int8))
    whole = pa.Array.from_buffers(pa.int8(), n + nulls, [validity(None, n, nulls), data])
    assert whole.is_valid().to_pylist() == [True] * n + [False] * nulls
    some = np.arange(n) % 3 == 0
    part = pa.Array.from_buffers(pa.int8(), n + nulls, [validity(some, n, nulls), data])
    assert part.is_valid().to_pylist() == some.tolist() + [False] * nulls


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int8(), [1, -2]),
        (pa.uint64(), [2**64 - 1, 3]),
        (pa.float32(), [1.5, -0.25]),
        (pa.bool_(), [True, False]),
        (pa.timestamp("us"), [1, 2]),
        (pa.string(), ["", "a longer string than sixteen bytes"]),
        (pa.list_(pa.int8()), [[1], []]),
        (pa.null(), [None]),
    ],
    ids=str,
)
def test_rows_with_nulls_behind_them(type_: pa.DataType, values: list[object]) -> None:
    codec = RowCodec(Schema.of([("a", type_)]), Interner())
    for given_ in (values, [*values, None], [None, *values * 9]):
        array = pa.array(given_, type_)
        rows = codec.encode([array], len(array))
        for nulls in (0, 1, 8):
            (found,) = codec.decode(rows, nulls)
            found.validate(full=True)
            assert found.to_pylist() == array.to_pylist() + [None] * nulls
