"""Stream properties: what is known of a node's stream without looking at its data (Krämer, 12.3, Table 12.1).

    properties(node) -> Properties        derived from the node and its inputs, remembered on the node

A property that holds is a fact about every run over sources that keep what they declare; one that is not derived may
hold all the same, so `False`, `None` and "no key" are always safe.  They choose algorithms, let rewriting rules fire,
and are shown by EXPLAIN.  They never change what a query means.

`chronon`, `lifetime`, `end_ordered`, `no_duplicates` and the keys speak of the final history, whatever the order of
arrival and the corrections on the way.  `insert_only` and `ordered` speak of the physical stream as the thesis has it:
what the operator says over such inputs when an answer is said as soon as it has ended (`ended`).

`keys` hold per instant: no two rows alive together agree on the columns, where nulls agree with nulls.
`history_keys` hold over all of time: no two events agree.  Windows bring events of different instants together, so a
key of the first kind ends there, one of the second kind survives if the events are chronons.

Keys that sources declare are trusted, not checked: that would need a memory of the whole history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column
from everwhen.algebra.properties.keys import (
    Equalities,
    Key,
    beside,
    forced,
    met,
    minimal,
    reduced,
    renamed,
    renamed_one,
)
from everwhen.algebra.properties.lifetimes import (
    alter_lifetime,
    coalesce,
    deletes,
    granularity,
    relation_to_stream,
    rows_window,
    split,
    time_window,
)
from everwhen.algebra.properties.one_partner import one_partner
from everwhen.algebra.properties.properties import NO_KEYS, ONE_ROW, Properties
from everwhen.core.time import INF


def properties(node: n.Node) -> Properties:
    """What is known of the node's stream.  Remembered on the node itself, so it goes when the node goes."""
    known = vars(node).get("_properties")
    if isinstance(known, Properties):
        return known
    found = _settled(_derive(node))
    vars(node)["_properties"] = found
    return found


def _settled(p: Properties) -> Properties:
    """What follows from the rest, for every node."""
    history = minimal(p.history_keys)
    keys = minimal(p.keys | history)  # events that always differ differ at every instant
    return replace(
        p,
        keys=keys,
        history_keys=history,
        no_duplicates=p.no_duplicates or bool(keys),
        # pieces that never overlap end in the order in which they start
        end_ordered=p.end_ordered or p.lifetime is not None or ONE_ROW in keys,
    )


def _derive(node: n.Node) -> Properties:
    match node:
        case n.Source():
            return _source(node)
        case n.Values():
            return _values(node)
        case n.Filter(input, predicate):
            return _filter(properties(input), forced(predicate, input.schema))
        case n.Map():
            return _map(node)
        case n.Unnest():
            return _unnest(node)
        case n.Union(left, right):
            return _union(properties(left), properties(right))
        case n.LMerge(copies):
            return _lmerge([properties(each) for each in copies])
        case n.Join():
            return _join(node)
        case n.Distinct(input):
            return _distinct(properties(input), frozenset(input.schema.names))
        case n.SetOperation():
            return _set_operation(node)
        case n.Aggregate(input, keys, _):
            return _aggregate(properties(input), frozenset(keys))
        case n.MatchRecognize(input):  # a late row takes a match back; equal matches may begin at different rows
            return Properties(chronon=properties(input).chronon)
        case n.Rank():
            return _rank(node)
        case n.Over(input):  # a late row changes what is said of others
            p = properties(input)
            return Properties(chronon=p.chronon, keys=p.keys, history_keys=p.history_keys if p.chronon else NO_KEYS)
        case n.TimeWindow(input, size, slide):
            return time_window(properties(input), size, slide)
        case n.RowsWindow(input, rows, slide, partition):
            return rows_window(properties(input), rows, slide, frozenset(partition))
        case n.Granularity(input, granule):
            return granularity(properties(input), granule)
        case n.RelationToStream(input, kind):
            return relation_to_stream(properties(input), kind, frozenset(input.schema.names))
        case n.Split(input, length):
            return split(properties(input), length)
        case n.Coalesce(input, longest):
            return coalesce(properties(input), longest)
        case n.AlterLifetime():
            return alter_lifetime(node, properties(node.input))
        case n.Deletes(input):
            return deletes(properties(input))
        case n.Stamp(input, _, None):
            return properties(input)
        case n.Punctuate(input):
            return properties(input)
        case n.Sort(input):
            return replace(properties(input), ordered=False)
        case n.Fixpoint():
            return _fixpoint(node)
    return Properties()  # Exchange, Recursion, and what is not known here: nothing


