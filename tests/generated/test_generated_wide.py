"""Generated queries of the widest grammar, judged by DuckDB and by definitions at every instant: in one run, in
sessions with late joins, through restores and from plan to plan."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from generated.cases import RANKED, Tally, drawn, judged
from generated.judge import Judge
from generated.lifetimes import INSTANTS
from generated.reference_windows import reference_snapshots
from generated.reproduction import shown
from generated.streams import CATALOG, world
from generated.tree import constructs
from generated.wide.functions import FUNCTIONS
from generated.wide.patterns import CONDITIONS, MEASURES, PATTERNS, Matched
from generated.wide.wide_grammar import WideGrammar
from generated.wide.window_tables import Cut

WORLDS = {"run": 1, "sessions": 1, "restore": 1, "migrate": 1}
_SLOW = ("sessions", "restore", "migrate")


@cache
def tally(way: str) -> Tally:
    found = Tally()
    for at in range(WORLDS[way]):
        seed = f"wide/{at}"
        judged(drawn(way, seed, ranked=RANKED, grammar=WideGrammar), seed, found, limit=120.0)  # with loops to compile
    return found


@pytest.mark.property
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] if way in _SLOW else []) for way in WORLDS])
def test_wide_queries_are_answered_as_duckdb_does(way: str) -> None:
    found = tally(way)
    assert not found.failures, "\n\n".join(
        shown(each.case.alone(each.at), each.what, each.seed) for each in found.failures
    )
    assert found.queries[f"{way}: ran"] > 0.5 * sum(found.queries.values()), (found.queries, found.reasons)


def test_every_wide_construct_is_drawn() -> None:
    cases = [drawn("run", f"wide/{at}", ranked=RANKED, grammar=WideGrammar) for at in range(80)]
    found = Counter(name for case in cases for asked in case.asked for name in constructs(asked.query))
    wanted = {f"window function: {name}" for name in ("TUMBLE", "HOP", "CUMULATE", "SESSION", "SESSION partition")}
    wanted |= {"window function of a subquery", "window function of a stream", "match recognize", "top n"}
    wanted |= {f"over, {kind}" for kind in ("frame", "range", "peers", "neighbour", "parts", "whole")}
    wanted |= {f"over: {name}" for name in ("SUM", "AVG", "LAG", "NTILE", "FIRST_VALUE", "groups")}
    wanted |= {f"aggregate: {name}" for name in ("MODE", "FIRST", "MAX_BY", "LISTAGG", "TOP_K", "STDDEV", "EVERY")}
    wanted |= {f"natural join: {kind}" for kind in ("inner", "left")} | {"on: mixed types", "set of mixed types"}
    wanted |= {f"value: {kind}" for kind in ("last row", "key")} | {"limit by an expression", "values as a query"}
    wanted |= {"conversion around a query", "group by a position", "grouping", "a list", "a structure", "of a list"}
    wanted |= {"subquery: mixed types", "special float", "recursion: MIN", "recursion: MAX", "recursion: twice"}
    wanted |= {"window function of Spark", "series of timestamps"}
    assert not wanted - found.keys(), wanted - found.keys()
    functions = {f"{type_}: {each[2]}" for type_ in "isfb" for each in FUNCTIONS[type_]}
    assert len(functions & found.keys()) > 0.9 * len(functions), functions - found.keys()


@pytest.mark.parametrize(
    "stage",
    [
        *(Cut("A", "a", (), ("i", "i", "s", "i", "i"), function="TUMBLE", lengths=(n,)) for n in (1, 5)),
        *(Cut("A", "a", (), ("i", "i", "s", "i", "i"), function="HOP", lengths=each) for each in ((2, 4), (3, 3))),
        *(Cut("A", "a", (), ("i", "i", "s", "i", "i"), function="CUMULATE", lengths=each) for each in ((2, 6), (1, 3))),
        *(
            Cut("A", "a", ("k", "v", "s"), ("i", "i", "s", "i", "i"), function="SESSION", lengths=(n,), by=by)
            for n, by in ((1, ()), (3, ("k",)), (2, ("k", "s")))
        ),
        *(
            Matched("A", "a", (), ("i", "i"), pattern=pattern, define=(("A", a),), measures=(measure, "COUNT(*)"))
            for pattern, a, measure in zip(PATTERNS, CONDITIONS, MEASURES, strict=False)
            if "B." not in measure or "B" in pattern
        ),
    ],
    ids=lambda stage: stage.key(),
)
def test_the_definitions_are_those_of_the_reference(stage: Cut | Matched) -> None:
    """Two definitions, written apart."""
    for seed in range(4):
        given = world(random.Random(seed), "A")
        expected = reference_snapshots(f"SELECT * FROM {stage.key()} a", given, CATALOG, INSTANTS)
        assert Judge(given).snapshots(stage) == expected
