"""A file appears whole or not at all: it is written beside its place and moved there when it is complete.

Whoever reads the path sees the old file or the new one, never a part of it; an error while writing leaves the old one
untouched and nothing behind.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
        yield part
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
    except OSError as error:
        if error.filename != str(part):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None  # the part's name means nothing to anybody
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether the file can be read twice; a pipe cannot."""
    return stat.S_ISREG(os.stat(path).st_mode)
