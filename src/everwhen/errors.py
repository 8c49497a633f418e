"""Every error a user can meet, by kind.

The kinds mirror the exit codes of the command line: `QueryError` (the query is wrong: status 2),
`InputError` (an element of an input is wrong: status 3), everything else is status 1.  Each message says
where, what was expected, what came, and what to do.
"""

from __future__ import annotations

import re
from typing import Final

_SHOWN: Final = 110  # characters of a line that a message shows


class EverwhenError(Exception):
    """Base of all errors raised on purpose.

    >>> import everwhen as ew
    >>> issubclass(ew.QueryError, ew.EverwhenError) and issubclass(ew.InputError, ew.EverwhenError)
    True
    """


class QueryError(EverwhenError):
    """The query cannot be built: an unknown column, a type that does not fit, an illegal parameter.

    >>> import everwhen as ew
    >>> ew.source("S", {"x": "int64"}).select("y")
    Traceback (most recent call last):
    ...
    everwhen.errors.QueryError: unknown column 'y' in select(); there is (x int64)
    """


class InputError(EverwhenError):
    """An input element is wrong.  `source` and `line` (1-based) name the place where it is known.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> list(ew.run(s, {"S": [ew.Cti(5), ew.Insert(3, 4, {"x": 1})]}))
    Traceback (most recent call last):
    ...
    everwhen.errors.InputError: S:2: an insert that starts at 3, behind the CTI 5 ...
    """

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
    """A finite time left the range that ticks can express.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"}).lifetime(shift=2**61)
    >>> list(ew.run(s, {"S": [ew.Insert(2**61, 2**61 + 1, {"x": 1})]}))
    Traceback (most recent call last):
    ...
    everwhen.errors.TimeRangeError: a new lifetime reaches beyond the largest time, ...
    """


class EvaluationError(EverwhenError):
    """An expression has no value for a row: an integer overflow, text that is not a number, a date out of range.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"}).select(y=ew.col("x") + 1)
    >>> list(ew.run(s, {"S": [ew.Insert(0, 1, {"x": 2**63 - 1})]}))
    Traceback (most recent call last):
    ...
    everwhen.errors.EvaluationError: ...
    """


class StateError(EverwhenError):
    """The state of a running query cannot be written or read: a missing, damaged or unreachable file.

    >>> try:
    ...     raise StateError("checkpoint/state-7 is missing; restore it, or start with a new checkpoint")
    ... except EverwhenError as error:
    ...     print(error)
    checkpoint/state-7 is missing; restore it, or start with a new checkpoint
    """


class InUseError(StateError):
    """A checkpoint belongs to another run that goes on; the message says which one."""


class SparkLostError(EverwhenError):
    """Spark's JVM has ended or cannot be reached, and the queries that it ran have ended with it."""


class SourceError(EverwhenError):
    """A source cannot be read: a server that is away, a topic or table that is not there, records that are gone.

    >>> try:
    ...     raise SourceError("topic 'bids': no broker answers at localhost:1 (is it running?)")
    ... except EverwhenError as error:
    ...     print(error)
    topic 'bids': no broker answers at localhost:1 (is it running?)
    """


class SinkError(EverwhenError):
    """A sink cannot be used or cannot take an epoch: a place that is not there, other columns, a refused write.

    >>> import everwhen as ew
    >>> def refuse(epoch, batch):
    ...     raise OSError("disk full")
    ...
    >>> s = ew.source("S", {"x": "int64"})
    >>> ew.spark.CallbackSink(refuse).commit(0, ew.ElementBatch.of([], s.schema))
    Traceback (most recent call last):
    ...
    everwhen.errors.SinkError: the sink function refuse failed on epoch 0: OSError: disk full
    """


class SinkLostError(SinkError):
    """A sink no longer has epochs that it had taken: it was deleted, moved or replaced.  To try again does not help."""


class SqlError(QueryError):
    """A text that is not a query, with the place in it: `line` and `column` count from 1.

    >>> import everwhen as ew
    >>> ew.sql("SELECT FROM")
    Traceback (most recent call last):
    ...
    everwhen.errors.SqlError: line 1, column 8: expected the columns of SELECT, or *; FROM came
      SELECT FROM
             ^^^^
    """

    def __init__(self, problem: str, text: str, start: int, end: int | None = None) -> None:
        start = max(0, min(start, len(text)))
        self.problem = problem
        self.start, self.end = start, end
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


class LoopError(QueryError):
    """A recursive query whose step has no least fixed point, or none that rounds would find.

    `place` is the line and the column at which its text names the recursion; None for a query without a text.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> from everwhen.query import optimized
    >>> optimized(ew.fixpoint(s, lambda r: s.join(r, on="x", how="anti")))
    Traceback (most recent call last):
    ...
    everwhen.errors.LoopError: NOT IN, NOT EXISTS or an anti-join over r inside its own recursion: ...
    """

    def __init__(self, problem: str, place: tuple[int, int] | None = None) -> None:
        self.problem = problem
        self.place = place
        super().__init__(problem if place is None else f"line {place[0]}, column {place[1]}: {problem}")

    def within(self, text: str) -> QueryError:
        """The error as one of this text, if it has a place in it."""
        lines = text.split("\n")
        if self.place is None or self.place[0] > len(lines) or self.place[1] > len(lines[self.place[0] - 1]):
            return self
        line, column = self.place
        start = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
        word = re.compile(r'"(?:[^"]|"")*"|\w+').match(text, start)
        return SqlError(self.problem, text, start, start + 1 if word is None else word.end())


def a_type(value: object) -> str:
    """A value by its type, for a message.

    >>> a_type(5), a_type({}), a_type(None)
    ('an int', 'a dict', 'None')
    """
    name = type(value).__name__
    return "None" if value is None else f"a{'n' * (name[0] in 'aeioAEIO')} {name}"
