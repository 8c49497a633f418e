"""Rounds of loops that cross exchanges: one job per round, decided here, until nothing circulates.

    levels 1 … last ─▶ held ─▶ levels first … last ─▶ held ─▶ …   ─▶ levels first … last, and on to the answer
      retract                    retract, then insert                  settle

What comes out of a round is held in the memory and on the disks of the executors: rows that go round are the input of
the next round, rows that leave the loop wait for the last job, and only what the partitions note comes to the driver.
All partitions retract until nothing goes anywhere, then all insert until nothing comes anywhere.

**Exactly once.**  On a loop a round counts as a version of state, as an epoch does elsewhere: its input is published
once.  An epoch that is not done is taken back as a whole, with all its rounds, and run again from its beginning; one
that is done gives the same again, round by round.  What is held has no lineage: if an executor takes it along, the
epoch fails, instead of computing a round anew while another one is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from everwhen.core.schema import Schema
from everwhen.operators.loop.turn import TurnPhase, check_rounds
from everwhen.plan.stages.model import LoopRange, Stage, StagePlan
from everwhen.spark.exchange.messages import PUNCTUATION, Failure, Message, TaskNote, decode, kind_of
from everwhen.spark.internals.held_frames import release
from everwhen.spark.worker.epoch_context import EpochContext, LoopRound

LoopSteps: TypeAlias = Mapping[str, Sequence[int]]
"""Of each loop, by number, the first step of an epoch, and the first one of the next."""
Levels: TypeAlias = Callable[[range, DataFrame | None, DataFrame | None, DataFrame | None], DataFrame]
"""What some levels give for what comes from the level below, from the sources, and round a loop."""

_MOST_FRAMES: Final = 16
"""So many frames wait for the last job before they are put together."""


@dataclass(frozen=True)
class RoundsAnswer:
    """What the last job of an epoch gave out, what the ones before noted, and the steps of the epoch's loops."""

    table: pa.Table
    earlier: Sequence[Message] = ()
    steps: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def carried_by(plan: StagePlan, stage: Stage) -> list[Schema]:
    """What has to fit into the rows that come to a stage: its own streams, and behind a loop also what goes round, as
    one job gives out both."""
    found = [stream.schema for stream in stage.inputs]
    names = {name for loop in plan.loops if loop.last == stage.level - 1 for name in loop.streams}
    return [*found, *(plan.stream(name).schema for name in sorted(names))]


def first_steps(plan: StagePlan, steps: LoopSteps) -> dict[int, int]:
    """Of every level on a loop, the first step of the epoch that begins."""
    return {
        level: _before(steps, at)[1] for at, loop in enumerate(plan.loops) for level in range(loop.first, loop.last + 1)
    }


def run_rounds(plan: StagePlan, levels: Levels, fed: DataFrame, told: EpochContext, steps: LoopSteps) -> RoundsAnswer:
    """An epoch, given the frame of all feeds."""
    with _held() as held:
        epoch = _Epoch(plan, levels, fed, told, steps, held)
        for at in range(len(plan.loops)):
            failed = epoch.run(at)
            if failed is not None:
                return RoundsAnswer(failed, epoch.earlier)
        table = epoch.onward(len(plan.stages)).toArrow()
        return RoundsAnswer(table, epoch.earlier, epoch.steps)


@dataclass
class _Epoch:
    """An epoch under way.  `waiting`: frames with rows for the level behind the loop that has just run."""

    plan: StagePlan
    levels: Levels
    fed: DataFrame
    told: EpochContext
    before: LoopSteps
    held: list[DataFrame]
    earlier: list[Message] = field(default_factory=list)
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    waiting: list[DataFrame] = field(default_factory=list)
    _rounds: dict[int, LoopRound] = field(default_factory=dict)
    _last: DataFrame | None = None

    def run(self, at: int) -> pa.Table | None:
        """All rounds of a loop but the one that settles it; what a partition says that gave up, if one did."""
        loop = self.plan.loops[at]
        previous, first = _before(self.before, at)
        phase: TurnPhase = "retract"
        rounds = rows = 0
        while True:
            self._rounds[at] = LoopRound(rounds, first + rounds, phase, kept=previous)
            if rounds:
                assert self._last is not None
                frame = self.levels(range(loop.first, loop.last + 1), None, None, self._last)
                self._tell()
            else:
                frame = self.onward(loop.last)
            notes, failed = self._done(frame, loop)
            if failed is not None:
                return failed
            rounds += 1
            sent = sum(note.sent for note in notes)
            rows += sent
            sample = next((note.sample for note in notes if note.sample), "")
            check_rounds(loop.name, rounds - 1, loop.most_rounds, rows, loop.most_rows, sample)
            if not sent and phase == "insert":
                break
            phase = phase if sent else "insert"
        promise = min(note.external for note in notes if note.external is not None)
        self._rounds[at] = LoopRound(rounds, first + rounds, "settle", promise, previous)
        self.steps[str(at)] = first, first + rounds + 1
        return None

    def onward(self, last: int) -> DataFrame:
        """The next levels, up to one, with what has left the loop before them, which settles; lazy."""
        settling = [at for at, each in self._rounds.items() if each.phase == "settle"]
        below = None
        done = 0
        if settling:
            loop = self.plan.loops[settling[-1]]
            settled = self.levels(range(loop.first, loop.last + 1), None, None, self._last)
            below, done = reduce(DataFrame.union, [settled, *self.waiting]), loop.last
        self.waiting = []
        self._tell()
        self._rounds = {at: each for at, each in self._rounds.items() if at not in settling}
        return self.levels(range(done + 1, last + 1), below, self.fed, None)

    def _tell(self) -> None:
        replace(self.told, rounds=dict(self._rounds)).tell(self.fed.sparkSession.sparkContext)

    def _done(self, frame: DataFrame, loop: LoopRange) -> tuple[list[TaskNote], pa.Table | None]:
        """Run a round: what the partitions at the turn note, or what one says that gave up."""
        held = frame.localCheckpoint(eager=False)
        self.held.append(held)
        messages = held.where((F.col("kind") < 0) & (F.col("kind") > PUNCTUATION))
        found = [decode(*row) for row in messages.select("kind", "message").collect()]
        if any(isinstance(message, Failure) for message in found):
            return [], held.where(F.col("kind") == F.lit(kind_of(Failure))).toArrow()
        self.earlier += found
        tags = [self.plan.stream(name).tag for name in loop.streams]
        leaves = ((F.col("kind") >= 0) & ~F.col("kind").isin(tags)) | (F.col("kind") == PUNCTUATION)
        self.waiting.append(held.where(leaves))
        self._last = held
        if len(self.waiting) > _MOST_FRAMES:
            self._put_together()
        notes = [message for message in found if isinstance(message, TaskNote)]
        return [note for note in notes if note.stage == loop.last], None

    def _put_together(self) -> None:
        """One frame of those that wait, so that the last job is not one of thousands of tasks."""
        whole = reduce(DataFrame.union, self.waiting).coalesce(self.fed.sparkSession.sparkContext.defaultParallelism)
        kept = whole.localCheckpoint(eager=True)
        release([frame for frame in self.held if frame is not self._last])
        self.held[:] = [*(frame for frame in self.held if frame is self._last), kept]
        self.waiting = [kept]


@contextmanager
def _held() -> Iterator[list[DataFrame]]:
    """Frames that are let go in the end."""
    frames: list[DataFrame] = []
    try:
        yield frames
    finally:
        release(frames)


def _before(steps: LoopSteps, at: int) -> tuple[int, int]:
    first, following = steps.get(str(at), (0, 0))
    return first, following
