"""A process that runs one query which goes on, for a supervisor (`copies.py`).

It loads everything it may need and then waits for its work on the standard input, so that a process which is ready
takes the place of one that has died.  When the standard input ends, the supervisor is gone, and so is this process.
How it ended is told on the standard output, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import sys
import threading
from dataclasses import dataclass
from typing import IO, Any, Final

from everwhen.core.consistency import Consistency
from everwhen.engine.files.follow import LiveOptions, LiveRun
from everwhen.engine.files.run import Progress
from everwhen.engine.local import Query
from everwhen.errors import EverwhenError, InputError, InUseError, QueryError
from everwhen.formats.input_file import InputFile
from everwhen.storage.lease import release_all

_LENGTH: Final = struct.Struct("<Q")
STOPPED: Final = 143


@dataclass(frozen=True)
class Work:
    """What a process is to do; the arguments of `LiveRun`."""

    query: Query
    inputs: dict[str, InputFile]
    out: str
    checkpoint: str
    level: Consistency
    options: dict[str, Any]


def send(work: Work, pipe: IO[bytes]) -> None:
    """Hand work to a process that waits for it."""
    data = pickle.dumps(work)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


class _StopError(BaseException):
    """The process has been asked to end."""


def main() -> int:
    """Waits for work, does it, tells how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: _stop(asked))
    head = _received(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return 0
    work: Work = pickle.loads(_received(_LENGTH.unpack(head)[0]))
    threading.Thread(target=_until_alone, daemon=True).start()

    def check(_: Progress) -> None:
        if asked.is_set():
            raise _StopError

    options = LiveOptions(**work.options, progress=check, tell=_tell)
    try:
        LiveRun(work.query, work.inputs, work.out, work.checkpoint, work.level, options).run()
        return _report("done", "")
    except _StopError:
        return STOPPED
    except InputError as bad:
        return _report("input", str(bad))
    except QueryError as bad:
        return _report("query", str(bad))
    except InUseError as bad:
        return _report("in use", str(bad))
    except (EverwhenError, OSError) as bad:
        return _report("failed", str(bad))


def _stop(asked: threading.Event) -> None:
    if asked.is_set():
        release_all()
        os._exit(STOPPED)
    asked.set()


def _received(size: int) -> bytes:
    """So many bytes of the standard input, fewer if it ends.  Past Python's own buffer: a thread waits there for the
    end, and would keep it."""
    data = b""
    while len(data) < size and (more := os.read(0, min(size - len(data), 1 << 20))):
        data += more
    return data


def _until_alone() -> None:
    _received(sys.maxsize)
    release_all()
    os._exit(STOPPED)


def _tell(words: str) -> None:
    sys.stderr.write(f"everwhen: {words}\n")
    sys.stderr.flush()


def _report(how: str, words: str) -> int:
    sys.stdout.write(json.dumps({"end": how, "words": words}) + "\n")
    sys.stdout.flush()
    return 0 if how == "done" else 1


if __name__ == "__main__":
    sys.exit(main())
