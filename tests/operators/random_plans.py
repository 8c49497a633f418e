"""Random plans of a few operators over the sources `S` and `T`, with the schema tracked so that every step is legal.

A plan is grown step by step.  Each step is offered only where it is defined: over lifetimes without end there are no
splits, and windows of rows have no slide; AlterLifetime stands on sources or on a level form; set operations need equal
types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF
from plans import S, T, col


@dataclass(frozen=True)
class Grown:
    """A stream, and whether some of its lifetimes, or of the sources', may have no end."""

    stream: ew.Stream
    infinite: bool
    sources: bool

    def then(self, stream: ew.Stream, infinite: bool | None = None) -> Grown:
        return Grown(stream, self.infinite if infinite is None else infinite, self.sources)

    def columns(self, test: Callable[[pa.DataType], bool]) -> list[str]:
        return [field.name for field in self.stream.schema if test(field.type)]

    @property
    def numbers(self) -> list[str]:
        return self.columns(pa.types.is_integer)

    @property
    def texts(self) -> list[str]:
        return self.columns(pa.types.is_string)

    @property
    def plain(self) -> list[str]:
        return self.columns(lambda type_: not pa.types.is_floating(type_))


Step = Callable[[st.DrawFn, Grown], Grown]


def _where(draw: st.DrawFn, g: Grown) -> Grown:
    if g.numbers and draw(st.booleans()):
        column, value = draw(st.sampled_from(g.numbers)), draw(st.integers(-1, 3))
        return g.then(g.stream.where(col(column) >= value if draw(st.booleans()) else col(column) < value))
    column = draw(st.sampled_from(g.stream.schema.names))
    return g.then(g.stream.where(~col(column).is_null()))


def _select(draw: st.DrawFn, g: Grown) -> Grown:
    kept = draw(st.lists(st.sampled_from(g.stream.schema.names), min_size=1, max_size=3, unique=True))
    if g.numbers and draw(st.booleans()):
        number = draw(st.sampled_from(g.numbers))
        name = next(name for name in ("y", "z", "w", "v", "u") if name not in kept)
        return g.then(g.stream.select(*kept, **{name: col(number) % 2 if draw(st.booleans()) else col(number) + 1}))
    return g.then(g.stream.select(*kept))


def _other(draw: st.DrawFn, g: Grown) -> Grown:
    """A stream with the same column types, for set operations: a part of the stream itself, or the other source."""
    if g.stream.schema.types == T.schema.types and draw(st.booleans()):
        return g.then(draw(st.sampled_from([T, S, T.where(col("x") >= 1), T.range(2)])), g.sources)
    changed = draw(st.sampled_from([_where, _distinct, _granularity, _range]))(draw, g)
    return g.then(g.stream, changed.infinite) if changed.stream.schema != g.stream.schema else changed


def _set(draw: st.DrawFn, g: Grown) -> Grown:
    other = _other(draw, g)
    kind = draw(st.sampled_from(["union", "difference", "strict_difference", "intersect", "max_union", "except_"]))
    return g.then(getattr(g.stream, kind)(other.stream), g.infinite or other.infinite)


def _merge(draw: st.DrawFn, g: Grown) -> Grown:
    """Copies of the stream: itself and, physically another one, itself behind a filter that drops nothing."""
    policies = [
        None,
        ew.MergePolicy(),
        ew.MergePolicy(leader=True),
        ew.MergePolicy(quorum=2),
        ew.MergePolicy(final=True),
    ]
    return g.then(ew.lmerge(g.stream, g.stream.where(ew.lit(True)), policy=draw(st.sampled_from(policies))))


def _join(draw: st.DrawFn, g: Grown) -> Grown:
    right = draw(st.sampled_from([T, S, T.distinct(), T.range(2), T.group_by("k").agg(x=ew.max("x"))]))
    how = draw(st.sampled_from(["inner", "inner", "semi", "anti", "left", "right", "full"]))
    infinite = g.infinite or g.sources
    columns = [(mine, "k") for mine in g.texts] + [(mine, "x") for mine in g.numbers]
    if not columns:
        return g.then(g.stream.product(right), infinite)
    mine, theirs = draw(st.sampled_from(columns))
    if theirs == "x" and draw(st.booleans()):
        right = right.rename(k="tk", x="tx")
        return g.then(g.stream.join(right, where=col(mine) < col("tx"), how=how), infinite)
    return g.then(g.stream.join(right, on={mine: theirs}, how=how), infinite)


def _recursion(draw: st.DrawFn, g: Grown) -> Grown:
    """A fixed point of the stream, which changes one number within a few values, on its own or as partners say."""
    if not g.numbers:
        return g.then(ew.fixpoint(g.stream, lambda r: r))
    number = draw(st.sampled_from(g.numbers))
    partners = draw(st.sampled_from([None, T, S.distinct(), T.range(2), T.where(col("x") > 0)]))
    most = draw(st.integers(2, 4))
    type_ = g.stream.schema.field(number).type

    def step(r: ew.Stream) -> ew.Stream:
        rest = {name: col(name) for name in r.schema.names}
        if partners is None:
            return r.select(**{**rest, number: ((col(number) + 1) % most).cast(type_)})
        met = r.join(partners.select(tk=col("k"), tx=col("x")), where=(col(number) == col("tx")))
        return met.select(**{**rest, number: ((col("tx") + 1) % most).cast(type_)})

    return g.then(ew.fixpoint(g.stream, step, rounds=draw(st.sampled_from([None, None, 1, 2]))))


