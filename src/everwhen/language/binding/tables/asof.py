"""ASOF JOIN: for each left row the one partner that is nearest in time, at every instant.

Of the right rows that are alive together with a left row, agree on the keys and lie on the right side of the
inequality, the nearest one counts; of several that are equally near, the one whose other columns come first.

As a plan: the right rows of a key stand in an order, the latest first (the earliest, if what comes after the left row
is looked for), equal ones by their other columns, and each is told the time of the row before it.  A right row is the
nearest of a left row exactly if it lies on the right side of the inequality and the row before it does not: whatever is
before that one is farther off the right side still, whatever is behind it farther away.  So a join finds one partner.
Of rows with equal times the first alone can be found: to the others the row before them is no different from them.

That is the same for all left rows of a key.  Where a condition relates both sides in another way, the candidates
differ from left row to left row: all pairs are made, and the first of each left row is taken (a rank).  Rows on the
left that are equal share their partner there: they are made one before, and found again behind, so that each counts as
often as it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Call, Expr, col, conjunction, conjuncts
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.failing import may_fail
from everwhen.algebra.ranks.over import OverFunction
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding
from everwhen.language.binding.joins import join, key_of, with_keys

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class _Nearness:
    """The inequality, with the left side's time first, and all other conditions."""

    symbol: str
    mine: Expr
    near: Expr
    others: tuple[Expr, ...]

    @property
    def latest(self) -> bool:
        """Whether of the right side's times the largest is nearest."""
        return self.symbol in (">", ">=")


def asof(
    left: n.Node, right: n.Node, on: Expr, kind: Literal["inner", "left"], binding: Binding, span: s.Span
) -> n.Node:
    """The join; `on` reads the columns of pairs, and so does the result."""
    pair = n.Join.pair_names(left.schema, right.schema).names
    mine, theirs = pair[: len(left.schema)], pair[len(left.schema) :]
    nearness = _nearness(on, frozenset(mine), frozenset(theirs), binding, span)
    try:
        found = _neighbours(left, right, nearness, kind, binding)
        return _pairwise(left, right, on, nearness, kind, binding) if found is None else found
    except QueryError as error:
        raise binding.error(str(error), span) from None


def _neighbours(
    left: n.Node, right: n.Node, nearness: _Nearness, kind: Literal["inner", "left"], binding: Binding
) -> n.Node | None:
    """Each right row beside the one before it, then a join with one partner; None where candidates differ by more than
    the time from left row to left row."""
    pair = n.Join.pair_names(left.schema, right.schema)
    mine, theirs = pair.names[: len(left.schema)], pair.names[len(left.schema) :]
    own = {name: col(there) for name, there in zip(theirs, right.schema.names, strict=True)}
    near = nearness.near.substitute(own)
    if may_fail(near, right.schema):  # it is computed for pairs only, so far
        return None
    keys: list[tuple[Expr, Expr]] = []
    tests: list[Expr] = []
    kept: list[Expr] = []
    for each in nearness.others:
        key = key_of(each, left, right)
        if key is not None:
            keys.append(key)
        elif each.columns() <= set(mine):
            kept.append(each)
        elif each.columns() <= set(theirs) and not may_fail(each, pair):
            tests.append(each.substitute(own))
        else:
            return None
    at = nearness.mine.substitute(dict(zip(mine, map(col, left.schema.names), strict=True)))
    if not may_fail(at, left.schema):  # a column is looked up
        left, (place,) = with_keys(left, [at], binding.name)
        at = col(place)
    node, (order, *by) = with_keys(right, [near, *(key for _, key in keys)], binding.name)
    partition = tuple(dict.fromkeys(by))
    node = n.Filter(node, conjunction([*tests, *(col(name).not_null() for name in (order, *partition))]))
    nearer = binding.name("nearer")
    ordering = n.Ordering(order, nearness.latest)
    node = n.Over(node, partition, (ordering,), (OverFunction(nearer, "lag", order),))
    # what was added stands behind the right side's own columns, so these have the names that they had in pairs
    pairs = n.Join.pair_names(left.schema, node.schema).names
    names = dict(zip(node.schema.names, pairs[len(left.schema) :], strict=True))
    kept += [Call("=", (key, col(names[name]))) for (key, _), name in zip(keys, by, strict=True)]
    before = col(names[nearer])
    here = Call(nearness.symbol, (at, col(names[order])))
    farther = before.is_null() | Call(_NEGATED[nearness.symbol], (at, before))
    found = join(left, node, conjunction([*kept, here, farther]), kind, binding.name)
    return n.Map(found, tuple((name, col(name)) for name in pair.names))


def _pairwise(
    left: n.Node, right: n.Node, on: Expr, nearness: _Nearness, kind: Literal["inner", "left"], binding: Binding
) -> n.Node:
    """All pairs, then the first of each left row."""
    pair = n.Join.pair_names(left.schema, right.schema).names
    mine, theirs = pair[: len(left.schema)], pair[len(left.schema) :]
    unique = bool(properties(left).keys)
    base = left if unique else n.Distinct(left)
    pairs = join(base, right, on, kind if unique else "inner", binding.name)
    order = binding.name("near")
    pairs = n.Map(pairs, (*((name, col(name)) for name in pair), (order, nearness.near)))
    first: n.Node = n.Rank(pairs, tuple(mine), (n.Ordering(order, nearness.latest),), limit=1)
    if unique:
        return n.Map(first, tuple((name, col(name)) for name in pair))
    keys = tuple(binding.name("key") for _ in mine)
    known = zip(keys, mine, strict=True)
    first = n.Map(first, (*((key, col(name)) for key, name in known), *((name, col(name)) for name in theirs)))
    found = n.Join(left, first, left.schema.names, keys, None, kind, null_safe=True)
    return n.Map(found, tuple((name, col(name)) for name in pair))


def _nearness(on: Expr, mine: frozenset[str], theirs: frozenset[str], binding: Binding, span: s.Span) -> _Nearness:
    """What of the right side is nearest to what of the left."""
    found: list[_Nearness] = []
    tests = conjuncts(on)
    for at, test in enumerate(tests):
        if not (isinstance(test, Call) and test.name in _MIRRORED):
            continue
        a, b = test.operands
        symbol = test.name
        if a.columns() and b.columns() and a.columns() <= theirs and b.columns() <= mine:
            a, b, symbol = b, a, _MIRRORED[symbol]
        if a.columns() and b.columns() and a.columns() <= mine and b.columns() <= theirs:
            found.append(_Nearness(symbol, a, b, (*tests[:at], *tests[at + 1 :])))
    if len(found) != 1:
        raise binding.error(
            f"ASOF JOIN needs one inequality between the times of its two sides, as in a.ts >= b.ts; there are "
            f"{len(found) or 'none'}",
            span,
        )
    return found[0]
