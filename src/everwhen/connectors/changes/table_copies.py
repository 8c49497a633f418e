"""Copies of a table in a folder of the job, each with the position of the log at which the table was so.

    table-<n>.arrow    the rows that live, with their starts; its metadata has the position
    table-<n>.json     later positions at which the table was still the same

So after a restart a log is read from the newest copy on, and not from its beginning; and what is before a copy the log
may forget.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from everwhen.connectors.changes.log import Plain
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.blamed import blamed

_ABOUT: Final = b"everwhen"


class TableCopies:
    """The copies of a table with a key, in a folder."""

    def __init__(self, folder: str | os.PathLike[str], key: Sequence[str]) -> None:
        self.folder, self._key = Path(folder), list(key)

    def add(self, table: pa.Table, position: Plain) -> None:
        """Keep the table as it is at a position."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = self._numbers()
        number = there[-1] + 1 if there else 0
        about = json.dumps({"position": dict(position), "key": self._key}).encode()
        store_table(self._path(number), table, about)

    def still(self, position: Plain, asked: Plain) -> None:
        """The table is at a position what it was at the newest copy.  `asked`: positions before are not needed."""
        number = self._numbers()[-1]
        later = self._later(number)
        kept = [each for i, each in enumerate(later) if not _all_before(later[i + 1 :], asked)]
        file = self._path(number).with_suffix(".json")
        with blamed(str(self.folder), "keep a position"), whole_file(file) as aside:
            aside.write_text(json.dumps([*kept, dict(position)]), encoding="utf-8")

    def before(self, position: Plain) -> tuple[int, Plain, pa.Table] | None:
        """The newest copy that is not beyond a position: its number, the position that it is of, its rows."""
        for number in reversed(self._numbers() if self.folder.is_dir() else []):
            table, about = stored_table(self._path(number))
            if about["key"] != self._key:
                continue
            for each in reversed([about["position"], *self._later(number)]):
                if not_beyond(each["log"], position["log"]):
                    return number, each, table
        return None

    def forget(self, number: int) -> None:
        """Copies before one of that number are not needed any more."""
        for old in self._numbers():
            if old < number:
                self._path(old).unlink(missing_ok=True)
                self._path(old).with_suffix(".json").unlink(missing_ok=True)

    def _later(self, number: int) -> list[dict[str, Any]]:
        file = self._path(number).with_suffix(".json")
        return list(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else []

    def _path(self, number: int) -> Path:
        return self.folder / f"table-{number}.arrow"

    def _numbers(self) -> list[int]:
        found = (path.stem.removeprefix("table-") for path in self.folder.glob("table-*.arrow"))
        return sorted(int(number) for number in found if number.isdecimal())


def _all_before(positions: list[dict[str, Any]], asked: Plain) -> bool:
    """Whether one of later positions serves as well for everything that may be asked."""
    return any(not_beyond(each["log"], asked["log"]) for each in positions)


def not_beyond(first: Plain, second: Plain) -> bool:
    """Whether a position of a log is not after another one: all of its numbers are at most as large."""
    numbers = ((name, number) for name, number in first.items() if isinstance(number, int))
    return all(name in second and number <= second[name] for name, number in numbers)


def store_table(file: Path, table: pa.Table, about: bytes) -> None:
    """A table in a file that appears whole, with a word about it."""
    found = table.replace_schema_metadata({_ABOUT: about})
    with (
        blamed(str(file.parent), "keep a copy of the table"),
        whole_file(file) as part,
        pa.OSFile(os.fspath(part), "wb") as out,
        pa.ipc.new_file(out, found.schema) as writer,
    ):
        writer.write_table(found)


def stored_table(file: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Such a table, and the word about it."""
    with pa.memory_map(os.fspath(file)) as opened:
        table = pa.ipc.open_file(opened).read_all()
    return table, json.loads(table.schema.metadata[_ABOUT])
