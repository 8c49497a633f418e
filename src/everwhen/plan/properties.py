"""Properties of what a node says, which choose how its answer is brought out.

Each is derived from the node alone, and False is always safe: it costs work, not correctness.
"""

from __future__ import annotations

from everwhen.algebra import nodes as n
from everwhen.algebra.properties import properties


def disjoint(node: n.Node) -> bool:
    """Whether within a step no two segments of a row overlap."""
    match node:
        case n.Aggregate() | n.Distinct() | n.SetOperation():
            return True
        case n.RelationToStream(_, kind):
            return kind != "rstream"
        case n.Filter(input):
            return disjoint(input)
    return False


def one_row_per_group(node: n.Node) -> bool:
    """Whether the node's operator says which group a segment belongs to, and a group has one row at any instant."""
    match node:
        case n.Aggregate():
            return True
        case n.Filter(input):
            return one_row_per_group(input)
    return False


def grouped(node: n.Node) -> bool:
    """Whether the node's answer is made of groups that each have their own pieces."""
    match node:
        case n.Aggregate(_, keys):
            return bool(keys)
        case n.Distinct() | n.SetOperation():
            return True
        case n.Join(kind="inner"):
            return True
        case n.Filter(input) | n.Map(input):
            return grouped(input)
    return False


def ahead(node: n.Node) -> bool:
    """Whether an event has pieces that start later than itself, so that saying them at once would break the order."""
    match node:
        case n.TimeWindow(input, size, _):
            return size > 1 and not instants(input)  # a chronon is one piece
        case n.Split(_, length):
            return length > 1
        case n.Filter(input) | n.Map(input) | n.Granularity(input):
            return ahead(input)
    return False


def settled(node: n.Node) -> bool:
    """Whether, emitting `final`, the node says only what is settled, cut at its promise."""
    match node:
        case n.Aggregate() | n.Distinct() | n.SetOperation() | n.RelationToStream(_, "istream" | "dstream"):
            return True
        case n.Filter(input) | n.Map(input):
            return settled(input)
        case n.RelationToStream(input) | n.Split(input, 1):  # chronons are passed on as they come
            return settled(input) or not properties(input).chronon
    return False


def instants(node: n.Node) -> bool:
    """Whether every segment that the node's operator says covers a single instant.

    Narrower than the property `chronon`: sweeps put the pieces of equal rows together, and so does netting.
    """
    match node:
        case n.Source(chronons=chronons):
            return chronons
        case n.RelationToStream(_, "rstream") | n.Split(_, 1):
            return True
        case n.Filter(input) | n.Map(input) | n.Split(input) | n.TimeWindow(input, 1, 1) | n.Granularity(input, 1):
            return instants(input)
        case n.Union(left, right):
            return instants(left) and instants(right)
        case n.Join(left, right, kind="inner"):  # the instants that two lifetimes have in common
            return instants(left) or instants(right)
        case n.Join(left, kind="semi"):
            return instants(left)
    return False


def left_open(node: n.Node) -> bool:
    """Whether, emitting `current`, the node says an open piece without an end if nothing but the sink follows it."""
    match node:
        case n.Aggregate() | n.Distinct() | n.SetOperation():
            return True
        case n.RelationToStream(_, kind):
            return kind != "rstream"
        case n.Filter(input) | n.Map(input):
            return left_open(input)
        case n.Union(left, right):
            return left_open(left) or left_open(right)
    return False
