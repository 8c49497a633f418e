"""Pieces of a sweep as changes: neighbours that say the same are one."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def said_and_to_say(head, old, new):
    """What is taken back, then what is said: records key, lo, hi, weight, and the lanes of each."""
    n = len(head)
    width = old.shape[1]
    out = np.empty((2 * n, 4), np.int64)
    lanes = np.empty((2 * n, width), np.int64)
    count = 0
    for side in range(2):
        source = old if side == 0 else new
        bit = 1 + side
        weight = -1 if side == 0 else 1
        first = count
        for i in range(n):
            if head[i, 3] & bit == 0:
                continue
            if count > first and out[count - 1, 0] == head[i, 0] and out[count - 1, 2] == head[i, 1]:
                same = True
                for c in range(width):
                    if lanes[count - 1, c] != source[i, c]:
                        same = False
                        break
                if same:
                    out[count - 1, 2] = head[i, 2]
                    continue
            out[count, 0] = head[i, 0]
            out[count, 1] = head[i, 1]
            out[count, 2] = head[i, 2]
            out[count, 3] = weight
            for c in range(width):
                lanes[count, c] = source[i, c]
            count += 1
    return out[:count], lanes[:count]


@njit(cache=True)
def aggregate_rows(head, old, new, keys, key_words, words, key_columns, value_lane, valid_lane):
    """As `said_and_to_say`, with coded rows, for aggregates that are a lane each (null where the valid lane is zero).

    Returns keys, starts, ends, weights and rows.
    """
    n = len(head)
    width = old.shape[1]
    n_values = len(value_lane)
    times = np.empty((4, 2 * n), np.int64)
    rows = np.empty((2 * n, words + key_columns + n_values), np.int64)
    count = 0
    for side in range(2):
        source = old if side == 0 else new
        first = count
        before = -1
        for i in range(n):
            if head[i, 3] & (1 + side) == 0:
                continue
            k = head[i, 0]
            if count > first and head[before, 0] == k and times[1, count - 1] == head[i, 1]:
                same = True
                for c in range(width):
                    if source[before, c] != source[i, c]:
                        same = False
                        break
                if same:
                    times[1, count - 1] = head[i, 2]
                    continue
            before = i
            times[0, count] = head[i, 1]
            times[1, count] = head[i, 2]
            times[2, count] = -1 if side == 0 else 1
            times[3, count] = k
            for c in range(words):
                rows[count, c] = keys[k, c] if c < key_words else 0
            for c in range(key_columns):
                rows[count, words + c] = keys[k, key_words + c]
            for c in range(n_values):
                at = words + key_columns + c
                if valid_lane[c] < 0 or source[i, valid_lane[c]] > 0:
                    rows[count, at] = source[i, value_lane[c]]
                else:
                    rows[count, at] = 0
                    column = key_columns + c
                    rows[count, column // 63] |= np.int64(1) << np.int64(column % 63)
            count += 1
    return times[3, :count], times[0, :count], times[1, :count], times[2, :count], rows[:count]


@njit(cache=True)
def weighted(head, weight):
    """Pieces with the change of a multiplicity: records key, lo, hi, weight (never zero)."""
    out = np.empty((len(head), 4), np.int64)
    count = 0
    for i in range(len(head)):
        if weight[i] == 0:
            continue
        if (
            count > 0
            and out[count - 1, 0] == head[i, 0]
            and out[count - 1, 2] == head[i, 1]
            and out[count - 1, 3] == weight[i]
        ):
            out[count - 1, 2] = head[i, 2]
            continue
        out[count, 0] = head[i, 0]
        out[count, 1] = head[i, 1]
        out[count, 2] = head[i, 2]
        out[count, 3] = weight[i]
        count += 1
    return out[:count]