def _source(node: n.Source) -> Properties:
    declared = frozenset(frozenset(key) for key in node.keys)
    # rows of a relation are replaced as time goes on, so its key holds per instant; a stream's events are all different
    lasting = node.kind in ("stream", "constant")
    return Properties(
        insert_only=node.insert_only,
        ordered=node.in_order,
        chronon=node.chronons,
        lifetime=1 if node.chronons else None,
        keys=declared,
        history_keys=declared if lasting else NO_KEYS,
    )


def _values(node: n.Values) -> Properties:
    """Rows that are all different, and never go, are a key."""
    texts = [tuple(map(repr, row)) for row in node.rows]
    keys = frozenset({frozenset(node.schema.names)}) if len(set(texts)) == len(texts) else NO_KEYS
    return Properties(insert_only=True, lifetime=INF if keys else None, keys=keys, history_keys=keys)


# -- rows and columns --------------------------------------------------------------------------------------------------


def _filter(p: Properties, equal: Equalities) -> Properties:
    """Fewer events, each as it was.  Columns that are constant now, or equal, are not needed twice in a key."""
    return replace(p, keys=reduced(p.keys, equal), history_keys=reduced(p.history_keys, equal))


def _map(node: n.Map) -> Properties:
    """Each event with another payload: keys stay whose columns are still there, under any name."""
    p = properties(node.input)
    names: dict[str, list[str]] = {}
    for name, expr in node.columns:
        if isinstance(expr, Column):
            names.setdefault(expr.name, []).append(name)
    whole = all(name in names for name in node.input.schema.names)  # then different rows stay different
    return replace(
        p,
        keys=renamed(p.keys, names),
        history_keys=renamed(p.history_keys, names),
        no_duplicates=p.no_duplicates and whole,
    )


def _unnest(node: n.Unnest) -> Properties:
    """Each event several times, or not at all: only the place tells rows apart that are made of one."""
    p = properties(node.input)
    keys, history = ({key | {node.place} for key in each} if node.place else set() for each in (p.keys, p.history_keys))
    return replace(p, keys=frozenset(keys), history_keys=frozenset(history), no_duplicates=False)


def _union(left: Properties, right: Properties) -> Properties:
    """Both sides may have the same rows, and go on at different speeds: keys, orders of starts and ends are lost."""
    return Properties(
        insert_only=left.insert_only and right.insert_only,
        chronon=left.chronon and right.chronon,
        lifetime=left.lifetime if left.lifetime == right.lifetime else None,
    )


def _lmerge(copies: Sequence[Properties]) -> Properties:
    """One history: what is known of any copy of it is known of all.  How it comes is the merge's own."""
    return Properties(
        chronon=any(p.chronon for p in copies),
        keys=frozenset().union(*(p.keys for p in copies)),
    )


def _distinct(p: Properties, columns: Key) -> Properties:
    """Pieces of equal rows are put together, so lifetimes are not the input's; the first late row reopens a piece."""
    return Properties(
        insert_only=p.perfect,
        chronon=p.chronon,
        keys=p.keys | {columns},
        history_keys=p.history_keys,
    )


def _fixpoint(node: n.Fixpoint) -> Properties:
    """A set of rows, or one row per key.  A correction of any input may take rows back."""
    return Properties(
        chronon=properties(node.base).chronon and properties(node.step).chronon,
        keys=NO_KEYS if node.kind == "union all" else frozenset({frozenset(node.keys)}),
    )


