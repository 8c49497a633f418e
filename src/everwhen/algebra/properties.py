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

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column
from everwhen.algebra.keys import Equalities, Key, Keys, beside, forced, met, minimal, reduced, renamed, renamed_one
from everwhen.core.time import INF, show

_NONE: Final[Keys] = frozenset()
_EMPTY: Final[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Properties:
    """What is known of a stream."""

    insert_only: bool = False
    """Nothing that has been said is taken back."""
    ordered: bool = False
    """Starts never decrease."""
    chronon: bool = False
    """Lifetimes are one tick, apart from neighbouring instants of equal rows that an operator has put together."""
    lifetime: int | None = None
    """Every event lives exactly so long (`INF`: for ever)."""
    end_ordered: bool = False
    """Whoever starts later does not end earlier."""
    no_duplicates: bool = False
    """No two events have the same start and the same row: (vs, payload) is a key."""
    keys: Keys = _NONE
    """Minimal column sets on which no two rows alive at one instant agree.  The empty set: at most one row."""
    history_keys: Keys = _NONE
    """Minimal column sets on which no two events of the whole history agree."""

    @property
    def at_most_one(self) -> bool:
        """At most one row is alive at any instant."""
        return _EMPTY in self.keys

    @property
    def perfect(self) -> bool:
        """In order, and never corrected."""
        return self.insert_only and self.ordered

    def unique_on(self, columns: Iterable[str]) -> bool:
        """Whether rows alive together always differ in these columns: whether they cover a key."""
        given = frozenset(columns)
        return any(key <= given for key in self.keys)

    def words(self) -> str:
        """The properties for people, such as `insert-only, chronon, key(itemID)`; empty if nothing is known."""
        lifetime = self.lifetime if self.lifetime is not None and not self.chronon else None
        words = [
            "insert-only" if self.insert_only else "",
            "ordered" if self.ordered else "",
            "chronon" if self.chronon else "",
            f"lifetime {show(lifetime)}" if lifetime is not None else "",
            "ends in order" if self.end_ordered and self.lifetime is None and not self.at_most_one else "",
            "one row" if self.at_most_one else "",
            *sorted(f"key({', '.join(sorted(key))})" for key in self.keys if key),
            "no duplicates" if self.no_duplicates and not self.keys else "",
        ]
        return ", ".join(word for word in words if word)


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
        end_ordered=p.end_ordered or p.lifetime is not None or _EMPTY in keys,
    )


def _derive(node: n.Node) -> Properties:
    match node:
        case n.Source():
            return _source(node)
        case n.Filter(input, predicate):
            return _filter(properties(input), forced(predicate, input.schema))
        case n.Map():
            return _map(node)
        case n.Union(left, right):
            return _union(properties(left), properties(right))
        case n.Join():
            return _join(node)
        case n.Distinct(input):
            return _distinct(properties(input), frozenset(input.schema.names))
        case n.SetOperation():
            return _set_operation(node)
        case n.Aggregate(input, keys, _):
            return _aggregate(properties(input), frozenset(keys))
        case n.TimeWindow(input, size, slide):
            return _time_window(properties(input), size, slide)
        case n.RowsWindow(input, rows, slide, partition):
            return _rows_window(properties(input), rows, slide, frozenset(partition))
        case n.Granularity(input, granule):
            return _granularity(properties(input), granule)
        case n.RelationToStream(input, kind):
            return _relation_to_stream(properties(input), kind, frozenset(input.schema.names))
        case n.Split(input, length):
            return _split(properties(input), length)
        case n.Coalesce(input, longest):
            return _coalesce(properties(input), longest)
        case n.AlterLifetime():
            return _alter_lifetime(node)
        case n.Deletes(input):
            return _deletes(properties(input))
        case n.Punctuate(input):
            return properties(input)
        case n.Sort(input):
            return replace(properties(input), ordered=False)
    return Properties()  # Exchange, and what is not known here: nothing


def _source(node: n.Source) -> Properties:
    declared = frozenset(frozenset(key) for key in node.keys)
    # rows of a relation are replaced as time goes on, so its key holds per instant; a stream's events are all different
    lasting = node.kind in ("stream", "constant")
    return Properties(
        insert_only=node.insert_only,
        ordered=node.ordered,
        chronon=node.chronons,
        lifetime=1 if node.chronons else None,
        keys=declared,
        history_keys=declared if lasting else _NONE,
    )


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


def _union(left: Properties, right: Properties) -> Properties:
    """Both sides may have the same rows, and go on at different speeds: keys, orders of starts and ends are lost."""
    return Properties(
        insert_only=left.insert_only and right.insert_only,
        chronon=left.chronon and right.chronon,
        lifetime=left.lifetime if left.lifetime == right.lifetime else None,
    )


def _distinct(p: Properties, columns: Key) -> Properties:
    """Pieces of equal rows are put together, so lifetimes are not the input's; the first late row reopens a piece."""
    return Properties(
        insert_only=p.perfect,
        chronon=p.chronon,
        keys=p.keys | {columns},
        history_keys=p.history_keys,
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
            keys=frozenset({frozenset(node.schema.names)}) if both_sets else _NONE,
        )
    keys, history = left.keys, left.history_keys if left.chronon else _NONE
    if node.kind == "intersect":
        keys |= renamed_one(right.keys, names)
        history |= renamed_one(right.history_keys, names) if right.chronon else _NONE
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


# -- joins -------------------------------------------------------------------------------------------------------------


