"""A checkpoint of a run over files: how far it had come, with what state, and what it had said by then.

    <dir>/run.json           what is run: query, inputs, options
    <dir>/state-<n>          after so many epochs: the state, how much of each input it took, which parts belong to it
    <dir>/part-<n>.parquet   what was said since the state before (JSON lines where Parquet has no room for a column)
    <dir>/lock               held while a run uses the directory; says which one

**Guarantee.**  A state is published by one rename, after the part that it refers to.  So whenever a run is killed, the
newest state and its parts are what an undisturbed run would have had at that epoch; the rest is removed when the run is
started again, and computed again.  A run that is finished stays finished: started again it only says its answer again.
Another query, other inputs or other options are refused, and what changed is told.  A state that is damaged is noticed,
and so is one that is gone, and parts that are, before anything is computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeVar

from everwhen.core.schema import RESERVED, Schema
from everwhen.errors import InputError, QueryError, StateError
from everwhen.formats.changelog.layout import epochs_there
from everwhen.formats.changelog.reading import header_of
from everwhen.formats.parquet import AT, COUNT, MATCH, open_parquet, read_elements, write_elements
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.folder import LocalFolder, open_folder
from everwhen.storage.framed_file import SNAPSHOT, CorruptFile, OtherVersion, read_frames, write_frames
from everwhen.storage.lease import take_lease
from everwhen.storage.state_format import decode, encode
from everwhen.stream.element_batch import ElementBatch

T = TypeVar("T")
_FORMAT: Final = 2
"""1: up to Everwhen 0.4, where states were pickles."""
RATE: Final = "--rate or --speed"
"""What the epochs of a replay are told as, by the options that make them, where the answer depends on them."""
_PART: Final = re.compile(r"part-\d{9,}\.(parquet|jsonl)")
_RESTORE: Final = "restore it, or start with a new checkpoint"
_SHOWN: Final = 65_536
"""So many bytes at either end of a file, and its length, tell whether it is the same file."""


@dataclass(frozen=True)
class Saved:
    """What a run had reached.  `taken` counts the elements of each input, `parts` are the files of what was said."""

    epoch: int = 0
    taken: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    said: int = 0
    state: Any = None
    done: bool = False


class Checkpoint:
    """A directory that belongs to one run for ever.  Use it within `held`."""

    def __init__(self, place: str | os.PathLike[str], schema: Schema) -> None:
        self.place = Path(place)
        self.schema = schema
        reserved = any(name in (*RESERVED, MATCH, COUNT, AT) for name in schema.names)
        self._ending = "jsonl" if reserved else "parquet"

    @contextmanager
    def held(self, claim: Mapping[str, str] | Callable[[Path], None]) -> Iterator[Saved]:
        """What was saved last, by a run of this identity, or one that may `claim` the directory; nobody else can use it
        meanwhile."""
        with locked(self.place):
            if callable(claim):
                claim(self.place)
            else:
                agree(self.place, claim)
            yield self._newest()

    def save(self, before: Saved, news: Sequence[ElementBatch], taken: Mapping[str, int], state: Any) -> Saved:
        """The next state, after `news` were said; `state` None: the run is done."""
        epoch = before.epoch + 1
        parts = before.parts
        if any(map(len, news)):
            name = f"part-{epoch:09d}.{self._ending}"
            write_elements(news, self.place / name, self.schema)
            parts += (name,)
        said = before.said + sum(map(len, news))
        saved = Saved(epoch, dict(taken), parts, said, state, done=state is None)
        write_state(self.place, epoch, {each.name: getattr(saved, each.name) for each in fields(Saved)})
        return saved

    def answer(self, saved: Saved) -> Iterable[ElementBatch]:
        """All that was said up to a state."""
        for name in saved.parts:
            with _read_as_part(self.place / name):
                yield from read_elements(self.place / name, self.schema)

    def _newest(self) -> Saved:
        states = states_in(self.place)
        later = [path for path in self.place.glob("part-*") if _epoch_of(path) > 1]
        if later and not states:  # a part is written once the state before it is there
            raise StateError(f"{self.place} has {min(later).name}, and no state-*: that is missing; {_RESTORE}")
        saved = read_state(self.place, states[-1], _saved) if states else Saved()
        for path in (*self.place.glob("part-*"), *self.place.glob(".*.part")):
            if path.name not in saved.parts:
                path.unlink(missing_ok=True)
        for name in saved.parts:
            _require_whole(self.place / name)
        return saved


def _epoch_of(part: Path) -> int:
    """The number of a part; 0 if it is none."""
    return int(part.name.removeprefix("part-").partition(".")[0]) if _PART.fullmatch(part.name) else 0


@contextmanager
def _read_as_part(path: Path) -> Iterator[None]:
    """Around the reading of a part: what is wrong with it is wrong with the checkpoint."""
    try:
        yield
    except FileNotFoundError:
        raise StateError(f"{path} is missing; {_RESTORE}") from None
    except OSError as bad:
        raise StateError(f"{path} cannot be read: {bad.strerror or bad}; {_RESTORE}") from None
    except InputError as bad:
        raise StateError(f"{path} cannot be read: {bad.problem}; {_RESTORE}") from None


def _require_whole(path: Path) -> None:
    """StateError unless the end of a part is there, without reading all of it."""
    with _read_as_part(path), open(path, "rb") as file:
        if path.suffix == ".parquet":
            open_parquet(file, str(path))
        else:
            file.seek(max(os.stat(path).st_size - 1, 0))
            if file.read() != b"\n":
                raise InputError("its last line has no end")


def states_in(place: Path) -> list[int]:
    """The epochs of which there is a state, in order."""
    names = (path.name for path in place.glob("state-*"))
    return sorted(int(name.removeprefix("state-")) for name in names if name.removeprefix("state-").isdecimal())


def write_state(place: Path, epoch: int, plain: Any) -> None:
    """Publish a state; those before it go."""
    chunks = write_frames(SNAPSHOT, encode(plain))
    with whole_file(place / _state_name(epoch)) as path, open(path, "wb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())
    for old in states_in(place):
        if old < epoch:
            (place / _state_name(old)).unlink(missing_ok=True)


def read_state(place: Path, epoch: int, parse: Callable[[Any], T]) -> T:
    """A state as it was written; `parse` raises `CorruptFile` if it is none of its kind."""
    path = place / _state_name(epoch)
    try:
        with open(path, "rb") as file:
            return parse(decode(read_frames(file, SNAPSHOT)))
    except OtherVersion as bad:
        raise StateError(
            f"{path} cannot be read: {bad}; go on with the version that wrote it, or take a new directory"
        ) from None
    except (OSError, CorruptFile) as bad:
        raise StateError(f"{path} cannot be read: {bad}; remove the directory to start anew") from None


def _saved(found: Any) -> Saved:
    """What a run had reached, as it was written."""
    wanted = {"epoch": int, "taken": dict, "parts": tuple, "said": int, "state": object, "done": bool}
    if not isinstance(found, dict) or found.keys() != wanted.keys():
        raise CorruptFile("it holds no state of a run")
    if not all(isinstance(found[name], kind) for name, kind in wanted.items()):
        raise CorruptFile("it holds no state of a run")
    if not all(isinstance(count, int) for count in found["taken"].values()):
        raise CorruptFile("it does not tell how much of each input was taken")
    if not all(isinstance(part, str) and _PART.fullmatch(part) for part in found["parts"]):
        raise CorruptFile("it names a part that is no file of the checkpoint")
    return Saved(**found)


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """A directory, made if it is not there, that no other run can use meanwhile."""
    lease = take_lease(LocalFolder(os.path.abspath(place)), str(place))
    try:
        yield
    finally:
        lease.release()


def engine_of(place: Path) -> str | None:
    """The engine on which a checkpoint was begun; None if there is none, or it cannot be read."""
    engine = _noted(place).get("engine")
    return engine if engine in ("spark", "local") else None


def inputs_of(place: Path) -> list[str]:
    """The names of the inputs of a checkpoint's run in process; none if there is none, or it cannot be read."""
    found = _noted(place)
    if not str(found.get("engine")).startswith("local"):
        return []
    return [name.removeprefix("input ") for name in found if name.startswith("input ")]


