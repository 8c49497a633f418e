"""What the driver has decided and learnt, epoch by epoch, so that an epoch that is run again is the same epoch.

    <checkpoint>/everwhen/query.json           what is run: the id of its state, its plan, its buckets
    <checkpoint>/everwhen/epochs/<n>.begun     what was decided by the clock before epoch n: which sources are idle
    <checkpoint>/everwhen/epochs/<n>.done      what was known after it: promises of sources and queries, last rows seen

`begun` is published once, `done` before any sink takes the epoch.
"""

from __future__ import annotations

import difflib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from everwhen.connectors.folder import Folder, blame, open_folder
from everwhen.errors import QueryError, StateError

_FORMAT: Final = 1
_KEPT: Final = 100
"""How many epochs' files stay to be looked at."""


@dataclass(frozen=True)
class Known:
    """What is known after an epoch: what each source and each query has promised, when each source last had rows."""

    sources: Mapping[str, int] = field(default_factory=dict)
    queries: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Identity:
    """What must not change while a query has state; `plan` is its text."""

    plan: str
    buckets: int
    emit: str


class Journal:
    """The driver's files in a checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        try:
            self._folder: Folder = open_folder(checkpoint).within("everwhen")
            self._folder.make()
        except OSError as bad:
            raise StateError(blame(bad, checkpoint, "use it as a checkpoint")) from None
        self.state_root = self._folder.place("state")

    def open(self, identity: Identity) -> str:
        """The id of the query's state: a new one, or that of the query whose checkpoint this is, if it is the same."""
        try:
            if not self._folder.exists("query.json"):
                text = json.dumps({"format": _FORMAT, "id": uuid.uuid4().hex, **asdict(identity)}, indent=1)
                self._folder.create("query.json", [text.encode()])
            found = json.loads(self._folder.read("query.json"))
            before = Identity(found["plan"], found["buckets"], found["emit"])
        except OSError as bad:
            raise StateError(blame(bad, self._folder.place("query.json"), "read or write it")) from None
        except (ValueError, KeyError) as bad:
            raise StateError(
                f"{self._folder.place('query.json')} cannot be read: {bad}; restore the file, or start the query with a "
                "new checkpoint"
            ) from None
        if before != identity:
            raise QueryError(_difference(before, identity, self._folder.place()))
        return str(found["id"])

    def begun(self, epoch: int, idle: frozenset[str]) -> frozenset[str]:
        """The sources that are idle in an epoch: as decided now, or when it was first run."""
        name = f"epochs/{epoch:012d}.begun"
        self._folder.create(name, [json.dumps({"idle": sorted(idle)}).encode()])
        return frozenset(self._read(name)["idle"])

    def done(self, epoch: int, known: Known) -> None:
        """Remember what is known after an epoch."""
        self._folder.replace(f"epochs/{epoch:012d}.done", [json.dumps(asdict(known)).encode()])
        if epoch >= _KEPT:
            for ending in ("begun", "done"):
                self._folder.remove(f"epochs/{epoch - _KEPT:012d}.{ending}")

    def known(self, epoch: int) -> Known:
        """What was known after an epoch."""
        if epoch < 0:
            return Known()
        return Known(**self._read(f"epochs/{epoch:012d}.done"))

    def has(self, epoch: int) -> bool:
        return self._folder.exists(f"epochs/{epoch:012d}.done")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._folder.read(name))
            return found
        except OSError as bad:
            raise StateError(blame(bad, self._folder.place(name), "read what is known of the epoch")) from None
        except ValueError as bad:
            raise StateError(f"{self._folder.place(name)} is damaged: {bad}; start with a new checkpoint") from None


def _difference(before: Identity, now: Identity, place: str) -> str:
    """What has changed, line by line."""
    lines = []
    if before.buckets != now.buckets:
        lines.append(f"  buckets: {before.buckets} before, {now.buckets} now")
    if before.emit != now.emit:
        lines.append(f"  emit: {before.emit} before, {now.emit} now")
    for line in difflib.ndiff(before.plan.splitlines(), now.plan.splitlines()):
        if line.startswith(("- ", "+ ")):
            lines.append(f"  {'before' if line[0] == '-' else 'now   '}: {line[2:]}")
    changes = "\n".join(lines)
    return (
        f"the checkpoint {place} holds the state of another query, which this one cannot go on from:\n{changes}\n"
        "Start the changed query with a new checkpoint, or run it as it was."
    )
