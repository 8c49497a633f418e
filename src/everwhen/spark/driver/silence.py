"""WAITING on Spark: why a query says nothing, found out as in process: the missing promise is computed from the rules
of the operators, and what it brings is tried on copies of the state.

*Where.*  In the driver, on request, between two epochs.  The state of every partition of every stage after the last
epoch is what its files say (snapshot and logs, `state_before`), whoever owns it; the driver reads them as a worker does
that becomes the owner.  A trial steps copies of all partitions, stage by stage, with nothing but the promises: what a
stage hands on goes to the partitions where Spark would send it (its own hash decides, asked once per row), frontiers
are the lowest of all partitions, as in an epoch.  So the law of WAITING holds as it does in process.

*Why not in the workers.*  It needs a handful of trials, one after the other: as many jobs and a copy of all states in
the workers, for a question that is asked now and then; in the driver a trial needs no job.

*Rules.*  What an answer needs is followed through the stages from the last to the first: in a stage as in process, of
all partitions the most, and where the JVM has given lifetimes already (`FeedWindow`) through those.

*What it costs.*  Memory for a copy of the state in the driver; beyond a million rows it is not tried.  Not tried
either: levels that wait or forget (`block`, `remember`), where rows wait in the intake before the JVM's part of the
plan, and recursion whose rounds cross exchanges.  Then it is told how far the answer is final and which promises bring
it further, by the rules alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.metadata import OperatorMetadata, node_metadata
from everwhen.engine.observe.silence.find_waiting import Situation, Writes, find_waiting, next_final
from everwhen.engine.observe.silence.needed_promises import needed_promises
from everwhen.engine.observe.silence.waiting import SourceStatus, Waiting
from everwhen.plan.sanity.silence import never_promised
from everwhen.plan.stages.model import Stage, StreamIn
from everwhen.rows.changes import Changes
from everwhen.spark.driver.epoch_outcome import last_words
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.exchange.codec import Rows, without_promises
from everwhen.spark.exchange.punctuation_rows import partition_of
from everwhen.spark.exchange.schema import carried, slots
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.partition import EpochInput, EpochOutput, StagePartition
from everwhen.spark.worker.stage_program import StageProgram
from everwhen.spark.worker.state_host import state_before
from everwhen.stream.element import Cti, Element, Punct
from everwhen.stream.element_batch import ElementBatch, empty_elements, joined


def why_silent(runner: EpochRunner, query: str, writes: Writes | None = None) -> Waiting:
    """Why a query says nothing; waits for the epoch under way, unless that waits for a sink."""
    if runner.retrying:
        return find_waiting(_situation(runner, query, None))
    with runner.gate:
        return find_waiting(replace(_situation(runner, query, _States(runner)), writes=writes))


def who_holds(runner: EpochRunner) -> str:
    """Who holds the answer back, in a sentence, as the last epoch tells."""
    if not runner.reports:
        return "no epoch has been run yet: no input has come, or the first one is under way"
    report = runner.reports[-1]
    if not report.holding:
        return "nothing is waited for: all sources have ended"
    names = ", ".join(report.holding)
    silent = [name for name in report.holding if report.progress.get(name, NEVER) == NEVER]
    if silent:
        return never_promised(silent, runner.level.emit is Emit.FINAL, on_spark=True)
    return f"answers are final up to what {names} has promised; a promise of {names} would bring more"


class _States:
    """The state of all partitions after the last epoch."""

    def __init__(self, runner: EpochRunner) -> None:
        self.runner, self.run, self.epoch = runner, runner.runs[0], runner.journal.newest() + 1
        self.stages, self.partitions = self.run.plan.stages, self.run.partitions
        self._places: dict[tuple[Any, ...], int] = {}
        self.query = ""

    @cached_property
    def programs(self) -> list[StageProgram]:
        """What each stage does; only its state and how it steps matter."""
        return [self.runner.jobs.alone(self.run, stage) for stage in self.stages]

    @cached_property
    def live(self) -> list[list[StagePartition]]:
        """The partitions of each stage."""
        return [
            [
                state_before(program, self.epoch, PartitionStore(program.state.root, program.state.stage, at))
                for at in range(self.partitions)
            ]
            for program in self.programs
        ]

    @cached_property
    def snapshots(self) -> list[list[dict[str, Any]]]:
        """The same as plain data, of which copies are made."""
        return [[partition.snapshot() for partition in stage] for stage in self.live]

    @cached_property
    def beginning(self) -> list[list[StagePartition]]:
        """One partition of each stage as it began."""
        return [[program.fresh(0)] for program in self.programs]

    def copy(self) -> _PartitionsTrial:
        copies = [
            [_restored(program, at, state) for at, state in enumerate(states)]
            for program, states in zip(self.programs, self.snapshots, strict=True)
        ]
        return _PartitionsTrial(self, copies)

    def place_of(self, stream: StreamIn, columns: Sequence[pa.Array]) -> np.ndarray:
        """To which partition Spark sends rows; of each row it is asked once."""
        by = stream.by or ()
        at = [stream.schema.names.index(name) for name in by]
        keys = list(zip(*(columns[each].to_pylist() for each in at), strict=True))
        unknown = [i for i, key in enumerate(keys) if (stream.tag, key) not in self._places]
        if unknown:
            picked = pa.array(unknown)
            named = [name for name, _ in slots(stream.schema)]
            fields = zip(named, stream.schema.types, strict=True)
            table = pa.table([_plain(column).take(picked) for column in columns], names=named)
            session: SparkSession = self.runner.session
            types = ", ".join(f"`{name}` {carried(type_).simpleString()}" for name, type_ in fields)
            frame = session.createDataFrame(table, schema=types)
            found = frame.select(partition_of(stream.schema, by, self.partitions)).toArrow().column(0).to_pylist()
            self._places.update({(stream.tag, keys[i]): place for i, place in zip(unknown, found, strict=True)})
        return np.array([self._places[stream.tag, key] for key in keys], np.int64)


def _restored(program: StageProgram, at: int, state: Mapping[str, Any]) -> StagePartition:
    found = program.fresh(at)
    found.restore(state)
    return found


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


class _PartitionsTrial:
    """Copies of all partitions, which are pushed, and go on until nothing goes round."""

    def __init__(self, states: _States, copies: list[list[StagePartition]]) -> None:
        self._states, self._copies = states, copies
        runner, epoch = states.runner, states.epoch
        self._left = runner.ended(epoch) | runner.changes.detached

    def push(self, elements: Mapping[str, Sequence[Element]]) -> ElementBatch:
        promised = {
            name: (NEVER, max((e.t for e in given if isinstance(e, Cti)), default=NEVER))
            for name, given in elements.items()
        }
        about = {name: [e.promise for e in given if isinstance(e, Punct)] for name, given in elements.items()}
        below: list[tuple[StagePartition, EpochOutput]] = []
        for stage, partitions in zip(self._states.stages, self._copies, strict=True):
            given = self._handed(stage, below) if below else [EpochInput()] * len(partitions)
            fed = {s.feed.source.name for s in stage.inputs if s.feed is not None}
            sources = {name: told for name, told in promised.items() if name in fed}
            promises = {s.name: _fitting(s, about) for s in stage.inputs if _fitting(s, about)}
            below = [
                (
                    partition,
                    partition.step(
                        replace(each, sources=sources, promises=promises, ended=self._left, span=partition.span)
                    ),
                )
                for partition, each in zip(partitions, given, strict=True)
            ]
        return self._said(below)

    def goes_on(self) -> bool:
        flows = [partition.dataflow.flow for stage in self._copies for partition in stage]
        return any(node.woken for flow in flows for node in flow.nodes.values())

    def needs(self, t: int) -> Mapping[str, int]:
        return _needs(self._copies, self._states.query, t)

    def _said(self, last: Sequence[tuple[StagePartition, EpochOutput]]) -> ElementBatch:
        query = self._states.query
        found = empty_elements(self._states.runner.schemas[query])
        for _, output in last:
            found = joined(found, without_promises(output.results[query]))
        promise = min(output.progress[query] for _, output in last)
        return joined(found, last_words(found.schema, (), NEVER, promise))

    def _handed(self, stage: Stage, below: Sequence[tuple[StagePartition, EpochOutput]]) -> list[EpochInput]:
        """What crosses the exchange to the partitions of a stage."""
        rows: list[dict[str, Rows]] = [{} for _ in below]
        handed: dict[str, int] = {}
        said: dict[str, dict[int, Frontier]] = {}
        starts: dict[str, int] = {}
        streams = {stream.name: stream for stream in stage.inputs if stream.feed is None}
        for sender, (partition, output) in enumerate(below):
            for port in partition.plan.handed:
                if port.name not in streams:
                    continue
                one = output.handed[port.name]
                handed[port.name] = min(handed.get(port.name, INF), one.frontier.time)
                said.setdefault(port.name, {})[sender] = one.frontier
                starts[port.name] = max(starts.get(port.name, NEVER), partition.start(port.port))
                if len(one.changes):
                    self._send(streams[port.name], one.changes, rows)
        tau = max(output.tau for _, output in below)
        return [EpochInput(rows=mine, handed=handed, said=said, starts=starts, tau=tau) for mine in rows]

    def _send(self, stream: StreamIn, changes: Changes, rows: list[dict[str, Rows]]) -> None:
        columns = changes.codec.decode(changes.rows)
        if stream.by is None:
            places = [np.arange(len(changes))] * len(rows)
        else:
            to = self._states.place_of(stream, columns) if stream.by else np.zeros(len(changes), np.int64)
            places = [np.flatnonzero(to == at) for at in range(len(rows))]
        for mine, at in zip(rows, places, strict=True):
            if len(at):
                picked, none = pa.array(at), np.zeros(len(at), np.int64)
                part = tuple(column.take(picked) for column in columns)
                more = Rows(changes.lo[at], changes.hi[at], none, changes.weight[at], part)
                mine[stream.name] = _both(mine[stream.name], more) if stream.name in mine else more


def _both(one: Rows, other: Rows) -> Rows:
    lo, hi, vnew, weight = (
        np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("lo", "hi", "vnew", "weight")
    )
    columns = zip(one.columns, other.columns, strict=True)
    return Rows(lo, hi, vnew, weight, tuple(pa.concat_arrays([_plain(a), _plain(b)]) for a, b in columns))


def _needs(stages: Sequence[Sequence[StagePartition]], query: str, t: int) -> dict[str, int]:
    """What sources have to promise so that a query promises all before `t`.  `stages` has the partitions of each."""
    streams: dict[str, int] = {}
    sources: dict[str, int] = {}
    for partitions in reversed(stages):
        handed, streams = streams, {}
        for partition in partitions:
            flow = partition.dataflow.flow
            wanted = {each.port: handed[each.name] for each in partition.plan.handed if each.name in handed}
            if query in flow.outputs:
                wanted[flow.outputs[query].port] = t
            for name, need in needed_promises(flow.nodes, wanted).items():
                streams[name] = max(streams.get(name, NEVER), need)
        for stream in partitions[0].stage.inputs:
            if stream.name not in streams or stream.returning:
                continue
            if stream.feed is not None:
                window, need = stream.feed.window, streams[stream.name]
                name = stream.feed.source.name
                sources[name] = max(sources.get(name, NEVER), need if window is None else window.needs(need))
    return sources


def _fitting(stream: StreamIn, about: Mapping[str, Sequence[Punctuation]]) -> list[Punctuation]:
    """The promises about data of a source that speak of columns that a stream has."""
    if stream.feed is None or stream.form != "elements":
        return []
    names = set(stream.schema.names)
    return [each for each in about.get(stream.feed.source.name, ()) if set(each.match) <= names]


def _situation(runner: EpochRunner, query: str, states: _States | None) -> Situation:
    known, now, run = runner.known, runner.clock(), runner.runs[0]
    names = [source.name for source in run.plan.sources if source.name not in runner.changes.detached]
    idle = runner.reports[-1].idle if runner.reports else frozenset()
    live = [] if states is None or states.epoch == 0 or run.intake is not None or run.plan.loops else states.live
    starts = _starts(live) if live else dict.fromkeys(names, NEVER if known.tau is None else known.tau)
    promising = {name for name in names if run.sources[name].match is not None}
    untried = ""
    if run.intake is not None and runner.reports:
        untried = "at a level that waits or forgets (block, remember), rows wait before the stages"
    elif run.plan.loops:
        untried = "the rounds of a recursion cross exchanges"
    statuses = [
        SourceStatus(
            name, known.sources.get(name, NEVER), starts.get(name, NEVER), _ago(known.seen.get(name), now),
            resting=name in idle, told=not untried, within=run.sources[name].source.disorder,
        )
        for name in names
    ]  # fmt: skip
    final = known.queries.get(query, NEVER)
    rules = [] if states is None or states.epoch == 0 else live or states.beginning
    found = Situation(
        query,
        statuses,
        {source.name: source.schema for source in run.plan.sources if source.name in promising},
        _operators(live),
        lambda: _copied(states, query),
        sum(partition.state_size().rows for stage in live for partition in stage),
        {name: late for name, late in known.late.items() if late},
        begins=max(run.since, NEVER),
        sink="; ".join(f"{name}: {why}" for name, why in runner.retrying.items()),
        untried=untried,
        final=final,
        further=_needs(rules, query, next_final(final, statuses)),
    )
    return found


def _copied(states: _States | None, query: str) -> _PartitionsTrial:
    assert states is not None, "a query whose sink does not take its answer is not tried"
    states.query = query
    return states.copy()


def _ago(seen: float | None, now: float) -> float | None:
    return None if seen is None else max(now - seen, 0.0)


def _starts(live: Sequence[Sequence[StagePartition]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for stage in live:
        for partition in stage:
            for stream in partition.stage.inputs:
                if stream.feed is not None:
                    name = stream.feed.source.name
                    found[name] = max(found.get(name, NEVER), partition.starts[stream.name])
    return found


def _operators(live: Sequence[Sequence[StagePartition]]) -> list[OperatorMetadata]:
    """What the operators of all partitions have got and said, together."""
    found: list[OperatorMetadata] = []
    for stage in live:
        flows = [partition.dataflow.flow for partition in stage]
        for number in flows[0].nodes:
            parts = [node_metadata(flow, flow.nodes[number], 1.0) for flow in flows]
            rows_in, rows_out = sum(each.rows_in for each in parts), sum(each.rows_out for each in parts)
            name = f"{stage[0].stage.level}: {parts[0].name}"
            found.append(replace(parts[0], name=name, rows_in=rows_in, rows_out=rows_out))
    return found
