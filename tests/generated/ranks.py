"""LIMIT, DISTINCT ON and OVER in generated queries.

We break ties by all other columns; DuckDB is told to, by naming them.  An order is that of columns whose values are
exact."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generated.tree import Dialect, Expr, Query


@dataclass(frozen=True)
class Limited(Query):
    """`query ORDER BY positions LIMIT n OFFSET m`; `on`: the first row of each value of this column before that."""

    query: Query
    keys: tuple[tuple[int, bool, bool], ...]
    """Positions, whether they fall, whether nulls come first."""
    limit: int
    offset: int = 0
    ties: bool = False
    on: int | None = None

    @property
    def types(self) -> tuple[str, ...]:
        return self.query.types

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        text = self.query.sql(dialect)  # it stands in FROM, wherever this query stands
        names = [f"c{at}" for at in range(len(self.types))]
        keys = [f"{names[at]}{' DESC' * down} NULLS {'FIRST' if first else 'LAST'}" for at, down, first in self.keys]
        if not dialect.ours and not self.ties:
            ordered = {at for at, _, _ in self.keys}
            keys += [f"{name} NULLS FIRST" for at, name in enumerate(names) if at not in ordered]
        order = f" ORDER BY {', '.join(keys)}" if keys else ""
        columns = ", ".join(names)
        if self.ties:
            if dialect.ours:
                return f"SELECT {columns} FROM ({text}) q({columns}){order} FETCH FIRST {self.limit} ROWS WITH TIES"
            return (
                f"SELECT {columns} FROM (SELECT *, RANK() OVER ({order}) AS r FROM ({text}) q({columns})) p "
                f"WHERE r <= {self.limit}"
            )
        what = columns if self.on is None else f"DISTINCT ON ({names[self.on]}) {columns}"
        behind = f" OFFSET {self.offset}" if self.offset else ""
        return f"SELECT {what} FROM ({text}) q({columns}){order} LIMIT {self.limit}{behind}"

    def constructs(self) -> Iterator[str]:
        yield "limit with ties" if self.ties else "distinct on" if self.on is not None else "limit"
        if self.offset:
            yield "offset"


def limited(rng: random.Random, query: Query) -> Limited:
    """The first rows of a query."""
    places = rng.sample(range(len(query.types)), rng.randint(0, len(query.types)))
    keys = tuple((at, rng.random() < 0.5, rng.random() < 0.5) for at in places)
    match rng.randint(0, 3):
        case 0 if keys:
            return Limited(query, keys, rng.randint(1, 3), ties=True)
        case 1:
            # the order begins with what it is distinct on, as DuckDB and others want it
            on = rng.randrange(len(query.types))
            keys = ((on, False, False), *(key for key in keys if key[0] != on))
            return Limited(query, keys, rng.randint(1, 4), on=on)
    return Limited(query, keys, rng.randint(0, 4), rng.choice((0, 0, 1, 2)))


_FRAMES = (
    "",
    " ROWS 1 PRECEDING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
)


def over_item(rng: random.Random, columns: Sequence[Expr], is_stage: bool) -> Expr:
    """A call with OVER, a whole number.  Where ties matter, all columns are those of one stage, and DuckDB orders by
    them, too."""
    exact = [each for each in columns if each.type in "isfd"]
    numbers = [each for each in exact if each.type == "i"]
    if not exact:
        return Expr("COUNT(*) OVER ()", "i", (), ("over: COUNT(*)",))
    key, by = rng.choice(exact), rng.choice(exact)
    down, partition = rng.choice(("", " DESC")), rng.choice(("", "PARTITION BY {1} "))
    kind = rng.choice(("RANK()", "DENSE_RANK()", "COUNT(*)", "ROW_NUMBER()", "frame", "neighbour"))
    order = f"ORDER BY {{0}}{down} NULLS {rng.choice(('FIRST', 'LAST'))}"
    if kind in ("RANK()", "DENSE_RANK()", "COUNT(*)"):
        return Expr(f"{kind} OVER ({partition}{order})", "i", (key, by), (f"over: {kind}",))
    if not (is_stage and numbers and all(each.type in "isfd" for each in columns)):
        inner = "{2}" if numbers else "1"
        parts = (key, by, rng.choice(numbers)) if numbers else (key, by)
        return Expr(f"MAX({inner}) OVER ({partition}{order})", "i", parts, ("over: MAX",))
    call, frame = "ROW_NUMBER()", ""
    if kind == "frame":
        call, frame = rng.choice(("COUNT({2})", "MIN({2})", "FIRST_VALUE({2})", "LAST_VALUE({2})")), rng.choice(_FRAMES)
    elif kind == "neighbour":
        call = rng.choice(("LAG({2})", "LEAD({2}, 2)", "LAG({2}, 1, 7)"))
    ties = "".join(f", {{{3 + at}}} NULLS FIRST" for at in range(len(columns)))
    if frame.startswith(" RANGE") or (not frame and kind == "frame"):
        ties, frame = "", ""  # peers are those of the order alone
        call = call.replace("FIRST_VALUE", "MAX").replace("LAST_VALUE", "MAX")
    ours, theirs = (f"{call} OVER ({partition}{order}{more}{frame})" for more in ("", ties))
    name = call.split("(")[0]
    return Expr(ours, "i", (key, by, rng.choice(numbers), *columns), (f"over: {name}",), theirs)
