"""Generated queries with more aggregates and with sets of groups, judged by DuckDB at every instant."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from generated.cases import Tally, drawn, judged
from generated.more import SETS, MoreGrammar
from generated.reproduction import shown

WORLDS = {"run": 4, "sessions": 1, "restore": 1}
SEED = "more8"


@cache
def tally(way: str) -> Tally:
    found = Tally()
    for at in range(WORLDS[way]):
        judged(drawn(way, f"{SEED}/{at}", grammar=MoreGrammar), f"{SEED}/{at}", found)
    return found


@pytest.mark.property
@pytest.mark.parametrize("way", WORLDS)
def test_generated_queries_are_answered_as_duckdb_does(way: str) -> None:
    found = tally(way)
    assert not found.failures, "\n\n".join(
        shown(each.case.alone(each.at), each.what, each.seed) for each in found.failures
    )
    assert found.queries[f"{way}: ran"] > 0.5 * sum(found.queries.values()), (found.queries, found.reasons)


@pytest.mark.property
def test_every_new_construct_has_run() -> None:
    ran: Counter[str] = Counter()
    for way in WORLDS:
        ran.update(tally(way).ran)
    names = ("BIT_AND", "BIT_OR", "BIT_XOR", "BOOL_AND", "BOOL_OR", "COUNT_IF", "COUNT(DISTINCT x, y)", "ARRAY_AGG")
    more = (
        "PERCENTILE_DISC",
        "PERCENTILE_CONT",
        "STRING_AGG",
        "STRING_AGG DESC",
        "STRING_AGG DISTINCT",
        "QUANTILE_DISC",
    )
    wanted = {*(f"aggregate: {name}" for name in (*names, *more)), *(f"group by {word}" for word in SETS)}
    assert not sorted(name for name in wanted if not ran[name])