def _distinct(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.distinct())


def _aggregate(draw: st.DrawFn, g: Grown) -> Grown:
    calls = {"n": ew.count()}
    if g.numbers:
        number = draw(st.sampled_from(g.numbers))
        function = draw(st.sampled_from([ew.sum, ew.min, ew.max, ew.count, ew.count_distinct, ew.median, ew.avg]))
        calls["a"] = function(number)
    if draw(st.booleans()):
        calls["m"] = draw(st.sampled_from([ew.min, ew.max, ew.count_distinct]))(draw(st.sampled_from(g.plain or ["n"])))
    keys = [name for name in g.plain if name not in calls]
    if keys and draw(st.booleans()):
        return g.then(g.stream.group_by(draw(st.sampled_from(keys))).agg(**calls))
    return g.then(g.stream.aggregate(**calls))


def _range(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.range(draw(st.integers(1, 4)), slide=draw(st.sampled_from([1, 1, 2, 3]))))


def _granularity(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.granularity(draw(st.integers(1, 4))))


def _changes(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.istream() if draw(st.booleans()) else g.stream.dstream(), False)


def _rows(draw: st.DrawFn, g: Grown) -> Grown:
    partition = draw(st.sampled_from([[], *([name] for name in g.stream.schema.names)]))
    slide = 1 if g.infinite else draw(st.sampled_from([1, 1, 2]))  # else it may change for ever
    return g.then(g.stream.rows(draw(st.integers(1, 3)), slide, partition), True)


def _cut(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.rstream() if draw(st.booleans()) else g.stream.split(draw(st.integers(1, 3))))


def _coalesce(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.coalesce(draw(st.sampled_from([None, 2, 5])) if not g.infinite else None))


def _lifetime(draw: st.DrawFn, g: Grown) -> Grown:
    events = g.stream if g.stream.node.keeps_events else g.stream.coalesce()
    if draw(st.integers(0, 4)) == 0:
        return g.then(events.deletes(), True)
    hop, shift = draw(st.sampled_from([1, 1, 3])), draw(st.integers(-2, 3))
    length = draw(st.sampled_from([None, 1, 4, INF]))
    return g.then(events.lifetime(hop, shift, length), {None: g.infinite, INF: True}.get(length, False))


def _match(draw: st.DrawFn, g: Grown) -> Grown:
    """Neighbours in the order of a column; not of floats, which may differ in their last bits."""
    if not g.plain:
        return g
    order, other = draw(st.sampled_from(g.plain)), draw(st.sampled_from(g.plain))
    partition = draw(st.sampled_from([[], *([name] for name in g.plain)]))
    p = ew.patterns
    define = {
        "B": draw(st.sampled_from([p.prev(other).is_null(), p.count("B") <= 1, p.first(order) == col(order)])),
        "C": ~col(other).is_null(),
    }
    names = [name for name in ("m", "mm", "mmm") if name not in partition]
    measures = {names[0]: col(other), names[1]: p.count()}
    pattern = draw(st.sampled_from(["A C", "A B*", "B C?", "C+ B"]))
    named = {name: condition for name, condition in define.items() if name in pattern}
    return g.then(g.stream.match_recognize(pattern, order, partition, named, measures))


def _rank(draw: st.DrawFn, g: Grown) -> Grown:
    """Ranks and neighbours in the order of a column; floats, which may differ in their last bits, break no ties."""
    if not g.plain:
        return g
    order = draw(st.sampled_from(g.plain))
    partition = draw(st.sampled_from([[], *([name] for name in g.plain)]))
    falling = draw(st.sampled_from([[], [order]]))
    name = next(name for name in ("r", "rr", "rrr", "rrrr", "rrrrr", "rrrrrr") if name not in g.stream.schema)
    exact = len(g.plain) == len(g.stream.schema)
    match draw(st.integers(0, 3)):
        case 0 if exact:
            return g.then(g.stream.limit(draw(st.integers(1, 3)), order, partition, falling, draw(st.integers(0, 1))))
        case 1 if exact:
            return g.then(g.stream.over(order, partition, falling, **{name: ew.frames.lag(order)}))
        case 2:
            return g.then(g.stream.over(order, partition, falling, **{name: ew.frames.count()}))
    kind = draw(st.sampled_from(["rank", "dense_rank", *(["row_number"] if exact else [])]))
    limit = draw(st.sampled_from([None, 1, 2]))
    return g.then(g.stream.rank(name, order, partition, falling, kind, limit))


def _unbounded(draw: st.DrawFn, g: Grown) -> Grown:
    return g.then(g.stream.unbounded(), True)


ANYWHERE: tuple[Step, ...] = (
    _where, _select, _set, _merge, _join, _recursion, _distinct, _aggregate, _range, _granularity, _changes, _coalesce,
    _lifetime, _match, _rank, _rows,
)  # fmt: skip
FINITE: tuple[Step, ...] = (_cut, _unbounded)


@st.composite
def plans(draw: st.DrawFn, least: int = 2, most: int = 5) -> Grown:
    """A plan of `least` to `most` operators."""
    infinite = draw(st.booleans())
    grown = Grown(draw(st.sampled_from([S, T])), infinite, infinite)
    for _ in range(draw(st.integers(least, most))):
        steps = ANYWHERE if grown.infinite else (*ANYWHERE, *FINITE)
        grown = draw(st.sampled_from(steps))(draw, grown)
    return grown
