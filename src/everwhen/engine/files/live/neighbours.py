"""Who writes the inputs of a run that goes on, and who reads its output: words left for them, and waiting for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from everwhen.core.time import INF, NEVER
from everwhen.engine.files.live.options import LiveOptions
from everwhen.engine.files.live.steps import LiveSteps
from everwhen.errors import QueryError


class LiveNeighbours:
    """What a run tells the writers of its inputs: how far it has read them, and from when on it cares.

    `passed`: the positions from which on it would read again after a crash.
    """

    def __init__(self, steps: LiveSteps, options: LiveOptions, reader: str) -> None:
        self._steps, self._options, self._reader = steps, options, reader
        self.passed: dict[str, Mapping[str, Any]] = {}
        self._words: dict[str, Any] = {}
        self._absent_since = time.monotonic()
        self._told = False

    def leave_words(self, promise: int, ended: bool = False) -> None:
        """Tell the writers; `promise` is what is promised on the answer, before which copies are of no interest."""
        merged = self._steps.runtime.merged
        for name, each in self._steps.inputs.items():
            position = each.position if ended else self.passed.get(name, {})
            cares = promise if name in merged else NEVER
            word = (position.get("epoch", 0), cares)
            if self._words.get(name) != word:
                each.leave_word(self._reader, {"epoch": word[0]}, cares)
                if each.is_there:
                    self._words[name] = word

    def await_inputs(self, told_after: float) -> None:
        """Inputs that are not there yet are waited for, and that is told once; so is what no copy knows."""
        wait = self._options.wait
        self._steps.tell_unknown(self._options.tell, told_after)
        if self._told and wait is None:
            return
        passed = time.monotonic() - self._absent_since
        if passed < told_after and (wait is None or passed < wait):
            return
        absent = [each.given.file for each in self._steps.inputs.values() if not each.is_there]
        if not absent:
            self._absent_since = INF
            return
        if wait is not None and passed >= wait:
            raise QueryError(f"{', '.join(absent)}: not there after {wait:g} seconds")
        if not self._told and passed >= told_after:
            self._told = True
            self._options.tell(f"waiting for {', '.join(absent)}")
