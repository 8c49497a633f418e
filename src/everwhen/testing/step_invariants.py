"""The invariants of the CEDR paper (Goldstein/Hong, section 3.2), asserted of running operators after every step.

    runtime = LocalRuntime(query, emit="ended", check=Invariants())

Beside every sweep stands a plain copy of its input: per key, by how much each lane changes at which time.  The paper's
names, and what they are here, for a sweep with the promise m and the largest start seen τ:

* **τ-S**: τ never goes back, and the sweep has seen the τ and the m that it was handed.  The paper moves τ with its own
  input, one element at a time; here the runtime hands in the largest start of all inputs.
* **POS**: per key the edges stand in the order of time, each once; an edge has the lanes that the input gives there;
  every time between m and τ at which the input changes has an edge.  Of the edges at or before m one is left, the
  base.  A key without anything alive at m and without later edges is gone.
* **ECQ**: every end point of the input after τ is there: an edge, and for aggregates of the live multiset a row.
* **τ-O**: what has been said and stands is the input's answer, clipped by the policy: in `ended` nothing after
  max(m, τ), in `final` nothing after m.  If the input is perfect (nothing taken back, nothing before τ), then in
  `ended` and `final` nothing has been taken back.  And no change touches an instant before an earlier promise.

Operators without a sweep (windows of rows, coalesce) are held to the last two sentences, and to the correspondence of
what they say with what they know.  A side of a join has exactly the rows that a later row of the other side can meet.
All of this is slow and for tests; a state that breaks an invariant raises an `AssertionError` with its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.node import Step
from everwhen.operators.clip import CUT, ENDED, ENDING, INFINITE
from everwhen.operators.contract import Operator, lowest
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.join.loops.lifetimes import HI, LO, ROW, WEIGHT
from everwhen.operators.live_rows import LiveRows
from everwhen.operators.net import netted
from everwhen.operators.sweep.aggregate import AggregateOperator
from everwhen.operators.sweep.pieces import Pieces
from everwhen.operators.sweep.sweep import Sweep
from everwhen.reference.order import canonical_row
from everwhen.rows.changes import Changes

Lanes: TypeAlias = tuple[int, ...]
Edge: TypeAlias = tuple[int, Lanes]
Jumps: TypeAlias = dict[int, list[int]]
"""By how much each lane changes at a time."""
Function: TypeAlias = dict[tuple[object, ...], Counter[int]]
"""Per row, by how much its multiplicity changes at a time."""


@dataclass
class _Seen:
    """What an operator has been given and has said."""

    tau: int = NEVER
    promise: int = NEVER
    perfect: bool = True
    lanes: int = 0
    keys: dict[int, Jumps] = field(default_factory=dict)
    said: Function = field(default_factory=lambda: _nothing())
    sides: tuple[Function, Function] = field(default_factory=lambda: (_nothing(), _nothing()))


class Invariants:
    """Checks every step of the runtime it is given to.  A restored runtime may go on with the same one."""

    def __init__(self) -> None:
        self.checked: Counter[str] = Counter()
        """How many steps were checked, by the kind of operator."""
        self._seen: dict[int, _Seen] = {}

    def begin(self, number: int, operator: Operator) -> None:
        """Watch an operator; called before its first step."""
        seen = self._seen.setdefault(number, _Seen())
        sweep = _sweep(operator)
        if sweep is not None:
            seen.lanes = seen.lanes or sweep._ints
            # the lanes of a change are known to the sweep alone, so it is watched at its door
            setattr(sweep, "step", partial(_taken, seen, sweep, sweep.step))  # noqa: B010

    def after(self, step: Step) -> None:
        """Check an operator that has just been stepped."""
        operator, frontiers, tau = step.operator, step.frontiers, step.tau
        seen = self._seen[step.at]
        self.checked[type(operator).__name__] += 1
        assert tau >= seen.tau, f"invariant τ-S: τ goes back from {show(seen.tau)} to {show(tau)}"
        sweep = _sweep(operator)
        present = seen.tau if sweep is None else sweep.policy.ended_by(seen.tau)
        seen.perfect &= all((c.weight > 0).all() and (c.lo >= present).all() for c in step.inputs)
        seen.tau = tau
        changes, before = step.output.changes, seen.promise
        seen.promise = step.output.frontier.time
        assert seen.promise >= before, f"the promise goes back from {show(before)} to {show(seen.promise)}"
        # whole events are taken back and said anew: what counts is the difference
        assert (netted(changes).lo >= before).all(), f"invariant τ-O: a change before the promise {show(before)}"
        _add(seen.said, changes)
        if sweep is not None:
            m = lowest(frontiers)
            assert (sweep.tau, sweep.cti) == (tau, m), "invariant τ-S: the sweep has another τ or promise"
            runs = _check_sweep(sweep, seen)
            if isinstance(operator, AggregateOperator) and operator._live is not None:
                _check_live(operator._live, runs)
            clipped = sweep.policy.emit in (Emit.ENDED, Emit.FINAL)
            taken = seen.perfect and clipped and (changes.weight < 0).any()
            assert not taken, "invariant τ-O: the input is perfect, and something is taken back"
        standing = operator.standing(frontiers)
        if standing is not None:
            since, kept = standing
            _same(_from(seen.said, since), _from(_function(kept), since), "invariant τ-O: said and known differ")
        if isinstance(operator, JoinOperator):
            _check_join(operator, seen, step.inputs, frontiers)


def _sweep(operator: Operator) -> Sweep | None:
    """The operator's sweep; that of the clip inside, where it cuts into instants."""
    inner = getattr(operator, "_rest", operator)
    found = getattr(inner, "_sweep", None)
    return found if isinstance(found, Sweep) else None


