"""Generated queries with tables of the text, dates and timestamps, judged by DuckDB at every instant: in one run, in
sessions with late joins, and through restores."""

from __future__ import annotations

from functools import cache

import pytest

from generated.cases import Tally, drawn, judged
from generated.reproduction import shown
from generated.tables import TablesGrammar
from generated.tree import constructs

WORLDS = {"run": 3, "sessions": 2, "restore": 2}
_SLOW = ("sessions", "restore")


@cache
def tally(way: str) -> Tally:
    found = Tally()
    for at in range(WORLDS[way]):
        judged(drawn(way, f"tables/{at}", grammar=TablesGrammar), f"tables/{at}", found)
    return found


@pytest.mark.property
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] if way in _SLOW else []) for way in WORLDS])
def test_tables_of_the_text_are_answered_as_duckdb_does(way: str) -> None:
    found = tally(way)
    assert not found.failures, "\n\n".join(
        shown(each.case.alone(each.at), each.what, each.seed) for each in found.failures
    )
    assert found.queries[f"{way}: ran"] > 0.6 * sum(found.queries.values()), (found.queries, found.reasons)


def test_every_construct_of_tables_is_drawn() -> None:
    cases = [drawn("run", f"tables/{at}", grammar=TablesGrammar) for at in range(20)]
    found = {name for case in cases for asked in case.asked for name in constructs(asked.query)}
    wanted = {"values", "unnest", "unnest with ordinality", "unnest, outer", "generate_series", "range", "lateral"}
    wanted |= {"join: asof", "join: asof left", "on: subquery", "reads D", "time: comparison"}
    assert not wanted - found, wanted - found
