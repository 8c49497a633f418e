"""The state of a stage in another number of partitions: what each partition keeps, split by the key of its rows.

Where nobody can tell a new plan the past (windows of rows, windows without bound, patterns), state itself moves.  A
partition's state is plain data: rows or keys as columns, numbers beside them, runs of records by offsets.  Whoever has
the key of a row has all state of it, so state is split and put together key by key; what is not by key (what is
promised, the largest start) is the same in all partitions of a stage.

`LAYOUTS` says of each operator what of its state is by key, and how.  An operator that is not listed, a stage in which
rows do not carry the columns that they are placed by, or a state that is not alike in all partitions is refused by
name; then nothing has been changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.operators.contract import Operator
from everwhen.operators.join.join import JoinOperator
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.operators.partitioned import PartitionedOperator
from everwhen.operators.sweep.aggregate import AggregateOperator
from everwhen.operators.sweep.multiplicity import CountsOperator
from everwhen.operators.windows.chronons import ChrononsOperator
from everwhen.operators.windows.coalesce import CoalesceOperator
from everwhen.operators.windows.rows_window import RowsOperator
from everwhen.plan.physical import Port
from everwhen.plan.stages.lineage import lain_by
from everwhen.plan.stages.model import Stage
from everwhen.spark.worker.answer_span import WHOLE, speak_for
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.plain_state import (
    counted,
    put_together,
    run_rows,
    same,
    taken,
    value_at,
    with_values,
    without,
)

Where = Callable[[Schema, Sequence[pa.Array]], np.ndarray]
"""The partitions of rows of some columns, which are those that rows are placed by."""
State = dict[str, Any]
Columns = tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """What of a state is by key: the columns of the keys (or rows), what stands beside them, and runs of records by
    their offsets.  `latest`: of what the largest of all partitions counts.  Paths have dots."""

    keys: str
    schema: Callable[[Any], Schema]
    beside: tuple[str, ...] = ()
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    latest: tuple[str, ...] = ()
    numbered: str = ""
    """The numbers of the keys, which others know, too."""
    count: str = ""
    """How many keys there are."""


_KEPT_ROWS: Final = {"offsets": ("lo", "hi", "rows")}
_SWEEP: Final = {"sweep.offsets": ("sweep.edges",)}
LAYOUTS: Final[dict[type, Layout]] = {
    RowsOperator: Layout(
        "keys",
        lambda o: o._key_codec.schema,
        ("dropped", "due"),
        {"offsets": ("time", "until", "rows")},
        ("forgotten",),
    ),
    ChrononsOperator: Layout(
        "rest.rows",
        lambda o: o.codec.schema,
        ("rest.sweep.due",),
        {"rest.sweep.offsets": ("rest.sweep.edges",)},
        ("rest.sweep.forgotten", "last"),
        "rest.sweep.ids",
    ),
    PartitionedOperator: Layout("keys", lambda o: o._key_codec.schema, (), _KEPT_ROWS, ("forgotten",)),
    AggregateOperator: Layout(
        "keys", lambda o: o._keys.schema, ("sweep.due",), _SWEEP, ("sweep.forgotten",), "sweep.ids"
    ),
    CoalesceOperator: Layout(
        "rows", lambda o: o.codec.schema, ("late",), {"offsets": ("records",)}, ("forgotten",), count="n"
    ),
    CountsOperator: Layout("rows", lambda o: o.codec.schema, ("sweep.due",), _SWEEP, ("sweep.forgotten",), "sweep.ids"),
}
_LOG: Final = Layout("rows", lambda codec: codec.schema, ("vs", "ve"), latest=("forgotten",))
_BAG: Final = Layout("rows", lambda codec: codec.schema, ("lo", "hi", "weight"), latest=("left", "corrects"))
_SIDE: Final = Layout("rows", lambda codec: codec.schema, ("segments",))
_UNTIL: Final = Layout("rows", lambda codec: codec.schema, ("until",))


def moved_state(
    stage: Stage, old: Sequence[StagePartition], fresh: Callable[[int], StagePartition], partitions: int, where: Where
) -> list[StagePartition]:
    """The partitions of a stage in another number, from those that there are."""
    return _Move(stage, old, partitions, where).made(fresh)


class _Move:
    def __init__(self, stage: Stage, old: Sequence[StagePartition], partitions: int, where: Where) -> None:
        self._stage, self._old, self._n, self._where = stage, old, partitions, where
        self._of = _placed_by(stage)
        self._by: Columns = ()
        """The columns by which rows of the state at hand are placed: those of its stream."""
        self._groups: dict[int, list[list[np.ndarray]]] = {}
        """By operator, old and new partition: the numbers of the keys that moved, in the order of their new ones."""

    def made(self, fresh: Callable[[int], StagePartition]) -> list[StagePartition]:
        first = self._old[0]
        found = [fresh(at) for at in range(self._n)]
        for new in found:
            self._begun(new)
        for name in first.guards:
            for new, state in zip(found, self._guards(name), strict=True):
                new.guards[name].restore(state)
        for number, node in first.dataflow.flow.nodes.items():
            parts = [each.dataflow.flow.nodes[number].snapshot() for each in self._old]
            states = self._operator(number, node.placed.operator, node.placed.name, [part["state"] for part in parts])
            whole = self._alike(node.placed.name, parts, ("state", "rows_in", "rows_out", "max_end"))
            for at, (new, state) in enumerate(zip(found, states, strict=True)):
                new.dataflow.flow.nodes[number].restore(whole | counted(parts, at) | {"state": state})
        for name in first.dataflow.flow.outputs:
            for new, state in zip(found, self._output(name), strict=True):
                new.dataflow.flow.outputs[name].restore(state)
        for new in found:
            self._progress(new)
        return found

    def _begun(self, new: StagePartition) -> None:
        """Outputs that speak for a part of time, as the old ones do."""
        spans = {each.span for each in self._old}
        if len(spans) > 1 or new.span != WHOLE:
            raise QueryError("partitions speak for different instants, so their state cannot be split")
        (new.span,) = spans
        if new.span != WHOLE:
            speak_for(new.dataflow, new.span, new.emit, None)

    def _progress(self, new: StagePartition) -> None:
        """What all partitions know: how far sources and streams have come."""
        old = self._old
        new.tau, new.emit = max(each.tau for each in old), old[0].emit
        for mine, theirs in ((new.cti, "cti"), (new.promised, "promised"), (new.starts, "starts")):
            for name in mine:
                mine[name] = max(getattr(each, theirs)[name] for each in old)
        flows = [each.dataflow for each in old]
        new.dataflow.tau = max(flow.tau for flow in flows)
        rest = self._alike("the dataflow", [flow.snapshot() for flow in flows], ("operators", "outputs", "tau"))
        if changed := [name for name, value in rest.items() if value]:
            raise QueryError(
                f"the level or what is wanted was changed while it ran ({changed[0]}): state cannot be split"
            )

    # -- guards ---------------------------------------------------------------------------------------------------

    def _guards(self, name: str) -> list[State]:
        self._by = self._of[name]
        parts = [each.guards[name].snapshot() for each in self._old]
        whole = self._alike(f"the source of {name}", parts, ("log", "left_out"))
        codec = self._old[0].guards[name].codec
        logs = self._split(_LOG, codec, [part["log"] for part in parts], f"the source of {name}")
        left = [sum(part["left_out"] for part in parts)] + [0] * (self._n - 1)
        return [whole | {"log": log, "left_out": count} for log, count in zip(logs, left, strict=True)]

    # -- operators ------------------------------------------------------------------------------------------------

    def _operator(self, number: int, operator: Operator, name: str, parts: list[State]) -> list[State]:
        if not any(parts):  # it keeps nothing
            return [{}] * self._n
        layout = next((found for cls, found in LAYOUTS.items() if isinstance(operator, cls)), None)
        if layout is None and type(operator) is not JoinOperator:
            raise QueryError(f"the operator '{name}' keeps a state that cannot be split by its rows' key")
        if layout is None:
            return self._join(number, operator, parts, f"the operator '{name}'")
        self._by = self._below(number, f"the operator '{name}'")
        if isinstance(operator, AggregateOperator):
            layout = _aggregate(layout, parts[0])
            largest: dict[Any, int] = {}
            for part in parts:
                for column, bound in part["largest"].items():
                    largest[column] = max(largest.get(column, bound), bound)
            parts = [part | {"largest": largest} for part in parts]
        return self._split(layout, operator, parts, f"the operator '{name}'", number)

    def _join(self, number: int, operator: Any, parts: list[State], what: str) -> list[State]:
        """Each side by its own columns, which the join says are equal."""
        sides = []
        for port, side in enumerate(operator._kept):
            self._by = self._fed(self._old[0].dataflow.flow.nodes[number].placed.inputs[port], what)
            sides.append(self._split(_SIDE, side.codec, [part[f"side{port}"] for part in parts], what))
        whole = self._alike(what, parts, ("side0", "side1", "forgotten"))
        whole["forgotten"] = max(part["forgotten"] for part in parts)
        return [whole | {"side0": left, "side1": right} for left, right in zip(*sides, strict=True)]

    def _below(self, number: int, what: str) -> Columns:
        """The columns that an operator's rows are placed by: behind a join those of its left side."""
        placed = self._old[0].dataflow.flow.nodes[number].placed
        inputs = placed.inputs[:1] if type(placed.operator) is JoinOperator else placed.inputs
        found = {self._fed(port, what) for port in inputs}
        if not found:
            raise QueryError(f"{what} reads rows that are in every partition, so state cannot be split")
        if len(found) > 1:
            named = " and ".join(", ".join(each) for each in sorted(found))
            raise QueryError(f"{what} reads streams that are placed by columns of different names: {named}")
        return found.pop()

    def _fed(self, port: Port, what: str) -> Columns:
        return self._below(port.operator, what) if port.source is None else self._of[port.source]

    def _output(self, name: str) -> list[State]:
        outputs = [each.dataflow.flow.outputs[name] for each in self._old]
        parts = [each.snapshot() for each in outputs]
        what = f"the answer of {name!r}"
        by = lain_by(self._stage.queries[name], {stream.name: stream.by for stream in self._stage.inputs})
        self._by = self._fed(outputs[0].port, what)
        if self._by and by != self._by:
            raise QueryError(f"{what} does not carry the columns that its rows are placed by ({', '.join(self._by)})")
        whole = self._alike(what, parts, ("changelog", "filter", "rows_in", "rows_out"))
        encoder = outputs[0].encoder
        given = [part["changelog"] for part in parts]
        if isinstance(encoder, GroupChangelogEncoder):
            logs = self._group_log(outputs[0].port.operator, given, what)
        elif isinstance(encoder, ChangelogEncoder):
            logs = self._split(_LOG, encoder.codec, given, what)
        elif isinstance(encoder, EventChangelogEncoder):
            logs = [self._alike(what, given)] * self._n
        else:
            raise QueryError(f"{what} keeps a state that cannot be split")
        filters: list[Any] = [None] * self._n
        if outputs[0].filter is not None:
            filters = self._filters([part["filter"] for part in parts], outputs[0].filter.codec, what)
        return [
            whole | counted(parts, at) | {"changelog": log, "filter": kept}
            for at, (log, kept) in enumerate(zip(logs, filters, strict=True))
        ]

    def _filters(self, parts: list[State], codec: Any, what: str) -> list[State]:
        waiting = self._split(_BAG, codec, [part["waiting"] for part in parts], what)
        until = self._split(_UNTIL, codec, [part["unordered"] for part in parts], what)
        ahead = max(part["ahead"] for part in parts)
        return [{"waiting": bag, "ahead": ahead, "unordered": each} for bag, each in zip(waiting, until, strict=True)]

    def _group_log(self, number: int, parts: list[State], what: str) -> list[State]:
        """What was said of groups, by the numbers that these have now."""
        nodes = self._old[0].dataflow.flow.nodes
        while number not in self._groups and len(inputs := nodes[number].placed.inputs) == 1 and not inputs[0].source:
            number = inputs[0].operator  # filters and projections pass groups on
        if number not in self._groups:
            raise QueryError(f"{what} counts groups that nobody numbers")
        whole = self._alike(what, parts, ("groups", "said", "offsets"))
        found = []
        for at in range(self._n):
            numbers, lengths, said, begun = [], [], [], 0
            for part, moved in zip(parts, self._groups[number], strict=True):
                mine = moved[at]
                place = np.full(int(max(part["groups"].max(initial=-1), mine.max(initial=-1))) + 1, -1, np.int64)
                place[mine] = begun + np.arange(len(mine))
                picked = np.flatnonzero(place[part["groups"]] >= 0)
                numbers.append(place[part["groups"][picked]])
                lengths.append(np.diff(part["offsets"])[picked])
                said.append(part["said"][run_rows(part["offsets"], picked)])
                begun += len(mine)
            offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
            found.append(whole | {"groups": np.concatenate(numbers), "said": np.concatenate(said), "offsets": offsets})
        if sum(len(each["groups"]) for each in found) != sum(len(part["groups"]) for part in parts):
            raise QueryError(f"{what} has said something of groups that are gone")
        return found

    # -- splitting ------------------------------------------------------------------------------------------------

    def _split(self, layout: Layout, of: Any, parts: list[State], what: str, number: int = -1) -> list[State]:
        """States of all partitions as those of the new ones."""
        schema = layout.schema(of)
        places = [self._places(schema, value_at(part, layout.keys), count_of(part, layout), what) for part in parts]
        by_key = {layout.keys, *layout.beside, *layout.runs, *(v for each in layout.runs.values() for v in each)}
        by_key |= {*layout.latest, *(path for path in (layout.numbered, layout.count) if path)}
        whole = self._alike(what, parts, tuple(by_key))
        found: list[State] = []
        moved: list[list[np.ndarray]] = [[] for _ in parts]
        for at in range(self._n):
            picks = [np.flatnonzero(place == at) for place in places]
            state: State = {}
            for path in (layout.keys, *layout.beside):
                mine = [taken(value_at(part, path), pick) for part, pick in zip(parts, picks, strict=True)]
                state[path] = put_together(mine)
            for offsets, values in layout.runs.items():
                given = [value_at(part, offsets) for part in parts]
                rows = [run_rows(each, pick) for each, pick in zip(given, picks, strict=True)]
                lengths = [np.diff(each)[pick] for each, pick in zip(given, picks, strict=True)]
                ends = np.cumsum(np.concatenate(lengths))
                state[offsets] = np.concatenate([[0], ends]).astype(np.int64)
                for path in values:
                    mine = [taken(value_at(part, path), row) for part, row in zip(parts, rows, strict=True)]
                    state[path] = put_together(mine)
            for path in layout.latest:
                state[path] = max(value_at(part, path) for part in parts)
            if layout.numbered:
                for numbers, part, pick in zip(moved, parts, picks, strict=True):
                    numbers.append(value_at(part, layout.numbered)[pick])
                state[layout.numbered] = np.arange(sum(map(len, picks)), dtype=np.int64)
            if layout.count:
                state[layout.count] = sum(map(len, picks))
            found.append(with_values(whole, state))
        if layout.numbered:
            self._groups[number] = moved
        return found

    def _places(self, schema: Schema, columns: Sequence[pa.Array], count: int, what: str) -> np.ndarray:
        if not self._by:
            return np.zeros(count, np.int64)
        if missing := [name for name in self._by if name not in schema]:
            raise QueryError(f"{what} does not keep the column {missing[0]!r}, by which its rows are placed")
        own = [schema.index(name) for name in self._by]
        keys = Schema.of([(name, schema.types[at]) for name, at in zip(self._by, own, strict=True)])
        return self._where(keys, [columns[at] for at in own])

    def _alike(self, what: str, parts: Sequence[State], but: tuple[str, ...] = ()) -> State:
        """What all partitions say alike; what is excepted is left out."""
        rest = [without(part, but) for part in parts]
        if not all(same(rest[0], each) for each in rest[1:]):
            raise QueryError(f"the state of {what} is not alike in all partitions, so it cannot be split")
        return rest[0]


