"""Which plan a checkpoint belongs to: the one that was started, or one that took over from it.

    <checkpoint>/everwhen/query.json     the query as it was asked, and its plan: its text, and itself as data
    <checkpoint>/everwhen/plans.json     the plan that takes over, or has: its number and text, the instant T from which
                                         on it speaks, its first epoch, its partitions; the same of the one before; the
                                         inputs of Spark's streaming query in their order
    <checkpoint>/everwhen/state-<k>      the state of plan number k; that of the first one is in `state`

The file is written before the first epoch in which both plans run, and nothing else is written because of it.  Whether
the old plan still runs follows from what is known after each epoch: it does as long as something before T is not
promised.  So whatever dies, an epoch that is run again is run with the same plans.

A checkpoint belongs to the query as it was asked.  A restart is given the query again; if it has become another plan
by now (other rules of rewriting, say), the stored plan goes on.  Plans that call functions of the user's cannot be
stored (`stored_plan.py`): a restart must be given these themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from everwhen.core.time import NEVER, show
from everwhen.errors import QueryError, StateError
from everwhen.spark.driver.epoch_log import FORMAT, EpochLog, EpochState, Identity, difference, other_version
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
    asked: str = ""
    """The query as it was asked, of which the plan is a form."""
    stored: str | None = None
    stored_before: str | None = None
    buckets: int | None = None
    """How many partitions it has; None: as many as the query was started with."""
    buckets_before: int | None = None
    moved: bool = False
    """Whether it has the state of the one before, in another number of partitions: then that runs no more."""

    def under_way(self, known: EpochState, epoch: int) -> bool:
        """Whether the old plan runs in an epoch, before which this is known: in the first one in any case, where it
        takes back what it has said of instants from T on."""
        if self.moved:
            return False
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


def read_identity(checkpoint: str) -> Identity | None:
    """What runs in a checkpoint: the plan that was started, or that took over; None if there is none.  Nothing is
    made."""
    folder = open_folder(checkpoint).within("everwhen")
    place = folder.place("query.json")
    try:
        if not folder.exists("query.json"):
            return None
        found: Mapping[str, Any] = json.loads(folder.read("query.json"))
        if found["format"] != FORMAT:
            raise other_version(found, folder.place())
        first = Identity(
            found["plan"], found["buckets"], found["emit"], found.get("asked", ""), found.get("stored")
        )  # an older version has not written the last two
    except OSError as bad:
        raise StateError(blame(bad, place, "read which query runs")) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as bad:
        what = f"there is no {bad}" if isinstance(bad, KeyError) else str(bad)
        raise StateError(
            f"{place} is damaged: {what}; restore the file, or start the query with a new checkpoint"
        ) from None
    record = read_record(checkpoint)
    if record is None:
        return first
    return Identity(record.plan, record.buckets or first.buckets, first.emit, record.asked, record.stored)


def write_record(log: EpochLog, record: PlanRecord) -> None:
    """Decide it.  What an attempt that was never decided has left under its number goes."""
    if not record.moved and state_name(record.number) in log.state_folders():
        log.drop_state(state_name(record.number))
    try:
        log.folder.replace(_NAME, [json.dumps(asdict(record)).encode()], durable=True)
    except OSError as bad:
        raise StateError(blame(bad, log.folder.place(_NAME), "write which plan takes over")) from None


def state_name(number: int) -> str:
    """The folder of a plan's state."""
    return f"state-{number}" if number else "state"


def check_plans(log: EpochLog, record: PlanRecord, new: Identity, old: Identity | None) -> None:
    """Refuse to go on with other queries than those of the checkpoint; `old`: the one before, if that is known."""
    told = f"the query of the checkpoint {log.place} was replaced, from {show(record.at)} on"
    if new.plan == record.before != record.plan and old is None:
        raise QueryError(
            f"{told}, and this is the one before: start the new one; or let this one take over again (migrate=True)"
        )
    if new.plan != record.plan:
        raise QueryError(difference(Identity(record.plan, new.buckets, new.emit), new, log.place))
    newest = log.newest()
    if record.under_way(log.known(newest), newest + 1):
        if old is None:
            raise QueryError(
                f"{told}, and not everything before is promised, so the old one still runs, which calls functions that "
                "no checkpoint can hold: start both, with start(ew.spark.Replacement(old, new), ...)"
            )
        if old.plan != record.before:
            raise QueryError(difference(Identity(record.before, old.buckets, old.emit), old, log.place))
