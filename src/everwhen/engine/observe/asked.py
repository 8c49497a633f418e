"""EXPLAIN WAITING and EXPLAIN ANALYZE as they are written: of one query, or of each that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from everwhen.errors import QueryError, SqlError

_ASKED: Final = re.compile(r"\s*(WAITING|ANALYZE)(?:\s+(.*?))?[\s;]*", re.IGNORECASE | re.DOTALL)


class Told(Protocol):
    """What is told of a query."""

    def lines(self) -> list[str]:
        """The same for people."""


def told_of_running(
    what: str, states: Mapping[str, str], waiting: Callable[[str], Told], analyze: Callable[[str], Told]
) -> str | None:
    """What WAITING or ANALYZE tell; `states`: of all queries, by name.  None: something else is to be explained."""
    found = _ASKED.fullmatch(what)
    if found is None:
        return None
    word, name = found[1].upper(), found[2]
    running = [each for each, state in states.items() if state == "running"]
    if name and name not in running:
        there = f"there is {', '.join(running)}" if running else "none runs"
        why = f"; {name!r} is {states[name]}" if name in states else ""
        at = found.span(2)
        raise SqlError(f"EXPLAIN {word} takes the name of a query that runs: {there}{why}", what, *at)
    if not running:
        raise QueryError(f"EXPLAIN {word} is about queries that run, and none runs: start one")
    tell = waiting if word == "WAITING" else analyze
    lines = []
    for each in [name] if name else running:
        lines += [f"{each}:"] if word == "ANALYZE" and not name else []
        lines += tell(each).lines()
    return "\n".join(lines)
