"""Completion of what is being typed, and the history of what was: both are extras, and nothing fails without them.

`candidates` is a pure function of the line and the session's names.  Python's `readline` calls it where there is one;
elsewhere lines are read without either.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from everwhen.algebra.expressions.functions import FUNCTIONS, OPERATORS
from everwhen.engine.session.sql_session import SqlSession
from everwhen.language.binding.aggregates import AGGREGATES
from everwhen.language.grammar.cursor import RESERVED

readline: ModuleType | None
try:
    import readline
except ImportError:  # a Python built without it, as on Windows
    readline = None

_REFUSED: Final = frozenset({"FETCH", "LATERAL", "LIMIT", "MINUS", "NATURAL", "OFFSET", "QUALIFY", "VALUES"})
"""Reserved words that are read only to be refused."""
KEYWORDS: Final = tuple(
    sorted({
        *(RESERVED - _REFUSED), "ARRIVES", "BY", "CAST", "CONSISTENCY", "CONSTANT", "DAYS", "DSTREAM", "EXPLAIN",
        "GRANULARITY", "HOURS", "IF", "INSERT", "ISTREAM", "KEY", "MINUTES", "NOW", "ONLY", "ORDERED", "OUTER",
        "PARTITION", "RANGE", "RELATION", "REPLACE", "ROWS", "RSTREAM", "SECONDS", "SLIDE", "SOURCE", "STREAM",
        "STRICTLY", "TEMPORAL", "UNBOUNDED", "VARYING", "WATERMARK", "WINDOW", "WITHIN",
    })
)  # fmt: skip
_BREAKS: Final = " \t\n,()[]=<>;'+-*/|"
_LONGEST: Final = 5000


@dataclass(frozen=True, slots=True)
class Names:
    """What can be named: streams with their columns, queries, functions, commands."""

    streams: dict[str, tuple[str, ...]]
    queries: tuple[str, ...]
    functions: tuple[str, ...]
    commands: tuple[str, ...]


def sql_functions() -> tuple[str, ...]:
    """The functions and aggregates that any text may call."""
    return tuple(sorted((FUNCTIONS.keys() - {operator.name for operator in OPERATORS}) | set(AGGREGATES)))


def names_of(session: SqlSession, files: Sequence[str], commands: Sequence[str]) -> Names:
    """The names of a session, and of files that are attached and not read yet."""
    functions = {*sql_functions(), *session.catalog.functions}
    streams: dict[str, tuple[str, ...]] = {name: () for name in files}
    streams |= {name: entry.node.schema.names for name, entry in session.catalog.entries.items()}
    queries = tuple(query.name for query in session.queries())
    return Names(streams, queries, tuple(sorted(functions)), tuple(commands))


def candidates(before: str, word: str, names: Names) -> list[str]:
    """What the word may become, given the line before it.

    >>> names = Names({"Bid": ("item", "price")}, ("q1",), ("max", "median"), ("show", "stop"))
    >>> candidates("SELECT ", "ma", names), candidates("SELECT ", "Bid.p", names), candidates("", "sel", names)
    (['max('], ['Bid.price'], ['select'])
    >>> candidates("", "\\\\s", names), candidates("\\\\show ", "", names)
    (['\\\\show', '\\\\stop'], ['q1'])
    """
    if word.startswith("\\") and not before.strip():
        return _matching([f"\\{name}" for name in names.commands], word)
    if before.lstrip().startswith("\\"):
        return _arguments(before.split(), word, names)
    stream, dot, column = word.rpartition(".")
    if dot:
        found = next((columns for name, columns in names.streams.items() if name.lower() == stream.lower()), None)
        columns = found if found is not None else _all_columns(names)  # an alias may mean any of them
        return [f"{stream}.{name}" for name in _matching(columns, column)]
    keywords = KEYWORDS if word[:1].isupper() or not word else [keyword.lower() for keyword in KEYWORDS]
    own = [*names.streams, *_all_columns(names)]
    return _matching([*own, *(f"{name}(" for name in names.functions), *keywords], word)


def _all_columns(names: Names) -> list[str]:
    return list(dict.fromkeys(column for columns in names.streams.values() for column in columns))


def _arguments(words: list[str], word: str, names: Names) -> list[str]:
    command, given = words[0].lstrip("\\"), len(words) - 1
    if command == "open" and given >= 1:
        found = glob.glob(glob.escape(os.path.expanduser(word)) + "*")
        return sorted(f"{path}/" if os.path.isdir(path) else path for path in found)
    if command == "open":
        return _matching(list(names.streams), word)
    if command == "explain":
        return _matching([*names.queries, *names.streams], word)
    return _matching(list(names.queries), word)


def _matching(known: Sequence[str], word: str) -> list[str]:
    """Names that begin so, letter by letter; if none does, in whatever case."""
    exact = [name for name in dict.fromkeys(known) if name.startswith(word)]
    return exact or [name for name in dict.fromkeys(known) if name.lower().startswith(word.lower())]


# -- readline ----------------------------------------------------------------------------------------------------------


def history_file() -> Path:
    """Where history is kept: the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join("~", ".local", "state")
    return Path(state).expanduser() / "everwhen" / "history"


@contextmanager
def line_editing(names: Callable[[], Names]) -> Iterator[None]:
    """Editing of lines, with TAB and a history, as far as this Python and this file system can."""
    if readline is None:
        yield
        return
    editor = readline
    found: list[str] = []

    def complete(word: str, state: int) -> str | None:
        if state == 0:
            before = editor.get_line_buffer()[: editor.get_begidx()]
            found[:] = candidates(before, word, names())
        return found[state] if state < len(found) else None

    delimiters, completer = editor.get_completer_delims(), editor.get_completer()
    editor.set_completer_delims(_BREAKS)
    editor.set_completer(complete)
    libedit = "libedit" in (editor.__doc__ or "")
    editor.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    editor.set_auto_history(False)
    file = history_file()
    try:
        editor.read_history_file(file)
    except (OSError, ValueError):
        editor.clear_history()  # there is none yet, or it cannot be read
    try:
        yield
    finally:
        editor.set_completer(completer)
        editor.set_completer_delims(delimiters)
        editor.set_auto_history(True)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            editor.set_history_length(_LONGEST)
            editor.write_history_file(file)
        except (OSError, ValueError):
            return  # the shell is left all the same; the next one does not know what was typed


def remember(lines: Sequence[str]) -> None:
    """Add a statement to the history: as one line, unless a comment would swallow the rest of it."""
    if readline is None or not any(line.strip() for line in lines):
        return
    for line in lines if any("--" in line for line in lines) else [" ".join(line.strip() for line in lines)]:
        if line.strip() and line != readline.get_history_item(readline.get_current_history_length()):
            readline.add_history(line)
