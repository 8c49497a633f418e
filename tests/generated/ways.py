"""The ways to run a case in process, and the comparison with what DuckDB says.

A case is one world, its queries, and how they are run: `run` (each query alone, with a policy, optimised or not),
`sessions` (all in one session, which they join at given epochs), `restore` (the same, and the session is thrown away
and taken up again from its snapshot after given epochs; and each query alone, in the same manner), `migrate` (the same,
and before every epoch each query goes over from the plan as written to the rewritten one, or back; and each query
alone, in a local runtime, in the same manner).
"""

from __future__ import annotations

import pickle
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import LoopError, QueryError, SqlError
from everwhen.language.program import program
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rewrite.rule_order import SHARING_RULES
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.testing import check
from generated.judge import Answers, comparable
from generated.lifetimes import FIRST, LAST
from generated.streams import CATALOG, SOURCES, World
from generated.tree import OURS, Query

EMITS = ("final", "ended", "current", "all")
WAYS = ("run", "sessions", "restore", "migrate", "spark")


@dataclass(frozen=True)
class Asked:
    """A query of a case; `joins` is the epoch before which it joins a session."""

    query: Query
    joins: int = 0


@dataclass(frozen=True)
class Case:
    way: str
    world: World
    asked: tuple[Asked, ...]
    emit: str = "current"
    optimize: bool = True
    batch: int = 1000
    restores: tuple[int, ...] = ()

    def alone(self, at: int) -> Case:
        return replace(self, asked=(self.asked[at],))


@dataclass(frozen=True)
class Outcome:
    """What came of one query: `ran`, `refused` (with the reason), `failed` (with what is wrong)."""

    what: str
    text: str = ""
    said: tuple[Element, ...] = ()
    since: int = FIRST


def plan(query: Query, optimize: bool, sharing: bool = False) -> ew.Stream:
    text = query.sql(OURS)
    found = program(text, CATALOG).query
    node = found.node
    if optimize:
        node = (rewrite(node, SHARING_RULES) if sharing else rewrite(node)).node
    try:
        return replace(found, node=legal_loops(node))
    except LoopError as error:
        raise error.within(text) from None


def reads(query: ew.Stream) -> set[str]:
    return {node.name for node in walk(query.node) if isinstance(node, Source)}


def run(case: Case) -> list[Outcome]:
    """One outcome per query; `ran` means without an error, not that it is right."""
    match case.way:
        case "run":
            return [_guarded(_run, case, asked) for asked in case.asked]
        case "sessions" | "restore" | "migrate":
            if len(case.asked) == 1 and case.way == "restore" and case.asked[0].joins == 0 and case.batch == 1:
                return [_guarded(_restored, case, case.asked[0])]
            if len(case.asked) == 1 and case.way == "migrate" and case.asked[0].joins == 0 and case.batch == 1:
                return [_guarded(_replanned, case, case.asked[0])]
            return _session(case)
    raise ValueError(f"{case.way} is no way; there are {', '.join(WAYS)}")


def _guarded(how: Any, case: Case, asked: Asked) -> Outcome:
    try:
        query = plan(asked.query, case.optimize)
    except SqlError as error:
        return Outcome("refused", _first_line(error))
    except Exception:
        return Outcome("failed", traceback.format_exc(limit=-3))
    try:
        return Outcome("ran", said=tuple(how(case, query)))
    except Exception as error:
        return _ended(error, traceback.format_exc(limit=-3))


def _ended(error: BaseException | None, words: str) -> Outcome:
    """What an error while a query runs means: an answer that changes for ever has no end, else it is a failure."""
    if isinstance(error, QueryError) and "changes for ever" in str(error):
        return Outcome("refused", "the answer changes for ever")
    return Outcome("failed", words)


def _first_line(error: Exception) -> str:
    """A message without its place, and without what is particular to this query."""
    return str(error).splitlines()[0].split(": ", 1)[-1]


def _run(case: Case, query: ew.Stream) -> Iterable[Element]:
    inputs = {name: case.world.elements(name) for name in reads(query)}
    return list(ew.run(query, inputs, emit=case.emit, batch=case.batch))


def _restored(case: Case, query: ew.Stream) -> Iterable[Element]:
    """The local runtime, from snapshot to snapshot."""
    runtime = LocalRuntime(query, case.emit)
    said: list[Element] = []
    wanted = reads(query)
    for at, epoch in enumerate(case.world.batches()):
        if at in case.restores:
            state = pickle.dumps(runtime.snapshot())
            runtime = LocalRuntime(query, case.emit)
            runtime.restore(pickle.loads(state))
        said += runtime.push({name: batch for name, batch in epoch.items() if name in wanted})["out"].elements()
    said += runtime.close()["out"].elements()
    return said


def _replanned(case: Case, query: ew.Stream) -> Iterable[Element]:
    """The local runtime, which goes over to the other plan before every epoch where that can join: what
    `run --replan-every 1` does; from snapshot to snapshot."""
    now, other = query, plan(case.asked[0].query, not case.optimize)
    runtime = LocalRuntime(now, case.emit, keep_relations=True)
    said: list[Element] = []
    wanted = reads(query)
    if reads(other) != wanted:
        other = query
    for at, epoch in enumerate(case.world.batches()):
        with suppress(QueryError):  # the past that it needs is not kept, its rows are promised, or it goes over still
            runtime.migrate(other)
            now, other = other, now
        if at in case.restores:
            state = pickle.dumps(runtime.snapshot())
            left = None if runtime.migrating is None else other
            runtime = LocalRuntime(now, case.emit, keep_relations=True)
            runtime.restore(pickle.loads(state), left)
        said += runtime.push({name: batch for name, batch in epoch.items() if name in wanted})["out"].elements()
    said += runtime.close()["out"].elements()
    return said


