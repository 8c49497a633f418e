"""Which copies of merges count: decided by the user while a query runs, in force from an epoch on.

    <checkpoint>/everwhen/copies.json     what was asked for last: who is detached, and who is attached how often

`detach` and `attach` write the file; the next epoch that begins is decided by it, and its own file in the epoch log
says what was decided, so an epoch that is run again is the same.  Attachments are numbered: one is carried out by the
first epoch that may, which is logged with its number, so it is carried out once, whatever dies on the way.

Where another DataFrame takes the place of one, Spark may have planned an epoch with the old one already.  In such an
epoch the copy counts as detached (`after`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from everwhen.errors import StateError
from everwhen.spark.driver.epoch_log import EpochDecision, EpochLog
from everwhen.storage.folder import blame

_NAME: Final = "copies.json"


@dataclass(frozen=True)
class Attachment:
    """A copy that begins anew: right from `since` on, in the first epoch after `after`."""

    number: int
    since: int
    after: int = -1


@dataclass
class CopyChanges:
    """What was asked for, and what has been carried out: `numbers` of attachments by source."""

    log: EpochLog
    detached: frozenset[str] = frozenset()
    attached: Mapping[str, Attachment] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    """Those that leave at an instant."""

    @classmethod
    def of(cls, log: EpochLog) -> CopyChanges:
        """As they were when the query last ran."""
        newest = log.decision()
        numbers = {} if newest is None else dict(newest.numbers)
        place = log.folder.place(_NAME)
        try:
            if not log.folder.exists(_NAME):
                return cls(log, numbers=numbers)
            found = json.loads(log.folder.read(_NAME))
            attached = {name: Attachment(**each) for name, each in found["attached"].items()}
            return cls(log, frozenset(found["detached"]), attached, numbers, found.get("until", {}))
        except OSError as bad:
            raise StateError(blame(bad, place, "read which copies are detached")) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as bad:
            raise StateError(f"{place} is damaged: {bad}; restore the file, or start with a new checkpoint") from None

    def detach(self, name: str, at: int | None) -> None:
        """Now, or at an instant."""
        if at is None:
            self._ask(self.detached | {name}, self.attached, self.until)
        else:
            self._ask(self.detached, self.attached, {**self.until, name: at})

    def attach(self, name: str, since: int, after: int) -> None:
        number = max(self.numbers.get(name, 0), self.attached[name].number if name in self.attached else 0) + 1
        until = {each: t for each, t in self.until.items() if each != name}
        self._ask(self.detached - {name}, {**self.attached, name: Attachment(number, since, after)}, until)

    def _ask(self, detached: frozenset[str], attached: Mapping[str, Attachment], until: Mapping[str, int]) -> None:
        text: dict[str, Any] = {"detached": sorted(detached), "until": dict(until)}
        text["attached"] = {name: asdict(each) for name, each in attached.items()}
        try:
            self.log.folder.replace(_NAME, [json.dumps(text).encode()])
        except OSError as bad:
            raise StateError(blame(bad, self.log.folder.place(_NAME), "write which copies are detached")) from None
        self.detached, self.attached, self.until = detached, attached, until

    def wanted(self, asked: EpochDecision, epoch: int) -> EpochDecision:
        """What an epoch that begins now would do."""
        waiting = {name: each for name, each in self.attached.items() if each.number > self.numbers.get(name, 0)}
        due = {name: each for name, each in waiting.items() if each.after < epoch and name not in self.detached}
        numbers = {**self.numbers, **{name: each.number for name, each in due.items()}}
        anew = {name: each.since for name, each in due.items()}
        detached = self.detached | (waiting.keys() - due.keys())
        return replace(asked, detached=detached, anew=anew, numbers=numbers, until=self.until)

    def decide(
        self, wanted: EpochDecision, epoch: int, steps: Mapping[int, int] = MappingProxyType({})
    ) -> EpochDecision:
        """What holds for an epoch, as it is logged: as wanted now, or when it was first run.  `steps`: of stages on
        loops, the first step of the epoch."""
        decided = self.log.begun(epoch, wanted, steps)
        self.numbers = dict(decided.numbers)
        return decided
