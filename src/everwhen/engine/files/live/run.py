"""A query that goes on: files that grow and changelog folders in, a changelog folder out, exactly once.

**Exactly once.**  An epoch of the output is published by one rename of its manifest, and the manifest also tells the
steps that led to it: how far each input was read (`steps.py`).  So output and positions are committed together, and
no other log is needed.  From time to time the state after an epoch n goes into the checkpoint.  Who starts again after
a kill -9 restores state n, repeats the steps of the manifests n+1 … m, which gives the state after m, and goes on.
What is repeated is not published again.  Parts of an epoch without a manifest are written over.

Why not a checkpoint with every epoch: a state may have gigabytes, an epoch ten elements.  To repeat costs as much as
was done since the last checkpoint, a few seconds of work (the time between two checkpoints is ten times what one
takes). Without a checkpoint all steps are repeated from the first one on.  That steps give the same again is checked:
as many elements must come as the manifest has.

**Epochs** are what is there, at most `batch` elements of each input: large under load, and small with a latency of one
look (20 ms) when little comes.  Steps to which nothing is said wait for the next epoch.

**Another plan, another text.**  A state tells the plan that it is of (`replans.py`).  Who starts again with another
text of the same columns (`--migrate`) repeats the steps with the plan that there was, then lets the new one take over,
and keeps the state at once: no step is repeated across it.  A change of plan that comes with a step is told in it.

**Beginning anew.**  A run whose state is gone cannot go on with its stream.  It begins anew: a new start of the folder.
With the state of another run of the same plan (`seed`) it begins there, and first says what stands.

**End.**  When everything is promised on the output.  What was read before an error is published; the epoch with the
wrong element is not.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Consistency
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.checkpoint import finished, locked
from everwhen.engine.files.late_book import LateBook, SilenceWatch, given_up
from everwhen.engine.files.live.checkpoint import LiveState, newest_live, save_live
from everwhen.engine.files.live.files import followed, live_files, live_identity, live_sink, require_own_output
from everwhen.engine.files.live.neighbours import LiveNeighbours
from everwhen.engine.files.live.options import LiveOptions
from everwhen.engine.files.live.pace import Pace, lag_allowed
from everwhen.engine.files.live.steps import LiveSteps, Step
from everwhen.engine.files.query_forms import QueryForms
from everwhen.engine.files.replans import Replans
from everwhen.engine.files.run import Progress
from everwhen.engine.idle_sources import NotedClock
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import QueryError, StateError
from everwhen.formats.changelog.layout import Manifest, read_manifest, shown_time
from everwhen.formats.changelog.readers import cared_from
from everwhen.formats.input_file import InputFile
from everwhen.storage.folder import open_folder
from everwhen.storage.lease import take_lease
from everwhen.stream.element_batch import ElementBatch, empty_elements

_LOOK: Final = 0.02
"""Seconds between two looks at the inputs, and between two epochs that are small."""
_ROUND: Final = 0.05
"""Seconds between two looks at readers, and two words to writers."""
_PATIENCE: Final = 2.0
"""Seconds between two checkpoints, at the least."""
_EFFORT: Final = 10
_MOST_STEPS: Final = 1_000
"""So many steps are noted in one manifest."""
_TOLD_AFTER: Final = 3.0
"""After so many seconds it is told what is waited for."""


class LiveRun:
    """One run, in its folder."""

    def __init__(
        self,
        query: Query | Replans,
        inputs: Mapping[str, str | InputFile],
        out: str,
        checkpoint: str | None,
        level: Consistency,
        options: LiveOptions,
    ) -> None:
        if level.within is not None:
            raise QueryError("a run that goes on exactly cannot wait by the clock; block by application time")
        self.replans = query if isinstance(query, Replans) else Replans.of(query)
        self.out, self.options, self._level = out, options, level
        self._clock = NotedClock()
        self.runtime = self._make(self.replans.now)
        given = live_files(inputs, self.runtime, options.batch)
        self._book = LateBook(given, options.tell)
        self._mute = SilenceWatch(options.tell, level.emit is Emit.FINAL, _TOLD_AFTER)
        live = {name: followed(name, file) for name, file in given.items()}
        self.steps = LiveSteps(self.runtime, live, self.replans.forms.asked.schema, self._clock)
        self.sink = live_sink(out, self.replans.shown or self.replans.now, given, options.keep)
        self.place = None if checkpoint is None else Path(checkpoint)
        self._claim = self.replans.claim(lambda forms: live_identity(forms.asked, given, self._level))
        self._neighbours = LiveNeighbours(self.steps, options, options.reader or f"run {os.path.abspath(out)}")
        self.said, self.promise = 0, NEVER
        self._pending: list[Step] = []
        self._saved = -1
        self._changed = False
        self._pace = Pace(options.batch, lag_allowed())

    def _make(self, node: Node) -> LocalRuntime:
        return LocalRuntime(
            node, clock=self._clock, consistency=self._level, keep_relations=self.replans.keeps,
            dropped=lambda name, lost: self._book.note(name, lost),
        )  # fmt: skip

    def run(self) -> int:
        """Runs to the end; how many elements the answer has."""
        self.require_own_output()
        with self._held():
            self.sink.prepare(self.steps.schema)
            self._book.axis = self.sink.axis or self._book.axis
            if not self._go_on():
                self._work()
            self._neighbours.leave_words(self.promise, ended=True)
            self._book.end(self.runtime.late)
        return self.said

    def require_own_output(self) -> None:
        """QueryError or SinkLostError, with nothing written, if the checkpoint is of another run or output."""
        if self.place is not None:
            require_own_output(self.place, self._claim, None if self.options.seed else self.sink)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The output and the checkpoint are this run's alone."""
        lease = take_lease(open_folder(self.out).within("_writer"), self.out, "output folder")
        try:
            if self.place is None:
                yield
            else:
                with locked(self.place):
                    self._claim.begin(self.place)
                    yield
        finally:
            lease.release()
            self._book.close()
            for each in self.steps.inputs.values():
                each.close()

    # -- going on -----------------------------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Take up where the run was; whether it is done."""
        last = self._manifest(self.sink.committed())
        self._require_same(last)
        if last is not None and (last.run or {}).get("done"):
            if self.place is not None and self._claim.goes_over(self.place):
                raise finished(self.place)
            self.said = int((last.run or {})["said"])
            return True
        state = None if self.place is None else newest_live(self.place)
        if state is not None and (state.start == self.sink.start.id or self.options.seed is None):
            self.sink.resume(state.epoch)
            self._restore(state)
            self._saved = state.epoch
            self._book.begin(given_up(self.runtime))
            self._repeat(state.epoch + 1)
            self._settle()
        elif (seed := state or self._seed()) is not None:
            self._restore(seed)
            self._book.begin(given_up(self.runtime) if state is not None else {})
            self._begin_from(seed)
        else:
            self._book.begin({})
            if last is not None and self._whole(last):
                self._begin_as_before(last)
                self._repeat(last.start.first)
                self._settle()
            else:
                self.replans.begin_anew()
                self._confirm()
                if last is not None:
                    self.sink.begin_anew()
        return self.steps.done

    def _manifest(self, epoch: int) -> Manifest | None:
        return None if epoch < 0 else read_manifest(open_folder(self.out), epoch)

    def _require_same(self, last: Manifest | None) -> None:
        if last is not None and self._whose(last) is None:
            raise QueryError(
                f"{self.out}: there is the answer of another run, to which this one cannot add (run it as it was, or "
                "take another folder)"
            )

    def _whose(self, manifest: Manifest) -> QueryForms | None:
        """The query that has published an epoch; None if it is none of those that are known."""
        of, claim = (manifest.run or {}).get("of"), self._claim
        every = ((claim.forms, claim.identity), *claim.others)
        return next((forms for forms, identity in every if _digest(identity) == of), None)

    def _whole(self, last: Manifest) -> bool:
        """Whether all steps since the start are told: it did not begin with somebody else's state."""
        first = self._manifest(last.start.first)
        return first is not None and not (first.run or {}).get("seeded")

    def _restore(self, state: LiveState) -> None:
        self._use(self.replans.restored(state.state, self._make, str(self.place), self._owner()))
        self.steps.going_on(state.positions, state.closed)
        self.steps.largest_end, self.steps.read = state.largest_end, state.read
        self.said, self.promise = state.said, state.promise
        self._neighbours.passed = dict(state.positions)

    def _owner(self) -> QueryForms:
        return self._claim.forms if self.place is None else self._claim.owner(self.place)

    def _use(self, runtime: LocalRuntime) -> None:
        self.runtime = self.steps.runtime = runtime

    def _begin_as_before(self, last: Manifest) -> None:
        """No state was kept, and all that was said is of one text: its steps are repeated with its plan."""
        whose = self._whose(last)
        assert whose is not None, "it was looked at before"
        self.replans.begin_as(whose, str(self.place), self._owner())
        if whose is not self._claim.forms:
            self._use(self._make(self.replans.now))

    def _settle(self) -> None:
        """Go over to the text or the plan of this run.  The state is kept at once, so that nothing is repeated across
        it; whose it is is told before, with both texts, since a state tells its plan."""
        before = self.replans.now
        if self.steps.done:
            return
        self.replans.settle(self.runtime)
        self._confirm()
        if self.place is not None and self.replans.now is not before:
            self._save()

    def _confirm(self) -> None:
        if self.place is not None:
            self._claim.confirm(self.place)

    def _repeat(self, first: int) -> None:
        """The steps of epochs that are published, without saying anything."""
        for epoch in range(first, self.sink.committed() + 1):
            manifest = self._manifest(epoch)
            assert manifest is not None and manifest.run is not None
            count = sum(len(self._again(plain)) for plain in manifest.run["steps"])
            if count != manifest.run["elements"]:
                raise StateError(
                    f"{self.out}: epoch {epoch} has {manifest.run['elements']} elements, and the same input gives "
                    f"{count} now: the inputs have changed, or a function of the query does not always give the same "
                    "(take a new checkpoint and a new output)"
                )
            self.said += count
            self._changed = True
            self.options.progress(self._progress("going on"))

    def _again(self, plain: Mapping[str, Any]) -> ElementBatch:
        step = self.steps.again(plain)
        self.replans.epochs += 1
        if step.plan is not None and not self.replans.go_over(self.runtime, step.plan):
            raise StateError(f"{self.out}: the plan {step.plan!r} ran before and cannot now; take a new checkpoint")
        return self._done(step)

    def _seed(self) -> LiveState | None:
        return None if self.options.seed is None else newest_live(Path(self.options.seed))

    def _begin_from(self, seed: LiveState) -> None:
        """A new start with the state of another run: first what stands is said."""
        found = self.runtime.standing()
        if found is None and self.steps.largest_end < INF:
            found = self.steps.largest_end, empty_elements(self.steps.schema)
        if found is None:
            raise StateError(f"{self.options.seed}: what stands of the answer is not known, so nobody can begin there")
        since, standing = found
        self.sink.begin_anew(max(since, seed.since))
        self.said = 0
        self._publish(standing, seeded=True)
        self._save()

    # -- working ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        due = time.monotonic() + (_PATIENCE if self.options.every is None else self.options.every)
        round_at, forward = 0.0, None
        while not self.steps.done:
            began = time.monotonic()
            if began >= round_at:
                self._neighbours.leave_words(self.promise)
                cares = cared_from(self.sink.tidy(self._saved + 1))
                forward = self._pace.skip_to(cares, self.promise, self.sink.start.since, began)
                round_at = began + _ROUND
            size = self._pace.size
            step = self.steps.look(size, forward)
            if step is not None and (turn := self.replans.look(self.runtime)) is not None:
                step = replace(step, plan=turn)
            full = step is not None and any(len(batch) >= size for batch in step.batches.values())
            if step is not None:
                self._take(step)
                forward = None
                if self.runtime.merged:  # copies that are behind should hear of it at once
                    self._neighbours.leave_words(self.promise)
                self._pace.took(sum(map(len, step.batches.values())), time.monotonic() - began)
            self.options.progress(self._progress("running"))
            if self._changed and self.place is not None and (now := time.monotonic()) >= due:
                self._save()
                took = time.monotonic() - now
                due = (
                    now + took + (max(_PATIENCE, _EFFORT * took) if self.options.every is None else self.options.every)
                )
            if not full and not self.steps.done:
                self._neighbours.await_inputs(_TOLD_AFTER)
                time.sleep(max(0.0, _LOOK - (time.monotonic() - began)))

    def _take(self, step: Step) -> None:
        said = self._done(step)
        self._book.look(self.runtime.late)
        self._mute.look(self.runtime.progress, self.said + len(said), time.monotonic())
        if self.steps.begins:
            self._say_since()
        self._pending.append(step)
        self._changed = True
        if len(said) or len(self._pending) >= _MOST_STEPS:
            self._publish(said)

    def _say_since(self) -> None:
        since = self.runtime.right_from(self.steps.begins)
        if since == INF:
            names = ", ".join(f"{name} is right from {t} on" for name, t in self.steps.begins.items())
            raise QueryError(f"the answer would never be right: {names} only, and the query needs all of the past")
        self.sink.right_from(since)

    def _done(self, step: Step) -> ElementBatch:
        said = self.steps.do(step)
        if step.forward is not None:
            self.sink.right_from(step.forward)
        ctis = said.vs[said.op == ElementBatch.CTI]
        self.promise = max(self.promise, int(ctis.max(initial=NEVER)))
        return said

    def _publish(self, said: ElementBatch, seeded: bool = False) -> None:
        self.said += len(said)
        run: dict[str, Any] = {
            "of": _digest(self._claim.identity),
            "elements": len(said),
            "said": self.said,
            "done": self.steps.done,
        }
        run |= {"read": self.steps.read, "promise": shown_time(self.promise)}
        run["steps"] = [step.to_plain() for step in self._pending]
        if seeded:
            run["seeded"] = True
        self.sink.commit(self.sink.committed() + 1, said, run)
        self._pending = []

    def _save(self) -> None:
        assert self.place is not None
        if self._pending:
            self._publish(empty_elements(self.steps.schema))
        positions: dict[str, Mapping[str, Any]] = {name: each.position for name, each in self.steps.inputs.items()}
        self._changed = False
        self._book.flush()
        if self.sink.committed() < 0:
            return
        save_live(
            self.place,
            LiveState(
                self.sink.committed(),
                self.sink.start.id,
                self.replans.state(self.runtime),
                positions,
                tuple(sorted(self.steps.closed)),
                self.steps.largest_end,
                self.steps.read,
                self.said,
                self.promise,
                self.sink.start.since,
            ),
        )
        self._neighbours.passed, self._saved = positions, self.sink.committed()

    def _progress(self, words: str) -> Progress:
        return Progress(words, self.steps.read, self.said, self.runtime.progress, self.runtime.tau)


def _digest(identity: Mapping[str, str]) -> str:
    return hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).hexdigest()
