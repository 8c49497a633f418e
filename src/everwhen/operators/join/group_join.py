"""Join of groups with a stream of instants, γ(A) ⋈ B: a group is computed only at the instants at which B reads it.

    out = Σ over b in B of  f(A's rows of b's group that are alive at b's instant)  beside b

The answer is that of the aggregate below the join (the operators that this one stands for), without its price: an
aggregate on its own says how every group changes all the time, and the join throws away all but a few instants of it.
Here a row of A is only put where a later read finds it, as a join does, and a read goes once through its group.  That
is the point of grouping below a join as in Figure 10.2 of the thesis (Krämer): its partner, the auction that closes,
asks each group for a single instant.

Correct for any B of single instants; it pays where few of them read the same group, which `plan/group_join.py` decides.
Only aggregates with exact lanes: counts, sums and averages of integers, min and max of 64-bit values.

An instant is read at once, as a join's pairs are said at once; what was said is corrected when a change touches its
group.  Kept are the rows of A, and the instants with what was said of them, until `ve ≤ c` on both sides, since a late
row of A may ask for the whole group again; a promise that both sides have made about a key counts like a CTI for it,
and is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.nodes import Join
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF
from everwhen.operators.contract import Output, StateSize, lowest
from everwhen.operators.join.join import CHUNK, JoinOperator, beside
from everwhen.operators.join.join_state import JoinState
from everwhen.operators.join.loops import group_join as kernel
from everwhen.operators.join.loops import join as join_kernel
from everwhen.operators.join.loops.lifetimes import HI, KEY, LO, ROW, WEIGHT
from everwhen.operators.key_frontiers import keys_covered
from everwhen.operators.sweep.accumulators import AccumulatorPlan
from everwhen.punctuation.api import Intersection, Projection, joined, make_frontier
from everwhen.rows.changes import Changes, no_changes
from everwhen.rows.codec import BITS, RowCodec

_GROUPS, _READS = 0, 1
_HOW = {"rows": kernel.ROWS, "valid": kernel.VALID, "sum": kernel.SUM}


@dataclass(frozen=True, slots=True)
class _Answers:
    """Instants as entries of their log (without what stands behind the rows), how often their answers are said, and the
    lanes of their groups."""

    entries: np.ndarray
    weight: np.ndarray
    lanes: np.ndarray


class GroupJoinOperator(JoinOperator):
    """The first port brings rows to be grouped, the second one the instants; output rows are pairs of a group's row
    (its keys, its aggregates) and an instant's, in the order of `groups_first`."""

    keeps = "rows to be grouped, and the instants that read them, until ve ≤ both CTIs"

    def __init__(
        self,
        rows: RowCodec,
        reads: RowCodec,
        groups: RowCodec,
        codec: RowCodec,
        aggregations: Sequence[Aggregation],
        keys: Sequence[str],
        row_keys: Sequence[str],
        read_keys: Sequence[str],
        *,
        null_safe: bool = False,
        groups_first: bool = True,
    ) -> None:
        """`groups` codes a group's row, whose first columns are `keys`; `row_keys` and `read_keys` are joined."""
        both = RowCodec(Join.pair_names(rows.schema, reads.schema), rows.pool)
        super().__init__(rows, reads, both, row_keys, read_keys, null_safe=null_safe)
        self.codec = codec
        names = list(dict.fromkeys(name for each in aggregations for name in each.columns))
        arguments = RowCodec(rows.schema.select(names), rows.pool)
        self._plan = plan = AccumulatorPlan(aggregations, arguments)
        assert countable(plan), "an aggregate that has no exact lanes"
        self._arguments, self._argument_at = arguments, [rows.schema.index(name) for name in names]
        columns = [self._argument_at[column] if column >= 0 else 0 for _, column in plan.int_at]
        columns += [self._argument_at[column] for column, _ in plan.extremes]
        how = [_HOW[what] for what, _ in plan.int_at]
        how += [kernel.EXTREME_KIND_0 + kind for _, kind in plan.extremes]
        self._lanes = kernel.Lanes(np.array(how, np.int64), np.array(columns, np.int64))
        self._mark = ROW + reads.width
        self._kept = (JoinState(rows), JoinState(reads, behind=1 + len(how)))
        self._groups, self._groups_first = groups, groups_first
        self._group_key_at = [list(row_keys).index(key) for key in keys]
        keyed = [{name: [str(at)] for at, name in enumerate(names)} for names in (row_keys, read_keys)]
        self._about_keys = Projection(rows.schema, keyed[0]), Projection(reads.schema, keyed[1])
        self._meeting = Intersection(self._key_codec.schema)
        first = (0, len(groups.schema)) if groups_first else (len(reads.schema), 0)
        at = [keys.index(name) for name in row_keys], [reads.schema.index(name) for name in read_keys]
        self._said_as = [
            {str(i): codec.schema.names[f + j] for i, j in enumerate(some)} for f, some in zip(first, at, strict=True)
        ]

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self._make_room(inputs)
        (batch, ids), (asked, asked_ids) = (self._keyed(port, each) for port, each in enumerate(inputs))
        if self._plan.integer_sums and len(batch):
            self._plan.measure(self._sides[_GROUPS].select(batch.rows, self._argument_at, self._arguments))
        changes = self._said([*self._revised(batch, ids), *self._read(asked, asked_ids)])
        frontier, about_keys = self._progress(frontiers)
        for port, side in enumerate(self._kept):
            if frontier.time > side.cti:
                side.expire(frontier.time)
            if about_keys:
                last = side.expire_keys(*keys_covered(about_keys, self._key_codec, self._keys))
                self._unmet[port] = max(self._unmet[port], last)
                if port == _READS:  # what was said lies where groups were read
                    self._forgotten = max(self._forgotten, last)
        return Output(changes, frontier)

    def _progress(self, frontiers: Sequence[Frontier]) -> tuple[Frontier, Sequence[Punctuation]]:
        """What the answer promises, and what both sides newly promise about keys."""
        if not (len(self._meeting) or any(frontier.promises for frontier in frontiers)):
            return Frontier(lowest(frontiers)), ()
        known = [make_frontier(f.time, p.project(f.promises)) for f, p in zip(frontiers, self._about_keys, strict=True)]
        both = self._meeting.intersect(known)
        said = joined(both.renamed(names, self.codec.schema) for names in self._said_as)
        return make_frontier(lowest(known), said), both

    def _revised(self, batch: Changes, ids: np.ndarray) -> list[_Answers]:
        """Add rows to their groups; what changes by that for the instants that have read them: what is taken back and
        what is said."""
        rows, reads = self._kept
        lanes, mark, words = self._lanes, self._mark, self._sides[_GROUPS].words
        touched, old, lost = np.empty(0, np.int64), np.empty((0, len(lanes.how)), np.int64), np.empty(0, np.bool_)
        first = count = 0
        while first < len(batch) and not reads.empty:
            mine, entry, first = join_kernel.probe(
                ids, batch.lo, batch.hi, first, reads.heads, reads.log, reads.cti, CHUNK, reads.touched
            )
            if len(mine):
                touched, old, lost = (_longer(each, count, count + len(mine)) for each in (touched, old, lost))
                revised = kernel.Revised(touched, old, lost)
                count = kernel.revise(
                    mine, entry, batch.weight, batch.rows, words, reads.log, mark, lanes, revised, count
                )
        rows.add(ids, batch)
        if not count:
            return []
        touched, old, again = touched[:count], old[:count], touched[:count][lost[:count]]
        reads.log[touched, mark] = -1
        if len(again):
            reads.log[again, mark + 1 :] = self._evaluate(reads.log[again, KEY], reads.log[again, LO])
        new = reads.log[touched, mark + 1 :]
        changed = (old != new).any(axis=1)
        entries = reads.log[touched[changed]]
        entries = entries[:, : self._mark]
        return [
            _Answers(entries, -entries[:, WEIGHT], old[changed]),
            _Answers(entries, entries[:, WEIGHT], new[changed]),
        ]

    def _read(self, asked: Changes, ids: np.ndarray) -> list[_Answers]:
        """Read groups at instants, and remember them; an instant that is taken back is read as well."""
        if not len(asked):
            return []
        reads = self._kept[_READS]
        lanes = self._evaluate(ids, asked.lo)
        lasting = (asked.weight > 0) & (asked.hi > reads.cti)
        first = reads.add(ids, asked)
        here = reads.log[first : first + int(lasting.sum()), self._mark :]
        here[:, 0], here[:, 1:] = -1, lanes[lasting]
        entries = np.empty((len(asked), self._mark), np.int64)
        entries[:, LO], entries[:, HI], entries[:, ROW:] = asked.lo, asked.hi, asked.rows
        entries[:, KEY] = ids
        return [_Answers(entries, asked.weight, lanes)]

    def _evaluate(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        rows = self._kept[_GROUPS]
        lanes: np.ndarray = kernel.evaluate(
            np.ascontiguousarray(ids), np.ascontiguousarray(times), rows.heads, rows.log, rows.touched,
            self._sides[_GROUPS].words, self._lanes,
        )  # fmt: skip
        return lanes

    def _said(self, answers: Sequence[_Answers]) -> Changes:
        """Groups that are not empty, beside the instants that read them."""
        if not answers:
            return no_changes(self.codec)
        entries, weight, lanes = (
            parts[0] if len(parts) == 1 else np.concatenate(parts)
            for parts in zip(*((each.entries, each.weight, each.lanes) for each in answers), strict=True)
        )
        alive = lanes[:, 0] > 0
        if not alive.all():
            entries, weight, lanes = entries[alive], weight[alive], lanes[alive]
        if not len(lanes):
            return no_changes(self.codec)
        self._plan.check(lanes)
        reads, groups = self._sides[_READS], self._groups
        theirs, mine = entries[:, ROW:], self._group_rows(entries[:, KEY], lanes)
        rows = np.empty((len(lanes), self.codec.width), np.int64)
        one, two = ((groups, mine), (reads, theirs)) if self._groups_first else ((reads, theirs), (groups, mine))
        beside(*one, *two, self.codec, rows)
        return Changes(self.codec, entries[:, LO].copy(), entries[:, HI].copy(), weight, rows)

    def _group_rows(self, ids: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        codec, keys = self._groups, self._keys.codes[ids]
        rows = np.zeros((len(ids), codec.width), np.int64)
        columns = [(keys[:, self._key_codec.words + at], self._key_codec.valid(keys, at)) for at in self._group_key_at]
        for j, (codes, valid) in enumerate([*columns, *self._plan.results(lanes)]):
            if valid is None or valid.all():
                rows[:, codec.words + j] = codes
            else:
                rows[:, codec.words + j] = np.where(valid, codes, 0)
                rows[:, j // BITS] |= (~valid).astype(np.int64) << (j % BITS)
        return rows

    # -- looking, and state ---------------------------------------------------------------------------------------

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        """What was said of the instants that are kept."""
        reads = self._kept[_READS]
        log = reads.log[reads.alive()]
        answers = _Answers(log[:, : self._mark], log[:, WEIGHT], log[:, self._mark + 1 :])
        return max(reads.cti, self._forgotten), self._said([answers])

    def state_size(self) -> StateSize:
        about_keys = self._meeting.nbytes + sum(each.nbytes for each in self._about_keys)
        return super().state_size() + StateSize(0, about_keys)

    def snapshot(self) -> dict[str, Any]:
        return {
            **super().snapshot(),
            "largest": dict(self._plan.integer_sums),
            "meeting": self._meeting.snapshot(),
            "about_keys": [each.snapshot() for each in self._about_keys],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._plan.integer_sums.update(state["largest"])
        self._meeting.restore(state["meeting"])
        for each, part in zip(self._about_keys, state["about_keys"], strict=True):
            each.restore(part)
        self._forgotten, self._unmet = state["forgotten"], list(state.get("unmet", (INF, INF)))
        rows, reads = self._kept
        batch, ids = self._keyed(_GROUPS, rows.restored(state["side0"]))
        rows.reserve(len(batch))
        rows.add(ids, batch)
        asked, ids = self._keyed(_READS, reads.restored(state["side1"]))
        reads.reserve(len(asked))
        self._read(asked, ids)


def countable(plan: AccumulatorPlan) -> bool:
    """Whether all aggregates have lanes that are exact and of the kinds known here."""
    return not plan.holistic and not plan.float_at and all(what in _HOW for what, _ in plan.int_at)


def _longer(array: np.ndarray, used: int, size: int) -> np.ndarray:
    """A copy with room for `size` records, of which `used` are taken over."""
    if size <= len(array):
        return array
    longer = np.empty((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer
