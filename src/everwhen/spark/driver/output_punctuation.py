"""What answers promise about their data, as the driver says it: put together from what the buckets have said.

A promise that one bucket alone can keep is said as soon as that bucket makes it (`plan/stages/lineage.py`).  Any other
is said when all buckets have made it; until then it stands in the journal, so a query that is started again goes on
with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.plan.stages.lineage import lain_by
from everwhen.plan.stages.model import StagePlan
from everwhen.punctuation.api import PortIntersection, compacted, write_match
from everwhen.spark.driver.epoch_log import EpochState
from everwhen.spark.exchange.punctuation_rows import Address, Heard, by_bucket
from everwhen.spark.sources.source import ResolvedSource
from everwhen.stream.element import Cti, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of


def onward(
    plan: StagePlan, at: int, sources: Mapping[str, ResolvedSource], schemas: Mapping[str, Schema]
) -> dict[str, Address]:
    """Where promises about the data of what a stage hands on or answers go, by name; none if no source makes any."""
    if not any(source.schemes or sources[source.name].match is not None for source in plan.sources):
        return {}
    stage = plan.stages[at]
    by = {stream.name: stream.by for stream in stage.inputs}
    found = {}
    for name, node in stage.handed.items():
        stream = plan.stream(name)
        found[name] = Address(stream.tag, stream.schema, stream.by, lain_by(node, by))
    for tag, (name, schema) in enumerate(schemas.items()):
        if name in stage.queries:
            found[name] = Address(tag, schema, None, lain_by(stage.queries[name], by), everywhere=False)
    return found


def newly_promised(
    known: EpochState,
    after: EpochState,
    words: Mapping[int, Heard],
    notes: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, Schema],
    buckets: int,
) -> tuple[dict[str, list[Punctuation]], EpochState]:
    """What each answer newly promises about its data, and what is known then."""
    found: dict[str, list[Punctuation]] = {}
    kept: dict[str, list[tuple[int, dict[str, Any], int]]] = {}
    for at, (name, schema) in enumerate(schemas.items()):
        now, low = words.get(at, Heard()), after.queries[name]
        old = Heard(parts=by_bucket(known.said.get(name, ()), schema))
        promises = list(now.whole)
        if old.parts or now.parts:
            times = {note["bucket"]: note["progress"][name] for note in notes if name in note["progress"]}
            gathering = PortIntersection(schema, buckets)
            gathering.intersect(_ports(old, {}, buckets))
            promises += gathering.intersect(_ports(now, times, buckets))
            said = {b: compacted([*old.parts.get(b, ()), *now.parts.get(b, ())], schema) for b in range(buckets)}
            kept[name] = [
                (b, write_match(p.match, schema), p.t) for b, all_of in said.items() for p in all_of if p.t > low
            ]
        found[name] = [promise for promise in compacted(promises, schema) if promise.t > low]
    return found, replace(after, said=kept)


def last_words(schema: Schema, promised: Sequence[Punctuation], before: int, now: int) -> ElementBatch:
    """The promises with which an epoch of an answer ends: those about data, and a CTI if time has moved on."""
    return batch_of([*map(Punct, promised), *([Cti(now)] if now > before else [])], schema)


def _ports(said: Heard, times: Mapping[int, int], buckets: int) -> list[Frontier]:
    found = said.frontiers(times)
    return [found.get(bucket, Frontier()) for bucket in range(buckets)]
