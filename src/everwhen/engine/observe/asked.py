"""EXPLAIN as it is written: what is to be explained, and WAITING and ANALYZE of one query, or of each that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, Protocol

from everwhen.errors import QueryError, SqlError
from everwhen.language.grammar.tokens import lexemes

_ASKED: Final = re.compile(r"\s*(WAITING|ANALYZE)(?:\s+(.*?))?[\s;]*", re.IGNORECASE | re.DOTALL)
_SEEN: Final = re.compile(r"[^\r\n]")


class Told(Protocol):
    """What is told of a query."""

    def lines(self) -> list[str]:
        """The same for people."""


def to_explain(text: str) -> str | None:
    """What a text asks to explain, each character at its place; None if it does not begin with EXPLAIN.

    >>> to_explain("EXPLAIN SELECT x FROM S"), to_explain("SELECT x FROM S")
    ('        SELECT x FROM S', None)
    """
    first, *rest = lexemes(text)
    if not first.is_word("EXPLAIN"):
        return None
    for one, other in pairwise(rest):
        if one.is_symbol(";") and not other.is_symbol(";") and other.kind != "end":
            follows = "EXPLAIN stands by itself; put what follows into a text of its own"
            raise SqlError(follows, text, other.start, other.end)
    return _SEEN.sub(" ", text[: first.end]) + text[first.end :]


@contextmanager
def quoting(text: str) -> Iterator[None]:
    """Errors quote the text as it was written, with EXPLAIN."""
    try:
        yield
    except SqlError as error:
        raise SqlError(error.problem, text, error.start, error.end) from error


def is_about_running(text: str) -> bool:
    """Whether a text asks for WAITING or ANALYZE, that is, looks at what runs.

    >>> is_about_running("EXPLAIN WAITING q1;"), is_about_running("EXPLAIN SELECT x FROM S")
    (True, False)
    """
    return _ASKED.fullmatch(to_explain(text) or text) is not None


def told_of_running(
    what: str, states: Mapping[str, str], waiting: Callable[[str], Callable[[], Told]], analyze: Callable[[str], Told]
) -> Callable[[], str] | None:
    """What WAITING or ANALYZE tell; `states`: of all queries, by name.  None: something else is to be explained.  The
    state is taken now; what is returned tries, on any thread (`Session.waiting_later`)."""
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
    asked = [name] if name else running
    if word == "WAITING":
        searches = [waiting(each) for each in asked]
        return lambda: "\n".join(line for search in searches for line in search().lines())
    lines: list[str] = []
    for each in asked:
        lines += [] if name else [f"{each}:"]
        lines += analyze(each).lines()
    return lambda: "\n".join(lines)
