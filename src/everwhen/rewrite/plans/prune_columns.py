"""Columns that nobody reads are dropped as early as may be: what is kept, sent and compared is smaller.

First it is asked, from the answers down, which columns each node is read for, by all its readers together, so a shared
node stays one node.  Then the plan is built anew from the sources up: maps lose columns and aggregates lose functions
that nobody reads, and a projection goes in where a node has more columns than are read and its reader would carry
them along.  Maps, filters and aggregates get none below: maps project themselves, aggregates pick what they read (as
semi-joins pick the keys of their right side), and a projection below a filter would only wait to be passed by it.

Dropping columns keeps every row with its multiplicity, so it may pass below anything but what looks at whole rows:
duplicate elimination (but for columns that are the same in every row, such as marks), set operations, windows of
rows (ties are broken by all columns), Istream, Dstream, coalesce.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import col
from everwhen.rewrite.facts.pairs import Names, ownership, rejoined
from everwhen.rewrite.facts.plans import constant_columns
from everwhen.rewrite.rule import PlanRule, Roots

_PICKY: Final = (n.Filter, n.Map, n.Aggregate)
Columns = set[str]


def _apply(roots: Roots, kept: Roots) -> Roots:
    pruning = _Pruning(roots, kept)
    return tuple(map(pruning.root, roots))


class _Pruning:
    def __init__(self, roots: Roots, kept: Roots) -> None:
        self._fixed = {id(node) for node in n.walk(*kept)}
        order = n.walk(*roots)
        self._read: dict[int, Columns] = {id(node): set() for node in order}
        for root in roots:
            self._read[id(root)] |= set(root.schema.names)
        for node in reversed(order):  # readers before what they read
            for child, names in zip(node.inputs, self._asked(node), strict=True):
                self._read[id(child)] |= names
        self._built: dict[int, n.Node] = {}
        self._narrow: dict[int, n.Node] = {}
        for node in order:
            self._built[id(node)] = self._build(node)

    def root(self, node: n.Node) -> n.Node:
        return self._projected(self._built[id(node)], set(node.schema.names))

    # -- what is asked for -----------------------------------------------------------------------------------------

    def _asked(self, node: n.Node) -> tuple[Columns, ...]:
        """What the node reads of each of its inputs; at least one column, so that rows can be counted."""
        if id(node) in self._fixed:
            return tuple(set(child.schema.names) for child in node.inputs)
        asked = self._needed(node, self._read[id(node)])
        return tuple(names or set(child.schema.names[:1]) for names, child in zip(asked, node.inputs, strict=True))

    def _needed(self, node: n.Node, read: Columns) -> tuple[Columns, ...]:
        match node:
            case n.Filter(_, predicate):
                return (read | predicate.columns(),)
            case n.Map():
                return ({name for _, expr in _kept_columns(node, read).columns for name in expr.columns()},)
            case n.Aggregate(_, keys):
                aggregations = _kept_functions(node, read).aggregations
                return ({*keys, *(column for each in aggregations for column in each.columns)},)
            case n.Union(left, right):
                return read & set(left.schema.names), _by_place(left, right, read)
            case n.Join():
                return _sides(node, read)
            case n.Distinct(input):
                return (set(input.schema.names) - (constant_columns(input) - read),)
            case (n.TimeWindow() | n.Granularity() | n.Split() | n.AlterLifetime() | n.Deletes()) | n.RelationToStream(
                kind="rstream"
            ):
                return (set(read),)
            case n.Unnest(input, args=args):
                return ((read & set(input.schema.names)) | {name for arg in args for name in arg.columns()},)
            case n.MatchRecognize():  # all measures stay: what they read breaks ties
                return (set(node.reads),)
            case n.Rank(input):  # all columns break ties between rows, not between ranks
                if node.kind == "row_number" and _kept_rank(node, read) is not None:
                    return (set(input.schema.names),)
                order = {each.column for each in node.order}
                return ((read & set(input.schema.names)) | set(node.partition) | order,)
            case n.Punctuate(_, schemes):
                return (read | {column for scheme in schemes for column in scheme.columns},)
        return tuple(set(child.schema.names) for child in node.inputs)

    # -- the plan anew ---------------------------------------------------------------------------------------------

    def _build(self, node: n.Node) -> n.Node:
        if id(node) in self._fixed or not node.inputs:
            return node
        read = self._read[id(node)]
        match node:
            case n.Map():
                return n.over(_kept_columns(node, read), self._built[id(node.input)])
            case n.Aggregate():
                return n.over(_kept_functions(node, read), self._built[id(node.input)])
            case n.Rank(input):
                rank, child = _kept_rank(node, read), self._child(input, node)
                return child if rank is None else n.over(rank, child)
            case n.Union(left, right):
                names = (read & set(left.schema.names)) or set(left.schema.names[:1])
                sides = (left, names), (right, _by_place(left, right, names))
                return n.over(node, *(self._projected(self._built[id(side)], columns) for side, columns in sides))
            case n.Join():
                return self._join(node)
        return n.over(node, *(self._child(child, node) for child in node.inputs))

    def _child(self, child: n.Node, reader: n.Node) -> n.Node:
        """The input for a reader; without columns that it would only carry along."""
        built = self._built[id(child)]
        if isinstance(reader, _PICKY) or (isinstance(reader, n.Join) and _only_keys(reader) and child is reader.right):
            return built
        if id(child) not in self._narrow:
            self._narrow[id(child)] = self._projected(built, self._read[id(child)])
        return self._narrow[id(child)]

    @staticmethod
    def _projected(node: n.Node, names: Columns) -> n.Node:
        if set(node.schema.names) <= names:
            return node
        return n.Map(node, tuple((name, col(name)) for name in node.schema.names if name in names))

    def _join(self, node: n.Join) -> n.Node:
        left, right = self._child(node.left, node), self._child(node.right, node)
        if left is node.left and right is node.right:
            return node
        conditions = [] if node.residual is None else [node.residual]
        joined, names = rejoined(node, left, right, residual=conditions)
        return joined if node.kind in ("semi", "anti") else _renamed_back(joined, names)


def _kept_rank(node: n.Rank, read: Columns) -> n.Rank | None:
    """The rank without a number that nobody reads; None: then it says its input."""
    if node.name is None or node.name in read:
        return node
    return None if node.limit is None and node.offset == 0 else replace(node, name=None)


def _only_keys(join: n.Join) -> bool:
    """Whether the join picks the keys out of the right side itself."""
    return join.kind in ("semi", "anti") and join.residual is None


def _renamed_back(joined: n.Join, names: Names) -> n.Node:
    """The columns that are left, under the names that readers know; the join itself if those are its own."""
    if all(old == new for old, new in names.items()):
        return joined
    return n.Map(joined, tuple((old, col(new)) for old, new in names.items()))


def _sides(join: n.Join, read: Columns) -> tuple[Columns, Columns]:
    asked = read if join.residual is None else read | join.residual.columns()
    own = ownership(join)
    left = {own.left[name] for name in asked if name in own.left}
    right = {own.right[name] for name in asked if name in own.right}
    return left | set(join.left_keys), right | set(join.right_keys)


def _by_place(left: n.Node, right: n.Node, names: Columns) -> Columns:
    """The columns of the right side that stand where these stand on the left."""
    return {other for name, other in zip(left.schema.names, right.schema.names, strict=True) if name in names}


def _kept_columns(node: n.Map, read: Columns) -> n.Map:
    columns = tuple(each for each in node.columns if each[0] in read) or node.columns[:1]
    return node if len(columns) == len(node.columns) else replace(node, columns=columns)


def _kept_functions(node: n.Aggregate, read: Columns) -> n.Aggregate:
    kept = tuple(each for each in node.aggregations if each.name in read)
    if not kept and not node.keys:
        kept = node.aggregations[:1]
    return node if len(kept) == len(node.aggregations) else replace(node, aggregations=kept)


PRUNE_COLUMNS = PlanRule("prune_columns", "columns that nobody reads are dropped early", _apply)
