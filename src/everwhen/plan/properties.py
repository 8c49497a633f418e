"""Properties of what a node says, which choose how its answer is brought out.

Each is derived from the node alone, and False is always safe: it costs work, not correctness.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.explain import describe
from everwhen.algebra.expressions.build import Column
from everwhen.algebra.properties.derive import properties
from everwhen.algebra.properties.properties import Properties
from everwhen.core.emit import Emit
from everwhen.errors import QueryError

Way = tuple[tuple[int, int], ...]
"""What AlterLifetime does to starts on the way from a source: (hop, shift), one after the other."""


def _sweeps(node: n.Node) -> bool:
    """Whether the node tells how its answer changes as time goes on, row by row."""
    match node:
        case n.Aggregate() | n.Distinct() | n.SetOperation():
            return True
        case n.Fixpoint(kind=kind):
            return kind != "union all"
        case n.RelationToStream(_, kind):
            return kind != "rstream"
    return False


def disjoint(node: n.Node) -> bool:
    """Whether within a step no two segments of a row overlap."""
    return disjoint(node.input) if isinstance(node, n.Filter | n.Punctuate) else _sweeps(node)


def one_row_per_group(node: n.Node) -> bool:
    """Whether the node's operator says which group a segment belongs to, and a group has one row at any instant."""
    match node:
        case n.Aggregate():
            return True
        case n.Filter(input) | n.Punctuate(input):
            return one_row_per_group(input)
    return False


def grouped(node: n.Node) -> bool:
    """Whether the node's answer is made of groups that each have their own pieces."""
    match node:
        case n.Aggregate(_, keys):
            return bool(keys)
        case n.Distinct() | n.SetOperation():
            return True
        case n.Join(kind="inner") | n.Fixpoint() | n.MatchRecognize() | n.Rank() | n.Over():
            return True
        case n.Filter(input) | n.Punctuate(input) | n.Map(input) | n.Unnest(input):
            return grouped(input)
    return False


def in_pieces(node: n.Node) -> bool:
    """Whether the node's events are pieces of lifetimes, cut to a longest length from their starts on."""
    if isinstance(node, n.Coalesce):
        return node.longest is not None
    return node.keeps_events and any(map(in_pieces, node.inputs))


def ahead(node: n.Node) -> bool:
    """Whether an event has pieces that start later than itself, so that saying them at once would break the order."""
    match node:
        case n.TimeWindow(input, size, _):
            return size > 1 and not instants(input)  # a chronon is one piece
        case n.Split(_, length):
            return length > 1
        case n.Filter(input) | n.Punctuate(input) | n.Map(input) | n.Unnest(input) | n.Granularity(input):
            return ahead(input)
    return False


def settled(node: n.Node) -> bool:
    """Whether, emitting `final`, the node says only what is settled, cut at its promise."""
    match node:
        case n.Aggregate() | n.Distinct() | n.SetOperation() | n.RelationToStream(_, "istream" | "dstream"):
            return True
        case n.Filter(input) | n.Punctuate(input) | n.Map(input) | n.Unnest(input):
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
        case (
            n.Filter(input)
            | n.Punctuate(input)
            | n.Map(input)
            | n.Unnest(input)
            | n.Split(input)
            | n.TimeWindow(input, 1, 1)
            | n.Granularity(input, 1)
        ):
            return instants(input)
        case n.Union(left, right):
            return instants(left) and instants(right)
        case n.Join(left, right, kind="inner"):  # the instants that two lifetimes have in common
            return instants(left) or instants(right)
        case n.Join(left, right, keys, partner_keys, None, kind="semi"):  # partners that are unique are met as they are
            return instants(left) or (instants(right) and bool(keys) and properties(right).unique_on(partner_keys))
        case n.Join(left, kind="semi"):
            return instants(left)
    return False


def left_open(node: n.Node) -> bool:
    """Whether, emitting `current`, the node says an open piece without an end if nothing but the sink follows it."""
    match node:
        case n.Filter(input) | n.Punctuate(input) | n.Map(input) | n.Unnest(input):
            return left_open(input)
        case n.Union(left, right):
            return left_open(left) or left_open(right)
    return _sweeps(node)


def heeds_policy(node: n.Node) -> bool:
    """Whether some operator of the node's plan says more or less by the policy that it is built for."""
    by_policy = n.Aggregate | n.Distinct | n.SetOperation | n.RowsWindow | n.Coalesce | n.Fixpoint
    return any(
        isinstance(each, by_policy)
        or (isinstance(each, n.RelationToStream) and each.kind != "rstream")
        or (isinstance(each, n.Join) and each.kind not in ("inner", "semi"))
        for each in n.walk(node)
    )


# --- what is emitted ----------------------------------------------------------------------------------------------


def emitted(node: n.Node, emit: Emit) -> Properties:
    """What is known of the stream that leaves the node under an emission policy.

    `properties` has the thesis's view: what an operator says when an answer is said as soon as it has ended.  `final`
    retracts nothing, whatever the input.  `current` and `all` emit what may change: there only events that pass one by
    one are never retracted, and come in order if those of the source do.
    """
    known = properties(node)
    match emit:
        case Emit.FINAL:
            return replace(known, insert_only=True)
        case Emit.ENDED:  # clipped at the output, rows end each at its own time
            return replace(known, ordered=known.ordered and (whole(node) or clipped_by(node) is not None))
    return replace(known, insert_only=_only_inserts(node), ordered=known.ordered and _in_order(node))


