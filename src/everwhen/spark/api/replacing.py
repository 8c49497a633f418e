"""Another query in the place of one, while it runs or when it is started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from everwhen.algebra.nodes import Node, Source, walk
from everwhen.core.time import show
from everwhen.errors import QueryError
from everwhen.plan.explain import explain_stages
from everwhen.spark.api.job import Job, Query, Ready, Rebinding, named, resolved_sources, staged
from everwhen.spark.driver.copy_changes import CopyChanges
from everwhen.spark.driver.cutover import check_inputs, check_replaceable, check_same_columns, take_over_at
from everwhen.spark.driver.epoch_log import EpochLog, EpochState
from everwhen.spark.driver.epoch_runner import EpochRunner
from everwhen.spark.driver.plan_log import PlanRecord, check_plans, read_record, write_record
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.sources.source import SparkSource


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


def replaced(bound: Rebinding, query: Query | Mapping[str, Query], runner: EpochRunner, at: int | None) -> Ready:
    """A running job with another query, decided but not yet written; from now on it is the job's."""
    if runner.replaced_at is not None:
        raise QueryError(
            f"the query is being replaced already, from {show(runner.replaced_at)} on; that is done when everything "
            "before is promised"
        )
    (old,) = runner.runs[-1:]
    job = replace(bound.job, query=query, queries=named(query), before=bound.job.queries)
    before = runner.record
    newest = runner.journal.newest()
    known = runner.journal.known(newest)
    record = _decided(job, old, before, bound.inputs, bound.sources, known, newest, runner.changes, at)
    ready = job.replaced(record, bound.inputs, bound.sources, both=True)
    bound.job = job
    return ready


def resumed(
    job: Job, journal: EpochLog, inputs: Mapping[str, DataFrame], sources: Mapping[str, SparkSource], at: int | None
) -> Ready:
    """A job whose checkpoint knows, or is to know, that its query takes over from another one."""
    record, newest = read_record(job.place), journal.newest()
    if record is None and newest < 0:
        return job.ready(inputs, sources)  # nothing has been said yet: the new query begins
    new = _plan_of(job.queries, inputs, sources)
    identity = job.identity(new.plan, False)
    if record is None:
        assert job.before is not None
        if journal.holds(identity):
            return job.ready(inputs, sources)
        old = _plan_of(job.before, inputs, sources)
        journal.open(job.identity(old.plan, False))
    else:
        old = new if job.before is None else _plan_of(job.before, inputs, sources)
        known = journal.known(newest)
        again = job.before is not None and not record.under_way(known, newest + 1)
        again = again and explain_stages(old.plan) == record.plan != identity.plan
        if not again:
            given = None if job.before is None else job.identity(old.plan, False)
            check_plans(journal, record, identity, given)
            return job.replaced(record, inputs, sources, both=record.under_way(known, newest + 1))
        old = replace(old, number=record.number, first=record.first - 1, since=record.at)
    changes = CopyChanges.of(journal)
    found = _decided(job, old, record, inputs, sources, journal.known(newest), newest, changes, at)
    ready = job.replaced(found, inputs, sources, both=True)
    write_record(journal, found)
    return ready


def _plan_of(
    queries: Mapping[str, Node], inputs: Mapping[str, DataFrame], sources: Mapping[str, SparkSource]
) -> PlanRun:
    resolved = resolved_sources(queries, inputs, sources, inputs)
    return PlanRun(staged(queries, resolved), resolved)


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
    check_inputs(ours, {node.name for node in walk(*job.queries.values()) if isinstance(node, Source)})
    new = _plan_of(job.queries, inputs, sources)
    check_replaceable(old, new)
    if waiting := [name for name, each in changes.attached.items() if each.number > changes.numbers.get(name, 0)]:
        raise QueryError(f"{waiting[0]!r} is being attached: replace the query after the next epoch")
    t = take_over_at(old, new, known, changes.detached, job.level.emit, at)
    places = record.inputs if record is not None else _places(old)
    return PlanRecord(
        old.number + 1, explain_stages(new.plan), explain_stages(old.plan), t, newest + 1, old.since, old.first, places
    )


def _places(run: PlanRun) -> tuple[str, ...]:
    """The inputs as Spark's streaming query has them, in their order: one for each feed."""
    feeds = [stream.feed for stage in run.plan.stages for stream in stage.inputs]
    return tuple(feed.source.name for feed in feeds if feed is not None)
