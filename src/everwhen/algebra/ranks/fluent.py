"""`rank`, `limit` and `over` as methods of streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from everwhen.algebra.patterns.fluent import PatternMethods
from everwhen.algebra.ranks.over import Over, OverFunction
from everwhen.algebra.ranks.rank import Ordering, Rank, RankKind
from everwhen.errors import QueryError

Names = str | Sequence[str]


class RankMethods(PatternMethods):
    """What streams can do with an order of the rows that are alive."""

    def rank(
        self,
        name: str,
        order_by: Names,
        partition_by: Names = (),
        descending: Names = (),
        kind: RankKind = "row_number",
        limit: int | None = None,
    ) -> Self:
        """Each row with its number in an order among the rows alive, at every instant, per `partition_by`.

        `kind`: "row_number" counts rows, "rank" gives equal ones the same number, "dense_rank" leaves no gaps behind
        them.  `limit`: only rows with a number up to this.  Rows that `order_by` leaves equal are ordered by their
        other columns, from the first to the last, so no answer depends on arrival.

        >>> import everwhen as ew
        >>> bids = ew.source("Bid", {"item": "string", "price": "int64"})
        >>> best = bids.rank("place", "price", "item", descending="price", limit=1)
        >>> rows = [("pen", 3), ("pen", 5), ("ink", 4)]
        >>> stream = [ew.Insert(t, t + 3, {"item": item, "price": price}) for t, (item, price) in enumerate(rows)]
        >>> print(*ew.run(best, {"Bid": stream}, emit="final"), sep=chr(10))
        insert [0, 1) item='pen' price=3 place=1
        insert [1, 4) item='pen' price=5 place=1
        insert [2, 5) item='ink' price=4 place=1
        cti ∞
        """
        order = _order(order_by, descending)
        return type(self)(Rank(self.node, _names(partition_by), order, kind, limit, 0, name))

    def limit(
        self,
        limit: int,
        order_by: Names = (),
        partition_by: Names = (),
        descending: Names = (),
        offset: int = 0,
    ) -> Self:
        """At every instant the first rows in an order, per `partition_by`; `offset` rows are left out before them.

        >>> import everwhen as ew
        >>> bids = ew.source("Bid", {"item": "string", "price": "int64"})
        >>> stream = [ew.Insert(t, t + 3, {"item": "pen", "price": price}) for t, price in enumerate([3, 5, 4])]
        >>> print(*ew.run(bids.limit(1, "price"), {"Bid": stream}, emit="final"), sep=chr(10))
        insert [0, 3) item='pen' price=3
        insert [3, 5) item='pen' price=4
        cti ∞
        """
        order = _order(order_by, descending)
        return type(self)(Rank(self.node, _names(partition_by), order, "row_number", limit, offset))

    def over(
        self,
        order_by: Names = (),
        partition_by: Names = (),
        descending: Names = (),
        **functions: OverFunction,
    ) -> Self:
        """Each row with what functions of `ew.frames` say of the rows around it, at every instant, per `partition_by`.

        >>> import everwhen as ew
        >>> tick = ew.source("Tick", {"t": "int64", "price": "int64"})
        >>> steps = tick.over("t", before=ew.frames.lag("price"), mean=ew.frames.avg("price", rows=(-1, 0)))
        >>> stream = [ew.Insert(0, 5, {"t": t, "price": price}) for t, price in enumerate([3, 5])]
        >>> print(*ew.run(steps, {"Tick": stream}, emit="final"), sep=chr(10))
        insert [0, 5) t=0 price=3 before=null mean=3.0
        insert [0, 5) t=1 price=5 before=3 mean=4.0
        cti ∞
        """
        named = tuple(replace(function, name=name) for name, function in functions.items())
        return type(self)(Over(self.node, _names(partition_by), _order(order_by, descending), named))


def _order(order_by: Names, descending: Names) -> tuple[Ordering, ...]:
    order, falling = _names(order_by), _names(descending)
    for name in falling:
        if name not in order:
            raise QueryError(f"descending={name!r} is none of the columns to order by: {', '.join(order)}")
    return tuple(Ordering(name, name in falling) for name in order)


def _names(given: Names) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
