"""Another query, another plan or another number of partitions in the place of what runs, while it runs or when it is
started again.

All of these are one thing: a plan that takes over from another one at an instant T (`driver/cutover.py`).  A query of
another meaning is *replaced*; a plan of equal meaning *migrates*, and the checkpoint stays that of the query as it was
asked; the same plan in another number of partitions is *rescaled*.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Node, sources_of
from everwhen.core.time import INF, NEVER, show
from everwhen.errors import QueryError
from everwhen.plan.explain import explain_stages
from everwhen.plan.stages.past import narrowed_like
from everwhen.plan.stored_plan import plans_of, stored
from everwhen.query import optimized
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.spark.api.job import (
    Job,
    Query,
    Ready,
    Rebinding,
    asked_text,
    bounded,
    fed_inputs,
    named,
    resolved_sources,
    staged,
)
from everwhen.spark.driver.copy_changes import CopyChanges
from everwhen.spark.driver.cutover import check_inputs, check_replaceable, check_same_columns, take_over_at
from everwhen.spark.driver.epoch_log import EpochLog, EpochState, Identity, difference
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.driver.move_state import move_state
from everwhen.spark.driver.plan_jobs import PlanJobs
from everwhen.spark.driver.plan_log import (
    PlanRecord,
    check_plans,
    read_identity,
    read_record,
    state_name,
    write_record,
)
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.sources.source import SparkSource

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replacement:
    """A query and the one that takes its place, for `start` with the checkpoint of the old one.

    If the old one still runs there, the new one takes over as with `Handle.replace`, at the earliest at `at`.  If it
    is taking over already, or has done so, it goes on.  So after a crash it can be given in any case.

    >>> import everwhen as ew
    >>> bids = ew.source("Bid", {"item": "string", "price": "int64"})
    >>> ew.spark.Replacement(bids.range(10), bids.range(20), at=100).at
    100
    """

    old: Query | Mapping[str, Query]
    new: Query | Mapping[str, Query]
    at: int | None = None


def replaced(
    bound: Rebinding, query: Query | Mapping[str, Query], runner: EpochRunner, at: int | None, alike: bool = False
) -> Ready:
    """A running job with another query, decided but not yet written; from now on it is the job's.  `alike`: it is
    another plan of the same query."""
    if runner.replaced_at is not None:
        raise QueryError(
            f"the query is being replaced already, from {show(runner.replaced_at)} on; that is done when everything "
            "before is promised"
        )
    (old,) = runner.runs[-1:]
    asked = bound.job.asked if alike else asked_text(query)
    queries = named(query)
    if alike:
        queries = narrowed_like(queries, _plan_of(queries, bound.inputs, bound.sources).plan, old.plan)
    job = replace(bound.job, query=query, queries=queries, before=bound.job.queries, asked=asked)
    before = runner.record
    newest = runner.journal.newest()
    known = runner.journal.known(newest)
    record = _decided(job, old, before, bound.inputs, bound.sources, known, newest, runner.changes, at)
    ready = job.replaced(record, bound.inputs, bound.sources, both=True)
    bound.job = job
    return ready


@dataclass(frozen=True)
class Resumption:
    """A job that is started with a checkpoint there is, over its frames."""

    job: Job
    journal: EpochLog
    inputs: Mapping[str, DataFrame]
    sources: Mapping[str, SparkSource]
    at: int | None = None
    migrate: bool = False

    def ready(self) -> tuple[Job, Ready]:
        """What runs: the plan of the checkpoint, alone or with one that takes over."""
        mine = read_identity(self.job.place)
        if mine is None:
            return self.job, self.job.ready(self.inputs, self.sources)  # nothing has been begun: the new query begins
        return self._replacement(mine) if self.job.before is not None else self._onward(mine)

    def _onward(self, mine: Identity) -> tuple[Job, Ready]:
        """The query of the checkpoint goes on, perhaps as another plan; or another one takes over on request."""
        job, journal, record = self.job, self.journal, read_record(self.job.place)
        now = self._identity(job.queries)
        if now.plan != mine.plan and not self.migrate:
            if not (mine.asked == job.asked != "" and mine.stored is not None):
                raise self._refused(mine, record, now)
            job = replace(job, query=(kept := plans_of(mine.stored)), queries=kept)
            if (now := self._identity(kept)).plan != mine.plan:  # another version cuts plans in another way
                raise QueryError(difference(mine, now, journal.place))
        elif now.plan != mine.plan and mine.asked == job.asked != "" and mine.stored is not None:
            running = self._plan_of(plans_of(mine.stored)).plan
            job = replace(job, queries=narrowed_like(job.queries, self._plan_of(job.queries).plan, running))
            now = self._identity(job.queries)
        newest = journal.newest()
        known = journal.known(newest)
        going = record is not None and record.under_way(known, newest + 1)
        if now.plan == mine.plan and min(known.queries.values(), default=NEVER) == INF:
            job = replace(job, settings=replace(job.settings, width=mine.buckets))  # it is over, so nothing moves
        if now.plan == mine.plan and job.settings.width == mine.buckets:
            return self._as_it_was(job, record, going, now)
        if record is not None and going:
            raise QueryError(
                f"the checkpoint {journal.place}: a plan is taking over, from {show(record.at)} on; until everything "
                f"before is promised, go on with that query and buckets={mine.buckets}, then change it again"
            )
        before = job.queries if now.plan == mine.plan else self._stored(mine)
        if newest < 0 and self._inputs(before) == self._inputs(job.queries):
            ready = job.ready(self.inputs, self.sources)
            journal.renew(job.identity(ready.plan, ready.runs[-1].intake is not None))
            return job, ready
        try:
            return self._taken_over(replace(job, before=before), mine, record, newest)
        except QueryError as untold:
            if now.plan != mine.plan:
                raise
            why = untold
        try:
            return self._moved(replace(job, before=before), mine, record, newest)
        except QueryError as unsplit:
            raise QueryError(
                f"the state in the checkpoint {journal.place} cannot move from {mine.buckets} to {job.settings.width} "
                f"partitions: {unsplit}; and {why}. Nothing was changed: go on with buckets={mine.buckets}"
            ) from None

    def _as_it_was(self, job: Job, record: PlanRecord | None, going: bool, now: Identity) -> tuple[Job, Ready]:
        if record is None:
            return job, job.ready(self.inputs, self.sources)
        if going and job.before is None and record.stored_before is not None:
            job = replace(job, before=plans_of(record.stored_before))
        given = None if job.before is None else self._identity(job.before)
        check_plans(self.journal, record, now, given)
        return job, job.replaced(record, self.inputs, self.sources, both=going)

    def _replacement(self, mine: Identity) -> tuple[Job, Ready]:
        """A query and the one that takes its place are given: it does so now, or goes on doing so."""
        job, journal, record, newest = self.job, self.journal, read_record(self.job.place), self.journal.newest()
        assert job.before is not None
        new, old = self._identity(job.queries), self._identity(job.before)
        if record is None:
            if journal.holds(replace(new, buckets=mine.buckets)):
                return self._onward(mine)
            journal.open(replace(old, buckets=mine.buckets))
        else:
            going = record.under_way(journal.known(newest), newest + 1)
            if going or not old.plan == record.plan != new.plan:
                check_plans(journal, record, new, old)
                return self._onward(mine)
        return self._taken_over(job, mine, record, newest)

    def _taken_over(self, job: Job, mine: Identity, record: PlanRecord | None, newest: int) -> tuple[Job, Ready]:
        """The query of a job begins to take over from the one before."""
        old = self._running(job, mine, record)
        changes, known = CopyChanges.of(self.journal), self.journal.known(newest)
        found = _decided(job, old, record, self.inputs, self.sources, known, newest, changes, self.at)
        ready = job.replaced(found, self.inputs, self.sources, both=True)
        self.journal.open(job.identity(ready.plan, False), check=False)
        write_record(self.journal, found)
        return job, ready

    def _moved(self, job: Job, mine: Identity, record: PlanRecord | None, newest: int) -> tuple[Job, Ready]:
        """The state of the query moves to another number of partitions, where nobody could tell it the past."""
        old = self._running(job, mine, record)
        check_replaceable(old, old)
        places = record.inputs if record is not None else fed_inputs(old.plan)
        text, data = explain_stages(old.plan), stored(job.queries)
        found = PlanRecord(
            old.number + 1, text, text, old.since, newest + 1, old.since, old.first, places, job.asked, data, data,
            job.settings.width, old.partitions, moved=True,
        )  # fmt: skip
        ready = job.replaced(found, self.inputs, self.sources)
        query = self.journal.open(job.identity(ready.plan, False), check=False)
        schemas = {name: node.schema for name, node in job.queries.items()}
        jobs = PlanJobs(job.session, schemas, {}, self.journal, query, "moving", job.level.emit, 1)
        if state_name(found.number) in self.journal.state_folders():
            self.journal.drop_state(state_name(found.number))
        move_state(job.session, self.journal, old, ready.runs[-1], jobs.alone, newest)
        write_record(self.journal, found)
        return job, ready

    def _running(self, job: Job, mine: Identity, record: PlanRecord | None) -> PlanRun:
        assert job.before is not None
        old = replace(self._plan_of(job.before), partitions=mine.buckets)
        if record is None:
            return old
        return replace(old, number=record.number, first=record.first - 1, since=record.at)

    def _stored(self, mine: Identity) -> dict[str, Node]:
        if mine.stored is None:
            raise QueryError(
                f"the checkpoint {self.journal.place} does not hold the plan of its query, which calls functions that "
                "cannot be stored, or was written by an older version: start both, with "
                "start(ew.spark.Replacement(old, new), ...)"
            )
        return plans_of(mine.stored)

    def _refused(self, mine: Identity, record: PlanRecord | None, now: Identity) -> QueryError:
        try:
            if record is not None:
                check_plans(self.journal, record, now, None)
        except QueryError as refused:
            return refused
        now = replace(now, buckets=mine.buckets)
        before = (
            replace(mine, emit=now.emit) if mine.emit.split(",")[0] == now.emit else mine
        )  # bounds are not looked at
        return QueryError(difference(before, now, self.journal.place))

    def _identity(self, queries: Mapping[str, Node]) -> Identity:
        return self.job.identity(self._plan_of(queries).plan, bool(self._waiting(queries)))

    def _plan_of(self, queries: Mapping[str, Node]) -> PlanRun:
        return _plan_of(queries, self.inputs, self.sources, self._waiting(queries))

    def _waiting(self, queries: Mapping[str, Node]) -> frozenset[str]:
        """The sources that wait or are forgotten: what is declared of them is watched before."""
        return bounded(queries, self.job.level)[1]

    def _inputs(self, queries: Mapping[str, Node]) -> tuple[str, ...]:
        return fed_inputs(self._plan_of(queries).plan)


def both_forms(query: Query | Mapping[str, Query]) -> tuple[dict[str, Node], dict[str, Node]]:
    """Queries as they were asked, and rewritten."""
    given = query if isinstance(query, Mapping) else {"out": query}
    asked = {name: Stream((q.asked or q.node) if isinstance(q, Stream) else q) for name, q in given.items()}
    asked = {name: replace(q, node=legal_loops(q.node)) for name, q in asked.items()}
    return named(asked), named({name: optimized(q) for name, q in asked.items()})


@dataclass(frozen=True)
class Replanning:
    """Moves a query between its plan as it was asked and as it is rewritten, every so many epochs."""

    bound: Rebinding
    forms: Sequence[Mapping[str, Node]]
    every: int

    def __call__(self, runner: EpochRunner, epoch: int) -> None:
        """Before an epoch that has not begun: the other plan begins to take over, if it can."""
        if epoch == 0 or epoch % self.every or runner.replaced_at is not None or runner.journal.has_begun(epoch):
            return
        (run,) = runner.runs[-1:]
        form = self.forms[(run.number + 1) % len(self.forms)]
        try:
            ready = replaced(self.bound, form, runner, None, alike=True)
        except QueryError as why:
            _log.info("the plan stays as it is before epoch %d: %s", epoch, why)
            return
        assert ready.record is not None
        write_record(runner.journal, ready.record)
        runner.runs, runner.record = [replace(each, raw=run.raw) for each in ready.runs], ready.record


def _plan_of(
    queries: Mapping[str, Node],
    inputs: Mapping[str, DataFrame],
    sources: Mapping[str, SparkSource],
    waiting: frozenset[str] = frozenset(),
) -> PlanRun:
    resolved = resolved_sources(queries, inputs, sources, inputs)
    return PlanRun(staged(queries, resolved, waiting), resolved)


def _decided(
    job: Job,
    old: PlanRun,
    record: PlanRecord | None,
    inputs: Mapping[str, DataFrame],
    sources: Mapping[str, SparkSource],
    known: EpochState,
    newest: int,
    changes: CopyChanges,
    at: int | None,
) -> PlanRecord:
    """When the query of a job takes over from a plan."""
    assert job.before is not None
    check_same_columns(*({name: node.schema for name, node in each.items()} for each in (job.before, job.queries)))
    ours = tuple(source.name for source in old.plan.sources)
    check_inputs(ours, set(sources_of(*job.queries.values())))
    new = _plan_of(job.queries, inputs, sources)
    check_replaceable(old, new)
    if waiting := [name for name, each in changes.attached.items() if each.number > changes.numbers.get(name, 0)]:
        raise QueryError(f"{waiting[0]!r} is being attached: replace the query after the next epoch")
    t = take_over_at(old, new, known, changes.detached, job.level.emit, at)
    places = record.inputs if record is not None else fed_inputs(old.plan)
    texts = (explain_stages(new.plan), explain_stages(old.plan))
    return PlanRecord(
        old.number + 1, *texts, t, newest + 1, old.since, old.first, places, job.asked, stored(job.queries),
        stored(job.before), job.settings.width, old.partitions,
    )  # fmt: skip
