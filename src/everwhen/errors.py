"""Every error a user can meet, by kind.

The kinds mirror the exit codes of the command line: `QueryError` (the query is wrong: status 2),
`InputError` (an element of an input is wrong: status 3), everything else is status 1.  Each message says
where, what was expected, what came, and what to do.
"""

from __future__ import annotations

from typing import Final

_SHOWN: Final = 110  # characters of a line that a message shows


class EverwhenError(Exception):
    """Base of all errors raised on purpose."""


class QueryError(EverwhenError):
    """The query cannot be built: an unknown column, a type that does not fit, an illegal parameter."""


class InputError(EverwhenError):
    """An input element is wrong.  `source` and `line` (1-based) name the place where it is known."""

    def __init__(self, problem: str, *, source: str | None = None, line: int | None = None, remedy: str = "") -> None:
        self.problem = problem
        self.source = source
        self.line = line
        self.remedy = remedy
        place = (
            f"{source}:{line}: " if source and line else f"{source}: " if source else f"line {line}: " if line else ""
        )
        super().__init__(f"{place}{problem}" + (f" ({remedy})" if remedy else ""))


class TimeRangeError(EverwhenError):
    """A finite time left the range that ticks can express."""


class EvaluationError(EverwhenError):
    """An expression has no value for a row: an integer overflow, text that is not a number, a date out of range."""


class StateError(EverwhenError):
    """The state of a running query cannot be written or read: a missing, damaged or unreachable file."""


class InUseError(StateError):
    """A checkpoint belongs to another run that goes on; the message says which one."""


class SparkLostError(EverwhenError):
    """Spark's JVM has ended or cannot be reached, and the queries that it ran have ended with it."""


class SinkError(EverwhenError):
    """A sink cannot be used or cannot take an epoch: a place that is not there, other columns, a refused write."""


class SinkLostError(SinkError):
    """A sink no longer has epochs that it had taken: it was deleted, moved or replaced.  To try again does not help."""


class SqlError(QueryError):
    """A text that is not a query, with the place in it: `line` and `column` count from 1."""

    def __init__(self, problem: str, text: str, start: int, end: int | None = None) -> None:
        start = max(0, min(start, len(text)))
        self.problem = problem
        self.start = start
        self.line = text.count("\n", 0, start) + 1
        begin = text.rfind("\n", 0, start) + 1
        self.column = start - begin + 1
        stop = text.find("\n", begin)
        shown = text[begin : len(text) if stop < 0 else stop].rstrip("\r")
        width = max(1, min(end if end is not None else start + 1, begin + len(shown)) - start)
        at = start - begin
        if len(shown) > _SHOWN:  # of a long line what stands around the place
            first = max(0, min(at - _SHOWN // 3, len(shown) - _SHOWN))
            rest = shown[first : first + _SHOWN] + ("…" if first + _SHOWN < len(shown) else "")
            shown, at = ("…" + rest, at - first + 1) if first else (rest, at)
            width = max(1, min(width, len(shown) - at))
        lead = "".join("\t" if c == "\t" else " " for c in shown[:at])
        super().__init__(f"line {self.line}, column {self.column}: {problem}\n  {shown}\n  {lead}{'^' * width}")
