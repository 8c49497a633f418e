"""The compiled loop of `live_rows`: what each change of a table takes back, and what it says."""

from __future__ import annotations

from everwhen.compiled.njit import loop


@loop
def follow_changes(ids, gone, times, rows, kept, words, starts, known, op, vs, vnew, out):
    """Changes in the order of the log.  `known[id]` is the row of a key and, in its last column, whether it lives; it
    has lived since `starts[id]`.  Writes the elements and returns how many there are, at most two for each change."""
    n = 0
    last = known.shape[1] - 1
    width = last
    for i in range(len(ids)):
        id_ = ids[i]
        t = times[i]
        lives = known[id_, last] == 1
        if lives and t < starts[id_]:
            t = starts[id_]
        if not gone[i]:
            same = lives
            for j in range(kept.shape[1]):
                if kept[i, j]:  # the log leaves out a value that did not change
                    word = j // 63
                    bit = 1 << (j % 63)
                    rows[i, words + j] = known[id_, words + j] if lives else 0
                    rows[i, word] = (rows[i, word] & ~bit) | ((known[id_, word] & bit) if lives else bit)
            for j in range(width):
                if rows[i, j] != known[id_, j]:
                    same = False
                    break
            if same:
                continue
        if lives:
            op[n] = 1
            vs[n] = starts[id_]
            vnew[n] = t
            for j in range(width):
                out[n, j] = known[id_, j]
            n += 1
        if gone[i]:
            known[id_, last] = 0
            continue
        op[n] = 0
        vs[n] = t
        vnew[n] = t
        for j in range(width):
            out[n, j] = rows[i, j]
            known[id_, j] = rows[i, j]
        known[id_, last] = 1
        starts[id_] = t
        n += 1
    return n
