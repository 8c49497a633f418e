"""Generated queries over generated dirty streams, judged by DuckDB at every instant; always the same ones here.

`make explore` looks for new ones.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

import everwhen as ew
from everwhen.stream.element import Cti, Insert
from everwhen.testing import assert_valid
from generated import __main__ as command
from generated import ways
from generated.cases import Tally, drawn, judged
from generated.grammar import JOINS, SETS
from generated.judge import Judge
from generated.lifetimes import INSTANTS
from generated.reference_windows import reference_snapshots
from generated.reproduction import packed, shown, unpacked
from generated.shrink import failure, smallest
from generated.streams import CATALOG, DATED, SOURCES, World, in_bound, world
from generated.tree import OURS, Expr, Join, Lifetimes, Select, SetOperation, Stage, literal
from generated.ways import Asked, Case, Outcome, difference

WORLDS = {"run": 16, "sessions": 10, "restore": 10, "migrate": 6}
SEED = "ci13"


@cache
def tally(way: str) -> Tally:
    found = Tally()
    for at in range(WORLDS[way]):
        judged(drawn(way, f"{SEED}/{at}"), f"{SEED}/{at}", found)
    return found


@pytest.mark.property
@pytest.mark.parametrize("way", WORLDS)
def test_generated_queries_are_answered_as_duckdb_does(way: str) -> None:
    found = tally(way)
    assert not found.failures, "\n\n".join(
        shown(each.case.alone(each.at), each.what, each.seed) for each in found.failures
    )
    late = found.reasons["refused: cannot join now"]  # rows whose past nobody knows any more
    ran, asked = found.queries[f"{way}: ran"], sum(found.queries.values())
    assert ran > 0.9 * (asked - late) and late < 0.3 * asked, (found.queries, found.reasons)


@pytest.mark.property
def test_every_construct_has_run() -> None:
    """Not refused, not beyond the judge: run and compared."""
    ran: Counter[str] = Counter()
    for way in WORLDS:
        ran.update(tally(way).ran)
    wanted = {
        *(f"join: {kind}" for kind in JOINS),
        *(f"join: {kind} using" for kind in ("inner", "left", "right", "full", "semi", "anti")),
        *(f"set: {word}" for word in SETS),
        *(f"subquery: {kind}" for kind in ("EXISTS", "NOT EXISTS", "IN", "NOT IN", "ANY", "ALL", "scalar", "row IN")),
        *(f"subquery: {kind} correlated" for kind in ("EXISTS", "NOT EXISTS", "IN", "NOT IN", "ANY", "ALL", "scalar")),
        *(f"window: {kind}" for kind in ("now", "range", "range slide", "unbounded", "rows", "rows partition")),
        *(f"window: {kind}" for kind in ("rows slide", "granularity", "lifetime")),
        *(f"around: {kind}" for kind in ("ISTREAM", "DSTREAM", "RSTREAM", "INSERTS", "DELETES", "COALESCE")),
        *(f"aggregate: {name}" for name in ("COUNT(*)", "COUNT(x)", "COUNT(DISTINCT x)", "SUM(x)", "SUM(DISTINCT x)")),
        *(f"aggregate: {name}" for name in ("AVG(x)", "AVG(DISTINCT x)", "MIN", "MAX", "MEDIAN", "QUANTILE", "FILTER")),
        *("on: equal", "on: theta", "on: equal and more", "on: not distinct", "distinct", "group by", "having", "star"),
        *("star over using", "group by an expression", "aggregates without groups", "derived table", "with"),
        *("derived table, windowed", "reads WITH", "case", "coalesce", "cast", "like", "between", "in list", "where"),
        *("nested 1", "nested 2", "nested 3", "nested 4 or more", "optimised", "as written", "joined late"),
        *(f"emit {emit}" for emit in ways.EMITS),
        *(f"reads {name}" for name, source in SOURCES.items() if not source.copy_of and name not in DATED),
        *(f"lmerge of {what}" for what in ("streams", "streams since", "queries")),
        *(f"lmerge: {word}" for word in ("no words", "FIRST", "LEADER", "FINAL", "QUORUM 1", "EAGER", "LAZY")),
        *(f"recursion: {what}" for what in ("UNION", "UNION ALL", "no join", "inner join", "semi join", "anti join")),
        *("with promises about data", "time as a column"),
    }
    missing = sorted(name for name in wanted if not ran[name])
    assert not missing, missing


# -- the parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_streams_are_legal_and_the_same_for_a_seed(seed: int) -> None:
    drawn_ = world(random.Random(seed), infinite=seed % 3 == 0)
    assert drawn_ == world(random.Random(seed), infinite=seed % 3 == 0)
    for name in SOURCES:
        assert_valid(drawn_.elements(name))
        assert in_bound(drawn_.elements(name), SOURCES[name].within)


@pytest.mark.parametrize(
    "how",
    [
        Lifetimes(window=("range", 3, 0)),
        Lifetimes(window=("range", 5, 3)),
        Lifetimes(window=("range", 2, 4), granularity=3),
        Lifetimes(window=("unbounded", 0, 0)),
        Lifetimes(window=("rows", 2, 0)),
        Lifetimes(window=("rows", 2, 3), partition=("k",)),
        Lifetimes(around="ISTREAM", window=("range", 4, 0)),
        Lifetimes(around="DSTREAM"),
        Lifetimes(around="INSERTS"),
        Lifetimes(around="DELETES"),
        Lifetimes(lifetime=(4, 0, 4, 8)),
        Lifetimes(lifetime=(4, 3, 0, 4)),
        Lifetimes(lifetime=(3, 1, 2, 5)),
        Lifetimes(lifetime=(3, 0, 0, 0)),
        Lifetimes(granularity=4),
    ],
    ids=str,
)
def test_the_definitions_of_lifetimes_are_those_of_the_reference(how: Lifetimes) -> None:
    """Two definitions, written apart."""
    for seed in range(6):
        given = world(random.Random(seed), "A")
        stage = Stage("A", "a", SOURCES["A"].names, SOURCES["A"].types, how)
        judge = Judge(given)
        expected = reference_snapshots(f"SELECT * FROM {stage.key()} a", given, CATALOG, INSTANTS)
        assert judge.snapshots(stage) == expected


# -- failures ----------------------------------------------------------------------------------------------------------


def wrong_right_join(case: Case) -> str | None:
    """A judge that takes every right join that says something for wrong."""
    if not any(isinstance(node, Join) and node.kind == "right" for node in case.asked[0].query.walk()):
        return None
    (outcome,) = ways.run(case)
    return "at 0: a right join" if any(isinstance(each, Insert) for each in outcome.said) else None


@pytest.mark.property
def test_failures_are_made_small() -> None:
    seed = next(
        seed
        for seed in range(200)
        if wrong_right_join(replace(drawn("run", f"shrink/{seed}", 1), batch=1000)) is not None
    )
    case = replace(drawn("run", f"shrink/{seed}", 1), batch=1000)
    found, what = smallest(case, "at 0: a right join", wrong_right_join, seconds=20)
    assert what == "at 0: a right join"
    assert len(found.asked[0].query.sql(OURS)) < len(case.asked[0].query.sql(OURS))
    assert sum(len(part) for epoch in found.world.epochs for _, part in epoch) <= 3
    assert wrong_right_join(unpacked(packed(found))) is not None
    text = shown(found, what, "shrink")
    assert "RIGHT JOIN" in text and '"op":"insert"' in text


def test_a_wrong_answer_is_seen() -> None:
    """The comparison can fail: a row too many, one too few, one at the wrong time, an open end."""
    a = Stage("A", "a", SOURCES["A"].names, SOURCES["A"].types)
    query = Select((Expr("a.k", "i"),), a)
    given = World(((("A", (Insert(1, 5, {"k": 1, "v": 2, "s": "a"}),)),),))
    (outcome,) = ways.run(Case("run", given, (Asked(query),)))
    answers = Judge(given).answers(query)
    assert difference(outcome, answers) is None
    end, row = Cti(ew.INF), {"c0": 1}
    for said in (
        [end],
        [Insert(1, 6, row), end],
        [Insert(1, 5, row), Insert(1, 5, row), end],
        [Insert(1, 5, {"c0": 2}), end],
        [Insert(1, 5, row)],
        [end, Insert(1, 5, row)],
    ):
        assert difference(Outcome("ran", said=tuple(said)), answers) is not None
    assert difference(replace(outcome, said=(Insert(3, 5, row), end), since=3), answers) is None


def test_the_judge_does_not_round_constants() -> None:
    """`1.25 UNION ALL SUM(0.5)`: as decimals of different scale DuckDB would make 1.3 of the first."""
    a = Stage("A", "a", SOURCES["A"].names, SOURCES["A"].types)
    total = Expr("SUM({0})", "f", (literal("f", "0.5"),))
    query = SetOperation("UNION ALL", Select((literal("f", "1.25"),), a), Select((total,), a, grouping="all"))
    given = World(((("A", (Insert(1, 5, {"k": 1, "v": 2, "s": "a"}),)),),))
    answers = Judge(given).answers(query)
    assert answers[1] == Counter({(1.25,): 1, (0.5,): 1})
    (outcome,) = ways.run(Case("run", given, (Asked(query),)))
    assert difference(outcome, answers) is None


def test_an_error_is_a_failure_and_a_refusal_is_not() -> None:
    a = Stage("A", "a", SOURCES["A"].names, SOURCES["A"].types)
    given = World(((("A", (Insert(1, 5, {"k": 1, "v": 2, "s": "a"}),)),),))
    fails = Select((Expr("CAST(a.s AS BIGINT)", "i"),), a)
    assert failure(Case("run", given, (Asked(fails),))) is not None
    refused = Select((Expr("a.nothing", "i"),), a)
    (outcome,) = ways.run(Case("run", given, (Asked(refused),)))
    assert outcome.what == "refused" and failure(Case("run", given, (Asked(refused),))) is None


def test_the_command_counts_and_ends_with_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--count", "4", "--seed", "d", "--ways", "run,restore"]) == 0
    out = capsys.readouterr().out
    assert "4 queries, run: ran" in out and "construct, queries that ran" in out
    with pytest.raises(SystemExit):
        command.main(["--ways", "walk"])
