"""Work that can be interrupted at any moment, also within a compiled loop.

Python acts on signals in the main thread, between two of its own instructions.  A compiled loop that runs there for a
minute keeps Ctrl-C waiting for a minute, and then the call of the loop fails in an odd way.  So the work is done in a
thread of its own, and the main thread waits for signals.  Compiled loops give up the interpreter's lock (`nogil`), so
the main thread is never kept from acting.

Who is interrupted is asked to end first: between two epochs it raises, and all is undone as on any error.  What does
not come to that point within a moment is left alone: files that were half-written are removed here, and the process
ends with `leave`, while the thread still computes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from everwhen.algebra.aggregates.calls import UserAggregate
from everwhen.algebra.expressions.udf import Udf
from everwhen.storage.atomic_file import abandon

T = TypeVar("T")
_MOMENT: Final = 0.05
"""Seconds between two looks at whether a signal has come."""
_GRACE: Final = 0.4
"""Seconds in which work that was interrupted may end by itself."""
_QUICK: Final = 0.02
"""Seconds: after a step that took no longer, another one with as many rows is not expected to take long."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Abandoned(KeyboardInterrupt):
    """Work was interrupted, did not end in time, and still runs.  All that can be done is to `leave` the process."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Stopped(BaseException):
    """Raised in the thread of the work."""


def interruptible(work: Callable[[Callable[[], None]], T]) -> T:
    """What `work` returns.  It is given a function to call between two pieces of work, which raises if the work is to
    end.  Ctrl-C then is a `KeyboardInterrupt` here, and being asked to end a `SystemExit`, as always; or `Abandoned`,
    if the work does not end within a moment, or is interrupted twice."""
    if threading.current_thread() is not threading.main_thread():
        return work(lambda: None)  # signals are the business of the main thread
    came: list[tuple[int, float]] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append((number, time.monotonic()))

    def check() -> None:
        if came:
            raise _Stopped

    def gives_up() -> int | None:
        late = came and (len(came) > 1 or time.monotonic() - came[0][1] >= _GRACE)
        return 128 + came[0][0] if late else None

    before = [signal.signal(one, note) for one in _SIGNALS]
    try:
        return apart(lambda: work(check), gives_up)
    except _Stopped:
        raise (KeyboardInterrupt if came[0][0] == signal.SIGINT else SystemExit(128 + came[0][0])) from None
    finally:
        for one, handler in zip(_SIGNALS, before, strict=True):
            with suppress(ValueError, TypeError):  # a handler that Python did not set cannot be put back
                signal.signal(one, handler)


def apart(work: Callable[[], T], gives_up: Callable[[], int | None]) -> T:
    """What `work` returns or raises, done in a thread of its own.  `gives_up` is asked meanwhile: if it gives a status,
    the work is `Abandoned`; it may also raise an error of its own."""
    found: list[T] = []
    failed: list[BaseException] = []

    def do() -> None:
        try:
            found.append(work())
        except BaseException as bad:
            failed.append(bad)

    # what holds here, such as how times are shown, holds there
    thread = threading.Thread(target=copy_context().run, args=(do,), name="everwhen-work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_MOMENT)
        if thread.is_alive() and (status := gives_up()) is not None:
            abandon()
            raise Abandoned(status)
    if failed:
        raise failed[0]
    return found[0]


Steps = Callable[[int | None, Callable[[], Any]], Any]
"""Does a step over so many rows, or (None) over all that is kept, and gives back what it returns."""


class StepsApart:
    """Does steps one after the other, in such a way that Ctrl-C need not wait for the end of one.

    A step is done in a thread of its own, unless one with as many rows was quick.  `KeyboardInterrupt` is raised at
    once; the thread computes on to the end of its step, so what it works on must not be used any more.  Functions of
    the user's may depend on the thread that calls them: this is not for queries that have some (`calls_functions`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quick = -1

    def __call__(self, rows: int | None, step: Callable[[], T]) -> T:
        if threading.current_thread() is not threading.main_thread():
            return step()  # signals are the business of the main thread
        if rows is None:
            return apart(step, lambda: None)
        began = self._clock()
        try:
            return step() if rows <= self._quick else apart(step, lambda: None)
        finally:
            is_quick = self._clock() - began <= _QUICK
            self._quick = max(self._quick, rows) if is_quick else min(self._quick, rows - 1)


def calls_functions(value: object) -> bool:
    """Whether a plan, or a part of one, calls Python functions of the user's."""
    if isinstance(value, Udf | UserAggregate):
        return True
    if isinstance(value, tuple | list):
        return any(map(calls_functions, value))
    if isinstance(value, Mapping):
        return any(map(calls_functions, value.values()))
    if is_dataclass(value) and not isinstance(value, type):
        return any(calls_functions(getattr(value, field.name)) for field in fields(value))
    return False


def require_sound(error: Exception) -> None:
    """`KeyboardInterrupt` if that is what is behind a `SystemError`: a signal that comes while a compiled loop gives
    back what it has found makes the interpreter say that the loop has failed in an odd way."""
    behind: BaseException | None = error if isinstance(error, SystemError) else None
    while behind is not None:
        if isinstance(behind, KeyboardInterrupt | SystemExit):
            raise behind.with_traceback(None) from None
        behind = behind.__cause__ or behind.__context__


def leave(status: int) -> NoReturn:
    """End the process at once, without waiting for work that was abandoned."""
    from everwhen.storage.lease import release_all  # only who has a checkpoint has it loaded

    with suppress(OSError, ValueError):
        sys.stderr.flush()
    release_all()
    os._exit(status)
