"""A query that goes on: files that grow and changelog folders in, a changelog folder out, exactly once.

**Exactly once.**  An epoch of the output is published by one rename of its manifest, and the manifest also tells the
steps that led to it: how far each input was read (`live_run.py`).  So output and positions are committed together, and
no other log is needed.  From time to time the state after an epoch n goes into the checkpoint.  Who starts again after
a kill -9 restores state n, repeats the steps of the manifests n+1 … m, which gives the state after m, and goes on.
What is repeated is not published again.  Parts of an epoch without a manifest are written over.

Why not a checkpoint with every epoch: a state may have gigabytes, an epoch ten elements.  To repeat costs as much as
was done since the last checkpoint, a few seconds of work (the time between two checkpoints is ten times what one
takes). Without a checkpoint all steps are repeated from the first one on.  That steps give the same again is checked:
as many elements must come as the manifest has.

**Epochs** are what is there, at most `batch` elements of each input: large under load, and small with a latency of one
look (20 ms) when little comes.  Steps to which nothing is said wait for the next epoch.

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
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.builder import Stream
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.engine.files.checkpoint import agree, locked
from everwhen.engine.files.late_book import LateBook, SilenceWatch, given_up
from everwhen.engine.files.live_checkpoint import LiveState, newest_live, save_live
from everwhen.engine.files.live_files import live_files, live_identity, live_sink, require_own_output
from everwhen.engine.files.live_inputs import live_input
from everwhen.engine.files.live_options import LiveOptions as LiveOptions
from everwhen.engine.files.live_pace import Pace, lag_allowed
from everwhen.engine.files.live_run import LiveSteps, Step
from everwhen.engine.files.run import Progress, Watch
from everwhen.engine.idle_sources import NotedClock
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import QueryError, StateError
from everwhen.formats.changelog.layout import Manifest, read_manifest, shown_time
from everwhen.formats.changelog.readers import cared_from
from everwhen.formats.input_file import InputFile
from everwhen.storage.folder import open_folder
from everwhen.storage.lease import take_lease
from everwhen.storage.state_format import restore
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


def follow(
    query: Query,
    inputs: Mapping[str, str | InputFile],
    out: str,
    *,
    checkpoint: str | None = None,
    consistency: Consistency = MIDDLE,
    emit: str | Emit | None = None,
    batch: int = 10_000,
    every: float | None = None,
    wait: float | None = None,
    keep: str = "all",
    progress: Watch | None = None,
) -> int:
    """Run a query over inputs that grow, until everything is promised; returns how many elements were said in all.

    Inputs are files of JSON lines that are appended to, changelog folders, or files that do not grow.  The answer goes
    to a changelog folder.  Started again after it was killed, the same call goes on: every element is said exactly
    once. `every`: seconds between checkpoints.  `wait`: seconds after which an input that is not there is an error.
    `keep`: "all" epochs of the output, or only those that some reader has yet to read ("unread").

    >>> import everwhen as ew
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> s = ew.source("S", {"x": "int64"})
    >>> with TemporaryDirectory() as place:
    ...     text = '{"vs":1,"ve":5,"row":{"x":2}}\\n{"op":"cti","t":null}\\n'
    ...     _ = Path(place, "s.jsonl").write_text(text)
    ...     ew.follow(s.aggregate(n=ew.count()), {"S": f"{place}/s.jsonl"}, f"{place}/out", consistency=ew.STRONG)
    ...     print(*(element for batch in ew.read_changelog(f"{place}/out") for element in batch.elements()))
    ...
    2
    insert [1, 5) n=1 cti ∞
    """
    level = consistency if emit is None else consistency.changed(emit=emit)
    options = LiveOptions(batch, every, wait, keep, progress=progress or (lambda _: None))
    return LiveRun(query, inputs, out, checkpoint, level, options).run()


class LiveRun:
    """One run, in its folder."""

    def __init__(
        self,
        query: Query,
        inputs: Mapping[str, str | InputFile],
        out: str,
        checkpoint: str | None,
        level: Consistency,
        options: LiveOptions,
    ) -> None:
        if level.within is not None:
            raise QueryError("a run that goes on exactly cannot wait by the clock; block by application time")
        node = query.node if isinstance(query, Stream) else query
        self.out, self.options = out, options
        clock = NotedClock()
        self.runtime = LocalRuntime(
            query, clock=clock, consistency=level, dropped=lambda name, lost: self._book.note(name, lost)
        )
        given = live_files(inputs, self.runtime, options.batch)
        self._book = LateBook(given, options.tell)
        self._mute = SilenceWatch(options.tell, level.emit is Emit.FINAL, _TOLD_AFTER)
        self.steps = LiveSteps(
            self.runtime, {name: live_input(name, file) for name, file in given.items()}, node.schema, clock
        )
        self.sink = live_sink(out, query, given, options.keep)
        self.place = None if checkpoint is None else Path(checkpoint)
        self.identity = live_identity(node, given, level)
        self.reader = options.reader or f"run {os.path.abspath(out)}"
        self.said, self.promise = 0, NEVER
        self._pending: list[Step] = []
        self._passed: dict[str, Mapping[str, Any]] = {}
        self._words: dict[str, Any] = {}
        self._saved = -1
        self._changed = False
        self._pace = Pace(options.batch, lag_allowed())
        self._absent_since = time.monotonic()
        self._told = False

    def run(self) -> int:
        """Runs to the end; how many elements the answer has."""
        self.require_own_output()
        with self._held():
            self.sink.prepare(self.steps.schema)
            self._book.axis = self.sink.axis or self._book.axis
            if not self._go_on():
                self._work()
            self._leave_words(ended=True)
            self._book.end(self.runtime.late)
        return self.said

    def require_own_output(self) -> None:
        """QueryError or SinkLostError, with nothing written, if the checkpoint is of another run or output."""
        if self.place is not None:
            require_own_output(self.place, self.identity, None if self.options.seed else self.sink)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The output and the checkpoint are this run's alone."""
        lease = take_lease(open_folder(self.out).within("_writer"), self.out, "output folder")
        try:
            if self.place is None:
                yield
            else:
                with locked(self.place):
                    agree(self.place, self.identity)
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
            self.said = int((last.run or {})["said"])
            return True
        state = None if self.place is None else newest_live(self.place)
        if state is not None and (state.start == self.sink.start.id or self.options.seed is None):
            self.sink.resume(state.epoch)
            self._restore(state)
            self._saved = state.epoch
            self._book.begin(given_up(self.runtime))
            self._repeat(state.epoch + 1)
        elif (seed := state or self._seed()) is not None:
            self._restore(seed)
            self._book.begin(given_up(self.runtime) if state is not None else {})
            self._begin_from(seed)
        else:
            self._book.begin({})
            if last is not None and self._whole(last):
                self._repeat(last.start.first)
            elif last is not None:
                self.sink.begin_anew()
        return self.steps.done

    def _manifest(self, epoch: int) -> Manifest | None:
        return None if epoch < 0 else read_manifest(open_folder(self.out), epoch)

    def _require_same(self, last: Manifest | None) -> None:
        if last is not None and (last.run or {}).get("of") != self._digest:
            raise QueryError(
                f"{self.out}: there is the answer of another run, to which this one cannot add (run it as it was, or "
                "take another folder)"
            )

    @property
    def _digest(self) -> str:
        return hashlib.blake2b(json.dumps(self.identity).encode(), digest_size=8).hexdigest()

    def _whole(self, last: Manifest) -> bool:
        """Whether all steps since the start are told: it did not begin with somebody else's state."""
        first = self._manifest(last.start.first)
        return first is not None and not (first.run or {}).get("seeded")

    def _restore(self, state: LiveState) -> None:
        restore(self.runtime, state.state, str(self.place))
        self.steps.going_on(state.positions, state.closed)
        self.steps.largest_end, self.steps.read = state.largest_end, state.read
        self.said, self.promise = state.said, state.promise
        self._passed = dict(state.positions)

    def _repeat(self, first: int) -> None:
        """The steps of epochs that are published, without saying anything."""
        for epoch in range(first, self.sink.committed() + 1):
            manifest = self._manifest(epoch)
            assert manifest is not None and manifest.run is not None
            count = sum(len(self._done(self.steps.again(plain))) for plain in manifest.run["steps"])
            if count != manifest.run["elements"]:
                raise StateError(
                    f"{self.out}: epoch {epoch} has {manifest.run['elements']} elements, and the same input gives "
                    f"{count} now: the inputs have changed, or a function of the query does not always give the same "
                    "(take a new checkpoint and a new output)"
                )
            self.said += count
            self._changed = True
            self.options.progress(self._progress("going on"))

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
                forward = self._round()
                round_at = began + _ROUND
            size = self._pace.size
            step = self.steps.look(size, forward)
            full = step is not None and any(len(batch) >= size for batch in step.batches.values())
            if step is not None:
                self._take(step)
                forward = None
                if self.runtime.merged:  # copies that are behind should hear of it at once
                    self._leave_words()
                self._pace.took(sum(map(len, step.batches.values())), time.monotonic() - began)
            self.options.progress(self._progress("running"))
            if self._changed and self.place is not None and (now := time.monotonic()) >= due:
                self._save()
                took = time.monotonic() - now
                due = (
                    now + took + (max(_PATIENCE, _EFFORT * took) if self.options.every is None else self.options.every)
                )
            if not full and not self.steps.done:
                self._await_inputs()
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
        run: dict[str, Any] = {"of": self._digest, "elements": len(said), "said": self.said, "done": self.steps.done}
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
                self.runtime.snapshot(),
                positions,
                tuple(sorted(self.steps.closed)),
                self.steps.largest_end,
                self.steps.read,
                self.said,
                self.promise,
                self.sink.start.since,
            ),
        )
        self._passed, self._saved = positions, self.sink.committed()

    # -- others -------------------------------------------------------------------------------------------------

    def _round(self) -> int | None:
        """Leave word, hear the readers: the instant to fast-forward to, if this run has been behind for a while."""
        self._leave_words()
        cares = cared_from(self.sink.tidy(self._saved + 1))
        return self._pace.skip_to(cares, self.promise, self.sink.start.since, time.monotonic())

    def _leave_words(self, ended: bool = False) -> None:
        for name, each in self.steps.inputs.items():
            position = each.position if ended else self._passed.get(name, {})
            cares = self.promise if name in self.runtime.merged else NEVER
            word = (position.get("epoch", 0), cares)
            if self._words.get(name) != word:
                each.leave_word(self.reader, {"epoch": word[0]}, cares)
                if each.is_there:
                    self._words[name] = word

    def _await_inputs(self) -> None:
        """Inputs that are not there yet are waited for, and that is told once; so is what no copy knows."""
        self.steps.tell_unknown(self.options.tell, _TOLD_AFTER)
        if self._told and self.options.wait is None:
            return
        passed = time.monotonic() - self._absent_since
        if passed < _TOLD_AFTER and (self.options.wait is None or passed < self.options.wait):
            return
        absent = [each.given.file for name, each in self.steps.inputs.items() if not each.is_there]
        if not absent:
            self._absent_since = INF
            return
        if self.options.wait is not None and passed >= self.options.wait:
            raise QueryError(f"{', '.join(absent)}: not there after {self.options.wait:g} seconds")
        if not self._told and passed >= _TOLD_AFTER:
            self._told = True
            self.options.tell(f"waiting for {', '.join(absent)}")

    def _progress(self, words: str) -> Progress:
        return Progress(words, self.steps.read, self.said, self.runtime.progress, self.runtime.tau)
