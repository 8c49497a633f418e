"""What all heads share: the hidden column of births, however many columns there are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.operators.loop.head import BIRTH_COLUMN, join_birth, split_birth, with_birth
from everwhen.rows.codec import BITS, RowCodec
from everwhen.rows.interner import Interner
from operators.stepping import codec_of


@pytest.mark.parametrize("columns", [1, 2, BITS - 2, BITS - 1, BITS, BITS + 1, 2 * BITS - 1, 2 * BITS, 2 * BITS + 1])
def test_rows_with_births_and_without(columns: int) -> None:
    """Nulls are bits of words before the columns; the birth may begin a word of its own."""
    pool = Interner()
    codec = codec_of({f"c{j}": pa.int64() for j in range(columns)}, pool)
    sent = RowCodec(with_birth(codec.schema), pool)
    rng = np.random.default_rng(columns)
    values = [[None if rng.random() < 0.3 else int(rng.integers(100)) for _ in range(5)] for _ in range(columns)]
    rows = codec.encode([pa.array(each, pa.int64()) for each in values], 5)
    births = np.array([0, 3, 2, 9, 2**40])
    carried = join_birth(codec, sent, rows, births)
    decoded = [each.to_pylist() for each in sent.decode(carried)]
    assert decoded == [*values, births.tolist()]
    back, same = split_birth(codec, carried)
    assert (back == rows).all() and same.tolist() == births.tolist()
    assert back.flags.c_contiguous and same.flags.c_contiguous


def test_no_query_can_name_the_column() -> None:
    schema = with_birth(codec_of({"a": pa.string()}).schema)
    assert schema.names == ("a", BIRTH_COLUMN) and not BIRTH_COLUMN.isidentifier()
    assert schema.types[1] == pa.int64()