def _join(node: n.Join) -> Properties:
    left, right = properties(node.left), properties(node.right)
    insert_only = left.insert_only and right.insert_only
    # an event of one instant comes out whole or not at all; a longer one may come out in several pieces
    mine = left.history_keys if left.chronon else _NONE
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
    keys = beside(left.keys, right.keys, on_right, names)
    # an event of one instant meets only rows that are alive together
    history = beside(left.history_keys, right.keys if left.chronon else right.history_keys, on_right, names)
    if node.kind == "left":  # a right row may be missing, so only keys that hold the left row's are left
        return Properties(chronon=left.chronon, keys=keys, history_keys=history if left.chronon else _NONE)
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


def _time_window(p: Properties, size: int, slide: int) -> Properties:
    """A chronon gives one lifetime of the window's size; a longer lifetime gives several that overlap."""
    if size == 1 and slide == 1:
        return p  # the now-window is the identity (remark 12.1)
    starts_differ = p.chronon or bool(p.keys)  # levels of one lifetime start one tick apart
    return Properties(
        insert_only=p.insert_only,
        ordered=p.ordered,
        # a chronon is seen in the windows that end at the multiples of the slide within `size` ticks
        lifetime=size if p.lifetime == 1 and size % slide == 0 else None,
        end_ordered=p.lifetime == 1,
        no_duplicates=p.no_duplicates and starts_differ and slide == 1,
        history_keys=p.history_keys if p.chronon else _NONE,
    )


def _rows_window(p: Properties, rows: int, slide: int, partition: Key) -> Properties:
    """Rows leave in the order in which they came; the last one of a partition is the only one of it."""
    return Properties(
        insert_only=p.perfect,
        ordered=p.ordered and not partition,
        end_ordered=not partition,
        no_duplicates=p.no_duplicates and p.chronon and slide == 1,
        keys=frozenset({partition}) if rows == 1 else _NONE,
        history_keys=p.history_keys if p.chronon else _NONE,
    )


def _granularity(p: Properties, granule: int) -> Properties:
    """Starts and ends are rounded up: their order stays, and every snapshot is one of the input's."""
    if granule == 1:
        return p
    length = p.lifetime
    if length == 1:
        length = granule  # what is alive at a multiple of the granule, until the next; the rest is gone
    elif length is not None and length != INF and length % granule:
        length = None
    return replace(p, chronon=False, lifetime=length, no_duplicates=False)


def _relation_to_stream(p: Properties, kind: str, columns: Key) -> Properties:
    if kind == "rstream":
        return _split(p, 1)
    # as many rows come at an instant as events start there, at most; as many go as were there
    once = p.no_duplicates if kind == "istream" else bool(p.keys)
    return Properties(
        insert_only=p.perfect,
        ordered=p.ordered,
        chronon=True,
        keys=frozenset({columns}) if once else _NONE,
        history_keys=p.history_keys,
    )


def _split(p: Properties, length: int) -> Properties:
    """The same snapshots in shorter events; what is short enough already stays as it is."""
    if p.lifetime is not None and p.lifetime <= length:
        return p
    whole = p.lifetime is not None and p.lifetime != INF and p.lifetime % length == 0
    return Properties(
        insert_only=p.insert_only,
        ordered=p.ordered,
        chronon=length == 1 or p.chronon,
        lifetime=length if length == 1 or whole else None,
        # the thesis has any split retain the order of ends: [0,4) and [2,10) in pieces of 3 give [2,5) and [3,4)
        end_ordered=length == 1,
        keys=p.keys,
        history_keys=p.history_keys if p.chronon else _NONE,
    )


def _coalesce(p: Properties, longest: int | None) -> Properties:
    """The same snapshots; neighbouring equal rows are put together, unless every event has a row of its own."""
    alone = bool(p.history_keys)
    fits = longest is None or p.chronon or (p.lifetime is not None and p.lifetime <= longest)
    return Properties(
        insert_only=p.perfect,
        chronon=longest == 1 or (alone and p.chronon),
        lifetime=1 if longest == 1 else (p.lifetime if alone and fits else None),
        end_ordered=longest == 1 or (alone and fits and p.end_ordered),
        # where rows overlap, pieces of several levels may start together
        no_duplicates=p.no_duplicates and (longest is None or bool(p.keys)),
        keys=p.keys,
        history_keys=p.history_keys if fits else _NONE,
    )


def _alter_lifetime(node: n.AlterLifetime) -> Properties:
    """Starts move in order.  New ends may let events meet that had not met, so only keys over all time stay."""
    p = properties(node.input)
    moved = node.hop == 1 and node.length is None  # the whole stream, earlier or later
    exact = node.length if node.length is not None else (p.lifetime if node.hop == 1 else None)
    apart = node.hop == 1 and p.no_duplicates
    return Properties(
        insert_only=p.insert_only,
        ordered=p.ordered,
        chronon=node.length == 1 or (moved and p.chronon),
        lifetime=exact,
        end_ordered=node.length is not None or p.end_ordered,
        no_duplicates=apart,
        # of one instant and all different: whole rows are a key
        keys=p.keys if moved else (frozenset({frozenset(node.schema.names)}) if apart and node.length == 1 else _NONE),
        history_keys=p.history_keys,
    )


def _deletes(p: Properties) -> Properties:
    """Every event starts at its old end and lives for ever."""
    return Properties(
        insert_only=p.insert_only,
        ordered=p.ordered and p.end_ordered,
        lifetime=INF,
        history_keys=p.history_keys,
    )
