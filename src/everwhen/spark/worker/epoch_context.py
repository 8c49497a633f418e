"""What differs from epoch to epoch, except for the rows: one value, with one encoder.

It goes with the job as one of its properties, to another worker with the rows, and into the log of a partition's input.
So the program that Spark is given is the same in every epoch, and is pickled and planned once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from pyspark import SparkContext, TaskContext

from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.time import NEVER
from everwhen.engine.observe.gauge import Window
from everwhen.operators.loop.turn import TurnPhase
from everwhen.spark.exchange.messages import Message, decode, encode, kind_of
from everwhen.spark.worker.answer_span import WHOLE, AnswerSpan, span_of

_PROPERTY: Final = "everwhen.epoch"


@dataclass(frozen=True)
class LoopRound:
    """A round of a loop that crosses exchanges: its number in the epoch, that of all its rounds so far (its *step*,
    which counts as the version of state on the loop), what to do, and to settle what is final.  `kept`: the first step
    that may have to be run again."""

    number: int
    step: int
    phase: TurnPhase
    promise: int = NEVER
    kept: int = 0


@dataclass(frozen=True)
class EpochContext:
    """`idle` are the sources that have been silent for too long, `now` is the time by which that was decided,
    `promised` what the sources had promised before.  Of copies that are merged, those in `ended` have left; rows of
    those in `detached` are ignored; those in `anew` are other streams from now on, right from a time on; those in
    `until` leave at an instant.  `span`: the instants of the answer that the plan speaks for; `tau`: a start that is
    known already.  `progress` are messages that every partition of the first stage gets, where they were known before
    the stage began; they are part of its input.  `rounds`: of loops that are under way, by number."""

    epoch: int
    idle: frozenset[str] = frozenset()
    now: float = 0.0
    level: Consistency = MIDDLE
    promised: Mapping[str, int] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    detached: frozenset[str] = frozenset()
    anew: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    span: AnswerSpan = WHOLE
    tau: int = NEVER
    progress: tuple[Message, ...] = ()
    rounds: Mapping[int, LoopRound] = field(default_factory=dict)
    measure: tuple[Window, ...] = ()
    """In which windows partitions measure what they do."""

    def version(self, loop: int | None) -> int:
        """The version of state after this: epochs count, on a loop its steps do."""
        return self.epoch if loop is None else self.rounds[loop].step

    def to_plain(self) -> dict[str, Any]:
        """As JSON says it, without what is part of the input."""
        plain = {"epoch": self.epoch, "idle": sorted(self.idle), "now": self.now}
        plain |= {"level": self.level.to_plain(), "promised": dict(self.promised)}
        copies: dict[str, Any] = {"ended": sorted(self.ended), "detached": sorted(self.detached)}
        copies |= {"anew": dict(self.anew), "until": dict(self.until)}
        copies["measure"] = [window.to_plain() for window in self.measure]
        copies["rounds"] = {str(loop): asdict(found) for loop, found in self.rounds.items()}
        plain |= {name: found for name, found in copies.items() if found}
        plain |= {} if self.span == WHOLE else {"span": self.span.to_plain()}
        return plain if self.tau == NEVER else plain | {"tau": self.tau}

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> EpochContext:
        level = Consistency.from_plain(given["level"])
        ended, detached = (frozenset(given.get(name, ())) for name in ("ended", "detached"))
        rest = (level, given["promised"], ended, detached, given.get("anew", {}), given.get("until", {}))
        span, tau = span_of(given.get("span")), given.get("tau", NEVER)
        measure = tuple(Window(*each) for each in given.get("measure", ()))
        rounds = {int(loop): LoopRound(**found) for loop, found in given.get("rounds", {}).items()}
        return cls(
            given["epoch"], frozenset(given["idle"]), given["now"], *rest, span, tau, rounds=rounds, measure=measure
        )

    def tell(self, context: SparkContext) -> None:
        """Tell the tasks of the jobs that this thread starts next."""
        progress = [(kind_of(type(message)), encode(message)) for message in self.progress]
        context.setLocalProperty(_PROPERTY, json.dumps(self.to_plain() | {"progress": progress}))

    @classmethod
    def told(cls, task: TaskContext) -> EpochContext:
        """What a task was told."""
        given = json.loads(str(task.getLocalProperty(_PROPERTY)))
        return replace(cls.from_plain(given), progress=tuple(decode(*each) for each in given["progress"]))
