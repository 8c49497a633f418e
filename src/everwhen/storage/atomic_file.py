"""A file appears whole or not at all: it is written beside its place and moved there when it is complete.

Whoever reads the path sees the old file or the new one, never a part of it; an error while writing leaves the old one
untouched and nothing behind.  Who ends the process while another thread still writes calls `abandon` first.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

NO_PLACE: Final = "no file can be made in this directory; choose another place"
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when a disk, or somebody's share of it, is full."""
_GUARD: Final = threading.RLock()
_UNFINISHED: Final[set[Path]] = set()
"""Files and directories that are being written, to be removed if their writer is left behind."""
_ABANDONED: Final = threading.Event()


class AbandonedError(Exception):
    """The process is ending: what this thread writes is no longer wanted."""


def abandon() -> None:
    """Remove what is being written; from now on nothing is published.  The process is about to end."""
    with _GUARD:
        _ABANDONED.set()
        for path in _UNFINISHED:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def _unfinished(path: Path) -> Iterator[None]:
    with _GUARD:
        if _ABANDONED.is_set():
            raise AbandonedError
        _UNFINISHED.add(path)
    try:
        yield
    finally:
        with _GUARD:
            _UNFINISHED.discard(path)


@contextmanager
def directory_aside() -> Iterator[Path]:
    """A temporary directory, gone in the end."""
    with TemporaryDirectory(prefix="everwhen-", ignore_cleanup_errors=True) as place, _unfinished(Path(place)):
        yield Path(place)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; when the block ends well, what was written there becomes `path`."""
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        yield target  # a pipe or a device: there is nothing to replace
        return
    target = Path(os.path.realpath(target))  # a link stays a link
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file", str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the directory to write to does not exist", str(Path(path).parent))
    part = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with _unfinished(part):
            yield part
            with _GUARD:
                if _ABANDONED.is_set():
                    raise AbandonedError
                if target.exists():
                    shutil.copymode(target, part)
                os.replace(part, target)
    except OSError as error:
        if error.filename is None and error.errno in FULL:  # the system names no file when a write finds the disk full
            raise type(error)(error.errno, os.strerror(error.errno), str(path)) from None
        if error.filename != str(part) and str(part) not in str(error):  # Arrow names it in its words
            raise
        if error.errno == errno.ENOENT:  # the directory is there
            raise PermissionError(errno.EACCES, NO_PLACE, str(path)) from None
        said = os.strerror(error.errno) if error.errno is not None else "cannot be written"
        raise type(error)(error.errno, said, str(path)) from None  # the part's name means nothing to anybody
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether the file can be read twice; a pipe cannot."""
    return stat.S_ISREG(os.stat(path).st_mode)
