"""Whole columns compared by position: values as numbers in their order, rows as numbers that are equal where they are.

Used by punctuators and sort.  A null stands outside every order; as part of a row it is a value like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.values.order import Kind, order_of, plain


def joined(*columns: pa.Array) -> pa.Array:
    """One column behind the other."""
    some = [plain(column) for column in columns if len(column)]
    return pa.concat_arrays(some) if some else plain(columns[0])


def comparable(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in the order of the values, and where there is none.

    The numbers are the type's ranks (`values/order.py`) where it has any, else ranks among the values of this column.
    """
    column = plain(column)
    order = order_of(column.type)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if order.kind is Kind.RANK:
        return order.ranks(column), missing
    coded = column.dictionary_encode()
    if len(coded.dictionary) == 0:
        return np.zeros(len(column), np.int64), missing
    sorted_ = pc.sort_indices(coded.dictionary).to_numpy(zero_copy_only=False)
    rank = np.empty(len(sorted_), np.int64)
    rank[sorted_] = np.arange(len(sorted_))
    return rank[coded.indices.fill_null(0).to_numpy(zero_copy_only=False)], missing


def numbered(columns: Sequence[pa.Array], length: int) -> np.ndarray:
    """A number for each row, in the order of the rows, nulls last; equal rows have the same, without gaps."""
    ids = np.zeros(length, np.int64)
    for column in columns:
        ranks, missing = comparable(column)
        known, codes = np.unique(ranks, return_inverse=True)
        codes = np.where(missing, len(known), codes.reshape(length))
        _, ids = np.unique(ids * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
        ids = ids.reshape(length)
    return ids


def ranked(columns: Sequence[pa.Array], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows compared column by column, nulls last, as numbers, and where a row has a null in it.

    The number of a null alone means nothing.
    """
    if len(columns) == 1:
        return comparable(columns[0])
    missing = np.zeros(length, np.bool_)
    for column in columns:
        missing |= plain(column).is_null().to_numpy(zero_copy_only=False)
    return numbered(columns, length), missing
