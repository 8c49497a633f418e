"""Sanity: state that no progress of time can bound, named before a plan starts.

    unbounded(node) -> every place in the plan where state grows for ever, and why
    require_bounded(node)    refuses the plan if one of them is fatal

Promises free state as lifetimes end.  A row that lives for ever is never freed, and if such rows keep coming, whoever
must remember them grows without end.  So the plan is walked from the sources with two facts per node: whether its
input ends (relations do, streams do not), and whether it *piles up*: rows that never end keep coming.  UNBOUNDED
windows, Inserts, Deletes and a LENGTH without end make rows pile up; RANGE, NOW and the CQL operators take
lifetimes as they are or end them.  What each operator remembers, and until when, is the table of operators in
docs/operators.md; an operator is listed here where that table has a row waiting for an end that never comes.

Punctuation frees rows that never end, too: where what is declared (PUNCTUATE, also GIVEN) reaches the operator, nothing
grows (`plan/sanity/needs.py`).  Lifetimes that come with the data are taken for finite.

What this is not: an estimate of how much is kept (a window of a year passes), nor a proof that sources make progress
(`waits_for` tells why nothing comes out).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream, node_of
from everwhen.algebra.explain import describe, tree
from everwhen.core.time import INF
from everwhen.errors import QueryError
from everwhen.plan.sanity.needs import Need, answer_need, needs
from everwhen.plan.sanity.wording import remedy

_FOLDED: Final = ("count", "sum", "avg", "stddev", "stddev_pop", "variance", "variance_pop")
"""Aggregates that fold a row into an accumulator; all others look at the rows that are alive."""

_ALLOW: Final = "run it all the same with --allow-unbounded"
_NO_PUNCTUATION: Final = "instants"
"""A side that has no need: what lives for ever has no last instant, whatever is promised."""
_WINDOW: Final = "give {} a window that ends, such as WINDOW(RANGE 1 HOUR)"


_Finding = tuple[str, str, bool]
"""Why, the remedy, whether it is fatal."""

_Kept = tuple[str, _Finding]
"""Which side of the operator keeps it, if that matters, and what is found."""


@dataclass(frozen=True, slots=True)
class Unbounded:
    """A place where state grows for ever.

    `line` is the operator's line in EXPLAIN's plan, counted from 1; `side` is the input of a join that it keeps.
    """

    node: n.Node
    operator: str
    line: int
    why: str
    remedy: str
    fatal: bool
    side: str = ""

    def __str__(self) -> str:
        return f"{self.operator} (line {self.line} of the plan): {self.why}. Remedy: {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Growth:
    """What is known of a node's rows.

    `ends`: its sources are finite, so its promise is soon complete.  `origin`: the node that makes rows live for ever,
    if they pile up.
    """

    ends: bool
    origin: n.Node | None = None

    @property
    def piles_up(self) -> bool:
        return self.origin is not None and not self.ends


def unbounded(root: n.Node, punctuated: bool = True) -> tuple[Unbounded, ...]:
    """Where state grows for ever, in the order of the plan's text; empty if nothing does.

    Without `punctuated`, where it would if none of the declared punctuation came.
    """
    found: list[tuple[n.Node, _Kept]] = []
    grown = _grown(root)
    needed = needs(root)
    for node in n.walk(root):
        inputs = [grown[id(child)] for child in node.inputs]
        kept = _findings(node, inputs)
        found += [(node, each) for each in _not_freed(kept, needed.get(id(node), ()), punctuated)]
    answer = grown[id(root)]
    if answer.piles_up and not any(fatal for _, (_, (_, _, fatal)) in found):
        why = f"the answer itself grows for ever ({_named(answer)}), and what has been said is kept to be corrected"
        said = ("", (why, f"if that is not wanted, {_window(answer)}", False))
        found += [(root, each) for each in _not_freed([said], [answer_need(root)], punctuated)]
    at = {id(line.node): number for number, line in reversed(list(enumerate(tree(root), 1)))}
    entries = [Unbounded(node, describe(node), at[id(node)], *finding, side) for node, (side, finding) in found]
    return tuple(sorted(entries, key=lambda entry: (entry.line, not entry.fatal)))


def require_bounded(query: Stream | n.Node, allow: bool = False) -> tuple[Unbounded, ...]:
    """Refuse a query whose state grows without bound, unless that is allowed; return what is left to warn about.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string"})
    >>> ew.require_bounded(s.range("1 hour").distinct())
    ()
    >>> ew.require_bounded(s.unbounded().distinct())
    Traceback (most recent call last):
    ...
    everwhen.errors.QueryError: the state of this query grows without bound:
    ...
    """
    found = unbounded(node_of(query))
    fatal = [entry for entry in found if entry.fatal]
    if fatal and not allow:
        places = "\n".join(f"  {entry}" for entry in fatal)
        raise QueryError(f"the state of this query grows without bound:\n{places}")
    return tuple(entry for entry in found if allow or not entry.fatal)


# -- how long rows live ------------------------------------------------------------------------------------------------


def _grown(root: n.Node) -> dict[int, _Growth]:
    """The growth of every node's rows.  What a loop reads of itself grows as the loop does: tried from its base on,
    until it is so."""
    bases = {loop.token: loop.base for loop in n.walk(root) if isinstance(loop, n.Fixpoint)}
    loops: dict[n.LoopToken, _Growth] = {}
    while True:
        grown: dict[int, _Growth] = {}
        found: dict[n.LoopToken, _Growth] = {}
        for node in n.walk(root):
            if isinstance(node, n.Recursion):
                grown[id(node)] = loops.get(node.token) or grown[id(bases[node.token])]
                continue
            grown[id(node)] = _grow(node, [grown[id(child)] for child in node.inputs])
            if isinstance(node, n.Fixpoint):
                found[node.token] = grown[id(node)]
        if found == loops:
            return grown
        loops = found


def _grow(node: n.Node, inputs: list[_Growth]) -> _Growth:
    """The growth of a node's rows, from its inputs'."""
    ends = all(growth.ends for growth in inputs)
    origin = next((growth.origin for growth in inputs if growth.piles_up), None)
    match node:
        case n.Values():
            return _Growth(ends=True)
        case n.Source(kind=kind):
            return _Growth(ends=kind in ("constant", "temporal"))
        case n.Exchange():
            return _Growth(ends=False)
        case n.TimeWindow(_, size, _) if size == INF:
            return _Growth(ends, node)
        case n.AlterLifetime(_, _, _, length) if length is not None:
            return _Growth(ends, node if length == INF else None)
        case n.Deletes():
            return _Growth(ends, node)
        case n.Aggregate(keys=()) | n.RowsWindow() | n.RelationToStream():
            # one row at a time; the last rows only (those of many partitions are warned of there); single instants
            return _Growth(ends)
        case n.Join():
            return _Growth(ends, _of_pairs(node, *inputs))
        case n.SetOperation(kind=kind) if kind != "max_union":
            left, right = inputs
            both = left.piles_up and (right.piles_up or right.ends or kind != "intersect")
            return _Growth(ends, left.origin if both else None)
    return _Growth(ends, origin)


def _of_pairs(node: n.Join, left: _Growth, right: _Growth) -> n.Node | None:
    """A pair ends with the first of its rows; rows of a relation may be there for ever, too."""
    if node.kind in ("semi", "anti", "left") and left.piles_up:
        return left.origin
    if node.kind == "full" and (left.piles_up or right.piles_up):
        return left.origin or right.origin
    if left.piles_up and (right.piles_up or right.ends):
        return left.origin
    return right.origin if right.piles_up and left.ends and node.kind not in ("semi", "anti") else None


# -- who must remember them --------------------------------------------------------------------------------------------


def _not_freed(found: Iterable[_Kept], needed: Sequence[Need], punctuated: bool) -> list[_Kept]:
    """What declared punctuation does not free; the remedies name the punctuation that would."""
    left: list[_Kept] = []
    for side, (why, help_, fatal) in found:
        need = next((need for need in needed if need.side == side), None)
        if punctuated and need is not None and need.met() is not None:
            continue
        helps = [help_, *([remedy(need)] if need is not None and need.ways else []), *([_ALLOW] if fatal else [])]
        left.append((side, (why, "; or ".join(helps), fatal)))
    return left


def _findings(node: n.Node, inputs: list[_Growth]) -> list[_Kept]:
    """Why the node's own state grows for ever, how to end that, and whether it is fatal."""
    match node:
        case n.Join():
            return _join(node, *inputs)
        case n.Fixpoint():
            sides = [growth for growth in inputs if growth.piles_up and node.kind != "union all"]
            return [
                ("", _fatal(g, f"it keeps every row that follows from {_named(g)}, which never goes"))
                for g in sides[:1]
            ]
        case n.SetOperation():
            sides = [growth for growth in inputs if growth.piles_up]
            return [("", _fatal(g, f"it counts every row of {_named(g)}, which never goes")) for g in sides[:1]]
        case n.RowsWindow(partition=partition) if partition and not inputs[0].piles_up:
            if inputs[0].ends:
                return []
            columns = ", ".join(partition)
            why = f"it keeps the last rows of every {columns} that has ever come, since no time ends them"
            return [("", (why, f"fine if there are not too many values of {columns}; else partition by less", False))]
    if not inputs or not inputs[0].piles_up:
        return []
    growth, rows = inputs[0], _named(inputs[0])
    match node:
        case n.Aggregate(_, keys, aggregations):
            if keys:
                why = f"it keeps every {', '.join(keys)} of {rows}: a group stays while it has a row"
                return [("", _fatal(growth, why))]
            live = [a for a in aggregations if a.function not in _FOLDED]
            if live:
                why = f"{live[0]} keeps every row of {rows}, in case the best of them is taken back"
                return [("", _fatal(growth, why))]
        case n.Distinct():
            return [("", _fatal(growth, f"it keeps every different row of {rows}, which never goes"))]
        case n.MatchRecognize():
            why = f"it keeps every row of {rows}: a match may begin, go on or end there at any time"
            return [("", _fatal(growth, why))]
        case n.Rank():
            why = f"it keeps every row of {rows}: one that goes lets others move up"
            return [("", _fatal(growth, why))]
        case n.Over():
            return [("", _fatal(growth, f"it keeps every row of {rows}, which is a neighbour of others"))]
        case n.RelationToStream(_, kind):
            return [("", _fatal(growth, f"{kind} keeps every row of {rows}, to know when it goes"))]
        case n.Coalesce():
            why = f"it keeps every row of {rows}, which may be prolonged as long as it has not ended"
            return [("", _fatal(growth, why))]
        case n.Split() | n.RowsWindow():
            why = f"every instant of a lifetime is a row here, and those of {rows} have no end"
            return [(_NO_PUNCTUATION, _fatal(growth, why))]
    return []


