"""A folder on any file system, in which files appear whole or not at all.

`create` publishes a file once: of several writers one wins and the others are told so.  `replace` publishes a file
over whatever was there.  Whoever reads sees a whole file or none.  A writer that is killed leaves at most a file
with a name of its own (`.<name>.<process>.<random>.part`), which no reader looks at and `sweep` removes.

Local files are first linked to their place, so that exactly one writer wins.  Other file systems (any URI that
`pyarrow.fs` knows: hdfs, s3, gs ...) check and move: exact where a move never overwrites (HDFS); where it does (object
stores), two writers that publish within the same moment may both have their say, and the loser finds out by reading
back; readers still see one whole file.

Everything raises `OSError`; what that means to a user is said by the caller (`blame`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PART: Final = re.compile(r"\.(.+)\.(\d+)\.([0-9a-f]{8})\.part")
_PLAIN_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SHOWN_NAME: Final = 40
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

Chunk: TypeAlias = Any
"""Anything that lies in one piece of memory: bytes, a memory view, an Arrow buffer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a folder: its name, bytes, and when it was last written (seconds since 1970)."""

    name: str
    size: int
    written: float


class Folder(ABC):
    """One directory; names may lead into directories below it, which come to be when they are written to."""

    @abstractmethod
    def place(self, name: str = "") -> str:
        """The path or URI of the folder or a file in it, for messages."""

    @abstractmethod
    def within(self, name: str) -> Folder:
        """A folder below this one."""

    @abstractmethod
    def make(self) -> None:
        """Creates the folder, and those above it, unless it is there."""

    @abstractmethod
    def create(self, name: str, chunks: Sequence[Chunk], durable: bool = False) -> bool:
        """Publishes a file unless it is there; False if someone else was first.  The first chunk identifies it."""

    @abstractmethod
    def replace(self, name: str, chunks: Sequence[Chunk], durable: bool = False) -> None:
        """Publishes a file in the place of what was there."""

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """A file for reading (`read`, `readinto`, `seek`)."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def entries(self) -> list[Entry]:
        """The files right in the folder, by name; none if the folder is not there."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names of the folders right in this one, in order; none if it is not there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file; one that is gone already is fine."""

    @abstractmethod
    def remove_empty(self, name: str) -> None:
        """Removes a folder below this one if nothing is in it."""

    def read(self, name: str) -> bytes:
        """The whole content of a file."""
        with self.open(name) as file:
            return file.read()

    def local(self, name: str) -> Path | None:
        """The path of a file where other libraries can write to it themselves."""
        return None

    def sweep(self, older: float) -> int:
        """Removes what killed writers left right in the folder, if it is older than so many seconds; how many."""
        limit = time.time() - older
        left = [entry.name for entry in self.entries() if _PART.fullmatch(entry.name) and entry.written < limit]
        for name in left:
            self.remove(name)
        return len(left)


def open_folder(place: str | os.PathLike[str]) -> Folder:
    """The folder of a path or a URI; it need not be there yet."""
    text = os.fspath(place)
    if not text:
        raise OSError(errno.EINVAL, "an empty path names no folder", text)
    if not _SCHEME.match(text):
        return LocalFolder(os.path.abspath(os.path.expanduser(text)))
    if text.startswith("file:"):
        return LocalFolder(unquote(urlsplit(text).path))
    try:
        system, path = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, ImportError) as bad:
        raise OSError(errno.EINVAL, _first_line(bad), text) from None
    return RemoteFolder(system, path.rstrip("/"), text.rstrip("/"))


