"""Filters go down through operators that treat each row by itself: fewer rows reach everything in between.

Through a map by putting in what it computes (not where a Python function of the user's would be called twice); through
a union into both sides (10.5); through time windows, also sliding ones (10.8): at t a window holds the rows of some
earlier instants, whole.  The same holds for granularity, which shows the snapshot of an earlier instant, and for
split, Rstream and coalesce, which change no snapshot.  Istream and Dstream are bag differences of neighbouring
snapshots, taken row by row, so rows of one value do not depend on rows of another.

Windows of rows count rows, so a filter below them changes which rows are the last ones (10.3.2); only where it reads
nothing but PARTITION BY columns, it takes out whole partitions, each with a window of its own, for any slide.  So it is
with patterns, which look at neighbours, and with ranks.

AlterLifetime and Deletes are left alone.  A condition that may fail is not moved below what may hide rows from it
altogether: a slide, a granule, Dstream (a row may never end), a window of rows.
"""

from __future__ import annotations

from everwhen.algebra.expressions.build import Expr, conjunction, conjuncts
from everwhen.algebra.nodes import (
    Coalesce,
    Filter,
    Granularity,
    Map,
    MatchRecognize,
    Node,
    Over,
    Rank,
    RelationToStream,
    RowsWindow,
    Split,
    TimeWindow,
    Union,
    Unnest,
    over,
)
from everwhen.rewrite.facts.conditions import has_udf, may_fail, parted, renamed, replaced
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    if not isinstance(node, Filter):
        return None
    below, predicate = node.input, node.predicate
    match below:
        case Map(input, columns):
            return _below_map(node, input, dict(columns))
        case Union(left, right):
            names = dict(zip(left.schema.names, right.schema.names, strict=True))
            return over(below, Filter(left, predicate), Filter(right, renamed(predicate, names)))
        case (
            TimeWindow(slide=1)
            | Split()
            | Coalesce()
            | RelationToStream(kind="rstream")
            | RelationToStream(kind="istream")
        ):
            return over(below, Filter(below.inputs[0], predicate))
        case Unnest(input):
            own = frozenset(input.schema.names)
            tests = conjuncts(predicate)
            return _partly(node, [each.columns() <= own and not may_fail(each, node.schema) for each in tests])
        case TimeWindow() | Granularity() | RelationToStream():
            return _partly(node, [not may_fail(each, node.schema) for each in conjuncts(predicate)])
        case (
            RowsWindow(partition=partition)
            | MatchRecognize(partition=partition)
            | Rank(partition=partition)
            | Over(partition=partition)
        ) if partition:
            kept = frozenset(partition)
            return _partly(
                node,
                [
                    bool(each.columns()) and each.columns() <= kept and not may_fail(each, node.schema)
                    for each in conjuncts(predicate)
                ],
            )
    return None


def _below_map(node: Filter, input: Node, columns: dict[str, Expr]) -> Node | None:
    wanted = [not has_udf(replaced(each, columns)) for each in conjuncts(node.predicate)]
    moved, stay = parted(node.predicate, wanted, node.schema)
    if not moved:
        return None
    result = over(node.input, Filter(input, replaced(conjunction(moved), columns)))
    return Filter(result, conjunction(stay)) if stay else result


def _partly(node: Filter, wanted: list[bool]) -> Node | None:
    """Some conjuncts below the filter's input, which has one input itself."""
    moved, stay = parted(node.predicate, wanted, node.schema)
    if not moved:
        return None
    result = over(node.input, Filter(node.input.inputs[0], conjunction(moved)))
    return Filter(result, conjunction(stay)) if stay else result


PUSH_FILTER = Rule("push_filter", "rows are dropped before they are windowed, mapped or merged", _apply)
