"""ASOF JOIN: for each left row the one partner that is nearest in time, at every instant.

Of the right rows that are alive together with a left row, agree on the keys and lie on the right side of the
inequality, the nearest one counts; of several that are equally near, the one whose other columns come first.  As a
plan: all pairs, then the first of each left row (a rank).  Rows on the left that are equal share their partner: they
are made one before, and found again behind, so that each counts as often as it is there.
"""

from __future__ import annotations

from typing import Final, Literal

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Call, Expr, col, conjuncts
from everwhen.algebra.properties.derive import properties
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding
from everwhen.language.binding.joins import join

_INEQUALITIES: Final = ("<", "<=", ">", ">=")
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def asof(
    left: n.Node, right: n.Node, on: Expr, kind: Literal["inner", "left"], binding: Binding, span: s.Span
) -> n.Node:
    """The join; `on` reads the columns of pairs, and so does the result."""
    pair = n.Join.pair_names(left.schema, right.schema).names
    mine, theirs = pair[: len(left.schema)], pair[len(left.schema) :]
    near, latest = _nearness(on, frozenset(mine), frozenset(theirs), binding, span)
    unique = bool(properties(left).keys)
    base = left if unique else n.Distinct(left)
    pairs = join(base, right, on, kind if unique else "inner", binding.name)
    order = binding.name("near")
    pairs = n.Map(pairs, (*((name, col(name)) for name in pair), (order, near)))
    try:
        first: n.Node = n.Rank(pairs, tuple(mine), (n.Ordering(order, latest),), limit=1)
    except QueryError as error:
        raise binding.error(str(error), span) from None
    if unique:
        return n.Map(first, tuple((name, col(name)) for name in pair))
    keys = tuple(binding.name("key") for _ in mine)
    known = zip(keys, mine, strict=True)
    first = n.Map(first, (*((key, col(name)) for key, name in known), *((name, col(name)) for name in theirs)))
    found = n.Join(left, first, left.schema.names, keys, None, kind, null_safe=True)
    return n.Map(found, tuple((name, col(name)) for name in pair))


def _nearness(
    on: Expr, mine: frozenset[str], theirs: frozenset[str], binding: Binding, span: s.Span
) -> tuple[Expr, bool]:
    """What of the right side is nearest, and whether the largest is."""
    found: list[tuple[Expr, bool]] = []
    for test in conjuncts(on):
        if not (isinstance(test, Call) and test.name in _INEQUALITIES):
            continue
        a, b = test.operands
        symbol = test.name
        if a.columns() and b.columns() and a.columns() <= theirs and b.columns() <= mine:
            a, b, symbol = b, a, _MIRRORED[symbol]
        if a.columns() and b.columns() and a.columns() <= mine and b.columns() <= theirs:
            found.append((b, symbol in (">", ">=")))
    if len(found) != 1:
        raise binding.error(
            f"ASOF JOIN needs one inequality between the times of its two sides, as in a.ts >= b.ts; there are "
            f"{len(found) or 'none'}",
            span,
        )
    return found[0]
