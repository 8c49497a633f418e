"""`ew.punctuation`: promises about data, and declarations from which they follow.

A punctuation `(pattern, upto)` says that no later element changes a row that matches the pattern, at an instant before
`upto`.  A source sends it as a `Punct` element, or it is derived from a *scheme*: a declaration about the stream,
given to `Stream.punctuate` (Tucker, 6.2).  A scheme changes no answer; rows that break it are refused.

    >>> import everwhen as ew
    >>> report = ew.source("Report", {"sensor": "string", "hour": "int64"})
    >>> rows = [ew.Insert(t, t + 1, {"sensor": "a", "hour": t}) for t in (0, 1)]
    >>> for element in ew.run(report.punctuate(sorted_by("hour")), {"Report": rows}, batch=1, open=True):
    ...     print(element)
    insert [0, 1) sensor='a' hour=0
    punct hour <= -1
    insert [1, 2) sensor='a' hour=1
    punct hour <= 0

Patterns: `Range`, `OneOf`, `Nothing`; a column without a pattern matches every value.  Schemes: the functions below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everwhen.core.punctuation import Nothing, OneOf, Range
from everwhen.core.punctuation import Punctuation as Punctuation
from everwhen.punctuation.schemes import (
    Bounds,
    ClusteredBy,
    Complete,
    Given,
    Selection,
    SortedBy,
    Unique,
)

__all__ = [
    "Nothing",
    "OneOf",
    "Punctuation",
    "Range",
    "bounds",
    "clustered_by",
    "complete",
    "given",
    "selection",
    "sorted_by",
    "unique",
]


def sorted_by(column: str, *, descending: bool = False, within: Any = 0) -> SortedBy:
    """Rows arrive in the order of a column.  A row may lag behind the largest value by at most `within`.

    For a column of times, `within` is a duration such as `'5 minutes'`.

    >>> print(sorted_by("hour", within=2))
    SORTED BY hour WITHIN 2
    """
    return SortedBy(column, descending, within)


def clustered_by(column: str) -> ClusteredBy:
    """Rows with the same value arrive one after the other, as in an index scan.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string"}).punctuate(clustered_by("k"))
    >>> rows = [ew.Insert(t, t + 1, {"k": k}) for t, k in enumerate("aab")]
    >>> print(*ew.run(s, {"S": rows}, open=True), sep=chr(10))
    insert [0, 1) k='a'
    insert [1, 2) k='a'
    insert [2, 3) k='b'
    punct k = 'a'
    """
    return ClusteredBy(column)


def bounds(column: str, low: Any = None, high: Any = None) -> Bounds:
    """Every value lies between `low` and `high`, both included.  One of them may be missing.

    >>> print(bounds("temp", 20, 95), bounds("temp", high=95), sep=chr(10))
    temp BETWEEN 20 AND 95
    temp <= 95
    """
    return Bounds(column, low, high)


def unique(*columns: str) -> Unique:
    """No two rows have the same values in these columns, so an adjust of a row is an error, too.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"id": "int64"}).punctuate(unique("id"))
    >>> print(*ew.run(s, {"S": [ew.Insert(0, 1, {"id": 7})]}, open=True), sep=chr(10))
    insert [0, 1) id=7
    punct id = 7
    """
    return Unique(columns)


def complete(group: str | Sequence[str], unit: str, units: Iterable[Any], each: int | None = None) -> Complete:
    """A group is complete when every unit of the list has reported a later one, or, with `each`, that many rows of it.

    >>> import everwhen as ew
    >>> report = ew.source("Report", {"hour": "int64", "sensor": "string"})
    >>> both = report.punctuate(complete("hour", "sensor", ["a", "b"], each=1))
    >>> rows = [ew.Insert(0, 1, {"hour": 8, "sensor": sensor}) for sensor in "ab"]
    >>> print(*ew.run(both, {"Report": rows}, open=True), sep=chr(10))
    insert [0, 1) hour=8 sensor='a'
    insert [0, 1) hour=8 sensor='b'
    punct hour = 8
    """
    return Complete((group,) if isinstance(group, str) else tuple(group), unit, tuple(units), each)


def given(*columns: str) -> Given:
    """The source itself sends punctuation; each one binds all of these columns and no others.

    It changes nothing at run time.  It lets the check for unbounded state accept a query that needs the punctuation.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string"})
    >>> forever = s.unbounded().distinct()
    >>> ew.require_bounded(forever)
    Traceback (most recent call last):
    ...
    everwhen.errors.QueryError: the state of this query grows without bound:
    ...
    >>> ew.require_bounded(s.punctuate(given("k")).unbounded().distinct())
    ()
    """
    return Given(columns)


def selection() -> Selection:
    """Directly after `where`: no row that fails the condition will appear.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "int64"})
    >>> small = s.where(ew.col("k") < 5).punctuate(selection())
    >>> print(*ew.run(small, {"S": [ew.Insert(0, 1, {"k": 7})]}, open=True), sep=chr(10))
    punct k = null
    punct k >= 5
    """
    return Selection()
