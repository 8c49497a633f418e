"""A job in process: inputs that grow, queries that share operators, sinks that take epochs, exactly once.

**Exactly once.**  An epoch is made of steps (how far each input was read).  They are written down (`step_log.py`)
before any sink is given the epoch.  From time to time the state after an epoch n is kept: that of operators and forms,
and the positions of the inputs.  After a kill -9 the job restores state n and repeats the epochs that are in the log:
inputs give the same elements again, so operators say the same, and each sink takes the epochs that it does not have
yet.  That the same is said is checked by counting.  Then it goes on.

**Other queries.**  With `migrate` a query of the text may differ from that of the checkpoint.  The job goes on with the
old plans, which stand beside the state, until all epochs of the log have been repeated; then the new query takes over
(`LocalRuntime.replace`), and the state is kept at once: no epoch is ever repeated across such a change.  Of several
queries that share operators one takes over after the other.

**Who else.**  One lock for the checkpoint: a second job is refused, with the name of the first (`storage/lease.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node, Source, walk
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.files.checkpoint import read_state, states_in, write_state
from everwhen.engine.files.late_book import LateBook
from everwhen.engine.files.live.inputs import LiveInput
from everwhen.engine.files.live.steps import Step
from everwhen.errors import QueryError, StateError
from everwhen.formats.input_file import InputFile
from everwhen.jobs.formed_sink import FormedSink, check_epochs, would_write
from everwhen.jobs.job_run import JobRun
from everwhen.jobs.job_steps import JobSteps
from everwhen.jobs.plan import JobPlan
from everwhen.jobs.status import LATE_ROWS, JobStatus, late_rows_file
from everwhen.jobs.step_log import LoggedEpoch, StepLog
from everwhen.plan.stored_plan import plans_of, stored
from everwhen.sinks.changelog import ChangelogSink
from everwhen.storage.blamed import blamed
from everwhen.stream.element_batch import ElementBatch

_LOOK: Final = 0.02
"""Seconds between two looks at the inputs when little comes."""
_PATIENCE: Final = 2.0
_EFFORT: Final = 10
"""The time between two checkpoints is so many times what one takes, and at least the patience."""
_MOST_STEPS: Final = 1_000
_SILENT: Final = 5.0
"""After so many seconds without a promise it is told who has to promise."""


class LocalJob(JobRun):
    """One run of a job at its checkpoint, in this process."""

    engine = "local"

    def __init__(
        self,
        plan: JobPlan,
        checkpoint: str | os.PathLike[str],
        *,
        name: str = "job",
        batch: int = 10_000,
        every: float | None = None,
        operators: bool = False,
        tell: Callable[[str], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
        watch: Callable[[JobStatus], None] = lambda _: None,
        migrate: bool = False,
    ) -> None:
        super().__init__(plan, checkpoint, name, note, watch, migrate)
        self._batch, self._every, self._check = batch, every, check
        self._tell, self._operators = tell, operators
        self.epoch = -1
        self._pending: list[Step] = []
        self._epoch_seconds, self._slowest = 0.0, 0.0
        self._worked = 0.0
        self._kept_epoch = -1
        self._silent_since: float | None = None
        self._changed = False
        self._filled: dict[str, int] = {}
        """By sink the last epoch that had something for it.  Of others a sink may keep no trace."""
        self._refused: set[str] = set()
        """Sinks whose new query cannot take over."""

    # -- the run ------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Runs until everything is promised ("done"), or until it is asked to stop ("stopped")."""
        with self.held() as writer:
            state = self._last_state()
            self._now, self._left = self._plans_of(state)
            inputs = {name: self.plan.open_source(name, self.place) for name in self.plan.sources}
            queries = {name: (self._now[name], sink.level) for name, sink in self.plan.sinks.items()}
            self._late = LateBook(self._late_files(inputs), lambda _: None, self.plan.axis)
            self.steps = JobSteps(queries, inputs, self._late.note)
            self.sinks = {name: self.plan.open_sink(name, writer) for name in self.plan.sinks}
            self._log = StepLog(self.place)
            try:
                self._go_on(state)
                self._take_over()
                self.say("running", force=True)
                ending = self._work()
                self._publish_pending()
                self._keep()
                self.say(ending, force=True)
                return ending
            except BaseException as bad:
                self.say_end(bad)
                raise
            finally:
                self._log.close()
                self._late.close()
                for input_ in inputs.values():
                    input_.close()
                for sink in self.sinks.values():
                    sink.close()

    def _late_files(self, inputs: Mapping[str, LiveInput]) -> dict[str, InputFile]:
        """Where the late rows of each stream go, if it says that it may have some."""
        nodes = walk(*(sink.node for sink in self.plan.sinks.values()))
        lenient = {node.name for node in nodes if isinstance(node, Source) and node.policy.late != "error"}
        found = {name: late_rows_file(self.place, name) for name in inputs if name in lenient}
        if found:
            (self.place / LATE_ROWS).mkdir(exist_ok=True)
        return {name: replace(inputs[name].given, late_rows=str(file)) for name, file in found.items()}

    # -- going on -----------------------------------------------------------------------------------------------

    def _last_state(self) -> dict[str, Any] | None:
        states = states_in(self.place)
        if not states:
            return None
        self.epoch = self._kept_epoch = states[-1]
        return read_state(self.place, states[-1], _checked)

    def _plans_of(self, state: Mapping[str, Any] | None) -> tuple[dict[str, Node], dict[str, Node]]:
        """The plan of each query as it was when the state was kept, and of those that were going over the one before.
        QueryError: it is not known, or this text cannot take over yet."""
        wanted = {name: sink.node for name, sink in self.plan.sinks.items()}
        kept = None if state is None else state.get("plans")
        if kept is None:
            if self.changed and (state is not None or StepLog(self.place).begun()):
                raise QueryError(
                    f"the checkpoint {self.place} "
                    + ("has no state yet" if state is None else "does not have the plans of its queries")
                    + ", so no other query can go on from it: start it as it was, or take a new directory"
                )
            return wanted, {}
        assert state is not None
        found, left = plans_of(kept), plans_of(state["left"])
        now = {name: node if explain(found[name]) == explain(node) else found[name] for name, node in wanted.items()}
        for name, node in wanted.items():
            if now[name].schema != node.schema:
                raise QueryError(
                    f"{name}: the query of the checkpoint has the columns {now[name].schema}; one with {node.schema} "
                    "cannot take over: give it the same columns, or a sink of its own in a job of its own"
                )
        if left and self.changed:
            raise QueryError(
                f"the checkpoint {self.place}: {', '.join(left)} still goes over from the text before the last one to "
                "that; let the job go on with the last one until that is done, then --migrate"
            )
        return now, left

    def _take_over(self) -> None:
        """Let queries of the text take over from those that run: all that can now.  The text is noted first: whoever
        comes after a crash lets those take over that have not.  One that cannot is an error if it is the first, and
        nothing has changed then; later its old query goes on, which is told."""
        for name, sink in self.plan.sinks.items():
            if self._now[name] is sink.node or name in self._refused or self.steps.done:
                continue
            if self.steps.may_go_over(name):
                self._publish_pending()
                try:
                    at = self.steps.take_over(name, sink.node)
                except QueryError as refused:
                    if self.changed:
                        raise
                    self._refused.add(name)
                    self._tell(f"{self.name}: {name}: the old query goes on: {refused}")
                    continue
                self._left, self._now = {**self._left, name: self._now[name]}, {**self._now, name: sink.node}
                self.confirm()
                self._keep(again=True)
                self._tell(f"{self.name}: {name}: the new query counts from {show(at)} on")
        if all(self._now[name] is sink.node for name, sink in self.plan.sinks.items()):
            self.confirm()  # nothing had been begun, or all have taken over

    def _go_on(self, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            self.steps.restore(state["steps"], str(self.place), self._left)
            self._filled = state.get("filled", dict.fromkeys(self.sinks, self.epoch))
            for name, form in state["forms"].items():
                sink = self.sinks[name]
                assert isinstance(sink, FormedSink)
                sink.restore(form)
        given_up = self.steps.given_up.items()
        self._late.begin({name: rows for name, rows in given_up if late_rows_file(self.place, name).exists()})
        logged = list(self._log.after(self.epoch))
        self._prepare(logged)
        for each in logged:
            self._check()
            said = self._together([self.steps.again(plain) for plain in each.steps])
            counts = {name: len(batch) for name, batch in said.items()}
            if counts != each.said:
                raise StateError(
                    f"{self.place}: epoch {each.epoch} had {each.said} elements, and the same inputs give {counts} "
                    "now: the inputs have changed, or a function of a query does not always give the same (take a new "
                    "checkpoint and new sinks)"
                )
            self._commit(each.epoch, said)
            self.say("starting")
        if logged:
            self._note(f"went on from epoch {self._kept_epoch}, repeated {len(logged)} epochs")

    def _prepare(self, logged: list[LoggedEpoch]) -> None:
        """The sinks are made ready.  All of them have taken the epochs that are logged, but for the last one."""
        for each in logged[:-1]:
            self._filled |= {name: each.epoch for name, count in each.said.items() if count}
        newest, published = self.epoch + len(logged), self.epoch + max(0, len(logged) - 1)
        for name, sink in self.sinks.items():
            sink.resume(published)
            sink.prepare(self.plan.sinks[name].node.schema)
            check_epochs(name, sink, self._filled.get(name, -1), newest, self.place)

    # -- working ------------------------------------------------------------------------------------------------

    def _work(self) -> str:
        due = time.monotonic() + self._pause(0.0)
        while not self.steps.done:
            self._check()
            began = time.monotonic()
            if self.asked_to_stop():
                return "stopped"
            self.answer(lambda word: self.steps.explained(word, would_write(self.sinks)))
            step = self.steps.look(self._batch)
            if step is not None:
                self._take(step)
                self._take_over()
            self.say("running")
            if self._changed and (now := time.monotonic()) >= due:
                self._publish_pending()
                self._keep()
                due = time.monotonic() + self._pause(time.monotonic() - now)
            full = step is not None and any(len(batch) >= self._batch for batch in step.batches.values())
            if not full and not self.steps.done:
                self._warn_of_silence()
                time.sleep(max(0.0, _LOOK - (time.monotonic() - began)))
        return "done"

    def _pause(self, took: float) -> float:
        return max(_PATIENCE, _EFFORT * took) if self._every is None else self._every

    def _take(self, step: Step) -> None:
        began = time.monotonic()
        said = self.steps.answers(step)
        if self.steps.begins:
            self._say_since()
        self._pending.append(step)
        self._changed = True
        if any(map(len, said.values())) or len(self._pending) >= _MOST_STEPS:
            self._publish(said)
        self._epoch_seconds = time.monotonic() - began
        self._slowest = max(self._slowest, self._epoch_seconds)
        self._worked += self._epoch_seconds

    def _together(self, steps: list[Step]) -> dict[str, ElementBatch]:
        """What is said to the steps of one epoch: to all but the last one nothing was."""
        said: dict[str, ElementBatch] = {}
        for step in steps:
            for name, batch in self.steps.answers(step).items():
                said[name] = batch if name not in said or len(batch) else said[name]
        return said

    def _say_since(self) -> None:
        since = max(runtime.right_from(self.steps.begins) for runtime in self.steps.runtimes)
        names = ", ".join(f"{name} is right from {show(t)} on" for name, t in self.steps.begins.items())
        if since == INF:
            raise QueryError(f"the answers would never be right: {names} only, and a query needs all of the past")
        for sink in self.sinks.values():
            if isinstance(sink, ChangelogSink):
                sink.right_from(since)

    def _publish(self, said: Mapping[str, ElementBatch]) -> None:
        epoch = self.epoch + 1
        counts = {name: len(batch) for name, batch in said.items()}
        self._log.add(LoggedEpoch(epoch, [step.to_plain() for step in self._pending], counts))
        self._pending = []
        self._commit(epoch, said)

    def _publish_pending(self) -> None:
        """Steps to which nothing was said are an epoch, too, before a state is kept."""
        if self._pending:
            self._publish(self.steps.nothing())

    def _commit(self, epoch: int, said: Mapping[str, ElementBatch]) -> None:
        for name, sink in self.sinks.items():
            sink.commit(epoch, said[name])
            if len(said[name]):
                self._filled[name] = epoch
        self.epoch = epoch
        self._changed = True

    def _keep(self, again: bool = False) -> None:
        """Keep the state after the last epoch (`again`: also if it was kept); inputs are told how far they are never
        asked again."""
        self._changed = False
        if self.epoch < 0 or (self.epoch == self._kept_epoch and not again):
            return
        forms = {name: sink.snapshot() for name, sink in self.sinks.items() if isinstance(sink, FormedSink)}
        with blamed(str(self.place), "keep its state"):
            self._late.flush()
            steps = self.steps.snapshot()
            left = {name: self._left[name] for name in self.steps.going_over()}
            plans = {"plans": stored(self._now), "left": stored(left)}
            write_state(self.place, self.epoch, {"steps": steps, "forms": forms, "filled": self._filled, **plans})
            self._log.cut(self.epoch)
        self._kept_epoch = self.epoch
        for input_ in self.steps.inputs.values():
            if input_.is_there:
                input_.leave_word(f"job {self.place}", input_.position, NEVER)

    # -- words --------------------------------------------------------------------------------------------------

    def _warn_of_silence(self) -> None:
        """Who has promised nothing for a while, though an answer waits for it, is told once."""
        quiet = [name for name, sink in self.plan.sinks.items() if self._waits(name, sink.form)]
        now = time.monotonic()
        if not quiet or self._silent_since == INF:
            self._silent_since = None if not quiet else INF
        elif self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since >= _SILENT:
            self._silent_since = INF
            self._tell(f"{', '.join(quiet)}: nothing was written yet; {self.waiting()}")

    def _waits(self, name: str, form: str) -> bool:
        return (form == "append" or self.plan.sinks[name].level.emit.rank == 0) and self.steps.promises[name] == NEVER

    def waiting(self) -> str:
        """Who holds final answers back, in a sentence."""
        if self.steps.done:
            return ""
        absent = [each.given.shown for each in self.steps.inputs.values() if not each.is_there]
        if absent:
            return f"{', '.join(absent)}: not there yet"
        silent = sorted(name for name, t in self._progress().items() if t == NEVER)
        if silent:
            return (
                f"{', '.join(silent)} has promised nothing yet, so nothing is final: let it send CTIs, or declare "
                "ORDERED BY … WITHIN …"
            )
        lowest = min(self._progress().values(), default=NEVER)
        last = sorted(name for name, t in self._progress().items() if t == lowest)
        return f"final answers wait for {', '.join(last)}, which has promised up to {show(lowest)}"

    def _progress(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for runtime in self.steps.runtimes:
            for name, t in runtime.progress.items():
                found[name] = min(t, found.get(name, t))
        return found

    def status(self, state: str, error: str = "") -> JobStatus:
        size, steps = self.steps.state_size(), self.steps
        self.note_rates(steps.taken, steps.said)
        dropped, progress = steps.dropped(), self._progress()
        sources = {
            name: self.source_status(
                name, steps.taken[name], progress.get(name, NEVER), dropped[name], name in steps.closed,
                getattr(each, "lag", None), getattr(each, "lag_unit", ""),
            )
            for name, each in steps.inputs.items()
        }  # fmt: skip
        sinks = {
            name: self.sink_status(name, sink, steps.said[name], steps.corrections[name], steps.promises[name])
            for name, sink in self.sinks.items()
        }
        return self.status_with(
            state, error, sources, sinks, epochs=self.epoch + 1, epoch_seconds=self._epoch_seconds,
            slowest_epoch_seconds=self._slowest, worked=self._worked, checkpoint_epoch=self._kept_epoch,
            state_rows=size.rows, state_bytes=size.bytes, waiting=self.waiting() if state == "running" else "",
            operators=steps.operators() if self._operators else (),
        )  # fmt: skip


def _checked(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict) or found.keys() - {"plans", "left", "filled"} != {"steps", "forms"}:
        raise StateError("it holds no state of a job")
    return found
