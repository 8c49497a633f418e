"""Tables of other packages as pieces of Arrow."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from everwhen.errors import InputError
from everwhen.tables.arrow import is_table, names_in, pieces

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", None], "c": [0.5, None, 1.5]})


def wanted(name: str) -> bool:
    return name in ("a", "b")


@pytest.mark.parametrize(
    "given",
    [TABLE, TABLE.to_reader(), TABLE.combine_chunks().to_batches()[0], TABLE.to_pandas(), pl.from_arrow(TABLE)],
    ids=["table", "reader", "batch", "pandas", "polars"],
)
def test_pieces_have_the_wanted_columns_and_at_most_so_many_rows(given: object) -> None:
    found = list(pieces(given, wanted, 2, "T"))
    assert [piece.num_rows for piece in found] == [2, 1]
    assert [row for piece in found for row in piece.to_pylist()] == TABLE.select(["a", "b"]).to_pylist()


def test_what_is_a_table() -> None:
    assert all(map(is_table, (TABLE, pd.DataFrame(), pl.DataFrame(), pl.LazyFrame(), TABLE.to_batches()[0])))
    assert not any(map(is_table, ([TABLE], {"a": [1]}, "a.csv", pd.DataFrame, 5)))
    assert names_in(pd.DataFrame({"a": [1], 5: [2]})) == ["a", "5"] and names_in(pl.LazyFrame({"a": [1]})) == ["a"]


def test_columns_of_pandas_that_have_no_type_or_the_same_name() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for frame in (twice, pd.DataFrame({"a": [1, "x"]})):
        with pytest.raises(InputError, match="T: the frame cannot be read: "):
            list(pieces(frame, wanted, 10, "T"))