def _join(node: n.Join, left: _Growth, right: _Growth) -> list[_Kept]:
    """A side is freed as far as the other side has come; rows without an end never are.  Beside a relation, which has
    come to its end at once, nothing of the stream is kept by an inner or a semi-join."""
    found: list[_Kept] = []
    outer = {"anti": (True, False), "left": (True, False), "full": (True, True)}.get(node.kind, (False, False))
    for name, side, other, answers_alone in (("left", left, right, outer[0]), ("right", right, left, outer[1])):
        if side.piles_up and (answers_alone or not other.ends):
            why = f"it keeps every row of its {name} side, {_named(side)}: no progress of the other side frees them"
            found.append((name, _fatal(side, why)))
        elif side.piles_up and node.kind in ("semi", "anti", "left", "full") and name == "right":
            found.append((name, _fatal(side, f"it keeps every partner of its right side, {_named(side)}")))
    return found


def _fatal(growth: _Growth, why: str) -> _Finding:
    return why, _window(growth), True


def _named(growth: _Growth) -> str:
    """The node that makes rows live for ever, with the sources that it stands on."""
    assert growth.origin is not None
    return f"'{describe(growth.origin)}' over {_sources(growth.origin)}"


def _window(growth: _Growth) -> str:
    assert growth.origin is not None
    return _WINDOW.format(_sources(growth.origin))


def _sources(node: n.Node) -> str:
    names = dict.fromkeys(each.name for each in n.walk(node) if isinstance(each, n.Source | n.Exchange))
    return " and ".join(names)
