"""Aggregates that say values as they are: all of them in a list, and the one at a share of them."""

from __future__ import annotations

from everwhen.algebra.aggregates.calls import AggregateCall, Argument, call


def array_agg(x: Argument, *by: Argument, descending: bool = False) -> AggregateCall:
    """All values that are not null as a list, in the order of `by` and then in their own; nulls of `by` come first.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "string", "day": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x, "day": day}) for x, day in (("b", 2), ("c", 1), (None, 3))]
    >>> print(next(ew.run(s.aggregate(all=ew.array_agg("x", "day")), {"S": rows}, ew.STRONG)))
    insert [0, 1) all=['c', 'b']
    """
    return call("array_agg", x, *by, parameters=(descending,))


def quantile_disc(x: Argument, q: float) -> AggregateCall:
    """The first of the ordered values with which a share of at least `q` has come: always one of them.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> rows = [ew.Insert(0, 1, {"x": x}) for x in (1, 2, 3, 10)]
    >>> print(next(ew.run(s.aggregate(half=ew.quantile_disc("x", 0.5)), {"S": rows}, ew.STRONG)))
    insert [0, 1) half=2
    """
    return call("quantile_disc", x, parameters=(q,))
