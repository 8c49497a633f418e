"""Counted trees: per key a multiset of values in their order, in which the value at any position is found in O(log n).

A tree is a B-tree without rebalancing: a node that is full is split on the way down, one that is empty is freed.  All
nodes stand in one matrix, `FANOUT` rows each: `[weight, child, value codes…]`, the weight being that of all that is
below.  The codes of an inner entry are no larger than those of its child, but for the first one, which nobody reads.

A value is a few codes (`orders` says how they compare: see `_label`), so that rows in the order of one column may carry
another.  Per key there is a record in `trees`: the root (-1: empty), its height, the total weight, the number of
different values, and what belongs to the cursor (`kernels.cursor`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from everwhen.model.loops import loop
from everwhen.operators.kernels.extremes import NONE

FANOUT: Final = 16
DEEPEST: Final = 64
"""No tree is higher."""

ROOT: Final = 0
HEIGHT: Final = 1
TOTAL: Final = 2
DISTINCT: Final = 3
TIME: Final = 4
APPLIED: Final = 5
RECORD: Final = 6

CODES: Final = 2
"""Where the codes begin, in entries and in changes."""

FREE: Final = 0
END: Final = 1
SPARE: Final = 2

PLAIN: Final = 0
FLOAT: Final = 1
UNSIGNED: Final = 2
RANKED: Final = 3


@njit(cache=True, inline="always")
def _label(code, kind, first, ranks):
    """An integer that compares as the value does."""
    if kind == FLOAT:
        return code ^ np.int64(0x7FFFFFFFFFFFFFFF) if code < 0 else code
    if kind == UNSIGNED:
        return code ^ NONE
    if kind == RANKED:
        return ranks[first + code]
    return code


@njit(cache=True, inline="always")
def _compare(nodes, row, wanted, orders):
    """Whether an entry's value is smaller than (-1), equal to (0) or larger than (1) the wanted labels."""
    kinds, first, ranks = orders
    for c in range(len(kinds)):
        label = _label(nodes[row, CODES + c], kinds[c], first[c], ranks)
        if label < wanted[c]:
            return -1
        if label > wanted[c]:
            return 1
    return 0


@njit(cache=True, inline="always")
def _smaller(nodes, row, stop, wanted, orders, equal):
    """The first row from `row` to `stop` whose value is not smaller than the wanted one (`equal`: is larger)."""
    while row < stop:
        mid = (row + stop) >> 1
        if _compare(nodes, mid, wanted, orders) < equal:
            row = mid + 1
        else:
            stop = mid
    return row


@njit(cache=True, inline="always")
def _copy(nodes, to, row):
    for c in range(nodes.shape[1]):
        nodes[to, c] = nodes[row, c]


@njit(cache=True, inline="always")
def _new(nodes, fill, book):
    node = book[FREE]
    if node >= 0:
        book[FREE] = nodes[node * FANOUT, 1]
        book[SPARE] -= 1
    else:
        node = book[END]
        book[END] += 1
    fill[node] = 0
    return node


@njit(cache=True, inline="always")
def _leave(nodes, fill, book, node):
    fill[node] = 0
    nodes[node * FANOUT, 1] = book[FREE]
    book[FREE] = node
    book[SPARE] += 1


@njit(cache=True, inline="always")
def room(forest, k):
    """Whether there are nodes enough for another value of a key."""
    trees, _, fill, book, _, _ = forest
    return book[SPARE] + len(fill) - book[END] > trees[k, HEIGHT] + 3


@njit(cache=True, inline="always")
def _split(nodes, fill, book, node, at, wanted, orders):
    """Split the full child of an entry of `node`, which has room, in two.  Where values come in order, the first stays
    nearly full.  Returns the entry for the wanted value."""
    child = nodes[node * FANOUT + at, 1]
    last = child * FANOUT + FANOUT - 1
    half = FANOUT - 1 if _compare(nodes, last, wanted, orders) < 0 else FANOUT >> 1
    right = _new(nodes, fill, book)
    moved = np.int64(0)
    for i in range(half, FANOUT):
        moved += nodes[child * FANOUT + i, 0]
        _copy(nodes, right * FANOUT + i - half, child * FANOUT + i)
    fill[right] = FANOUT - half
    fill[child] = half
    for i in range(fill[node], at + 1, -1):
        _copy(nodes, node * FANOUT + i, node * FANOUT + i - 1)
    fill[node] += 1
    _copy(nodes, node * FANOUT + at + 1, right * FANOUT)
    nodes[node * FANOUT + at + 1, 0] = moved
    nodes[node * FANOUT + at + 1, 1] = right
    nodes[node * FANOUT + at, 0] -= moved
    return at + 1 if _compare(nodes, right * FANOUT, wanted, orders) <= 0 else at