def _placed_by(stage: Stage) -> dict[str, Columns]:
    """The columns that the rows of each stream of a stage are placed by, under the names that they have throughout."""
    if stage.loop is not None or stage.loops:
        raise QueryError("the state of a recursion cannot be split: which rows follow from which is not by key")
    found: dict[str, Columns] = {}
    for stream in stage.inputs:
        if stream.by is None:
            raise QueryError(f"the stream {stream.name} is copied to every partition, so state cannot be split")
        found[stream.name] = stream.by
    types = {tuple(str(stream.schema.field(name).type) for name in found[stream.name]) for stream in stage.inputs}
    if len(types) > 1:
        raise QueryError("streams are placed by columns of different types, so state cannot be split")
    names = {name for by in found.values() for name in by}
    for node in n.walk(*stage.queries.values(), *stage.handed.values()):
        for name, made in node.columns if isinstance(node, n.Map) else ():
            if name in names and not (isinstance(made, Column) and made.name == name):
                raise QueryError(f"the column {name!r}, by which rows are placed, is computed anew on the way")
    return found


def _aggregate(layout: Layout, state: State) -> Layout:
    """The layout of an aggregate, which depends on its functions."""
    runs, beside = dict(layout.runs), list(layout.beside)
    runs["sweep.offsets"] = ("sweep.edges", *(name for name in state if name.startswith("results")))
    if "live" in state:
        runs["live.offsets"] = ("live.records", "arguments")
    for at in range(len(state["ordered"])):
        beside.append(f"ordered.{at}.times")
        runs[f"ordered.{at}.offsets"] = (f"ordered.{at}.changes", f"ordered.{at}.codes")
        runs[f"ordered.{at}.starts"] = (f"ordered.{at}.weights", f"ordered.{at}.values")
    return replace(layout, runs=runs, beside=tuple(beside))


def count_of(state: State, layout: Layout) -> int:
    """How many keys there are."""
    for path in layout.runs:
        return len(value_at(state, path)) - 1
    return len(value_at(state, layout.beside[0]))