def _set_operation(node: n.SetOperation) -> Properties:
    """Rows of the left side (intersect: of both), at fewer instants.  A key over all time holds on where an event has
    one instant only: a longer one may come out in several pieces."""
    left, right = properties(node.left), properties(node.right)
    names = {theirs: mine for mine, theirs in zip(node.left.schema.names, node.right.schema.names, strict=True)}
    if node.kind == "max_union":
        both_sets = bool(left.keys) and bool(right.keys)  # then no multiplicity is above one
        return Properties(
            chronon=left.chronon and right.chronon,
            keys=frozenset({frozenset(node.schema.names)}) if both_sets else NO_KEYS,
        )
    keys, history = left.keys, left.history_keys if left.chronon else NO_KEYS
    if node.kind == "intersect":
        keys |= renamed_one(right.keys, names)
        history |= renamed_one(right.history_keys, names) if right.chronon else NO_KEYS
    chronon = left.chronon or (node.kind == "intersect" and right.chronon)
    return Properties(chronon=chronon, keys=keys, history_keys=history)


def _aggregate(p: Properties, group: Key) -> Properties:
    """One row per group: the grouping columns are a key, or what was a key among them.

    Without groups the pieces follow each other, in order.  A group that has one event in all of time has one piece.
    """
    return Properties(
        insert_only=p.perfect,
        ordered=p.ordered and not group,
        chronon=p.chronon,
        keys=frozenset({group, *(key for key in p.keys if key <= group)}),
        history_keys=frozenset(key for key in p.history_keys if key <= group),
    )


def _rank(node: n.Rank) -> Properties:
    """Some rows of the input, at fewer instants or in several pieces; a late row takes the number of another."""
    p, partition = properties(node.input), frozenset(node.partition)
    keys = p.keys
    if node.kind == "row_number":
        keys |= {partition} if node.limit == 1 else {partition | {node.name}} if node.name is not None else NO_KEYS
    history = p.history_keys if p.chronon else NO_KEYS
    return Properties(chronon=p.chronon, keys=keys, history_keys=history)


# -- joins -------------------------------------------------------------------------------------------------------------


def _join(node: n.Join) -> Properties:
    left, right = properties(node.left), properties(node.right)
    insert_only = left.insert_only and right.insert_only
    # an event of one instant comes out whole or not at all; a longer one may come out in several pieces
    mine = left.history_keys if left.chronon else NO_KEYS
    match node.kind:
        case "semi":
            if right.chronon:
                mine |= met(left.keys, right.history_keys, node.left_keys, node.right_keys)
            return Properties(
                insert_only=insert_only,
                chronon=left.chronon or right.chronon,
                lifetime=1 if left.lifetime == 1 else None,
                keys=left.keys,
                history_keys=mine,
            )
        case "anti":  # a late partner takes an answer back
            return Properties(chronon=left.chronon, keys=left.keys, history_keys=mine)
        case "full":  # two rows of nulls may stand for one row of each side: no key survives
            return Properties(chronon=left.chronon and right.chronon)
    width = len(node.left.schema)
    names = dict(zip(node.right.schema.names, node.pair_schema.names[width:], strict=True))
    on_left, on_right = frozenset(node.left_keys), frozenset(node.right_keys)
    # a left row fixes its key columns, hence the partner's: of the right side's key only the others are needed
    keys = beside(left.keys, right.keys, on_right, names) | (left.keys if one_partner(node) else NO_KEYS)
    # an event of one instant meets only rows that are alive together
    history = beside(left.history_keys, right.keys if left.chronon else right.history_keys, on_right, names)
    if node.kind == "left":  # a right row may be missing, so only keys that hold the left row's are left
        return Properties(chronon=left.chronon, keys=keys, history_keys=history if left.chronon else NO_KEYS)
    theirs = {name: name for name in node.left.schema.names}
    other = renamed_one(right.keys, names)
    keys |= beside(other, left.keys, on_left, theirs)
    lasting = left.keys if right.chronon else left.history_keys
    history |= beside(renamed_one(right.history_keys, names), lasting, on_left, theirs)
    equal = Equalities.of_pairs((a, names[b]) for a, b in zip(node.left_keys, node.right_keys, strict=True))
    lifetimes = {left.lifetime, right.lifetime}
    return Properties(
        insert_only=insert_only,
        chronon=left.chronon or right.chronon,
        lifetime=1 if 1 in lifetimes else INF if lifetimes == {INF} else None,
        keys=reduced(keys, equal),
        history_keys=reduced(history, equal),
    )


# -- windows and lifetimes ---------------------------------------------------------------------------------------------