def path_name(name: str) -> str:
    """The one name by which anything that a user has named goes into a path: a stream, a query, a sink.

    A short name of lower-case letters, digits and underscores stands for itself.  Of any other one the letters and
    digits are kept for people, with a digest of the whole name.  So no name leads out of its folder, none is too long
    for a file system, and two names never meet, also where a file system takes upper and lower case for one.

    >>> path_name("bid_2"), path_name("Bid"), path_name("../bid")
    ('bid_2', 'Bid-bcd9a15b358ae77c', 'bid-8d1eee0a8a8ed1a2')
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    shown = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_SHOWN_NAME]
    return f"{shown or 'name'}-{digest}"


def blame(bad: OSError, place: str, wanted: str) -> str:
    """A message for people: where, what was wanted, what came, what to do."""
    match bad.errno:
        case errno.EACCES | errno.EPERM:
            came, remedy = "permission denied", "give this user the right to write there, or choose another place"
        case errno.EROFS:
            came, remedy = "the file system is read-only", "choose another place"
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            came, remedy = "no space is left", "free some space there, or choose another place; then start again"
        case errno.ENOTDIR | errno.EEXIST | errno.EISDIR:
            came, remedy = "a file stands where a directory should be, or the reverse", "choose another place"
        case errno.ENOENT if not os.path.exists(place) and os.path.isdir(os.path.dirname(place)):
            came, remedy = "nothing can be made in the directory above it", "choose another place"
        case errno.ENOENT:
            came, remedy = "it is not there", "was it moved or deleted?"
        case errno.EINVAL:
            came, remedy = bad.strerror or _first_line(bad), "a local path, or a URI such as hdfs://... or s3://..."
        case _:
            came, remedy = bad.strerror or _first_line(bad), "can this machine reach it?"
    return f"{place}: cannot {wanted}: {came} ({remedy})"


def _first_line(bad: BaseException) -> str:
    return str(bad).splitlines()[0] if str(bad) else type(bad).__name__


def _part_name(name: str) -> str:
    head, _, tail = name.rpartition("/")
    part = f".{tail}.{os.getpid()}.{os.urandom(4).hex()}.part"
    return f"{head}/{part}" if head else part


@dataclass(frozen=True)
class LocalFolder(Folder):
    """A folder of a mounted file system."""

    path: str

    def place(self, name: str = "") -> str:
        return os.path.join(self.path, name) if name else self.path

    def within(self, name: str) -> LocalFolder:
        return LocalFolder(os.path.join(self.path, name))

    def make(self) -> None:
        os.makedirs(self.path, exist_ok=True)

    def create(self, name: str, chunks: Sequence[Chunk], durable: bool = False) -> bool:
        target = self.place(name)
        if os.path.lexists(target):
            return False
        part = self._write(name, chunks, durable)
        try:
            won = _link(part, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)
        if durable:
            _sync_directory(os.path.dirname(target))
        return won

    def replace(self, name: str, chunks: Sequence[Chunk], durable: bool = False) -> None:
        target = self.place(name)
        part = self._write(name, chunks, durable)
        try:
            os.replace(part, target)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
        if durable:
            _sync_directory(os.path.dirname(target))

    def _write(self, name: str, chunks: Sequence[Chunk], durable: bool) -> str:
        part = self.place(_part_name(name))
        try:
            file = open(part, "xb")  # noqa: SIM115 - closed below, and the name removed if anything fails
        except FileNotFoundError:
            os.makedirs(os.path.dirname(part), exist_ok=True)
            file = open(part, "xb")  # noqa: SIM115
        try:
            with file:
                for chunk in chunks:
                    file.write(chunk)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
        return part

    def open(self, name: str) -> IO[bytes]:
        return open(self.place(name), "rb")

    def exists(self, name: str) -> bool:
        return os.path.isfile(self.place(name))

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        with suppress(FileNotFoundError), os.scandir(self.path) as all_:
            for entry in all_:
                with suppress(FileNotFoundError):  # another process may be tidying up
                    if entry.is_file():
                        status = entry.stat()
                        found.append(Entry(entry.name, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: entry.name)

    def folders(self) -> list[str]:
        try:
            with os.scandir(self.path) as all_:
                return sorted(entry.name for entry in all_ if entry.is_dir())
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.place(name))

    def remove_empty(self, name: str) -> None:
        with suppress(OSError):
            os.rmdir(self.place(name))

    def local(self, name: str) -> Path | None:
        target = Path(self.place(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _link(part: str, target: str) -> bool:
    try:
        os.link(part, target)
    except FileExistsError:
        return False
    except OSError as bad:
        if bad.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):  # a file system without links: the check and the move are two steps
            return False
        os.rename(part, target)
    return True


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class RemoteFolder(Folder):
    """A folder of a file system that `pyarrow.fs` reaches; what is written is durable when its writer says so."""

    system: Any
    path: str
    uri: str

    def place(self, name: str = "") -> str:
        return f"{self.uri}/{name}" if name else self.uri

    def within(self, name: str) -> RemoteFolder:
        return RemoteFolder(self.system, f"{self.path}/{name}", f"{self.uri}/{name}")

    def make(self) -> None:
        self.system.create_dir(self.path, recursive=True)

    def create(self, name: str, chunks: Sequence[Chunk], durable: bool = False) -> bool:
        target = self._at(name)
        if self.exists(name):
            return False
        part = self._write(name, chunks)
        try:
            if self.exists(name):  # writing took a while
                return False
            self.system.move(part, target)
        except OSError:
            if not self.exists(name):
                raise
            return False
        finally:
            self._discard(part)
        with self.open(name) as file:
            return file.read(memoryview(chunks[0]).nbytes) == bytes(chunks[0])

    def replace(self, name: str, chunks: Sequence[Chunk], durable: bool = False) -> None:
        part = self._write(name, chunks)
        try:
            try:
                self.system.move(part, self._at(name))
            except OSError:
                if not self.exists(name):
                    raise
                self._discard(self._at(name))  # a file system whose moves never overwrite
                self.system.move(part, self._at(name))
        finally:
            self._discard(part)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _write(self, name: str, chunks: Sequence[Chunk]) -> str:
        part = self._at(_part_name(name))
        self.system.create_dir(part.rpartition("/")[0], recursive=True)
        with self.system.open_output_stream(part) as stream:
            for chunk in chunks:
                stream.write(chunk)
        return part

    def _discard(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if self.system.get_file_info(path).type == fs.FileType.File:
                self.system.delete_file(path)

    def open(self, name: str) -> IO[bytes]:
        return self.system.open_input_file(self._at(name))

    def exists(self, name: str) -> bool:
        return self.system.get_file_info(self._at(name)).type == fs.FileType.File

    def entries(self) -> list[Entry]:
        found = [info for info in self._infos() if info.type == fs.FileType.File]
        return [Entry(info.base_name, info.size or 0, (info.mtime_ns or 0) / 1e9) for info in found]

    def folders(self) -> list[str]:
        return [info.base_name for info in self._infos() if info.type == fs.FileType.Directory]

    def _infos(self) -> list[Any]:
        selector = fs.FileSelector(self.path, allow_not_found=True)
        return sorted(self.system.get_file_info(selector), key=lambda info: info.base_name)

    def remove(self, name: str) -> None:
        self._discard(self._at(name))

    def remove_empty(self, name: str) -> None:
        below = self.within(name)
        with suppress(OSError):
            if not below.entries() and not below.folders():
                self.system.delete_dir(self._at(name))
