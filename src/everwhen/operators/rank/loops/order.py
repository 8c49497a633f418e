"""The order of rows: comparing records column by column."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop

# how the codes of a column compare
SIGNED: Final = 0
FLOATS: Final = 1
UNSIGNED: Final = 2
TEXT: Final = 3
BINARY: Final = 4
RANKED: Final = 5
"""This and more: by the ranks of a type."""

_LOWEST: Final = np.int64(-(2**63))
_REST: Final = np.int64(2**63 - 1)


class Order(NamedTuple):
    """How records are ordered."""

    columns: np.ndarray
    """Per column its word, the word and the bit of its null, how it compares, whether it falls, whether nulls come
    first."""
    ranks: np.ndarray
    ranks_at: np.ndarray
    """Per type that is compared by rank, where its ranks begin."""
    text_starts: np.ndarray
    text: np.ndarray
    binary_starts: np.ndarray
    binary: np.ndarray


@loop
def _bytes(starts, data, a, b):
    """-1, 0 or 1 for two byte strings by their codes."""
    i = starts[a]
    j = starts[b]
    stop = i + min(starts[a + 1] - i, starts[b + 1] - j)
    while i < stop:
        if data[i] != data[j]:
            return -1 if data[i] < data[j] else 1
        i += 1
        j += 1
    one = starts[a + 1] - starts[a]
    two = starts[b + 1] - starts[b]
    return 0 if one == two else -1 if one < two else 1


@loop
def compare_column(one, i, two, j, order, c):
    """-1, 0 or 1 for two records by one column of an order."""
    columns = order.columns
    a_null = (one[i, columns[c, 1]] >> columns[c, 2]) & 1
    b_null = (two[j, columns[c, 1]] >> columns[c, 2]) & 1
    if a_null != b_null:
        return -1 if (a_null == 1) == (columns[c, 5] == 1) else 1
    a = one[i, columns[c, 0]]
    b = two[j, columns[c, 0]]
    if a == b:
        return 0
    kind = columns[c, 3]
    if kind == TEXT:
        found = _bytes(order.text_starts, order.text, a, b)
    elif kind == BINARY:
        found = _bytes(order.binary_starts, order.binary, a, b)
    else:
        if kind == FLOATS:
            a = a ^ _REST if a < 0 else a
            b = b ^ _REST if b < 0 else b
        elif kind == UNSIGNED:
            a = a ^ _LOWEST
            b = b ^ _LOWEST
        elif kind >= RANKED:
            a = order.ranks[order.ranks_at[kind - RANKED] + a]
            b = order.ranks[order.ranks_at[kind - RANKED] + b]
        found = -1 if a < b else 1
    return -found if columns[c, 4] == 1 else found


@loop
def compare(one, i, two, j, order, upto):
    """-1, 0 or 1 for two records by the first `upto` columns of an order."""
    for c in range(upto):
        found = compare_column(one, i, two, j, order, c)
        if found != 0:
            return found
    return 0
