"""Generated queries with recursion: the reference's answer is DuckDB's at every instant, as written and rewritten."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from everwhen.errors import SqlError
from everwhen.reference.evaluation import evaluate
from everwhen.stream.history import History
from generated.cases import drawn
from generated.judge import Judge, Unanswered, comparable
from generated.streams import SOURCES
from generated.tree import OURS, Query, Recursive, constructs
from generated.ways import Case, plan, reads

SEEDS = range(28)


def answered(case: Case, query: Query, judge: Judge) -> str:
    """ran, refused or unanswered; fails where the answers differ."""
    try:
        plans = [plan(query, optimize) for optimize in (False, True)]
    except SqlError:
        return "refused"
    try:
        answers = judge.each_instant(query)
    except Unanswered:
        return "unanswered"
    histories = {name: History.of(case.world.elements(name), SOURCES[name].schema) for name in reads(plans[0])}
    for each in plans:
        stream = evaluate(each.node, histories)
        for t, expected in answers.items():
            got = Counter({comparable(row): n for row, n in stream.at(t).items()})
            assert got == expected, f"at {t}:\n{query.sql(OURS)}\n{each}\n{histories}"
    return "ran"


@cache
def tally() -> tuple[Counter[str], Counter[str]]:
    found: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for seed in SEEDS:
        case = drawn("reference", f"recursion/{seed}", 3)
        judge = Judge(case.world)
        try:
            for asked in case.asked:
                if any(isinstance(node, Recursive) for node in asked.query.walk()):
                    what = answered(case, asked.query, judge)
                    found[what] += 1
                    if what == "ran":
                        ran.update(constructs(asked.query))
        finally:
            judge.close()
    return found, ran


@pytest.mark.property
def test_recursive_queries_are_answered_as_duckdb_does() -> None:
    found, ran = tally()
    assert found["ran"] > 0.8 * sum(found.values()) and found["ran"] > 15, found
    missing = {"recursion: UNION", "recursion: UNION ALL", "recursion: no join", "recursion: inner join"} - ran.keys()
    assert not missing, (missing, ran)
