"""Random plans of the shapes that rules look for, over `S` and `T` and the streams `U` and `W` with a key.

Steps of `operators.random_plans` are mixed with filters of several conjuncts, products under filters, marks and
scalar subqueries as the binder writes them, groups over joins, joins of three, repeated projections.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import Expr, col, function, lit
from operators.random_plans import ANYWHERE, FINITE, Grown
from plans import S, T

Step = Callable[[st.DrawFn, Grown], Grown]
COLUMNS = {"k": "string", "x": "int64"}
U = Stream(n.Source("U", S.schema, chronons=True, keys=(("k",),)))
W = Stream(n.Source("W", S.schema, chronons=True, keys=(("x",), ("k",))))
RIGHT = (T, S, U, W, U.range(3), T.range(2), T.distinct(), T.group_by("k").agg(x=ew.max("x")), S.where(col("x") > 0))


def _condition(draw: st.DrawFn, g: Grown) -> Expr:
    """One conjunct over the columns that there are."""
    names = g.stream.schema.names
    any_column = col(draw(st.sampled_from(names)))
    if not g.numbers:
        return draw(st.sampled_from([any_column.not_null(), any_column.is_null(), lit(True)]))
    x, y = col(draw(st.sampled_from(g.numbers))), col(draw(st.sampled_from(g.numbers)))
    value = draw(st.integers(-1, 2))
    return draw(
        st.sampled_from(
            [
                x >= value,
                x < value,
                x == value,
                x == y,
                x < y,
                x + 1 > value,  # may fail
                (x % 2) == value,
                any_column.not_null(),
                any_column.is_null(),
                ~any_column.is_null(),
                (x > value) | any_column.is_null(),
                function("coalesce", x, 1) > value,
                lit(value) * 2 >= 2,
                x.is_in([0, 1, None]),
            ]
        )
    )


def where(draw: st.DrawFn, g: Grown) -> Grown:
    found = _condition(draw, g)
    for _ in range(draw(st.integers(0, 2))):
        found = found & _condition(draw, g)
    return g.then(g.stream.where(found))


def product(draw: st.DrawFn, g: Grown) -> Grown:
    """A product under a filter, as SQL's comma writes a join."""
    right = draw(st.sampled_from(RIGHT))
    found = g.then(g.stream.product(right), g.infinite or g.sources)
    equal = [(a, b) for a in _left_names(g) for b in _right_names(found, g) if _type(found, a) == _type(found, b)]
    if equal and draw(st.integers(0, 3)):
        a, b = draw(st.sampled_from(equal))
        found = found.then(found.stream.where(col(a) == col(b)))
    return where(draw, found)


def _left_names(g: Grown) -> tuple[str, ...]:
    return g.stream.schema.names


def _right_names(found: Grown, g: Grown) -> tuple[str, ...]:
    return found.stream.schema.names[len(g.stream.schema) :]


def _type(g: Grown, name: str) -> object:
    return g.stream.schema.field(name).type


def join(draw: st.DrawFn, g: Grown) -> Grown:
    """A join of any kind on a key, with more conditions, null-safe or not."""
    right = draw(st.sampled_from(RIGHT))
    on = [(name, "k") for name in g.texts] + [(name, "x") for name in g.numbers]
    if not on:
        return g
    mine, theirs = draw(st.sampled_from(on))
    pairs = g.then(Stream(n.Join(g.stream.node, right.node)), g.infinite or g.sources)
    residual = None if draw(st.booleans()) else _condition(draw, pairs)
    kind = draw(st.sampled_from(["inner", "inner", "left", "semi", "anti", "full"]))
    safe = draw(st.integers(0, 3)) == 0
    return pairs.then(Stream(n.Join(g.stream.node, right.node, (mine,), (theirs,), residual, kind, safe)))


def subquery(draw: st.DrawFn, g: Grown) -> Grown:
    """EXISTS, NOT EXISTS, NOT IN's last part, or a comparison with an aggregate, and only the own columns kept."""
    names = g.stream.schema.names
    on = [(name, "k") for name in g.texts] + [(name, "x") for name in g.numbers]
    kinds = ["some", "none", "guarded"] + (["scalar", "all"] if g.numbers else [])
    kind = draw(st.sampled_from(kinds))
    inner = draw(st.sampled_from([T, S, T.where(col("x") > 0), U]))
    keys = [draw(st.sampled_from(on))] if on and draw(st.booleans()) else []
    if kind in ("scalar", "all"):
        right = n.Aggregate(inner.node, tuple(b for _, b in keys), (Aggregation("found", "max", ("x",)),))
    else:
        columns = (*((b, col(b)) for _, b in keys), ("found", lit(True)))
        right = n.Distinct(n.Map(inner.node, columns))
    taken = tuple(a for a, _ in keys)
    node = n.Join(g.stream.node, right, taken, tuple(b for _, b in keys), None, "left", draw(st.booleans()))
    found = col(node.schema.names[-1])
    first = col(draw(st.sampled_from(names)))
    condition = {
        "some": lambda: found.not_null(),
        "none": lambda: found.is_null(),
        "guarded": lambda: first.not_null() | found.is_null(),
        "scalar": lambda: col(g.numbers[0]) == found,
        "all": lambda: found.is_null() | (col(g.numbers[0]) >= found),
    }[kind]()
    filtered = Stream(n.Filter(node, condition))
    kept = filtered.select(*names) if draw(st.integers(0, 3)) else filtered
    return g.then(kept, g.infinite or g.sources)


