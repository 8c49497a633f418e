"""Which plan a checkpoint belongs to, once a query has been replaced.

    <checkpoint>/everwhen/plans.json     the plan that takes over, or has: its number and text, the instant T from which
                                         on it speaks, its first epoch; the text of the one before; the inputs of
                                         Spark's streaming query in their order
    <checkpoint>/everwhen/state-<k>      the state of plan number k; that of the first one is in `state`

The file is written before the first epoch in which both plans run, and nothing else is written because of it.  Whether
the old plan still runs follows from what is known after each epoch: it does as long as something before T is not
promised.  So whatever dies, an epoch that is run again is run with the same plans.

Queries are not kept, only their texts: a restart is given the queries again, and refused if they are others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from everwhen.core.time import NEVER, show
from everwhen.errors import QueryError, StateError
from everwhen.spark.driver.epoch_log import EpochLog, EpochState, Identity, difference
from everwhen.storage.folder import blame, open_folder

_NAME: Final = "plans.json"


@dataclass(frozen=True)
class PlanRecord:
    """Plan `number` takes over from the one before at the instant `at`; both run from epoch `first` on."""

    number: int
    plan: str
    before: str
    at: int
    first: int
    since: int
    """From when on the plan before spoke: it took over itself, perhaps."""
    started: int
    """The first epoch of the plan before."""
    inputs: tuple[str, ...]

    def under_way(self, known: EpochState, epoch: int) -> bool:
        """Whether the old plan runs in an epoch, before which this is known: in the first one in any case, where it
        takes back what it has said of instants from T on."""
        return epoch <= self.first or min(known.queries.values(), default=NEVER) < self.at


def read_record(checkpoint: str) -> PlanRecord | None:
    """What a checkpoint says; None if its query was never replaced.  Nothing is made where there is none."""
    folder = open_folder(checkpoint).within("everwhen")
    place = folder.place(_NAME)
    try:
        if not folder.exists(_NAME):
            return None
        found: Mapping[str, Any] = json.loads(folder.read(_NAME))
        return PlanRecord(**{**found, "inputs": tuple(found["inputs"])})
    except OSError as bad:
        raise StateError(blame(bad, place, "read which plan runs")) from None
    except (ValueError, KeyError, TypeError, RecursionError) as bad:
        raise StateError(f"{place} is damaged: {bad}; restore the file, or start with a new checkpoint") from None


def write_record(log: EpochLog, record: PlanRecord) -> None:
    try:
        log.folder.replace(_NAME, [json.dumps(asdict(record)).encode()], durable=True)
    except OSError as bad:
        raise StateError(blame(bad, log.folder.place(_NAME), "write which plan takes over")) from None


def state_name(number: int) -> str:
    """The folder of a plan's state."""
    return f"state-{number}" if number else "state"


def check_plans(log: EpochLog, record: PlanRecord, new: Identity, old: Identity | None) -> None:
    """Refuse to go on with other queries than those that the checkpoint has."""
    told = f"the query of the checkpoint {log.place} was replaced, from {show(record.at)} on"
    if new.plan == record.before != record.plan and old is None:
        raise QueryError(
            f"{told}, and this is the one before: start the new one, with the old one beside it: "
            "start(ew.spark.Replacement(old, new), ...)"
        )
    if new.plan != record.plan:
        raise QueryError(difference(Identity(record.plan, new.buckets, new.emit), new, log.place))
    newest = log.newest()
    if record.under_way(log.known(newest), newest + 1):
        if old is None:
            raise QueryError(
                f"{told}, and not everything before is promised, so the old one still runs: start both, with "
                "start(ew.spark.Replacement(old, new), ...)"
            )
        if old.plan != record.before:
            raise QueryError(difference(Identity(record.before, old.buckets, old.emit), old, log.place))
