"""A sink of rows as a sink of elements: a form stands in front of it.

**Exactly once.**  What a form says to an epoch depends on its state.  In process the job keeps that state with its own
(`snapshot`), and repeats epochs from there: they go through the form again, and a target that has them is not asked.
On Spark epochs are not repeated, so the sink keeps the state by itself, in a folder (`memory`): before an epoch n goes
to the target, the state after it is written as `state-n`; when it is in, `done` says so.  After a crash the state is
that of the last epoch that is in the target or done.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from everwhen.core.schema import Schema
from everwhen.engine.files.checkpoint import read_state, states_in, write_state
from everwhen.errors import SinkError, SinkLostError
from everwhen.jobs.forms import Append, Form
from everwhen.sinks.base import EpochSink
from everwhen.sinks.rows import RowChanges, RowSink
from everwhen.storage.atomic_file import whole_file
from everwhen.stream.element_batch import ElementBatch


class FormedSink(EpochSink):
    """Elements in, rows of a form out.  `changed`: how many changes were made since the first epoch."""

    def __init__(self, form: Form, target: RowSink, memory: str | None = None) -> None:
        self.form, self.target = form, target
        self.memory = None if memory is None else Path(memory)
        self.lasting = target.lasting  # type: ignore[misc]  # as its target
        self.changed = 0
        self._stepped: tuple[int, RowChanges] | None = None
        self._done = -1

    def resume(self, published: int) -> None:
        self.target.resume(published)

    def prepare(self, schema: Schema) -> None:
        self.target.prepare(self.form.schema)
        if self.memory is None:
            return
        self.memory.mkdir(parents=True, exist_ok=True)
        note = self.memory / "done"
        done = int(note.read_text(encoding="utf-8")) if note.exists() else -1
        there = max(done, self.target.committed())
        states = [epoch for epoch in _states(self.memory) if epoch <= there]
        self._done = states[-1] if states else -1
        if states:
            self.restore(read_state(self.memory / "states" / str(states[-1]), states[-1], _itself))
        elif there >= 0:
            raise SinkLostError(f"{self.memory}: the state of the form is gone (put it back, or begin anew)")

    def committed(self) -> int:
        return self.target.committed() if self.memory is None else self._done

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        if self.memory is not None and epoch <= self._done:
            return
        if self._stepped is None or self._stepped[0] != epoch:
            changes = self.form.step(batch)
            self._stepped = epoch, changes
            self.changed += len(changes)
            if self.memory is not None:
                self._remember(epoch)
        changes = self._stepped[1]
        if epoch > self.target.committed():
            self.target.commit(epoch, changes)
        if self.memory is not None:
            with whole_file(self.memory / "done") as aside:
                aside.write_text(str(epoch), encoding="utf-8")
            self._done = epoch

    def snapshot(self) -> dict[str, Any]:
        """What the form keeps, as plain data."""
        return {"form": self.form.snapshot(), "changed": self.changed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        self.form.restore(state["form"])
        self.changed = state["changed"]

    def close(self) -> None:
        self.target.close()

    def _remember(self, epoch: int) -> None:
        """State `epoch` beside that of the epoch before, which is needed until this one is in."""
        assert self.memory is not None
        place = self.memory / "states" / str(epoch)
        place.mkdir(parents=True, exist_ok=True)
        write_state(place, epoch, self.snapshot())
        for old in _states(self.memory)[:-2]:
            for file in (self.memory / "states" / str(old)).iterdir():
                file.unlink()
            (self.memory / "states" / str(old)).rmdir()


def _itself(found: Any) -> Any:
    return found


def _states(memory: Path) -> list[int]:
    place = memory / "states"
    if not place.is_dir():
        return []
    found = (int(each.name) for each in place.iterdir() if each.name.isdecimal() and states_in(each))
    return sorted(found)


def check_epochs(name: str, sink: EpochSink, had: int, newest: int, place: Path) -> None:
    """A sink and a checkpoint belong together: the sink has the last epoch that had something for it, `had`, and none
    beyond the `newest` one.  What a form remembers is checked by the form."""
    there = sink.committed()
    if there > newest:
        raise SinkError(
            f"the sink {name} has epochs up to {there}, which this checkpoint does not know: {place} is new, or an old "
            "copy (go on with the checkpoint that wrote them, or give the sink another place)"
        )
    if sink.lasting and not isinstance(sink, FormedSink) and there < had:
        raise SinkLostError(
            f"the sink {name} has epochs up to {there} only, and it had them up to {had} (put it back as it was, or "
            "begin with a new checkpoint and new sinks)"
        )


def would_write(sinks: Mapping[str, EpochSink]) -> dict[str, Callable[[ElementBatch], tuple[int, int]]]:
    """By sink whose form lets rows wait: how many rows it would write if something was said, and the first instant of
    those that wait.  The form is copied for it."""

    def of(form: Form, batch: ElementBatch) -> tuple[int, int]:
        return copy.deepcopy(form).step(batch).rows.num_rows, form.waiting.first or 0

    return {
        name: partial(of, sink.form)
        for name, sink in sinks.items()
        if isinstance(sink, FormedSink) and isinstance(sink.form, Append)
    }
