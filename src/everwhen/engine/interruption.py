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
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from types import FrameType
from typing import Final, NoReturn, TypeVar

from everwhen.storage.atomic_file import abandon

T = TypeVar("T")
_MOMENT: Final = 0.05
"""Seconds between two looks at whether a signal has come."""
_GRACE: Final = 0.75
"""Seconds in which work that was interrupted may end by itself."""
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


def leave(status: int) -> NoReturn:
    """End the process at once, without waiting for work that was abandoned."""
    from everwhen.storage.lease import release_all  # only who has a checkpoint has it loaded

    with suppress(OSError, ValueError):
        sys.stderr.flush()
    release_all()
    os._exit(status)
