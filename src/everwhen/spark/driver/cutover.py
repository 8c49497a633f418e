"""Another query in the place of a running one: when it takes over, what it is told of the past, what both say.

Old plan P, new plan P'.  Both run in the same epochs over the same rows, each with its own stages and state.  The
answer is what P says before an instant T and what P' says from T on (`answer_span.py`), so nothing is missing or
doubled.

*T* is decided before the first epoch of both, from what is known then: it is not before the promise given at the
output, so nothing is contradicted; nor before the instant from which on P' is exact; nor before `at`.

*The past.*  P' has not seen the rows of earlier epochs.  Of a source that may be corrected, the guards of P keep all
events that may still be named; these are its past, complete from what the source has promised on (V).  Of one that is
never corrected nothing is kept, but all of it ends by a known time (V), if lifetimes have a fixed length.  From the
latest V on the inputs of P' are what they would be had it always run, and from V its answer follows (`exact_from.py`).
P' gets its past, and the promises given, as an epoch of its own before its first one: published as every input is, so
an epoch that is run again finds the same.

*Progress* is that of P up to T, then that of P'.  When P has promised T it has said all it had to; P' speaks freely
from that very epoch on, P runs no more after it, and its state is deleted.  State is at most that of both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.plan.exact_from import exact_from
from everwhen.plan.stages.past import Told, same_feeds, told_by
from everwhen.spark.driver.epoch_log import EpochState
from everwhen.spark.driver.epoch_outcome import EpochOutcome
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.exchange.codec import taken
from everwhen.spark.exchange.messages import TaskNote
from everwhen.spark.exchange.schema import ExchangeSchema
from everwhen.spark.exchange.source_scan import fed_again, fed_layout
from everwhen.spark.worker.partition import StagePartition
from everwhen.spark.worker.past_rows import PastRows, Recalled
from everwhen.spark.worker.stage_program import StageProgram
from everwhen.stream.element_batch import ADJUST, joined

_BESIDE = "start the new query beside this one with a checkpoint of its own, and merge the two (LMERGE, hand_over)"


@dataclass(frozen=True)
class Past:
    """What is known of a source: by whom, and from which instant on."""

    told: Told | None
    since: int
    streams: Mapping[int, Told] = field(default_factory=dict)
    """Who knows each of its feeds, where both plans have the same."""


def check_same_columns(old: Mapping[str, Schema], new: Mapping[str, Schema]) -> None:
    """Refuse another query whose answer has other columns."""
    if set(old) != set(new):
        raise QueryError(
            f"the queries that run are called {sorted(old)}, and those that would take over {sorted(new)}: give one "
            "for each, under its name"
        )
    for name, schema in new.items():
        if list(zip(schema.names, schema.types, strict=True)) != list(
            zip(old[name].names, old[name].types, strict=True)
        ):
            raise QueryError(
                f"the new query has other columns than {name!r}, so it cannot take its place: {_columns(schema)} "
                f"instead of {_columns(old[name])}"
            )


def check_replaceable(old: PlanRun, new: PlanRun) -> None:
    """Refuse what cannot be replaced, whatever has come so far."""
    if old.intake is not None or new.intake is not None:
        raise QueryError(
            "a query at a level that waits or forgets (block, remember) cannot be replaced: rows that wait are in no "
            "order yet; start it at the level middle or strong"
        )
    for run in (old, new):
        for loop in run.plan.loops:
            raise QueryError(
                f"a query with a recursion ACROSS PARTITIONS ({loop.name!r}) cannot be replaced, nor take the place of "
                f"another one; {_BESIDE}"
            )
        for source in run.plan.sources:
            if source.schemes or run.sources[source.name].match is not None:
                raise QueryError(
                    f"a query with punctuation cannot be replaced on Spark: {source.name!r} may promise rows for ever; "
                    f"{_BESIDE}"
                )


def check_inputs(ours: Collection[str], theirs: Collection[str]) -> None:
    """Refuse a new query that reads something else."""
    for name in sorted(set(theirs) - set(ours)):
        raise QueryError(
            f"the new query reads {name!r}, and the running one reads {', '.join(sorted(ours))}: Spark fixes the "
            f"inputs of a streaming query when it starts; {_BESIDE}"
        )


def pasts(old: PlanRun, new: PlanRun, known: EpochState, away: frozenset[str] = frozenset()) -> dict[str, Past]:
    """What is known of the sources of a new plan; those in `away` are detached."""
    found = {}
    for source in new.plan.sources:
        name = source.name
        resolved = old.sources[name]
        cti = known.sources.get(name, NEVER)
        fixed = resolved.source.insert_only or resolved.insert_only
        told = told_by(old.plan, name, fixed, new.plan)
        streams = None if fixed else same_feeds(old.plan, name, new.plan)
        if name in away:
            found[name] = Past(None, NEVER)
        elif streams and cti < INF:
            found[name] = Past(None, cti, streams)
        elif isinstance(told, Told) and cti < INF:
            found[name] = Past(told, cti)
        elif fixed and (resolved.end is None or resolved.chronons):
            assert known.tau is not None
            latest, length = max(known.tau, NEVER if cti == INF else cti), resolved.source.lifetime_ticks
            found[name] = Past(None, NEVER if latest == NEVER else latest + (1 if resolved.chronons else length))
        else:
            why = told if isinstance(told, str) else "it has ended, and nothing of it is kept"
            if fixed:
                why = "its rows have ends of their own, and those that came are not kept"
            raise QueryError(f"the new query cannot know the past of {name!r}: {why}. Remedy: {_BESIDE}")
    return found


def take_over_at(
    old: PlanRun,
    new: PlanRun,
    known: EpochState,
    away: frozenset[str],
    emit: Emit,
    at: int | None,
) -> int:
    """The instant at which a new plan takes over: as early as possible, but not before `at`."""
    if not known.queries:
        raise QueryError("no epoch is done yet, so there is nothing to replace: start the new query instead")
    if known.tau is None:
        raise QueryError("this checkpoint is of an older version: let one epoch run, then replace the query")
    promised = max(known.queries.values())
    if promised == INF:
        raise QueryError("the query has come to its end: everything is promised, so nothing of it can change")
    exact = exact_from(new.plan, emit, {name: past.since for name, past in pasts(old, new, known, away).items()})
    last = StagePartition(old.plan.stages[-1], emit)
    latest = max((known.sources.get(source.name, NEVER) for source in old.plan.sources), default=NEVER)
    forgotten = [last.recalls(name, latest, known.ends.get(name, NEVER)) for name in last.stage.queries]
    if INF in forgotten:
        raise QueryError(
            "what the running query has said has no end, and it does not keep it, so it cannot be taken back: "
            f"{_BESIDE}"
        )
    found = max(promised, exact, *forgotten, NEVER if at is None else at)
    if not NEVER < found < INF:
        raise QueryError("nothing has come yet, so no instant is known at which the new query could take over: give at")
    return found


def past_frame(
    session: SparkSession,
    old: PlanRun,
    new: PlanRun,
    programs: Sequence[StageProgram],
    known: EpochState,
    away: frozenset[str],
    epoch: int,
    partitions: int,
) -> DataFrame:
    """The past of the sources of a new plan, as the frame of its feeds: events that may still be named, and promises.
    `programs` are those of the old plan, whose state before `epoch` tells it."""
    raw = new.raw
    assert raw is not None
    recalled: dict[int, list[Recalled]] = {}
    streams: dict[int, list[Recalled]] = {}
    for name, past in pasts(old, new, known, away).items():
        if past.told is not None:
            stream = past.told.stream
            asked = Recalled(stream.name, raw.kinds[name], raw.schemas[name], stream.by is None)
            recalled.setdefault(past.told.stage - 1, []).append(asked)
        for tag, told in past.streams.items():
            stream = told.stream
            asked = Recalled(stream.name, tag, stream.schema, stream.by is None)
            streams.setdefault(told.stage - 1, []).append(asked)
    names = [source.name for source in new.plan.sources if source.name not in away]
    words = {raw.kinds[name]: known.sources[name] for name in names if known.sources.get(name, NEVER) > NEVER}
    tasks = len(programs) * partitions

    def told_rows(
        asked: Mapping[int, Sequence[Recalled]], layout: ExchangeSchema, said: Mapping[int, int]
    ) -> DataFrame:
        task = PastRows(programs, asked, epoch, partitions, layout, said)
        return session.range(0, tasks, 1, tasks).mapInArrow(task, layout.spark)

    found = raw.feeds(told_rows(recalled, raw.layout, words), new.plan, new.told)
    if not streams:
        return found
    return found.unionByName(fed_again(told_rows(streams, fed_layout(new.plan), {}), new.plan))


def finished(outcome: EpochOutcome, at: int) -> bool:
    """Whether all partitions of a plan have promised everything before an instant."""
    return all(promise >= at for note in outcome.notes for promise in note.progress.values())


def from_instant(outcome: EpochOutcome, at: int) -> EpochOutcome:
    """What a plan says that goes on from an instant before which everything is promised."""
    notes = [replace(note, progress={k: max(at, t) for k, t in note.progress.items()}) for note in outcome.notes]
    return replace(outcome, notes=notes)


def together(outcomes: Sequence[EpochOutcome], emit: Emit, leading: int = 0) -> EpochOutcome:
    """What several plans said one after the other, as one: what was left out is that of the first, the progress that of
    the leading one."""
    lead, *others = outcomes
    results = dict(lead.results)
    for other in others:
        results = {name: joined(batch, other.results[name]) for name, batch in results.items()}
    if emit is Emit.FINAL and others:
        for name, batch in results.items():
            sync = np.where(batch.op == ADJUST, np.minimum(batch.ve, batch.vnew), batch.vs)
            results[name] = taken(batch, np.argsort(sync, kind="stable"))
    notes: list[TaskNote] = []
    for at, each in enumerate(outcomes):
        mine = each.notes if at == leading else [replace(note, progress={}) for note in each.notes]
        notes += mine if at == 0 else [replace(note, left_out={}) for note in mine]
    return EpochOutcome(results, lead.words, notes, sum(each.written for each in outcomes))


def _columns(schema: Schema) -> str:
    fields = (f"{name} {type_}" for name, type_ in zip(schema.names, schema.types, strict=True))
    return f"({', '.join(fields)})"
