"""While the program `everwhen` is being loaded, Ctrl-C ends it with a line instead of a traceback.

To load the engine takes a second, more on a busy machine, and nothing has been begun by then.  So the first thing that
is loaded sets handlers that end the process; the program takes them back as its first deed.  Who imports the library is
not concerned: only a process that was started as `everwhen` or with `-m everwhen.cli` gets them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from types import FrameType


def is_program(command: Sequence[str]) -> bool:
    """Whether a process that was started by this command is the program.

    >>> is_program(["python", "/home/me/.venv/bin/everwhen", "run", "q.sql"]), is_program(["python", "-m", "pytest"])
    (True, False)
    """
    if len(command) > 1 and os.path.basename(command[1]) in ("everwhen", "everwhen.exe"):
        return True
    return any(pair in (("-m", "everwhen"), ("-m", "everwhen.cli")) for pair in pairwise(command))


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"everwhen: interrupted\n")
    os._exit(128 + number)


def loading() -> None:
    """From now on a signal ends the process, if it is the program."""
    if not is_program(sys.orig_argv) or threading.current_thread() is not threading.main_thread():
        return
    for one, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(one) == usual:  # who ignores it goes on to do so
            signal.signal(one, _end)


def loaded() -> None:
    """All is loaded: signals are as Python has them."""
    for one, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(one) is _end:
            signal.signal(one, usual)


loading()
