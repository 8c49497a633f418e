"""Generated queries with LIMIT, DISTINCT ON and OVER, judged by DuckDB at every instant: in one run, in sessions with
late joins, and through restores."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from generated.cases import Tally, drawn, judged
from generated.reproduction import shown

WORLDS = {"run": 5, "sessions": 3, "restore": 3}


@cache
def tally(way: str) -> Tally:
    found = Tally()
    for at in range(WORLDS[way]):
        judged(drawn(way, f"ranks/{at}", ranked=0.5), f"ranks/{at}", found)
    return found


@pytest.mark.property
@pytest.mark.parametrize("way", WORLDS)
def test_ranked_queries_are_answered_as_duckdb_does(way: str) -> None:
    found = tally(way)
    assert not found.failures, "\n\n".join(
        shown(each.case.alone(each.at), each.what, each.seed) for each in found.failures
    )
    assert found.queries[f"{way}: ran"] > 0.6 * sum(found.queries.values()), (found.queries, found.reasons)


@pytest.mark.property
def test_every_construct_of_ranks_has_run() -> None:
    ran: Counter[str] = Counter()
    for way in WORLDS:
        ran.update(tally(way).ran)
    wanted = {"limit", "offset", "limit with ties", "distinct on"}
    wanted |= {f"over: {name}" for name in ("RANK()", "DENSE_RANK()", "ROW_NUMBER", "COUNT(*)", "MAX")}
    assert not wanted - ran.keys(), (wanted - ran.keys(), ran)
