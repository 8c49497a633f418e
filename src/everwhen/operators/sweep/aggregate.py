"""Grouping with aggregation, and scalar aggregation as one group (Krämer, 11.5.7 and 11.5.8; CEDR's snapshot
operators).

Several aggregations share one sweep.  Kept are, per group, the lanes at the CTI and the edges after it; with min, max
or user-defined aggregates also the live rows (until `ve ≤ c`); with quantiles, count distinct and their like the values
of each column that they are over (`order_statistics`).  A group is gone when it has neither rows nor edges: emptiness
is read off the row count, never off a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.compiled.njit import loop, njit
from everwhen.compiled.prefetch import prefetch
from everwhen.containers import live_runs as live_kernel
from everwhen.containers.live_runs import VALUES
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF
from everwhen.operators.contract import Operator, Output, Policy, StateSize
from everwhen.operators.key_frontiers import NONE, keys_covered
from everwhen.operators.live_rows import LiveRows
from everwhen.operators.net import netted
from everwhen.operators.sweep import holistic
from everwhen.operators.sweep.accumulators import AccumulatorPlan
from everwhen.operators.sweep.holistic import ordered_columns
from everwhen.operators.sweep.lane_view import Coded
from everwhen.operators.sweep.loops.edges import summed
from everwhen.operators.sweep.loops.extremes import Extremes, OrderedColumns, largest, plain_code
from everwhen.operators.sweep.pieces import Pieces
from everwhen.operators.sweep.sweep import Evaluate, Sweep
from everwhen.punctuation.api import Projection, make_frontier
from everwhen.rows import restored
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.rows.codec import BITS, RowCodec, decode_column, encode_column
from everwhen.rows.interner import is_pooled


class AggregateOperator(Operator):
    """One row per group alive: the key columns, then one column per aggregation."""

    keeps = "per group the accumulators at the CTI and the edges after it (min, max, …: also live rows until ve ≤ c)"

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        source: RowCodec,
        codec: RowCodec,
        policy: Policy,
    ) -> None:
        self.codec = codec
        schema = source.schema
        names = list(dict.fromkeys(name for a in aggregations for name in a.columns))
        self._source = source
        self._key_at = [schema.index(name) for name in keys]
        self._argument_at = [schema.index(name) for name in names]
        self._keys = RowCodec(schema.select(keys), source.pool)
        self._arguments = RowCodec(schema.select(names), source.pool)
        self._promises = Projection(schema, {name: [name] for name in keys})
        self._plan = plan = AccumulatorPlan(aggregations, self._arguments, shared=True)
        types = [a.result_type(self._arguments.schema) for a in plan.holistic]
        first = len(plan.extremes)
        self._pooled_results = [(first + 2 * i, type_) for i, type_ in enumerate(types) if is_pooled(type_)]
        self._sweep = Sweep(
            self._keys.width,
            self._keys.pooled,
            source.pool,
            policy,
            plan.ints,
            len(plan.float_at),
            plan.evaluated,
            self._pooled_results,
            plan.tests,
        )
        self._read_plan()
        self._most = 0  # no group has ever more rows alive
        self._live: LiveRows | None = None
        self._ordered = ordered_columns(plan.holistic, self._arguments)
        self._users = [aggregation for aggregation in plan.holistic if aggregation.function == "user"]
        if plan.extremes or self._users:
            self._live = LiveRows(self._arguments.width, self._arguments.pooled, source.pool)
            self._live.grow(self._sweep.keys.capacity)
        for column in self._ordered:
            column.statistics.grow(self._sweep.keys.capacity)
        self._evaluates: Evaluate | None = self._evaluate if plan.evaluated else None
        # per extreme its column in a record, its kind, and the word and the bit of its nulls
        at = [(VALUES + self._arguments.words + c, kind, VALUES + c // BITS, c % BITS) for c, kind in plan.extremes]
        self._extreme_columns = OrderedColumns(*np.array(at, np.int64).reshape(-1, 4).T.copy())

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        frontier = frontiers[0]
        if frontier.promises:
            frontier = make_frontier(frontier.time, self._promises.project(frontier.promises))
        promise = frontier.time
        sweep, live = self._sweep, self._live
        values, complete = self._sums(batch)
        if complete and len(self._key_at) == 1:
            ids = sweep.intern_column(batch.rows, self._source.words + self._key_at[0])
        else:
            ids = sweep.intern(self._source.select(batch.rows, self._key_at, self._keys))
        arguments = None
        if values is None:
            arguments = self._source.select(batch.rows, self._argument_at, self._arguments)
            if not (complete or self._plan.separated) and arguments[:, : self._arguments.words].any():
                self._separate()
            before = self._plan.ints, self._plan.added
            values = self._plan.fill(arguments, batch.weight)
            self._widen(*before)
            if len(batch):
                self._plan.measure(arguments)
        if live is not None and len(batch):
            live.grow(sweep.keys.capacity)
            live.apply(ids, self._records(batch, arguments))
        if self._ordered and len(batch):
            if arguments is None:
                arguments = self._source.select(batch.rows, self._argument_at, self._arguments)
            for column in self._ordered:
                column.statistics.grow(sweep.keys.capacity)
                column.apply(ids, batch.lo, batch.hi, batch.weight, arguments)
        evaluate = self._extremes() if live is not None and not self._plan.holistic else self._evaluates
        raised = keys_covered(frontier.promises, self._keys, sweep.keys) if frontier.promises else NONE
        pieces = sweep.step(ids, batch.lo, batch.hi, values, tau, promise, evaluate, raised)
        if live is not None:
            live.expire(promise)
            live.expire_keys(*raised)
        for column in self._ordered:
            column.statistics.expire(promise)
            column.statistics.expire_keys(*raised)
        if len(pieces.said) and self._most * max(self._plan.integer_sums.values(), default=0) >= 2**63:
            self._plan.check(pieces.said[:, 3:], self._most)
        if len(pieces.taken) or len(pieces.said):
            return Output(self._changes(pieces), frontier)
        nothing = no_changes(self.codec)
        return Output(nothing if pieces.closed is None else replace(nothing, closed=pieces.closed), frontier)

    def _sums(self, batch: Changes) -> tuple[np.ndarray | None, bool]:
        """The added lanes, if a loop over the rows can tell, and whether no row has a null."""
        rows, words = batch.rows, self._source.words
        if self._summed is None or not len(rows):
            self._most += int(np.abs(batch.weight).sum())
            return None, not rows[:, :words].any()
        columns = self._summed_at
        values, bounds = np.empty((len(rows), 1 + len(columns)), np.int64), np.empty((len(columns), 2), np.int64)
        complete, most = summed(rows, words, batch.weight, columns, values, bounds)
        self._most += most
        if not complete:
            return None, False
        for column, (low, high) in zip(self._summed, bounds.tolist(), strict=True):
            if low < 0 or high > self._plan.integer_sums[column]:
                self._plan.measured(column, low, high)
        return values, True

    def _records(self, batch: Changes, arguments: np.ndarray | None) -> np.ndarray:
        """Segments as live rows; without their arguments no row has a null."""
        records = np.empty((len(batch), VALUES + self._arguments.width), np.int64)
        if arguments is None:
            words = self._source.words
            columns = np.array([words + c for c in self._argument_at], np.int64)
            live_kernel.recorded(batch.lo, batch.hi, batch.weight, batch.rows, columns, self._arguments.words, records)
        else:
            records[:, 0], records[:, 1], records[:, 2] = batch.lo, batch.hi, batch.weight
            records[:, VALUES:] = arguments
        return records

    def _separate(self) -> None:
        """The first null has come: values are counted apart from rows from now on."""
        for lane in self._plan.separate():
            self._sweep.insert_lane(lane, self._plan.tests)
        self._read_plan()

    def _read_plan(self) -> None:
        """Note what loops have to know: the lanes of results, and the columns that are added up."""
        plain, self._summed = self._plan.plain(), self._plan.summed()
        self._plain = None if plain is None else tuple(plain)
        words = self._source.words
        self._summed_at = np.array([words + self._argument_at[c] for c in self._summed or ()], np.int64)

    def _widen(self, ints: int, added: int) -> None:
        """There were so many words of whole numbers, and of all added lanes: those that have come since are zero."""
        plan = self._plan
        for lane in range(ints, plan.ints):
            self._sweep.insert_lane(lane, plan.tests, zero=True)
        for lane in range(added + plan.ints - ints, plan.added):
            self._sweep.insert_lane(lane, plan.tests, zero=True, whole=False)

    def _changes(self, pieces: Pieces) -> Changes:
        sweep = self._sweep
        if self._plain is not None:
            codes, n_keys = sweep.keys.codes, len(self._keys.schema)
            n = len(pieces.taken) + len(pieces.said)
            found, rows = np.empty((4, n), np.int64), np.empty((n, self.codec.width), np.int64)
            aggregate_rows(
                pieces.keys, pieces.taken, pieces.said, codes, self._keys.words, self.codec.words, n_keys, *self._plain,
                found, rows,
            )  # fmt: skip
            group, lo, hi, weight = found
        else:
            changed = np.concatenate([pieces.taken, pieces.said])
            group, lo, hi = pieces.keys[changed[:, 0]], changed[:, 1].copy(), changed[:, 2].copy()
            weight = np.ones(len(changed), np.int64)
            weight[: len(pieces.taken)] = -1
            lanes = np.ascontiguousarray(changed[:, 3:])
            rows = self._rows(group, lanes)
        return Changes(self.codec, lo, hi, weight, rows, group, pieces.closed)

    def emitting(self, emit: Emit, frontiers: Sequence[Frontier]) -> Changes | None:
        if emit.rank <= self._sweep.policy.emit.rank:
            return None
        before = self._changes(self._sweep.standing())
        return netted(concat(before.negated(), self._changes(self._sweep.restated(emit, self._evaluates))))

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        return self._sweep.known_from, self._changes(self._sweep.standing())

    def remembers(self, port: int) -> tuple[int, Changes] | None:
        """The live rows, where they are kept whole: the columns are keys or arguments."""
        since, source = self._sweep.known_from, self._source
        if self._live is None or since == INF:
            return None
        if len({*self._key_at, *self._argument_at}) < len(source.schema):
            return None
        ids = self._sweep.keys.ids()
        records, offsets = self._live.runs.gather(ids)
        keys = self._sweep.keys.codes[np.repeat(ids, np.diff(offsets))]
        rows = np.zeros((len(records), source.width), np.int64)
        parts = ((self._keys, keys, self._key_at), (self._arguments, records[:, VALUES:], self._argument_at))
        for codec, coded, columns in parts:
            for at, column in enumerate(columns):
                rows[:, source.words + column] = coded[:, codec.words + at]
                valid = codec.valid(coded, at)
                if valid is not None:
                    rows[:, column // BITS] |= (~valid).astype(np.int64) << (column % BITS)
        lo, hi, weight = (records[:, at].copy() for at in (live_kernel.LO, live_kernel.HI, live_kernel.WEIGHT))
        return since, Changes(source, lo, hi, weight, rows)

    def _rows(self, ids: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        codec, keys = self.codec, self._keys
        rows = np.zeros((len(ids), codec.width), np.int64)
        key_rows = self._sweep.keys.codes[ids]
        n_keys = len(keys.schema)
        if n_keys:
            same_words = min(keys.words, codec.words)
            rows[:, :same_words] = key_rows[:, :same_words]
            rows[:, codec.words : codec.words + n_keys] = key_rows[:, keys.words :]
        results: list[Coded] = self._plan.results(lanes)
        for j, (codes, valid) in enumerate(results, start=n_keys):
            if valid is None or valid.all():
                rows[:, codec.words + j] = codes
            else:
                rows[:, codec.words + j] = np.where(valid, codes, 0)
                rows[:, j // BITS] |= (~valid).astype(np.int64) << (j % BITS)
        return rows

    def _extremes(self) -> Extremes:
        assert self._live is not None
        runs = self._live.runs
        return Extremes(runs.place, runs.pool, self._extreme_columns, self._live.longest)

    def _evaluate(self, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
        plan = self._plan
        lanes = np.empty((len(keys), plan.evaluated), np.int64)
        n = len(plan.extremes)
        found: dict[str, holistic.Found] = {}
        for column in self._ordered:
            for aggregation, result in zip(column.aggregations, column.evaluate(keys, times), strict=True):
                found[aggregation.name] = result
        if self._live is not None:
            runs = self._live.runs
            if n:
                heap = np.empty((2, self._live.longest), np.int64)
                lanes[:, :n] = largest(keys, times, runs.place, runs.pool, self._extreme_columns, heap).T
            if self._users:
                request, record = live_kernel.pairs(keys, times, runs.place, runs.pool)
                rows, weight = runs.pool[record, VALUES:], runs.pool[record, live_kernel.WEIGHT]
                for user in self._users:
                    found[user.name] = holistic.evaluate_user(user, self._arguments, keys, request, rows, weight)
        for i, aggregation in enumerate(plan.holistic):
            lanes[:, n + 2 * i], lanes[:, n + 2 * i + 1] = found[aggregation.name]
        return lanes

    def key_count(self) -> int:
        return len(self._sweep.keys)

    def state_size(self) -> StateSize:
        size = self._sweep.state_size()
        for column in self._ordered:
            size += column.statistics.state_size()
        return size if self._live is None else size + StateSize(self._live.rows, self._live.nbytes)

    def snapshot(self) -> dict[str, Any]:
        keys = self._sweep.keys
        ids = keys.ids()
        state: dict[str, Any] = {"keys": self._keys.decode(keys.codes[ids]), "sweep": self._sweep.snapshot()}
        state["largest"] = dict(self._plan.integer_sums)
        state["separated"] = self._plan.separated
        state["classes"] = {column: list(each.classes) for column, each in self._plan.floats.items()}
        if len(self._promises):
            state["promises"] = self._promises.snapshot()
        if self._live is not None:
            live = self._live.snapshot(ids)
            state["arguments"] = self._arguments.decode(live["records"][:, VALUES:])
            live["records"] = live["records"][:, :VALUES].copy()
            state["live"] = live
        state["ordered"] = [column.statistics.snapshot(ids) for column in self._ordered]
        for lane, type_ in self._pooled_results:
            at, edges = 1 + self._plan.added + lane, state["sweep"]["edges"]
            state[f"results{lane}"] = decode_column(edges[:, at], edges[:, at + 1] != 0, type_, self.codec.pool)
        return state

    def restore(self, state: dict[str, Any]) -> None:
        sweep = state["sweep"]
        self._plan.integer_sums.update(state["largest"])
        if state["separated"]:
            self._separate()
        before = self._plan.ints, self._plan.added
        self._plan.widen([(column, class_) for column, found in state["classes"].items() for class_ in found])
        self._widen(*before)
        if "promises" in state:
            self._promises.restore(state["promises"])
        for lane, type_ in self._pooled_results:
            codes = encode_column(state[f"results{lane}"], type_, self.codec.pool)
            sweep["edges"][:, 1 + self._plan.added + lane] = codes
        self._most = int(sweep["edges"][:, 1].max(initial=0))
        ids = self._sweep.restore(restored.rows(self._keys, state["keys"], len(sweep["ids"])), sweep)
        if self._live is not None:
            live = state["live"]
            values = restored.rows(self._arguments, state["arguments"], restored.records(live["records"], VALUES))
            self._live.grow(self._sweep.keys.capacity)
            self._live.restore(ids, live, np.concatenate([live["records"], values], axis=1))
        for column, kept in zip(self._ordered, state["ordered"], strict=True):
            column.statistics.grow(self._sweep.keys.capacity)
            column.statistics.restore(ids, kept)


@loop
def aggregate_rows(
    visited: Any, taken: Any, said: Any, keys: Any, key_words: Any, words: Any, key_columns: Any,
    value_lane: Any, valid_lane: Any, kinds: Any, out: Any, rows: Any,
) -> None:  # fmt: skip
    """What is taken back, then what is said, with coded rows, for aggregates that are a lane each (null where the valid
    lane is zero): an extreme is an order code of a kind, others have the kind 0.  Keys, starts, ends and weights are
    the rows of `out`."""
    lanes = value_lane, valid_lane, kinds
    _fill_rows(visited, taken, -1, 0, keys, key_words, words, key_columns, lanes, out, rows)
    _fill_rows(visited, said, 1, len(taken), keys, key_words, words, key_columns, lanes, out, rows)


@njit(cache=True, inline="always")
def _fill_rows(
    visited: Any, source: Any, weight: Any, first: Any, keys: Any, key_words: Any, words: Any, key_columns: Any,
    lanes: Any, out: Any, rows: Any,
) -> None:  # fmt: skip
    """Pieces as `aggregate_rows` gives them, from the row `first` on."""
    value_lane, valid_lane, kinds = lanes
    n_values = len(value_lane)
    for at in range(len(source)):
        i = first + at
        if at + 16 < len(source):
            prefetch(keys, visited[source[at + 16, 0]])
        k = visited[source[at, 0]]
        out[0, i] = k
        out[1, i] = source[at, 1]
        out[2, i] = source[at, 2]
        out[3, i] = weight
        if words == 1 and key_words == 1 and key_columns == 1:  # the usual case, without loops
            rows[i, 0] = keys[k, 0]
            rows[i, 1] = keys[k, 1]
        else:
            for c in range(words):
                rows[i, c] = keys[k, c] if c < key_words else 0
            for c in range(key_columns):
                rows[i, words + c] = keys[k, key_words + c]
        for c in range(n_values):
            to = words + key_columns + c
            if valid_lane[c] < 0 or source[at, 3 + valid_lane[c]] > 0:
                rows[i, to] = plain_code(source[at, 3 + value_lane[c]], kinds[c])
            else:
                rows[i, to] = 0
                column = key_columns + c
                rows[i, column // 63] |= np.int64(1) << np.int64(column % 63)