def _only_inserts(node: n.Node) -> bool:
    """Whether an insert at the sources leads to inserts only, at once and for ever."""
    match node:
        case n.Source():
            return node.insert_only
        case n.Values():
            return True
        case n.Filter() | n.Map() | n.Punctuate() | n.Union() | n.TimeWindow() | n.AlterLifetime() | n.Deletes():
            return all(map(_only_inserts, node.inputs))
        case n.Join(kind="inner") | n.Unnest():
            return all(map(_only_inserts, node.inputs))
        case n.Split(length=length):
            return (length > 1 or instants(node.input)) and _only_inserts(node.input)
    return False


def _in_order(node: n.Node) -> bool:
    """Whether the elements of the node come in the order of their starts if those of its source do."""
    match node:
        case n.Source():
            return node.in_order
        case n.Filter(input) | n.Map(input) | n.Punctuate(input) | n.AlterLifetime(input) | n.Unnest(input):
            return _in_order(input)
        case n.TimeWindow(input) | n.Split(input):
            return instants(input) and _in_order(input)  # else pieces that come later are said at once
    return False


# --- where `ended` is clipped -------------------------------------------------------------------------------------


def whole(node: n.Node) -> bool:
    """Whether the answer is made of the inputs' events one by one, so that `ended` says them whole, as they come.

    Not so a join, though its lifetimes follow from the inputs': it has state, and where there is state an ordered
    stream, retractions included, leads to no corrections.
    """
    match node:
        case n.Aggregate() | n.Distinct() | n.SetOperation() | n.RowsWindow() | n.Coalesce() | n.Join() | n.LMerge():
            return False
        case n.Fixpoint() | n.MatchRecognize() | n.Rank() | n.Over():
            return False
        case n.RelationToStream(_, "istream" | "dstream"):
            return False
        case n.RelationToStream(input) | n.Split(input, 1) if not properties(input).chronon:
            return False
        case n.Exchange(whole=known):  # else a stage below may have said the future
            return known
    return all(whole(each) for each in node.inputs)


def clipped_by(node: n.Node) -> frozenset[str] | None:
    """The columns that tell at which time `ended` clips a row, if the node's own operator clips its answer.

    Whoever says a row up to one time that never goes back says no more than if he said all of it: the argument is in
    `docs/papers.md`.  So a map that merges rows which are clipped at different times must not stand above the clip.
    """
    match node:
        case n.Aggregate(_, keys):
            return frozenset(keys)
        case n.Filter(input) | n.Punctuate(input) | n.Unnest(input):
            return clipped_by(input)
        case n.Map(input, columns):
            below = clipped_by(input)
            kept = {expr.name: name for name, expr in columns if isinstance(expr, Column)}
            return frozenset(kept[name] for name in below) if below is not None and below <= kept.keys() else None
        case n.Distinct() | n.SetOperation() | n.RelationToStream(_, "istream" | "dstream") | n.Join(kind="anti"):
            return frozenset(node.schema.names)
        case n.RelationToStream(input) | n.Split(input, 1) if not properties(input).chronon:
            return frozenset(node.schema.names)
        case n.RowsWindow() | n.Coalesce() if all(map(whole, node.inputs)):
            return frozenset(node.schema.names)
    return None


def passed_on(node: n.Node) -> bool:
    """Whether the node is what another stage has said, perhaps filtered, mapped, put together: it was clipped there."""
    match node:
        case n.Exchange():
            return True
        case n.Filter() | n.Punctuate() | n.Map() | n.Union() | n.Unnest():
            return all(passed_on(each) for each in node.inputs)
    return False


def moves(node: n.Node) -> tuple[Way, ...]:
    """How AlterLifetime moves starts on each way from the node down to its sources; nothing if there is none."""
    ways = _ways(node)
    return tuple(sorted(ways)) if any(ways) else ()


def _ways(node: n.Node) -> set[Way]:
    if isinstance(node, n.Recursion):
        return set()  # it begins where the loop does
    below: set[Way] = {way for each in node.inputs for way in _ways(each)} if node.inputs else {()}
    if isinstance(node, n.AlterLifetime) and (node.hop, node.shift) != (1, 0):
        return {(*way, (node.hop, node.shift)) for way in below}
    return below


def require_alike(known: n.Source, node: n.Source) -> None:
    """QueryError unless two sources of one name are declared alike, in what their guard checks."""
    if known is node:
        return
    if known.columns != node.columns:
        raise QueryError(f"the source {node.name!r} is used with two schemas: {known.columns} and {node.columns}")
    if _checked(known) != _checked(node):
        raise QueryError(
            f"the source {node.name!r} is declared in two ways, {describe(known)!r} and {describe(node)!r}; "
            "its declaration is the same in all queries, and stays as it was where another query takes over"
        )


def _checked(source: n.Source) -> tuple[object, ...]:
    return source.insert_only, source.chronons, source.schemes, source.arrives, source.policy
