"""`match_recognize` as a method of streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from everwhen.algebra.expressions.build import Expr, to_expr
from everwhen.algebra.patterns.match_recognize import MatchRecognize
from everwhen.algebra.patterns.pattern import Pattern, read_pattern
from everwhen.errors import QueryError

if TYPE_CHECKING:
    from everwhen.algebra.node import Node


class PatternMethods:
    """What streams can do with patterns."""

    if TYPE_CHECKING:
        node: Node

        def __init__(self, node: Node) -> None: ...

        def range(self, size: int | str, slide: int | str = 1) -> Self: ...

    def match_recognize(
        self,
        pattern: str | Pattern,
        order_by: str | Sequence[str],
        partition_by: str | Sequence[str] = (),
        define: Mapping[str, Expr | bool] | None = None,
        measures: Mapping[str, Any] | None = None,
        within: int | str | None = None,
        descending: str | Sequence[str] = (),
    ) -> Self:
        """Runs of neighbouring rows that spell a pattern, at every instant: of each first row the longest.

        Neighbours are neighbours in `order_by` among the rows alive, per `partition_by`.  `define` says when a row may
        be mapped to a variable of the pattern, `measures` what a match tells beside its partition; both may read the
        match so far with `ew.patterns`.  A plain column in a measure is that of the last row.  `within` is a window of
        that length below.

        >>> import everwhen as ew
        >>> tick = ew.source("Tick", {"t": "int64", "price": "int64"})
        >>> dips = tick.match_recognize(
        ...     "A DOWN+ UP", "t", within=10,
        ...     define={"DOWN": ew.col("price") < ew.patterns.prev("price"),
        ...             "UP": ew.col("price") > ew.patterns.prev("price")},
        ...     measures={"start": ew.patterns.first("t"), "low": ew.patterns.min("price"), "end": ew.col("t")},
        ... )
        >>> prices = [(1, 9), (2, 7), (3, 5), (4, 8)]
        >>> print(*ew.run(dips, {"Tick": [ew.Insert(t, t + 1, {"t": t, "price": p}) for t, p in prices]}), sep=chr(10))
        insert [4, 11) start=1 low=5 end=4
        insert [4, 12) start=2 low=5 end=4
        cti ∞
        """
        falling = _names(descending)
        order = _names(order_by)
        for name in falling:
            if name not in order:
                raise QueryError(f"descending={name!r} is none of the columns to order by: {', '.join(order)}")
        stream = self if within is None else self.range(within)
        return type(self)(
            MatchRecognize(
                stream.node,
                read_pattern(pattern) if isinstance(pattern, str) else pattern,
                _names(partition_by),
                tuple((name, name in falling) for name in order),
                tuple((name, to_expr(condition)) for name, condition in (define or {}).items()),
                tuple((name, to_expr(measure)) for name, measure in (measures or {}).items()),
            )
        )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