@loop
def add(forest, orders, k, source, i, weight):
    """Add a signed weight to the value whose codes stand in row `i` of `source`.  Returns whether it could be: what is
    taken out must be there.  There is `room`."""
    trees, nodes, fill, book, wanted, path = forest
    kinds, first, ranks = orders
    for c in range(len(kinds)):
        wanted[c] = _label(source[i, CODES + c], kinds[c], first[c], ranks)
    node = trees[k, ROOT]
    if node < 0:
        node = _new(nodes, fill, book)
        trees[k, ROOT] = node
        trees[k, HEIGHT] = 0
    elif fill[node] == FANOUT:
        root = _new(nodes, fill, book)
        _copy(nodes, root * FANOUT, node * FANOUT)
        nodes[root * FANOUT, 0] = trees[k, TOTAL]
        nodes[root * FANOUT, 1] = node
        fill[root] = 1
        trees[k, ROOT] = node = root
        trees[k, HEIGHT] += 1
    for level in range(trees[k, HEIGHT], 0, -1):
        base = node * FANOUT
        at = _smaller(nodes, base + 1, base + fill[node], wanted, orders, 1) - 1 - base
        if fill[nodes[base + at, 1]] == FANOUT:
            at = _split(nodes, fill, book, node, at, wanted, orders)
        nodes[base + at, 0] += weight
        path[0, level] = node
        path[1, level] = at
        node = nodes[base + at, 1]
    stop = node * FANOUT + fill[node]
    row = _smaller(nodes, node * FANOUT, stop, wanted, orders, 0)
    trees[k, TOTAL] += weight
    if row < stop and _compare(nodes, row, wanted, orders) == 0:
        left = nodes[row, 0] + weight
        nodes[row, 0] = left
        if left == 0:
            _remove(forest, k, node, row)
        return left >= 0
    if weight < 0:
        return False
    for x in range(stop, row, -1):
        _copy(nodes, x, x - 1)
    fill[node] += 1
    trees[k, DISTINCT] += 1
    nodes[row, 0] = weight
    nodes[row, 1] = -1
    for c in range(len(kinds)):
        nodes[row, CODES + c] = source[i, CODES + c]
    return True


@njit(cache=True, inline="always")
def _remove(forest, k, node, row):
    """Take an entry out of a leaf, and what is empty by that off the `path` to it."""
    trees, nodes, fill, book, _, path = forest
    trees[k, DISTINCT] -= 1
    level = 0
    while True:
        fill[node] -= 1
        for x in range(row, node * FANOUT + fill[node]):
            _copy(nodes, x, x + 1)
        if fill[node] > 0:
            break
        _leave(nodes, fill, book, node)
        level += 1
        if level > trees[k, HEIGHT]:
            trees[k, ROOT] = -1
            trees[k, HEIGHT] = 0
            return
        node = path[0, level]
        row = node * FANOUT + path[1, level]
    while trees[k, HEIGHT] > 0 and fill[trees[k, ROOT]] == 1:
        node = trees[k, ROOT]
        trees[k, ROOT] = nodes[node * FANOUT, 1]
        trees[k, HEIGHT] -= 1
        _leave(nodes, fill, book, node)


@njit(cache=True, inline="always")
def at_position(forest, k, position):
    """The row of the value at a position (from 0, each value as often as it weighs), and the position within it."""
    trees, nodes, _, _, _, _ = forest
    row = trees[k, ROOT] * FANOUT
    for level in range(trees[k, HEIGHT], -1, -1):
        while position >= nodes[row, 0]:
            position -= nodes[row, 0]
            row += 1
        if level > 0:
            row = nodes[row, 1] * FANOUT
    return row, position


@njit(cache=True, inline="always")
def position_of(forest, orders, k, code):
    """How many values there are whose first code is smaller than this one."""
    trees, nodes, fill, _, _, _ = forest
    kinds, first, ranks = orders
    wanted = _label(code, kinds[0], first[0], ranks)
    node = trees[k, ROOT]
    position = np.int64(0)
    for level in range(trees[k, HEIGHT], -1, -1):
        row = node * FANOUT
        stop = row + fill[node]
        while row < stop - (level > 0):
            at = row + (level > 0)
            if _label(nodes[at, CODES], kinds[0], first[0], ranks) >= wanted:
                break
            position += nodes[row, 0]
            row += 1
        node = nodes[row, 1] if level > 0 else node
    return position


@loop
def walk(forest, k, out, n, leaving):
    """Copy weights and codes of all values of a key into `out`, from row `n` on (-1: don't); `leaving`: free all nodes.
    Returns the row behind the last."""
    trees, nodes, fill, book, _, path = forest
    level = trees[k, HEIGHT]
    node = trees[k, ROOT]
    if node < 0:
        return n
    path[0, level] = node
    path[1, level] = 0
    while level <= trees[k, HEIGHT]:
        node = path[0, level]
        if level > 0 and path[1, level] < fill[node]:
            path[1, level] += 1
            path[0, level - 1] = nodes[node * FANOUT + path[1, level] - 1, 1]
            path[1, level - 1] = 0
            level -= 1
            continue
        if level == 0 and n >= 0:
            for row in range(node * FANOUT, node * FANOUT + fill[node]):
                for c in range(nodes.shape[1]):
                    out[n, c] = nodes[row, c]
                n += 1
        if leaving:
            _leave(nodes, fill, book, node)
        level += 1
    if leaving:
        trees[k, ROOT] = -1
        trees[k, HEIGHT] = trees[k, TOTAL] = trees[k, DISTINCT] = 0
    return n
