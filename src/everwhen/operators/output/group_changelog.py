"""The changelog encoder of groups: the sink's memory for answers made of groups with one row each at any instant.

Such an answer needs no search by row: the group says which events a segment may concern, and time says which of these
it is.  Kept are, per group, the lifetimes said whose end is after the CTI, disjoint and in the order of time: a record
is `[vs, ve]`; rows come with the segments.  What has ended is dropped when its group is touched, or in bulk when as
much has been said as there is memory for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from everwhen.compiled.njit import loop, loop_of, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers.run_pool import (
    LENGTH,
    ROOM,
    START,
    RunArrays,
    Runs,
    copy_row,
    drop_head,
    first_after,
    fits,
    growth,
    make_room,
    replace,
)
from everwhen.containers.sort_by_time import by_time
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.errors import EverwhenError
from everwhen.operators.contract import StateSize
from everwhen.rows import restored
from everwhen.rows.changes import Changes, first_met, no_changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ElementBatch, coded_elements

VS: Final = 0
VE: Final = 1
_FEW: Final = 1 << 15
_NOTHING: Final = np.empty(0, np.int64)


class GroupChangelogEncoder:
    """Changes of groups and a promise in, elements out, the CTI last.

    `ordered`: elements of a step come in the order of their sync times.
    """

    def __init__(self, codec: RowCodec, ordered: bool = True) -> None:
        self.codec = codec
        self.cti = NEVER
        self._ordered = ordered
        self._said = Runs(2)
        self._since = 0  # segments since the last time that all groups were looked at

    def step(self, batch: Changes, promise: int, promises: Sequence[Punctuation] = ()) -> ElementBatch:
        """Elements; `promises` about data are said behind what they cover."""
        elements = self._step(batch, promise, promises)
        if batch.closed is not None and len(batch.closed):
            self._said.forget(batch.closed)
        return elements

    def _step(self, batch: Changes, promise: int, promises: Sequence[Punctuation]) -> ElementBatch:
        said_cti = promise > self.cti
        op, times, rows = self._elements(batch, promise, len(promises) + said_cti)
        n = len(rows)
        if self._ordered and n > 1:
            sync = np.empty(n, np.int64)
            if not _sync_times(op, times, sync):
                order = by_time(sync)
                op[:n], times[:, :n], rows = op[order], times[:, order], rows[order]
        if said_cti:
            self.cti = promise
            if promise == INF:  # nothing can be taken back any more, however long it lives
                self._said.clear()
        return coded_elements(self.codec, op, times, rows, promises, promise if said_cti else None)

    def _elements(self, batch: Changes, promise: int, more: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ops, times (vs, ve and vnew), with room for `more` elements, and the rows: first what is taken back, then
        what is said."""
        n = len(batch)
        if not n:
            return np.empty(more, np.uint8), np.empty((3, more), np.int64), batch.rows
        assert batch.group is not None, "a chain of groups is fed by an operator that knows groups"
        group, lo, hi, said = batch.group, batch.lo, batch.hi, self._said
        most, taken = _survey(group, batch.weight)
        said.grow(most + 1)
        if taken:
            op, times, at = self._take_back(group[:taken], lo[:taken], hi[:taken], n - taken + more)
        else:
            op, times, at = np.empty(n + more, np.uint8), np.empty((3, n + more), np.int64), _NOTHING
        count = len(at)
        group, lo, hi = group[taken:], lo[taken:], hi[taken:]
        kept = 0
        while True:
            kept, said.end = _keep(kept, group, lo, hi, said.place, said.pool, said.free, said.end, self.cti, promise)
            if kept == len(group):
                break
            self._reserve(group[kept], len(group))
        _say(lo, hi, op, times, count)
        self._since += n
        self._tidy()
        rows = batch.rows
        if count > taken:  # otherwise each segment is one element
            rows = np.empty((count + n - taken, rows.shape[1]), np.int64)
            _pick(batch.rows, at, taken, rows)
        return op, times, rows

    def _take_back(
        self, group: np.ndarray, lo: np.ndarray, hi: np.ndarray, more: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ops and times of what segments take back, with room for `more` elements, and the segment of each."""
        said, taken = self._said, len(group)
        size = taken + taken // 8 + 64
        op, times, at = np.empty(size + more, np.uint8), np.empty((3, size + more), np.int64), np.empty(size, np.int64)
        rest = np.empty((64, 2), np.int64)
        done = count = 0
        while done < taken:
            written = Written(op, times, at)
            done, count, said.end, missing = _take_back(
                done, group, lo, hi, said.arrays, said.end, self.cti, written, count, rest
            )
            if missing:
                raise EverwhenError("the output takes back what it never said: please report this as a defect")
            if done < taken:
                most = 2 * taken + self._reserve(group[done], taken)
                size = 2 * size + most
                old = op, times, at
                op, times, at = (
                    np.empty(size + more, np.uint8),
                    np.empty((3, size + more), np.int64),
                    np.empty(size, np.int64),
                )
                op[:count], times[:, :count], at[:count] = old[0][:count], old[1][:, :count], old[2][:count]
                rest = np.empty((most, 2), np.int64)
        return op[: count + more], times[:, : count + more], at[:count]

    def _reserve(self, group: int, segments: int) -> int:
        """Make room for so many records more of a group.  Returns how many it has."""
        length = int(self._said.place[group, LENGTH])
        self._said.reserve(4 * (int(self._said.place[group, ROOM]) + length + segments) + 64)
        return length

    def _tidy(self, force: bool = False) -> None:
        if force or self._since > max(_FEW, self._said.end):
            self._said.drop_heads(VE, self.cti)
            self._since = 0
        if force or self._said.crowded:
            self._said.tidy()

    def said(self, pieces: Changes) -> Changes:
        """The events said that live where `pieces` do, under the names by which they may still be adjusted.

        `pieces` are what their operator has said and still knows, of each group from some instant on; events have the
        rows of the pieces that they meet.  What ended before nobody can adjust any more.
        """
        self._tidy(force=True)
        groups = np.flatnonzero(self._said.place[:, LENGTH])
        if not len(pieces) or not len(groups):
            return no_changes(self.codec)
        events, offsets = self._said.gather(groups)
        vs, ve, group = events[:, VS], events[:, VE], np.repeat(groups, np.diff(offsets))
        at, met = first_met(pieces, group, np.maximum(vs, self.cti), ve)
        ones = np.ones(int(met.sum()), np.int64)
        return Changes(self.codec, vs[met], ve[met], ones, pieces.rows[at[met]])

    def state_size(self) -> StateSize:
        """Events that can still be named."""
        return StateSize(int((self._said.records[:, VE] > self.cti).sum()), self._said.nbytes)

    def snapshot(self) -> dict[str, Any]:
        self._tidy(force=True)
        groups = np.flatnonzero(self._said.place[:, LENGTH])
        said, offsets = self._said.gather(groups)
        return {"cti": self.cti, "groups": groups, "said": said, "offsets": offsets}

    def restore(self, state: dict[str, Any]) -> None:
        self.cti = state["cti"]
        restored.runs(state["groups"], state["offsets"], state["said"], self._said.pool.shape[1])
        self._said.put(state["groups"], state["offsets"], state["said"])


# --- loops --------------------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """Where elements are written."""

    op: np.ndarray
    """0: insert, 1: adjust."""
    times: np.ndarray
    """vs, ve and vnew, one row each."""
    at: np.ndarray
    """The position of the segment whose row it is; as long as there may be elements."""


@njit(cache=True, inline="always")
def _ahead(group, place, pool, i):
    """Ask for what the segments after the `i`th will need."""
    if i + 24 < len(group):
        prefetch(place, group[i + 24])
        k = group[i + 12]
        last = place[k, START] + place[k, LENGTH] - 1
        prefetch(pool, last)
        if group[i + 13] == k:  # more than its end changes
            prefetch(pool, last - 4)


@njit(cache=True, inline="always")
def _record(written, n, what, vs, ve, vnew, i):
    written.op[n] = what
    written.times[0, n] = vs
    written.times[1, n] = ve
    written.times[2, n] = vnew
    written.at[n] = i


@loop_of(runs=RunArrays, written=Written)
def _take_back(i, group, lo, hi, runs, end, cti, written, count, rest):
    """Segments from the `i`th on that are taken back as adjusts, and inserts of what a cut leaves behind it.

    Segments of a group stand together, in the order of time.  Elements are written from `count` on; `rest` is scratch.
    Stops before a group for which there is not room enough.  Returns the position reached, how many elements there are,
    the end of the pool, and whether the segment there takes back what was never said.
    """
    place, pool, most = runs.place, runs.pool, len(written.at)
    n = len(group)
    while i < n:
        _ahead(group, place, pool, i)
        k = group[i]
        s = place[k, START]
        length = place[k, LENGTH]
        stop = s + length
        if length > 0 and (i + 1 == n or group[i + 1] != k) and count < most:
            # mostly it is the end of the last event
            vs = pool[stop - 1, VS]
            if vs <= lo[i] and pool[stop - 1, VE] == hi[i]:
                _record(written, count, 1, vs, hi[i], lo[i], i)
                count += 1
                pool[stop - 1, VE] = lo[i]
                place[k, LENGTH] = length - (vs == lo[i])
                i += 1
                continue
        stretch = i + 1
        while stretch < n and group[stretch] == k:
            stretch += 1
        more = 2 * (stretch - i) + length
        if count + more > most or more > len(rest) or end + growth(place, k, stretch - i) > len(pool):
            return i, count, end, False
        drop_head(place, pool, k, VE, cti)
        s = place[k, START]
        to = x = first_after(pool, s, place[k, LENGTH], VE, lo[i])
        # what is left of the events from `to` to `x` is gathered in `rest`; the event at hand is [vs, ve)
        vs = ve = np.int64(0)
        some = False
        kept = 0
        while i < stretch:
            a = lo[i]
            b = hi[i]
            while a < b:
                while not some or ve <= a:  # look for the event that covers a
                    if some:
                        rest[kept, VS] = vs
                        rest[kept, VE] = ve
                        kept += 1
                    if x == stop:
                        return i, count, end, True
                    vs = pool[x, VS]
                    ve = pool[x, VE]
                    some = True
                    x += 1
                if vs > a:
                    return i, count, end, True
                _record(written, count, 1, vs, ve, a, i)
                count += 1
                if a > vs:
                    rest[kept, VS] = vs
                    rest[kept, VE] = a
                    kept += 1
                some = ve > b
                if some:
                    _record(written, count, 0, b, ve, 0, i)
                    count += 1
                    vs = b
                a = min(b, ve)
            i += 1
        if some:
            rest[kept, VS] = vs
            rest[kept, VE] = ve
            kept += 1
        end = replace(runs, end, k, to, x, rest, kept)
    return i, count, end, False


@loop
def _keep(i, group, lo, hi, place, pool, free, end, cti, promise):
    """Remember segments from the `i`th on that are said and do not end by the promise.

    Those of a group stand together, in the order of time.  Stops before a group for which there is not room enough.
    Returns the position reached and the end of the pool.
    """
    n = len(group)
    while i < n:
        _ahead(group, place, pool, i)
        k = group[i]
        if (i + 1 == n or group[i + 1] != k) and hi[i] > promise and fits(place, k, 1):
            # mostly it is one event behind all others
            length = place[k, LENGTH]
            last = place[k, START] + length
            if length == 0 or pool[last - 1, VS] <= lo[i]:
                pool[last, VS] = lo[i]
                pool[last, VE] = hi[i]
                place[k, LENGTH] = length + 1
                i += 1
                continue
        j = i
        stop = i + 1
        while stop < n and group[stop] == k:
            stop += 1
        while j < stop and hi[j] <= promise:  # those that last are the last
            j += 1
        lasting = stop - j
        if lasting > 0:
            if not fits(place, k, lasting):
                drop_head(place, pool, k, VE, cti)
                if end + growth(place, k, lasting) > len(pool):
                    break
                end = make_room(place, pool, free, end, k, lasting)
            s = place[k, START]
            x = s + place[k, LENGTH] - 1
            place[k, LENGTH] += lasting
            to = x + lasting
            j = stop - 1
            while to > x:
                if x >= s and pool[x, VS] > lo[j]:
                    copy_row(pool, to, pool, x, 2)
                    x -= 1
                else:
                    pool[to, VS] = lo[j]
                    pool[to, VE] = hi[j]
                    j -= 1
                to -= 1
        i = stop
    return i, end


@loop
def _survey(group, weight):
    """The largest group, and how many segments are taken back."""
    most = np.int64(-1)
    taken = 0
    for i in range(len(group)):
        most = max(most, group[i])
        taken += weight[i] < 0
    return most, taken


@loop
def _say(lo, hi, op, times, count):
    """Write an insert for each segment, from the element `count` on."""
    for i in range(len(lo)):
        op[count + i] = 0
        times[0, count + i] = lo[i]
        times[1, count + i] = hi[i]
        times[2, count + i] = 0


@loop
def _sync_times(op, times, sync):
    """The sync time of each element.  Returns whether the elements stand in the order of these."""
    ordered = True
    for i in range(len(sync)):
        sync[i] = min(times[1, i], times[2, i]) if op[i] == 1 else times[0, i]
        ordered &= i == 0 or sync[i - 1] <= sync[i]
    return ordered


@loop
def _pick(rows, at, taken, out):
    """The rows of elements: those at the positions `at` of what is taken back, then all that are said."""
    for i in range(len(at)):
        copy_row(out, i, rows, at[i], rows.shape[1])
    for j in range(taken, len(rows)):
        copy_row(out, len(at) + j - taken, rows, j, rows.shape[1])