def groups(draw: st.DrawFn, g: Grown) -> Grown:
    """Groups over a join with a stream that has a key."""
    if not g.texts or not g.numbers:
        return g
    text, number = draw(st.sampled_from(g.texts)), draw(st.sampled_from(g.numbers))
    right = draw(st.sampled_from([U, U.range(4), W, T])).rename(k="uk", x="ux")
    joined = g.stream.join(right, on={text: "uk"})
    keys = draw(st.sampled_from([(text,), (text, "ux"), ("uk",), ("uk", "ux"), ("ux",)]))
    if any(name not in joined.schema.names for name in (*keys, number)):
        return g
    calls = {"n": ew.count(), "a": draw(st.sampled_from([ew.max, ew.sum, ew.avg, ew.median]))(number)}
    if set(calls) & set(keys):
        return g
    return where(draw, g.then(joined.group_by(*keys).agg(**calls), g.infinite or g.sources))


def distinct_join(draw: st.DrawFn, g: Grown) -> Grown:
    joined = join(draw, g)
    if draw(st.booleans()):
        return joined.then(joined.stream.distinct())
    return joined.then(joined.stream.select(*joined.stream.schema.names[:2]).distinct())


def windows(draw: st.DrawFn, g: Grown) -> Grown:
    """A union of windows, projected."""
    size = draw(st.integers(1, 3))
    other = g.stream.where(_condition(draw, g))
    both = g.stream.range(size).union(other.range(draw(st.sampled_from([size, 2]))))
    kept = draw(st.lists(st.sampled_from(both.schema.names), min_size=1, unique=True))
    return g.then(both.select(*kept))


def recursion(draw: st.DrawFn, g: Grown) -> Grown:
    """A fixed point over values that are there, so that it is finite: by joins, with itself too, or a subquery."""
    names = [name for name in g.stream.schema.names if name in (*g.texts, *g.numbers)][:3]
    if not names:
        return g
    base = g.then(g.stream.select(*names))
    kind = draw(st.sampled_from(["union", "union", "min" if base.numbers and len(names) > 1 else "union"]))
    value = draw(st.sampled_from(base.numbers)) if kind == "min" else None
    found = ew.fixpoint(base.stream, lambda r: _step(draw, base, r, value), kind, value=value)
    return where(draw, base.then(found, g.infinite or g.sources))


def _step(draw: st.DrawFn, base: Grown, r: Stream, value: str | None) -> Stream:
    names = [name for name in base.stream.schema.names if name != value]
    right = draw(st.sampled_from([T, S, U, T.distinct(), S.where(col("x") > 0), r, r.distinct()]))
    theirs = "k", "x"
    if right.schema.names != theirs:
        theirs = tuple(names[:1])
    on = [(a, b) for a in names for b in theirs if r.schema.field(a).type == right.schema.field(b).type]
    mine, other = draw(st.sampled_from(on)) if on else (None, None)
    keys = ((mine,), (other,)) if mine is not None else ((), ())
    form = draw(st.sampled_from(["pairs", "pairs", "mark", "anti", "semi"]))
    if form == "mark":
        marks = n.Distinct(n.Map(right.node, (*((b, col(b)) for b in keys[1]), ("mark", lit(True)))))
        joined = n.Join(r.node, marks, *keys, None, "left")
        return Stream(n.Filter(joined, col(joined.schema.names[-1]).not_null())).select(*base.stream.schema.names)
    if form == "semi" or (form == "anti" and n.reads_recursion(right.node, r.node.token)):  # type: ignore[attr-defined]
        return Stream(n.Join(r.node, right.node, *keys, None, "semi"))
    if form == "anti":
        return Stream(n.Join(r.node, right.node, *keys, None, "anti"))
    joined = Stream(n.Join(r.node, right.node, *keys))
    columns: dict[str, Expr] = {}
    for name, type_ in zip(base.stream.schema.names, base.stream.schema.types, strict=True):
        own = zip(right.schema.names, joined.schema.names[len(r.schema) :], strict=True)
        alike = [each for other, each in own if other != value and joined.schema.field(each).type == type_]
        if name == value:
            columns[name] = function("least", col(name), draw(st.sampled_from([col(name), lit(1)])))
            continue
        columns[name] = col(draw(st.sampled_from([name, name, *alike])))
    return joined.select(**columns)


OWN: tuple[Step, ...] = (where, where, product, join, subquery, groups, distinct_join, windows)


@st.composite
def plans_to_rewrite(draw: st.DrawFn, least: int = 2, most: int = 5, recursive: bool = True) -> Grown:
    """A plan of some operators; rows get no wider than ten columns."""
    steps = (recursion, *OWN) if recursive else OWN
    infinite = draw(st.booleans())
    grown = Grown(draw(st.sampled_from([S, T])), infinite, infinite)
    for _ in range(draw(st.integers(least, most))):
        if not grown.plain:
            break  # nothing but floats is left: steps that need other columns would be stuck
        others = ANYWHERE if grown.infinite else (*ANYWHERE, *FINITE)
        grown = draw(st.sampled_from((*steps, *steps, *others)))(draw, grown)
        if len(grown.stream.schema) > 8:
            kept = draw(st.lists(st.sampled_from(grown.stream.schema.names), min_size=2, max_size=4, unique=True))
            grown = grown.then(grown.stream.select(*kept))
    return grown
