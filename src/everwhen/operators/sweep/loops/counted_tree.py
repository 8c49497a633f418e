"""Counted trees: per key a multiset of values in their order, in which the value at any position is found in O(log n).

A tree is a B-tree without rebalancing: a node that is full is split on the way down, one that is empty is freed.  A
node has `FANOUT` rows in each of three arrays: labels, weight, child; the weight is that of all that is below.  The
labels of an inner entry are no larger than those of its child, but for the first one, which nobody reads.

A value is a few labels, integers that compare as the values do, one after the other, so that rows in the order of one
column may carry another.  Per key there is a record in `trees`: the root (-1: empty), its height, the total weight, the
number of different values, and what belongs to the cursor (`kernels.cursor`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.njit import loop

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

LABELS: Final = 2
"""Where the labels begin, in entries and in changes."""

FREE: Final = 0
END: Final = 1
SPARE: Final = 2


@loop
def _compare(labels, row, source, i):
    """Whether an entry's value is smaller than (-1), equal to (0) or larger than (1) that in row `i` of `source`."""
    if labels[row, 0] != source[i, LABELS]:
        return -1 if labels[row, 0] < source[i, LABELS] else 1
    for c in range(1, labels.shape[1]):
        if labels[row, c] != source[i, LABELS + c]:
            return -1 if labels[row, c] < source[i, LABELS + c] else 1
    return 0


@loop
def _smaller(labels, row, stop, source, i, equal):
    """The first row from `row` to `stop` whose value is not smaller than the other one (`equal`: is larger)."""
    if labels.shape[1] == 1:  # without branches, because which way they go can't be foretold
        label = source[i, LABELS]
        found = row
        for x in range(row, stop):
            found += (labels[x, 0] < label) | ((labels[x, 0] == label) & (equal > 0))
        return found
    while row < stop:
        mid = (row + stop) >> 1
        if _compare(labels, mid, source, i) < equal:
            row = mid + 1
        else:
            stop = mid
    return row


@loop
def _copy(labels, weights, children, to, row):
    weights[to] = weights[row]
    children[to] = children[row]
    for c in range(labels.shape[1]):
        labels[to, c] = labels[row, c]


@loop
def _new(children, fill, book):
    node = book[FREE]
    if node >= 0:
        book[FREE] = children[node * FANOUT]
        book[SPARE] -= 1
    else:
        node = book[END]
        book[END] += 1
    fill[node] = 0
    return node


@loop
def _leave(children, fill, book, node):
    fill[node] = 0
    children[node * FANOUT] = book[FREE]
    book[FREE] = node
    book[SPARE] += 1


@loop
def room(forest, k):
    """Whether there are nodes enough for another value of a key."""
    trees, _, _, _, fill, book, _ = forest
    return book[SPARE] + len(fill) - book[END] > trees[k, HEIGHT] + 3


@loop
def _split(forest, node, at, source, i):
    """Split the full child of an entry of `node`, which has room, in two.  Where values come in order, the first stays
    nearly full.  Returns the entry for the wanted value."""
    _, labels, weights, children, fill, book, _ = forest
    child = children[node * FANOUT + at]
    last = child * FANOUT + FANOUT - 1
    half = FANOUT - 1 if _compare(labels, last, source, i) < 0 else FANOUT >> 1
    right = _new(children, fill, book)
    moved = np.int64(0)
    for x in range(half, FANOUT):
        moved += weights[child * FANOUT + x]
        _copy(labels, weights, children, right * FANOUT + x - half, child * FANOUT + x)
    fill[right] = FANOUT - half
    fill[child] = half
    for x in range(fill[node], at + 1, -1):
        _copy(labels, weights, children, node * FANOUT + x, node * FANOUT + x - 1)
    fill[node] += 1
    _copy(labels, weights, children, node * FANOUT + at + 1, right * FANOUT)
    weights[node * FANOUT + at + 1] = moved
    children[node * FANOUT + at + 1] = right
    weights[node * FANOUT + at] -= moved
    return at + 1 if _compare(labels, right * FANOUT, source, i) <= 0 else at