def _session(case: Case) -> list[Outcome]:
    """All queries in one session; anchors read every source from the start, so that its past is known."""
    found: dict[int, Outcome] = {}
    running: dict[str, ew.Stream | tuple[ew.Stream, ew.Stream]] = {}
    others: dict[str, ew.Stream] = {}
    for name in sorted({name for epoch in case.world.epochs for name, _ in epoch}):
        running[f"anchor {name}"] = SOURCES[name].stream
    session = Session(emit=case.emit)
    for name, query in running.items():
        assert not isinstance(query, tuple)
        session.register(name, query)
    since: dict[int, int] = {}
    said: dict[int, list[Element]] = {}
    migrated: list[str] = []

    def join(epoch: int) -> None:
        for at, asked in enumerate(case.asked):
            if min(asked.joins, len(case.world.epochs)) != epoch:
                continue
            try:
                query = plan(asked.query, case.optimize, sharing=True)
            except SqlError as error:
                found[at] = Outcome("refused", _first_line(error))
                continue
            except Exception:
                found[at] = Outcome("failed", traceback.format_exc(limit=-3))
                continue
            try:
                since[at] = session.register(f"q{at}", query).valid_from
            except QueryError as error:
                late = "cannot join now" in str(error)
                found[at] = Outcome("refused", "cannot join now") if late else Outcome("failed", str(error))
                continue
            except Exception:
                found[at] = Outcome("failed", traceback.format_exc(limit=-3))
                continue
            running[f"q{at}"] = query
            others[f"q{at}"] = plan(asked.query, not case.optimize, sharing=True)
            said[at] = []

    def migrate() -> None:
        """Each query goes over to its other plan, where that is possible."""
        for at in said:
            name, query = f"q{at}", running[f"q{at}"]
            if isinstance(query, tuple) and not session.is_replaced(name):
                query = running[name] = query[1]
            if not isinstance(query, tuple):
                with suppress(QueryError):  # the past that it needs is not kept, or its rows are promised
                    session.migrate(name, others[name])
                    migrated.append(name)
                    running[name], others[name] = (query, others[name]), query

    def take(heard: Mapping[str, Any]) -> None:
        for at in list(said):
            if f"q{at}" not in heard:
                error = session.query(f"q{at}").error
                found[at] = _ended(error, str(error))
                del said[at]
            else:
                said[at] += heard[f"q{at}"].elements()

    for epoch, batches in enumerate(case.world.batches()):
        join(epoch)
        if case.way == "migrate":
            migrate()
        if epoch in case.restores:
            state = pickle.dumps(session.snapshot())
            now = {name: each[-1] if isinstance(each, tuple) and not session.is_replaced(name) else each
                   for name, each in running.items()}  # fmt: skip
            session = Session(emit=case.emit)
            session.restore(pickle.loads(state), now)
        take(session.push(batches))
    join(len(case.world.epochs))
    take(session.close())
    for at, elements in said.items():
        text = f"{migrated.count(f'q{at}')} migrations" if case.way == "migrate" else ""
        found[at] = Outcome("ran", text, tuple(elements), since[at])
    return [found[at] for at in range(len(case.asked))]


# -- the comparison ----------------------------------------------------------------------------------------------------


def difference(outcome: Outcome, answers: Answers) -> str | None:
    """The first thing that is wrong with what a query said; None if nothing is."""
    report = check(list(outcome.said))
    if report.first_offence is not None:
        return f"the answer is not a valid stream: {report.first_offence}"
    if not outcome.said or report.closed_up_to != INF:
        return f"the answer is closed up to {report.closed_up_to} only"
    counts: Counter[tuple[int, int, tuple]] = Counter()
    for element in outcome.said:
        if isinstance(element, Cti | Punct):
            continue
        row = comparable(tuple(element.row.values()))
        if isinstance(element, Insert):
            counts[element.vs, element.ve, row] += 1
        elif isinstance(element, Adjust):
            counts[element.vs, element.ve, row] -= 1
            if element.vnew > element.vs:
                counts[element.vs, element.vnew, row] += 1
    edges: dict[int, Counter[tuple]] = {}
    for (vs, ve, row), n in counts.items():
        if n:
            edges.setdefault(vs, Counter())[row] += n
            edges.setdefault(ve, Counter())[row] -= n
    return _compared(edges, answers, outcome.since)


def _compared(edges: Mapping[int, Counter[tuple]], answers: Answers, since: int) -> str | None:
    got: Counter[tuple] = Counter()
    expected: Counter[tuple] = Counter()
    for t in sorted({*edges, *answers, since}):
        for row, n in edges.get(t, {}).items():
            got[row] += n
            if not got[row]:
                del got[row]
        expected = answers.get(t, expected)
        if t >= since and t != INF and got != expected:
            return (
                f"at {t}: expected {shown(expected)}, got {shown(got)}"
                f"\n  missing: {shown(expected - got)}\n  too many: {shown(got - expected)}"
            )
    return None


def shown(rows: Mapping[tuple, int]) -> str:
    listed: Sequence[str] = sorted(f"{n} x {row}" if n != 1 else str(row) for row, n in rows.items())
    return "{" + ", ".join(listed) + "}"


__all__ = ["LAST", "Asked", "Case", "Outcome", "difference", "plan", "run"]
