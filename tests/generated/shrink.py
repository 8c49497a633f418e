"""The smallest case that still fails: queries, parts of queries, elements, epochs are taken away as long as it fails.

What a smaller case must keep: it is legal (the stream by the model's own check, the query by both languages), and it
still fails in the same manner, wrong rows or an error.  Delta debugging: first large parts, then small ones, again and
again until nothing more can go.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.validity import check
from generated.cases import LIMIT, TooLong, limited, verdict
from generated.judge import Judge
from generated.streams import SOURCES, World, in_bound
from generated.tables import Constants, Made
from generated.tree import Expr, Join, Lifetimes, Node, Query, Recursive, Select, SetOperation, Stage, With, literal
from generated.ways import Asked, Case, Outcome, run

Fails = Callable[[Case], str | None]
"""What is wrong with a case; None: nothing, or it is not legal."""


def failure(case: Case, limit: float = LIMIT) -> str | None:
    """What is wrong with a case's first query that is wrong."""
    judge = Judge(case.world)
    try:
        with limited(limit * len(case.asked)):
            outcomes = run(case)
    except TooLong as error:
        outcomes = [Outcome("failed", str(error))]
    try:
        for at, outcome in enumerate(outcomes):
            what, why = verdict(case, at, outcome, judge)
            if what == "failed":
                return why
        return None
    finally:
        judge.close()


def smallest(case: Case, what: str, fails: Fails = failure, seconds: float = 300.0) -> tuple[Case, str]:
    """A smaller case that fails as this one does, and what is wrong with it; as small as the CPU time allows."""
    kind = _kind(what)
    until = time.process_time() + seconds
    changed = True
    while changed:
        changed = False
        for shorter in (_fewer_queries, _smaller_streams, _smaller_queries, _calmer):
            at = 0  # what stood before this place did not help; what has become smaller is tried here again
            while (candidate := next(islice(shorter(case), at, None), None)) is not None:
                if time.process_time() > until:
                    return case, what
                at += 1
                if not _legal(candidate.world):
                    continue
                found = fails(candidate)
                if found is not None and _kind(found) == kind:
                    case, what, changed = candidate, found, True
                    at -= 1
    return case, what


def _kind(what: str) -> str:
    if what.startswith("at "):
        return "rows"
    if what.startswith("more than"):
        return "time"
    return what.strip().splitlines()[-1].split(":")[0][:40]


def _legal(world: World) -> bool:
    names = {name for epoch in world.epochs for name, _ in epoch}
    bounds = all(in_bound(world.elements(name), SOURCES[name].within) for name in names)
    return bounds and all(check(world.elements(name), SOURCES[name].schema).first_offence is None for name in names)


# -- cases -------------------------------------------------------------------------------------------------------------


def _fewer_queries(case: Case) -> Iterator[Case]:
    if len(case.asked) > 1:
        for at in range(len(case.asked)):
            yield case.alone(at)
        for at in range(len(case.asked)):
            yield replace(case, asked=(*case.asked[:at], *case.asked[at + 1 :]))


def _calmer(case: Case) -> Iterator[Case]:
    for at, asked in enumerate(case.asked):
        if asked.joins:
            yield replace(case, asked=(*case.asked[:at], replace(asked, joins=0), *case.asked[at + 1 :]))
    for at in range(len(case.restores)):
        yield replace(case, restores=(*case.restores[:at], *case.restores[at + 1 :]))
    if case.optimize:
        yield replace(case, optimize=False)
    if case.way == "run" and case.emit not in ("current", "final"):
        yield replace(case, emit="current")
    if case.way == "run" and case.batch != 1000:
        yield replace(case, batch=1000)


# -- streams -----------------------------------------------------------------------------------------------------------


def _smaller_streams(case: Case) -> Iterator[Case]:
    world = case.world
    used = {stage.of for asked in case.asked for stage in asked.query.walk() if isinstance(stage, Stage)}
    if any(name not in used for epoch in world.epochs for name, _ in epoch):
        yield replace(case, world=_without(world, lambda source, _e: source not in used))
    for at in range(len(world.epochs)):
        yield replace(case, world=World((*world.epochs[:at], *world.epochs[at + 1 :])))
    groups = list(dict.fromkeys(_event(name, each) for epoch in world.epochs for name, part in epoch for each in part))
    size = len(groups) // 2
    while size >= 1:
        for at in range(0, len(groups), size):
            gone = set(groups[at : at + size])
            yield replace(case, world=_without(world, lambda s, e, gone=gone: _event(s, e) in gone))
        size //= 2
    for at in range(len(world.epochs) - 1):
        merged = _merged(world.epochs[at], world.epochs[at + 1])
        yield replace(case, world=World((*world.epochs[:at], merged, *world.epochs[at + 2 :])))
    yield from (replace(case, world=each) for each in _calmer_events(world))


def _event(source: str, element: Element) -> tuple[Any, ...]:
    """What belongs together: the elements of one event; each promise by itself."""
    if isinstance(element, Insert | Adjust):
        return source, element.vs, tuple(element.row.items())
    return source, str(element)


def _without(world: World, gone: Callable[[str, Element], bool]) -> World:
    epochs = []
    for epoch in world.epochs:
        kept = [(name, tuple(each for each in part if not gone(name, each))) for name, part in epoch]
        epochs.append(tuple((name, part) for name, part in kept if part))
    return World(tuple(epoch for epoch in epochs if epoch))


