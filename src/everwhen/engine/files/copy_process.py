"""The nursery: a process from which those of copies are forked, for a supervisor (`copies.py`).

To load Python, Arrow, Numba and compiled loops takes seconds, to fork a process that has loaded them takes
milliseconds.  So a copy that dies is back at once.  The nursery does no work itself; at first it runs small queries of
its own, for which it loads the loops that most queries need.

    supervisor ──▶ standard input: work, each with the number of its member
    supervisor ◀── standard output: lines of JSON; which process does it, how the work ended, that the process is gone

When the standard input ends, the supervisor is gone or wants an end: then all processes are asked to end, and soon made
to.  A process whose nursery is gone ends itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass
from typing import IO, Any, Final, NoReturn

from everwhen.algebra.aggregates.calls import count
from everwhen.algebra.aggregates.calls import max as max_
from everwhen.algebra.aggregates.calls import sum as sum_
from everwhen.algebra.lmerge import lmerge
from everwhen.algebra.named_source import source
from everwhen.core.consistency import Consistency
from everwhen.engine.files.live.options import LiveOptions
from everwhen.engine.files.live.run import LiveRun
from everwhen.engine.files.run import Progress
from everwhen.engine.local import Query
from everwhen.engine.run import run
from everwhen.errors import EverwhenError, InputError, InUseError, QueryError
from everwhen.formats.input_file import InputFile
from everwhen.storage.lease import release_all
from everwhen.stream.element import Adjust, Cti, Element, Insert

_HEAD: Final = struct.Struct("<QQ")
_LOOK: Final = 0.02
_GRACE: Final = 2.0
"""Seconds in which processes that are asked to end may do so."""
_STOPPED: Final = 143
_LONGEST: Final = 3_000
"""Bytes of a message, so that a line is written at once."""


@dataclass(frozen=True)
class Work:
    """What a process is to do: the arguments of `LiveRun`."""

    query: Query
    inputs: dict[str, InputFile]
    out: str
    checkpoint: str
    level: Consistency
    options: dict[str, Any]


def send(member: int, work: Work, pipe: IO[bytes]) -> None:
    """Hand work to the nursery."""
    data = pickle.dumps(work)
    pipe.write(_HEAD.pack(member, len(data)) + data)
    pipe.flush()


class _StopError(BaseException):
    """The process is to end."""


# -- the nursery ------------------------------------------------------------------------------------------------------


def main() -> int:
    """Forks a process for each piece of work, until there is no more supervisor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    running: dict[int, int] = {}
    _warm_up()
    while True:
        if select.select([0], [], [], _LOOK)[0]:
            head = _received(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            member, length = _HEAD.unpack(head)
            data = _received(length)
            sys.stdout.flush()
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _child(member, data, parent)
            running[pid] = member
            _tell(member=member, pid=pid)
        _reap(running)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _GRACE
    while running and time.monotonic() < until:
        _reap(running)
        time.sleep(_LOOK)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return 0


def _warm_up() -> None:
    """Have loops loaded before they are needed in a hurry."""
    a, b = (source(name, {"k": "string", "x": "int64", "y": "float64"}) for name in "ab")
    sums = a.range(5).group_by("k").agg(n=count(), s=sum_("x"), m=max_("y"))
    elements: list[Element] = []
    for t in range(20):
        elements.append(Insert(t, t + 3, {"k": "pq"[t % 2], "x": t, "y": t / 2}))
        if t % 4 == 0:
            elements += [Adjust(t, t + 3, t + 1, {"k": "pq"[t % 2], "x": t, "y": t / 2}), Cti(t - 1)]
    with contextlib.suppress(EverwhenError):
        answers = {name: list(run(sums, {"a": elements}, batch=7)) for name in "cd"}
        copies = [source(name, sums.schema) for name in answers]
        list(run(lmerge(*copies), answers, batch=5))
        list(run(lmerge(a, b), {"a": elements, "b": elements}, batch=5))
        list(run(a.join(b, on="k"), {"a": elements, "b": elements}, batch=7))


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _tell(member=running.pop(pid), exit=os.waitstatus_to_exitcode(status))


def _received(size: int) -> bytes:
    """So many bytes of the standard input, fewer if it ends."""
    data = b""
    while len(data) < size and (more := os.read(0, size - len(data))):
        data += more
    return data


def _tell(**found: object) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(found).encode() + b"\n")


# -- a process --------------------------------------------------------------------------------------------------------


def _child(member: int, data: bytes, parent: int) -> NoReturn:
    status = 1
    logging.getLogger("everwhen").setLevel(logging.ERROR)  # who died before is told by the supervisor
    try:
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))

        def check(_: Progress) -> None:
            if asked or os.getppid() != parent:
                raise _StopError

        status = _work(member, pickle.loads(data), check)
    except _StopError:
        status = _STOPPED
    except BaseException as bad:
        _end(member, "failed", f"unforeseen {type(bad).__name__}: {bad}")
    finally:
        release_all()
        os._exit(status)


def _work(member: int, work: Work, check: Any) -> int:
    options = LiveOptions(**work.options, progress=check, tell=_warn)
    try:
        LiveRun(work.query, work.inputs, work.out, work.checkpoint, work.level, options).run()
        return _end(member, "done", "")
    except InputError as bad:
        return _end(member, "input", str(bad))
    except QueryError as bad:
        return _end(member, "query", str(bad))
    except InUseError as bad:
        return _end(member, "in use", str(bad))
    except (EverwhenError, OSError) as bad:
        return _end(member, "failed", str(bad))


def _end(member: int, how: str, words: str) -> int:
    _tell(member=member, end=how, words=words[:_LONGEST])
    return 0 if how == "done" else 1


def _warn(words: str) -> None:
    sys.stderr.write(f"everwhen: {words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
