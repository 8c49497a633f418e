"""Word that readers of a changelog folder leave: `_readers/<name>.json`.

    read    epochs before this one the reader will never ask for again, whatever happens to it
    cares   from which instant on it cares: what the folder says of earlier ones makes no difference to it any more

`cares` is feedback: a writer that lags may leave earlier instants out (`LocalRuntime.fast_forward`).  `read` lets old
epochs go, where the writer keeps only what is unread.  A reader that will not come back keeps its epochs there until
its file is removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from everwhen.core.time import NEVER
from everwhen.formats.changelog.layout import read_time, shown_time
from everwhen.storage.folder import Folder, path_name

READERS: Final = "_readers"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Word:
    """What a reader has left."""

    reader: str
    read: int = 0
    cares: int = NEVER


def leave_word(folder: Folder, word: Word) -> None:
    """Publish it in the place of what the reader has said before."""
    found = {"version": _VERSION, "reader": word.reader, "read": word.read, "cares": shown_time(word.cares)}
    folder.replace(_name(word.reader), [json.dumps(found).encode()])


def words(folder: Folder) -> list[Word]:
    """The word of every reader; one that cannot be read counts as a reader that has read nothing."""
    found: list[Word] = []
    for entry in folder.within(READERS).entries():
        if not entry.name.endswith(".json") or entry.name.startswith("."):
            continue
        try:
            told = json.loads(folder.read(f"{READERS}/{entry.name}"))
            found.append(Word(str(told["reader"]), int(told["read"]), read_time(told["cares"])))
        except FileNotFoundError:
            continue
        except (KeyError, TypeError, ValueError, RecursionError):
            found.append(Word(entry.name))
    return found


def unread_from(all_: Sequence[Word]) -> int | None:
    """The first epoch that some reader may still ask for; None without readers."""
    return min((each.read for each in all_), default=None)


def cared_from(all_: Sequence[Word]) -> int:
    """From when on some reader cares."""
    return min((each.cares for each in all_), default=NEVER)


def _name(reader: str) -> str:
    return f"{READERS}/{path_name(reader)}.json"