def _noted(place: Path) -> dict[str, Any]:
    """What is run, as it was noted; nothing if it cannot be read."""
    try:
        found = json.loads((place / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def belongs_to(place: Path, identity: Mapping[str, str]) -> bool:
    """Whether a checkpoint is there that belongs to such a run."""
    return _noted(place) == {"format": _FORMAT, "version": _version(), **identity}


def agree(place: Path, identity: Mapping[str, str], free: Sequence[str] = ()) -> list[str]:
    """Notes what is run in a new checkpoint; refuses one that belongs to another run, and tells what is different.
    Returns what differs of that which is `free` to change, and is to be noted once it has (`note_run`).

    The version of the program counts: another one may cut the same history into other events, which those said before
    would not fit.
    """
    path = place / "run.json"
    now = {"format": _FORMAT, "version": _version(), **identity}
    if not path.exists():
        note_run(place, identity)
        return []
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(before, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError, RecursionError) as bad:
        raise StateError(f"{path} cannot be read: {bad}; remove the directory to start anew") from None
    if before.get("format") != _FORMAT:
        raise StateError(
            f"the checkpoint {place} was written by Everwhen {_word(before.get('version'))}, in format "
            f"{_word(before.get('format'))}; this is Everwhen {_version()}, which reads format {_FORMAT} only. Finish "
            "the run with the version that began it, or take a new directory."
        )
    changed = [name for name in {**before, **now} if name not in free and before.get(name) != now.get(name)]
    if changed:
        told = "\n".join(f"  {name}: {_told(before.get(name), now.get(name))}" for name in changed)
        raise QueryError(
            f"the checkpoint {place} belongs to another run, which this one cannot go on from:\n{told}\n"
            f"Run it as it was, or take a new directory{_or_migrate(changed)}."
        )
    return [name for name in free if before.get(name) != now.get(name)]


def note_run(place: Path, identity: Mapping[str, str]) -> None:
    """Note what is run."""
    write_json(place / "run.json", {"format": _FORMAT, "version": _version(), **identity})


def write_json(path: Path, found: Mapping[str, Any]) -> None:
    """Write a small file whole, and onto the disk: a state that follows is of no use without it."""
    with whole_file(path) as part, open(part, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def finished(place: Path) -> QueryError:
    """Another query is to go on from a checkpoint whose run is done."""
    return QueryError(
        f"the run of the checkpoint {place} is finished: there is nothing to go on from; take a new directory"
    )


def _or_migrate(changed: Sequence[str]) -> str:
    if changed and all(name.startswith("query of ") for name in changed):
        return "; or --migrate, if each new query has the columns of the old one"
    if changed[:1] != ["query"] or set(changed) - {"query", RATE}:
        return ""
    return "; or --migrate, if the new query has the same columns" + (f" ({RATE} as before)" if RATE in changed else "")


def fingerprint(path: str) -> str:
    """What tells whether a file is still the same: its length, and its beginning and end; of a changelog its start and
    its last epoch."""
    if os.path.isdir(path):
        last = max(epochs_there(open_folder(path)), default=-1)
        return f"{os.path.abspath(path)}, start {header_of(path).start.id}, up to epoch {last}"
    size = os.stat(path).st_size
    digest = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        digest.update(file.read(_SHOWN))
        if size > _SHOWN:
            file.seek(max(size - _SHOWN, _SHOWN))
            digest.update(file.read(_SHOWN))
    return f"{os.path.abspath(path)}, {size} bytes, {digest.hexdigest()}"


def _version() -> str:
    try:
        return version("everwhen")
    except PackageNotFoundError:
        return "not installed"


def _word(value: object) -> str:
    return str(value)[:40] if isinstance(value, str | int) else "(it does not say)"


def _told(before: Any, now: Any) -> str:
    if "\n" not in f"{before}{now}":
        was, is_ = ("none" if each is None else each for each in (before, now))
        return f"{was} before, {is_} now"
    return "\n" + "\n".join(f"    {'before' if i == 0 else 'now   '}: {line}" for i, text in enumerate((before, now))
                            for line in str(text).splitlines())  # fmt: skip


def _state_name(epoch: int) -> str:
    return f"state-{epoch:09d}"