def _merged(a: Sequence[tuple[str, Any]], b: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    both = dict(a)
    for name, part in b:
        both[name] = (*both.get(name, ()), *part)
    return tuple(both.items())


def _calmer_events(world: World) -> Iterator[World]:
    """An event that is right at once, in place of one that is corrected."""
    for at, epoch in enumerate(world.epochs):
        for source, part in epoch:
            for element in part:
                if isinstance(element, Adjust):
                    key = _event(source, element)
                    chain_ = [
                        e for n, e in ((n, e) for ep in world.epochs for n, p in ep for e in p) if _event(n, e) == key
                    ]
                    inserts = [e for e in chain_ if isinstance(e, Insert)]
                    if len(inserts) == 1 and chain_[-1] is element and element.vnew > element.vs:
                        right = Insert(element.vs, element.vnew, element.row)
                        yield _with(_without(world, lambda s, e, key=key: _event(s, e) == key), at, source, right)


def _with(world: World, at: int, source: str, element: Element) -> World:
    epochs = list(world.epochs)
    at = min(at, len(epochs) - 1)
    if at < 0:
        return World((((source, (element,)),),))
    parts = dict(epochs[at])
    parts[source] = (element, *parts.get(source, ()))
    return World((*epochs[:at], tuple(parts.items()), *epochs[at + 1 :]))


# -- queries -----------------------------------------------------------------------------------------------------------


def _smaller_queries(case: Case) -> Iterator[Case]:
    for at, asked in enumerate(case.asked):
        for query in smaller(asked.query):
            if isinstance(query, Query) and fits(query):
                new = Asked(query, asked.joins)
                yield replace(case, asked=(*case.asked[:at], new, *case.asked[at + 1 :]))


def smaller(node: Node) -> Iterator[Node]:
    """The node with one thing less, large things first; most of them are legal."""
    yield from _itself(node)
    for each in dataclasses.fields(node):
        value = getattr(node, each.name)
        if isinstance(value, Node):
            for less in smaller(value):
                yield replace(node, **{each.name: less})
        elif isinstance(value, tuple):
            for at, part in enumerate(value):
                if isinstance(part, Node):
                    for less in smaller(part):
                        yield replace(node, **{each.name: (*value[:at], less, *value[at + 1 :])})


def fits(query: Query) -> bool:
    """Whether columns still agree where they must: under an alias with names, on both sides of a set."""
    for node in query.walk():
        match node:
            case Stage(Query() as of, _, names, types):
                if of.types != node.own or len(names) != len(types):
                    return False
            case SetOperation(_, left, right):
                mixed = [{a, b} <= {"i", "f"} or a == b for a, b in zip(left.types, right.types, strict=False)]
                if len(left.types) != len(right.types) or not all(mixed):
                    return False
    return True


def _itself(node: Node) -> Iterator[Node]:
    match node:
        case Expr():
            for part in node.parts:
                if isinstance(part, Expr) and part.type == node.type:
                    yield part
            if node.parts:
                yield literal(node.type)
        case SetOperation():
            yield node.left
            yield node.right
        case With():
            yield node.body
            yield node.query
        case Recursive():
            yield node.base
        case Join():
            yield node.left
            yield node.right
            if node.kind not in ("cross", "comma") and node.using:
                for at in range(len(node.using)):
                    if len(node.using) > 1:
                        yield replace(node, using=(*node.using[:at], *node.using[at + 1 :]))
            if node.kind not in ("inner", "cross", "comma"):
                yield replace(node, kind="asof" if node.kind == "asof left" else "inner")
        case Made():
            yield node.source
        case Constants():
            for at in range(len(node.rows) if len(node.rows) > 1 else 0):
                yield replace(node, rows=(*node.rows[:at], *node.rows[at + 1 :]))
        case Stage():
            yield from _smaller_stages(node)
        case Select():
            yield from _smaller_selects(node)


def _smaller_stages(node: Stage) -> Iterator[Node]:
    if not node.lifetimes.plain:
        yield replace(node, lifetimes=Lifetimes())
        for name, none in (("around", None), ("window", None), ("granularity", 0), ("lifetime", None)):
            less = replace(node.lifetimes, **{name: none})
            if name == "window":
                less = replace(less, partition=())
            if less != node.lifetimes:
                yield replace(node, lifetimes=less)
        if node.lifetimes.partition:
            yield replace(node, lifetimes=replace(node.lifetimes, partition=()))
    if isinstance(node.of, Query):
        # the same columns by the simplest of queries
        for name in "AC":
            source = SOURCES[name]
            inner = Stage(name, f"{node.alias}i", source.names, source.types)
            by_type = {type_: Expr(f"{inner.alias}.{column}", type_) for column, type_ in reversed(source.columns)}
            items = tuple(by_type.get(type_, literal(type_)) for type_ in node.types)
            simple = Select(items, inner)
            if simple != node.of and sum(1 for _ in node.of.walk()) > sum(1 for _ in simple.walk()):
                yield replace(node, of=simple)
        if isinstance(node.of, Select) and isinstance(node.of.source, Stage):
            yield replace(node.of.source, alias=node.alias)


def _smaller_selects(node: Select) -> Iterator[Node]:
    for each in _below(node.source):
        if isinstance(each.of, Query) and each.lifetimes.plain:
            yield each.of
    if node.where is not None:
        yield replace(node, where=None)
    if node.having is not None:
        yield replace(node, having=None)
    if node.distinct:
        yield replace(node, distinct=False)
    if node.star:
        yield replace(node, star=False)
    if len(node.keys) > 1:
        for at in range(len(node.keys)):
            yield replace(node, keys=(*node.keys[:at], *node.keys[at + 1 :]))
    if len(node.items) > 1 and not node.star:
        for at in range(len(node.items)):
            yield replace(node, items=(*node.items[:at], *node.items[at + 1 :]))


def _below(node: Node) -> Iterable[Stage]:
    return (each for each in node.walk() if isinstance(each, Stage))


def is_promise(element: Element) -> bool:
    return isinstance(element, Cti | Punct)
