"""The files of a changelog folder, by name and content.

    <path>/_changelog.json               the header: format, columns, and the present start of the writer
    <path>/epoch=<n>/part-<b>.parquet    the elements of epoch n from partition b, in the files of the element format
    <path>/epoch=<n>/tail.parquet        its promises (CTIs), which come after all its parts
    <path>/_epochs/<n>.json              the manifest: epoch n is in, and consists of these files
    <path>/_readers/<name>.json          how far a reader has come (`readers.py`)
    <path>/_kept.json                    the first epoch that was not removed, if some were

**Starts.**  A writer that goes on where it was appends to the same stream.  One that begins anew, because it has lost
its state, says another stream of elements for the same history: a new start, with an id of its own and the instant
`since` from which on it is right.  Numbers of epochs are never used twice, so the first epoch of a start is the last
one of the start before and one.  Every manifest tells of which start it is; what the header says is the same, for
people.

**Times.**  Where they are timestamps the header tells how long a tick is; the times of starts are ticks.

Headers and manifests of earlier versions lack what is new here: they have one start without a name, right throughout.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, is_time
from everwhen.core.time_axis import TICKS, TimeAxis, tick_length
from everwhen.errors import QueryError, SinkError
from everwhen.storage.folder import Folder

FORMATS: Final = ("parquet", "jsonl")
ABOUT: Final = "_changelog.json"
MANIFESTS: Final = "_epochs"
KEPT: Final = "_kept.json"
_VERSION: Final = 1
_PART: Final = re.compile(r"epoch=\d+/(part-\d+|tail)\.(parquet|jsonl)")


@dataclass(frozen=True, slots=True)
class Start:
    """A stream of elements in a folder: from which epoch on, and from which instant on it is right."""

    id: str = ""
    since: int = NEVER
    first: int = 0

    @staticmethod
    def new(since: int = NEVER, first: int = 0) -> Start:
        """A start that nobody else has."""
        return Start(uuid.uuid4().hex, since, first)

    def to_plain(self) -> dict[str, Any]:
        return {"id": self.id, "since": shown_time(self.since), "first": self.first}

    @staticmethod
    def of(found: Mapping[str, Any]) -> Start:
        id_, first = found.get("id", ""), found.get("first", 0)
        if not isinstance(id_, str) or type(first) is not int:
            raise ValueError("its start has no id or no first epoch")
        return Start(id_, read_time(found.get("since")), first)


@dataclass(frozen=True, slots=True)
class Header:
    """What a folder holds."""

    format: str
    schema: Schema
    start: Start = field(default_factory=Start)
    axis: TimeAxis = TICKS


@dataclass(frozen=True, slots=True)
class Manifest:
    """An epoch: its parts in order, the start that it belongs to, and what the run that wrote it noted for itself."""

    epoch: int
    parts: tuple[str, ...]
    start: Start = field(default_factory=Start)
    run: Mapping[str, Any] | None = None


def header_text(header: Header) -> bytes:
    columns = [{"name": each.name, "type": str(each.type)} for each in header.schema]
    arrow = base64.b64encode(header.schema.to_arrow().serialize()).decode()
    found: dict[str, Any] = {"version": _VERSION, "format": header.format, "columns": columns, "arrow": arrow}
    if header.axis.dated:
        found["times"] = {"tick": header.axis.tick_text}
    return json.dumps({**found, **header.start.to_plain()}, indent=1).encode()


def read_header(folder: Folder) -> Header:
    """The header; `FileNotFoundError` if there is none."""
    found = _json(folder, ABOUT)
    try:
        schema = Schema.of(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["arrow"]))))
        if found["format"] not in FORMATS:
            raise ValueError(f"no format {found['format']!r}")
        axis = TimeAxis(tick_length(found["times"]["tick"]), dated=True) if "times" in found else TICKS
        return Header(found["format"], schema, Start.of(found), axis)
    except (KeyError, TypeError, ValueError, QueryError, pa.ArrowException) as bad:
        raise _unknown(folder, ABOUT, bad) from None


def manifest_name(epoch: int) -> str:
    return f"{MANIFESTS}/{epoch}.json"


def manifest_text(manifest: Manifest) -> bytes:
    found: dict[str, Any] = {"version": _VERSION, "epoch": manifest.epoch, "parts": list(manifest.parts)}
    found["start"] = manifest.start.to_plain()
    if manifest.run is not None:
        found["run"] = dict(manifest.run)
    return json.dumps(found, separators=(",", ":")).encode()


def read_manifest(folder: Folder, epoch: int) -> Manifest:
    """The manifest of an epoch; `FileNotFoundError` if it is not in."""
    name = manifest_name(epoch)
    found = _json(folder, name)
    try:
        parts, run = found["parts"], found.get("run")
        if not isinstance(parts, list) or not all(isinstance(part, str) and _PART.fullmatch(part) for part in parts):
            raise ValueError("its parts are no files of a changelog")
        if run is not None and not isinstance(run, dict):
            raise ValueError("its run is no object")
        return Manifest(epoch, tuple(parts), Start.of(found.get("start", {})), run)
    except (KeyError, TypeError, ValueError) as bad:
        raise _unknown(folder, name, bad) from None


def epochs_there(folder: Folder) -> list[int]:
    """The numbers of the epochs that are in, in order."""
    names = (entry.name.removesuffix(".json") for entry in folder.within(MANIFESTS).entries())
    return sorted(int(name) for name in names if name.isdecimal())


def first_kept(folder: Folder) -> int:
    """The first epoch that was not removed because all readers had passed it."""
    try:
        found = _json(folder, KEPT)
    except FileNotFoundError:
        return 0
    if type(found.get("first")) is not int:
        raise _unknown(folder, KEPT, ValueError("it names no first epoch"))
    return int(found["first"])


def remove_before(folder: Folder, epoch: int, before: Sequence[int]) -> None:
    """Remove epochs, all before one that is kept: first it is noted that they are gone on purpose."""
    text = json.dumps({"version": _VERSION, "first": epoch})
    folder.replace(KEPT, [text.encode()])
    for each in before:
        try:
            parts = read_manifest(folder, each).parts
        except (FileNotFoundError, SinkError):
            parts = ()
        folder.remove(manifest_name(each))
        for part in parts:
            folder.remove(part)
        folder.remove_empty(f"epoch={each}")


def shown_time(t: int) -> int | None:
    """A time in JSON: null before all times."""
    return None if t == NEVER else t


def read_time(found: Any) -> int:
    if found is None:
        return NEVER
    if type(found) is not int or not (is_time(found) or found == INF):
        raise ValueError(f"{str(found)[:20]!r} is no time")
    return int(found)


def _json(folder: Folder, name: str) -> dict[str, Any]:
    text = folder.read(name)
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']}, not {_VERSION}")
    except (KeyError, TypeError, ValueError, RecursionError) as bad:
        raise _unknown(folder, name, bad) from None
    return found


def _unknown(folder: Folder, name: str, bad: Exception) -> SinkError:
    return SinkError(f"{folder.place(name)}: not a file of a changelog of this program: {bad} (choose another path)")