@loop
def add(forest, k, source, i, weight):
    """Add a signed weight to the value whose labels stand in row `i` of `source`.  Returns whether it could be: what is
    taken out must be there.  There is `room`."""
    trees, labels, weights, children, fill, book, path = forest
    node = trees[k, ROOT]
    if node < 0:
        node = _new(children, fill, book)
        trees[k, ROOT] = node
        trees[k, HEIGHT] = 0
    elif fill[node] == FANOUT:
        root = _new(children, fill, book)
        _copy(labels, weights, children, root * FANOUT, node * FANOUT)
        weights[root * FANOUT] = trees[k, TOTAL]
        children[root * FANOUT] = node
        fill[root] = 1
        trees[k, ROOT] = node = root
        trees[k, HEIGHT] += 1
    for level in range(trees[k, HEIGHT], 0, -1):
        base = node * FANOUT
        at = _smaller(labels, base + 1, base + fill[node], source, i, 1) - 1 - base
        if fill[children[base + at]] == FANOUT:
            at = _split(forest, node, at, source, i)
        weights[base + at] += weight
        path[0, level] = node
        path[1, level] = at
        node = children[base + at]
    stop = node * FANOUT + fill[node]
    row = _smaller(labels, node * FANOUT, stop, source, i, 0)
    trees[k, TOTAL] += weight
    if row < stop and _compare(labels, row, source, i) == 0:
        left = weights[row] + weight
        weights[row] = left
        if left == 0:
            _remove(forest, k, node, row)
        return left >= 0
    if weight < 0:
        return False
    for x in range(stop, row, -1):
        _copy(labels, weights, children, x, x - 1)
    fill[node] += 1
    trees[k, DISTINCT] += 1
    weights[row] = weight
    children[row] = -1
    for c in range(labels.shape[1]):
        labels[row, c] = source[i, LABELS + c]
    return True


@loop
def _remove(forest, k, node, row):
    """Take an entry out of a leaf, and what is empty by that off the `path` to it."""
    trees, labels, weights, children, fill, book, path = forest
    trees[k, DISTINCT] -= 1
    level = 0
    while True:
        fill[node] -= 1
        for x in range(row, node * FANOUT + fill[node]):
            _copy(labels, weights, children, x, x + 1)
        if fill[node] > 0:
            break
        _leave(children, fill, book, node)
        level += 1
        if level > trees[k, HEIGHT]:
            trees[k, ROOT] = -1
            trees[k, HEIGHT] = 0
            return
        node = path[0, level]
        row = node * FANOUT + path[1, level]
    while trees[k, HEIGHT] > 0 and fill[trees[k, ROOT]] == 1:
        node = trees[k, ROOT]
        trees[k, ROOT] = children[node * FANOUT]
        trees[k, HEIGHT] -= 1
        _leave(children, fill, book, node)


@loop
def at_position(forest, k, position):
    """The row of the value at a position (from 0, each value as often as it weighs), and the position within it."""
    trees, _, weights, children, _, _, _ = forest
    row = trees[k, ROOT] * FANOUT
    for level in range(trees[k, HEIGHT], -1, -1):
        while position >= weights[row]:
            position -= weights[row]
            row += 1
        if level > 0:
            row = children[row] * FANOUT
    return row, position


@loop
def position_of(forest, k, label):
    """How many values there are whose first label is smaller than this one."""
    trees, labels, weights, children, fill, _, _ = forest
    node = trees[k, ROOT]
    position = np.int64(0)
    for level in range(trees[k, HEIGHT], -1, -1):
        row = node * FANOUT
        stop = row + fill[node]
        while row < stop - (level > 0):
            if labels[row + (level > 0), 0] >= label:
                break
            position += weights[row]
            row += 1
        node = children[row] if level > 0 else node
    return position


@loop
def walk(forest, k, out, n, leaving):
    """Copy weights and labels of all values of a key into `out`, from row `n` on (-1: don't); `leaving`: free
    all nodes.  Returns the row behind the last."""
    trees, labels, weights, children, fill, book, path = forest
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
            path[0, level - 1] = children[node * FANOUT + path[1, level] - 1]
            path[1, level - 1] = 0
            level -= 1
            continue
        if level == 0 and n >= 0:
            for row in range(node * FANOUT, node * FANOUT + fill[node]):
                out[n, 0] = weights[row]
                for c in range(labels.shape[1]):
                    out[n, LABELS + c] = labels[row, c]
                n += 1
        if leaving:
            _leave(children, fill, book, node)
        level += 1
    if leaving:
        trees[k, ROOT] = -1
        trees[k, HEIGHT] = trees[k, TOTAL] = trees[k, DISTINCT] = 0
    return n