# --- input --------------------------------------------------------------------------------------------------------


def _taken(seen: _Seen, sweep: Sweep, step: Callable[..., Pieces], *given: Any, **named: Any) -> Pieces:
    """A step of a sweep, and a plain copy of what it was given: the lanes that it has always had, the first counts."""
    ids, lo, hi, values = given[:4]
    keys, starts, ends = ids.tolist(), lo.tolist(), hi.tolist()
    deltas = values[:, : seen.lanes].tolist()
    pieces = step(*given, **named)
    for key, vs, ve, delta in zip(keys, starts, ends, deltas, strict=True):
        jumps = seen.keys.setdefault(key, {})
        for t, sign in ((vs, 1), (ve, -1)):
            if t != INF:
                jumps[t] = [a + sign * b for a, b in zip(jumps.get(t, [0] * len(delta)), delta, strict=False)]
    return pieces


def _lanes_at(jumps: Jumps, t: int) -> Lanes:
    found = [delta for at, delta in jumps.items() if at <= t]
    return tuple(map(sum, zip(*found, strict=False))) if found else ()


# --- the sweep ----------------------------------------------------------------------------------------------------


def _check_sweep(sweep: Sweep, seen: _Seen) -> dict[int, list[Edge]]:
    """Check all keys; returns their edges."""
    sweep.state_size()  # settles what was left for the next visit
    m, ints = sweep.cti, sweep._ints
    if ints != seen.lanes:  # lanes for what nulls need are added when the first one comes; the first lane stays
        seen.lanes = 1
    ids = sweep.keys.ids()
    records, offsets = sweep._runs.gather(ids)
    runs = {
        int(key): [(row[0], tuple(row[1 : 1 + ints])) for row in records[offsets[i] : offsets[i + 1]].tolist()]
        for i, key in enumerate(ids)
    }
    for key in [key for key in seen.keys if key not in runs]:
        jumps = seen.keys.pop(key)
        left = [t for t in (m, *(t for t in jumps if t > m)) if any(_lanes_at(jumps, t)[: seen.lanes])]
        assert not left or m == INF, f"invariant POS: a key is gone that is alive at {show(left[0])}"
    for key, edges in runs.items():
        _check_edges(edges, seen.keys.get(key, {}), m, sweep, seen)
    mode, now = sweep.policy.clip(sweep.tau, m)
    pieces = sweep.standing()
    for key, edges in runs.items():
        said = pieces.said[pieces.keys[pieces.said[:, 0]] == key][:, 1 : 3 + ints].tolist()
        found = _steps((lo, hi, tuple(lanes)) for lo, hi, *lanes in said)
        assert found == _clipped(edges, mode, now, m), f"invariant τ-O: the clip at {show(now)}, promise {show(m)}"
    return runs


def _check_live(live: LiveRows, runs: dict[int, list[Edge]]) -> None:
    """The rows that end after an edge are there: as many as it counts."""
    for key, edges in runs.items():
        records = live.runs.gather(np.array([key]))[0].tolist()
        for t, lanes in edges[1:]:
            found = sum(weight for lo, hi, weight, *_ in records if lo <= t < hi)
            assert found == lanes[0], f"invariant ECQ: {found} live rows at {show(t)}, the input gives {lanes[0]}"


