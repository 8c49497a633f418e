"""Runs: per key a sorted run of records that loses its head and grows at its tail, in one flat pool.

Each key owns a stretch of the pool and keeps its run somewhere inside it.  Dropping from the front moves the start;
appending uses the room behind; when that is used up the run slides back to the front of its stretch, or moves to a
bigger one if it is too long for that.  Stretches come in classes of a size, and one that is left is used again.  So a
key's records stay where they are, and a step touches the memory of the keys that it changes and no other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.arrays import grown

FIRST: Final = 0
ROOM: Final = 1
START: Final = 2
LENGTH: Final = 3
SPARE: Final = 120
"""Where `free` counts the records of all stretches that are left; before it stands the first of each class."""
_FEW: Final = 1 << 15


@njit(cache=True, inline="always")
def copy_row(to, i, source, j, width):
    """Copy a record of two words or more.  Most are short, and a loop over a few words costs more than the words."""
    if width == 2:
        to[i, 0] = source[j, 0]
        to[i, 1] = source[j, 1]
    elif width == 3:
        to[i, 0] = source[j, 0]
        to[i, 1] = source[j, 1]
        to[i, 2] = source[j, 2]
    else:
        to[i, 0] = source[j, 0]
        to[i, 1] = source[j, 1]
        to[i, 2] = source[j, 2]
        to[i, 3] = source[j, 3]
        for c in range(4, width):
            to[i, c] = source[j, c]


@njit(cache=True, inline="always")
def _class_of(size):
    """The class of stretches that have room for `size` records: 8, 12, 16, 24, 32, …; and that room."""
    c = 0
    room = 8
    while room < size:
        room += room >> 1 if c & 1 == 0 else room // 3
        c += 1
    return c, room


@njit(cache=True, inline="always")
def fits(place, k, more):
    """Whether there is room for so many records behind a run."""
    return place[k, START] + place[k, LENGTH] + more <= place[k, FIRST] + place[k, ROOM]


@njit(cache=True, inline="always")
def _slides(place, k, more):
    """Whether there is room enough for the run if it stands at the front of its stretch, and not only just."""
    return 4 * (place[k, LENGTH] + more) <= 3 * place[k, ROOM]


@njit(cache=True, inline="always")
def _wanted(size):
    return size + (size >> 1) + 2


@njit(cache=True, inline="always")
def growth(place, k, more):
    """By how much the end of the pool may move when `make_room` is asked for so many records more."""
    if fits(place, k, more) or _slides(place, k, more):
        return 0
    return 2 * max(_wanted(place[k, LENGTH] + more), 2 * place[k, ROOM]) + 8


@njit(cache=True, inline="always")
def drop_head(place, pool, k, column, t):
    """Drop the first records of a run, while a column is no more than `t`."""
    s = place[k, START]
    n = place[k, LENGTH]
    while n > 0 and pool[s, column] <= t:
        s += 1
        n -= 1
    place[k, START] = s
    place[k, LENGTH] = n


@njit(cache=True, inline="always")
def first_after(pool, s, n, column, t):
    """The first of `n` records from `s` on, which stand in the order of a column, where that is more than `t`."""
    a = s
    b = s + n
    while a < b:
        mid = (a + b) >> 1
        if pool[mid, column] <= t:
            a = mid + 1
        else:
            b = mid
    return a


@loop
def release(place, pool, free, k):
    """Leave the stretch of a run: it is linked to others of its class in `free`, for the next that wants such a one."""
    if place[k, ROOM] > 0:
        c, room = _class_of(place[k, ROOM])
        pool[place[k, FIRST], 0] = free[c]
        free[c] = place[k, FIRST]
        free[SPARE] += room
        place[k, ROOM] = 0


@loop
def make_room(place, pool, free, end, k, more):
    """Let the run of `k` have room for `more` records behind it.  Returns the end of the pool, which is big enough."""
    if fits(place, k, more):
        return end
    s = place[k, START]
    n = place[k, LENGTH]
    if _slides(place, k, more):
        to = place[k, FIRST]
        for i in range(n):
            copy_row(pool, to + i, pool, s + i, pool.shape[1])
    else:
        # twice as much as before: of what is left on the way few are used again if all runs grow
        c, room = _class_of(max(_wanted(n + more), 2 * place[k, ROOM]))
        to = free[c]
        if to >= 0:
            free[c] = pool[to, 0]
            free[SPARE] -= room
        else:
            to = end
            end += room
        for i in range(n):
            copy_row(pool, to + i, pool, s + i, pool.shape[1])
        release(place, pool, free, k)
        place[k, FIRST] = to
        place[k, ROOM] = room
    place[k, START] = to
    return end


@loop
def replace(runs, end, k, to, at, rest, kept):
    """Let the first records of `rest` stand for those from `to` to `at` in the run of `k`."""
    place, pool, free, width = runs.place, runs.pool, runs.free, runs.pool.shape[1]
    more = kept - (at - to)
    if more > 0:
        s = place[k, START]
        end = make_room(place, pool, free, end, k, more)
        to += place[k, START] - s
        at += place[k, START] - s
    stop = place[k, START] + place[k, LENGTH]
    if more > 0:
        for x in range(stop - 1, at - 1, -1):
            copy_row(pool, x + more, pool, x, width)
    elif more < 0:
        for x in range(at, stop):
            copy_row(pool, x + more, pool, x, width)
    for x in range(kept):
        copy_row(pool, to + x, rest, x, width)
    place[k, LENGTH] += more
    return end


@loop
def needed(place, keys, offsets):
    """What `make_room` may need for so many more records of each key; how many records the keys have in all, and how
    many one of them may come to have."""
    room = 0
    total = 0
    longest = 0
    for i in range(len(keys)):
        k = keys[i]
        if i + 16 < len(keys):
            prefetch(place, keys[i + 16])
        more = 1 + offsets[i + 1] - offsets[i] if len(offsets) else 1
        n = place[k, LENGTH]
        room += growth(place, k, more)
        total += n
        longest = max(longest, n + more)
    return room, total, longest


@loop
def _trim(place):
    """Give each run the stretch that it needs.  Returns how much they have in all."""
    size = 0
    for k in range(len(place)):
        place[k, ROOM] = _class_of(_wanted(place[k, LENGTH]))[1] if place[k, LENGTH] > 0 else 0
        size += place[k, ROOM]
    return size


@loop
def _move(place, pool, out):
    """Copy all runs to another pool, in the order of keys.  Returns its end."""
    width = pool.shape[1]
    end = 0
    for k in range(len(place)):
        n = place[k, LENGTH]
        s = place[k, START]
        place[k, FIRST] = end
        place[k, START] = end
        for i in range(n):
            copy_row(out, end + i, pool, s + i, width)
        end += place[k, ROOM]
    return end


@loop
def _release(place, pool, free, ids):
    for i in range(len(ids)):
        place[ids[i], START] = place[ids[i], LENGTH] = 0
        release(place, pool, free, ids[i])
        place[ids[i], FIRST] = 0


@loop
def _drop_heads(place, pool, free, column, t):
    for k in range(len(place)):
        if k + 16 < len(place) and place[k + 16, LENGTH] > 0:
            prefetch(pool, place[k + 16, START])
        if place[k, LENGTH] > 0:
            drop_head(place, pool, k, column, t)
            if place[k, LENGTH] == 0:
                release(place, pool, free, k)
                place[k, FIRST] = place[k, START] = 0


@loop
def _forget(place, ids):
    for i in range(len(ids)):
        if ids[i] < len(place):
            place[ids[i], LENGTH] = 0


@loop
def _fill(place, pool, free, end, ids, offsets, records):
    """Give records to ids that have none.  Returns the end of the pool."""
    for i in range(len(ids)):
        k = ids[i]
        n = offsets[i + 1] - offsets[i]
        end = make_room(place, pool, free, end, k, n)
        for j in range(n):
            copy_row(pool, place[k, START] + j, records, offsets[i] + j, pool.shape[1])
        place[k, LENGTH] = n
    return end


@njit(cache=True)
def gathered(place, pool, ids):
    """The records of ids, one run after the other, and the offsets at which each begins."""
    offsets = np.zeros(len(ids) + 1, np.int64)
    for i in range(len(ids)):
        offsets[i + 1] = offsets[i] + place[ids[i], LENGTH]
    out = np.empty((offsets[len(ids)], pool.shape[1]), pool.dtype)
    for i in range(len(ids)):
        s = place[ids[i], START]
        for j in range(place[ids[i], LENGTH]):
            out[offsets[i] + j] = pool[s + j]
    return out, offsets


def resized(array: np.ndarray, size: int, used: int) -> np.ndarray:
    """A copy of the first `used` rows with room for at least `size`.

    It is eight times as long as before: memory that is not written to costs nothing, a copy does.
    """
    out = np.empty((max(size, 8 * len(array)), array.shape[1]), np.int64)
    out[:used] = array[:used]
    return out


class RunArrays(NamedTuple):
    """The arrays of `Runs`, as loops take them; they hold until room is made."""

    place: np.ndarray
    """Per id the first record of its stretch, the room there, where its run starts, and how long that is."""
    pool: np.ndarray
    """The records."""
    free: np.ndarray
    """Per class of stretches one that nobody wants, the first of a chain; and how many records they all have."""


class Runs:
    """Per id a run of records of `width` integers.  Kernels change `place`, `pool`, `free` and `end`."""

    def __init__(self, width: int) -> None:
        self.place = np.zeros((64, 4), np.int64)
        self.pool = np.zeros((256, width), np.int64)
        self.free = _no_stretches()
        self.end = 0

    @property
    def arrays(self) -> RunArrays:
        return RunArrays(self.place, self.pool, self.free)

    def grow(self, capacity: int) -> None:
        """Make room for ids below `capacity`."""
        if capacity > len(self.place):
            self.place = grown(self.place, max(capacity, 2 * len(self.place)), 0)

    @property
    def crowded(self) -> bool:
        """Whether more than half of what is used are stretches that nobody wants."""
        return bool(2 * self.free[SPARE] > max(_FEW, self.end))

    def tidy(self) -> None:
        """Close the gaps."""
        size = _trim(self.place)
        pool = np.zeros((size + size // 2 + 256, self.pool.shape[1]), np.int64)
        self.end = _move(self.place, self.pool, pool)
        self.pool, self.free = pool, _no_stretches()

    def reserve(self, records: int) -> None:
        """Make room for so many records at the end of the pool.

        Kernels never do this themselves: arrays that don't change in a loop need no reference counts, and memory from
        NumPy comes in large pages.
        """
        if self.end + records > len(self.pool):
            self.pool = resized(self.pool, self.end + records, self.end)

    def release(self, ids: np.ndarray) -> None:
        """Leave the stretches of ids without records."""
        _release(self.place, self.pool, self.free, ids)

    def drop_heads(self, column: int, t: int) -> None:
        """Drop the first records of each run, while a column is no more than `t`; leave stretches without records."""
        _drop_heads(self.place, self.pool, self.free, column, t)

    def forget(self, ids: np.ndarray) -> None:
        """Forget all records of ids, which keep their stretches; some may never have had any."""
        _forget(self.place, ids)

    def clear(self) -> None:
        """Forget all records of all ids."""
        self.place[:] = 0
        self.end = 0
        self.free = _no_stretches()

    @property
    def records(self) -> np.ndarray:
        """All records, key by key, for looking at them."""
        return self.gather(np.flatnonzero(self.place[:, LENGTH]))[0]

    def gather(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of ids, one run after the other, and the offsets at which each begins."""
        found: tuple[np.ndarray, np.ndarray] = gathered(self.place, self.pool, ids)
        return found

    def put(self, ids: np.ndarray, offsets: np.ndarray, records: np.ndarray) -> None:
        """Give records to ids that have none."""
        self.grow(int(ids.max(initial=-1)) + 1)
        self.reserve(needed(self.place, ids, offsets)[0])
        self.end = _fill(self.place, self.pool, self.free, self.end, ids, offsets, records)

    def insert(self, column: int, source: int) -> None:
        """Another word in every record: at `column`, a copy of that at `source` (-1: zero)."""
        self.pool = np.insert(self.pool, column, self.pool[:, source] if source >= 0 else 0, axis=1)

    @property
    def nbytes(self) -> int:
        return self.end * self.pool.shape[1] * 8 + self.place.nbytes


def _no_stretches() -> np.ndarray:
    free = np.full(SPARE + 1, -1, np.int64)
    free[SPARE] = 0
    return free
