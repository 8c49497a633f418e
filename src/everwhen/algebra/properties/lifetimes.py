"""How windows and other operators on lifetimes change what is known of a stream."""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.properties.keys import (
    Key,
)
from everwhen.algebra.properties.properties import NO_KEYS, Properties
from everwhen.core.time import INF


def time_window(p: Properties, size: int, slide: int) -> Properties:
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
        history_keys=p.history_keys if p.chronon else NO_KEYS,
    )


def rows_window(p: Properties, rows: int, slide: int, partition: Key) -> Properties:
    """Rows leave in the order in which they came; the last one of a partition is the only one of it."""
    return Properties(
        insert_only=p.perfect,
        ordered=p.ordered and not partition,
        end_ordered=not partition,
        no_duplicates=p.no_duplicates and p.chronon and slide == 1,
        keys=frozenset({partition}) if rows == 1 else NO_KEYS,
        history_keys=p.history_keys if p.chronon else NO_KEYS,
    )


def granularity(p: Properties, granule: int) -> Properties:
    """Starts and ends are rounded up: their order stays, and every snapshot is one of the input's."""
    if granule == 1:
        return p
    length = p.lifetime
    if length == 1:
        length = granule  # what is alive at a multiple of the granule, until the next; the rest is gone
    elif length is not None and length != INF and length % granule:
        length = None
    return replace(p, chronon=False, lifetime=length, no_duplicates=False)


def relation_to_stream(p: Properties, kind: str, columns: Key) -> Properties:
    if kind == "rstream":
        return split(p, 1)
    # as many rows come at an instant as events start there, at most; as many go as were there
    once = p.no_duplicates if kind == "istream" else bool(p.keys)
    return Properties(
        insert_only=p.perfect,
        ordered=p.ordered,
        chronon=True,
        keys=frozenset({columns}) if once else NO_KEYS,
        history_keys=p.history_keys,
    )


def split(p: Properties, length: int) -> Properties:
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
        history_keys=p.history_keys if p.chronon else NO_KEYS,
    )


def coalesce(p: Properties, longest: int | None) -> Properties:
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
        history_keys=p.history_keys if fits else NO_KEYS,
    )


def alter_lifetime(node: n.AlterLifetime, p: Properties) -> Properties:
    """Starts move in order.  New ends may let events meet that had not met, so only keys over all time stay."""
    moved = node.hop == 1 and node.length is None  # the whole stream, earlier or later
    exact = node.length if node.length is not None else (p.lifetime if node.hop == 1 else None)
    apart = node.hop == 1 and p.no_duplicates
    # of one instant and all different: whole rows are a key
    whole_rows = frozenset({frozenset(node.schema.names)}) if apart and node.length == 1 else NO_KEYS
    return Properties(
        insert_only=p.insert_only,
        ordered=p.ordered,
        chronon=node.length == 1 or (moved and p.chronon),
        lifetime=exact,
        end_ordered=node.length is not None or p.end_ordered,
        no_duplicates=apart,
        keys=p.keys if moved else whole_rows,
        history_keys=p.history_keys,
    )


def deletes(p: Properties) -> Properties:
    """Every event starts at its old end and lives for ever."""
    return Properties(
        insert_only=p.insert_only,
        ordered=p.ordered and p.end_ordered,
        lifetime=INF,
        history_keys=p.history_keys,
    )