def _check_edges(edges: list[Edge], jumps: Jumps, m: int, sweep: Sweep, seen: _Seen) -> None:
    times = [t for t, _ in edges]
    assert times == sorted(set(times)), f"invariant POS: edges out of order, {times}"
    assert sum(t <= m for t in times) == (times[0] <= m), f"invariant POS: edges before the promise {show(m)} are left"
    for t, lanes in edges:
        expected = _lanes_at(jumps, max(t, m) if t == times[0] else t)[: seen.lanes] or (0,) * seen.lanes
        there = lanes[: seen.lanes]
        assert there == expected, f"invariant POS: the edge at {show(t)} has {there}, the input gives {expected}"
    for t, delta in jumps.items():
        if t > m and any(delta[: seen.lanes]) and t not in times:
            name = "POS" if t <= seen.tau else "ECQ"
            raise AssertionError(f"invariant {name}: there is no edge at {show(t)}, where the input changes")
    assert len(times) > 1 or any(edges[0][1]), "invariant POS: a key is left that nothing is alive of"


def _clipped(edges: list[Edge], mode: int, now: int, m: int) -> list[tuple[int, int, Lanes]]:
    """What is to be said of a key from the promise on, by the policy's definition."""
    times = [t for t, _ in edges]
    limit = now if mode == INFINITE else INF
    if mode == CUT:
        top = now
    elif mode == INFINITE:
        top = INF
    elif mode == ENDING:
        top = max(now, times[-1])
    elif mode == ENDED:
        top = max([m, *(t for t in times if t <= now)])
    else:
        top = min((t for t in times if t > now), default=INF)
    counted = [(t, lanes) for t, lanes in edges if t <= limit]
    ends = [t for t, _ in counted[1:]] + [INF]
    pieces = ((max(t, m), min(end, top), lanes) for (t, lanes), end in zip(counted, ends, strict=True))
    return _steps((lo, hi, lanes) for lo, hi, lanes in pieces if lo < hi and any(lanes))


def _steps(pieces: Iterable[tuple[int, int, Lanes]]) -> list[tuple[int, int, Lanes]]:
    """Pieces in the order of time; those that meet and say the same are one."""
    found: list[tuple[int, int, Lanes]] = []
    for lo, hi, lanes in sorted(pieces):
        if found and found[-1][1:] == (lo, lanes):
            found[-1] = (found[-1][0], hi, lanes)
        else:
            found.append((lo, hi, lanes))
    return found


# --- rows ---------------------------------------------------------------------------------------------------------


def _add(to: Function, changes: Changes) -> None:
    if not len(changes):
        return
    columns = [column.to_pylist() for column in changes.codec.decode(changes.rows)]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(changes))
    times = zip(changes.lo.tolist(), changes.hi.tolist(), changes.weight.tolist(), strict=True)
    for row, (lo, hi, weight) in zip(map(canonical_row, rows), times, strict=True):
        to[row][lo] += weight
        to[row][hi] -= weight


def _nothing() -> Function:
    return defaultdict(Counter)


def _function(changes: Changes) -> Function:
    found = _nothing()
    _add(found, changes)
    return found


def _from(function: Function, since: int) -> dict[tuple[object, ...], dict[int, int]]:
    """The function from an instant on; infinity is no change."""
    found = {}
    for row, jumps in function.items():
        moved: Counter[int] = Counter()
        for t, jump in jumps.items():
            moved[max(t, since)] += jump
        left = {t: jump for t, jump in moved.items() if jump and t < INF}
        if left:
            found[row] = left
    return found


def _same(said: dict[Any, Any], known: dict[Any, Any], problem: str) -> None:
    for row in said.keys() | known.keys():
        assert said.get(row) == known.get(row), f"{problem} for {row}: {said.get(row)} and {known.get(row)}"


def _check_join(join: JoinOperator, seen: _Seen, inputs: Sequence[Changes], frontiers: Sequence[Frontier]) -> None:
    """What a side keeps is what has not ended for the other side; a row without a key meets nobody."""
    for at, (function, side) in enumerate(zip(seen.sides, join._kept, strict=True)):
        _add(function, inputs[at])
        since = frontiers[1 - at].time
        log = side.log[side.alive()]
        codes = log[:, ROW : ROW + side.codec.width]
        kept = _function(Changes(side.codec, log[:, LO].copy(), log[:, HI].copy(), log[:, WEIGHT].copy(), codes))
        expected = _from(function, since)
        if not join._null_safe:
            keyed = join._key_at[at]
            expected = {row: jumps for row, jumps in expected.items() if all(row[j] is not None for j in keyed)}
        if since < INF:
            _same(expected, _from(kept, since), f"side {at} of the join, from {show(since)} on,")
