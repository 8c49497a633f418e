"""The three scenarios: valid streams that a seed decides, and the account of a run against counting by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.testing import assert_valid
from scenarios import SCENARIOS, WEB, Account, compare

EVENTS = 1_500
EVERY = pytest.mark.parametrize("name", SCENARIOS)


def elements(name: str, seed: int = 7, every: int | None = None) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for epoch in SCENARIOS[name].epochs(EVENTS, seed, every):
        for source, batch in epoch.batches.items():
            found.setdefault(source, []).extend(batch.elements())
    return found


def data_of(streams: Mapping[str, list[Element]]) -> dict[str, list[Element]]:
    return {name: [e for e in some if isinstance(e, Insert | Adjust)] for name, some in streams.items()}


@EVERY
def test_the_streams_are_valid_and_late(name: str) -> None:
    """Every promise is kept, every adjust finds its event, and nothing is later than the scenario says."""
    late = 0
    for some in elements(name).values():
        assert_valid(some)
        latest = -1
        for element in some:
            if isinstance(element, Insert | Adjust):
                late = max(late, latest - element.sync)
                latest = max(latest, element.sync)
    assert 0 < late <= SCENARIOS[name].disorder


@EVERY
def test_the_seed_decides(name: str) -> None:
    assert elements(name) == elements(name)
    assert data_of(elements(name)) != data_of(elements(name, seed=8))


@EVERY
def test_the_length_of_epochs_changes_no_element(name: str) -> None:
    scenario = SCENARIOS[name]
    assert data_of(elements(name, every=3 * scenario.every)) == data_of(elements(name))


@EVERY
def test_the_moments_go_on(name: str) -> None:
    moments = [epoch.now for epoch in SCENARIOS[name].epochs(EVENTS)]
    assert set(np.diff(moments)) == {SCENARIOS[name].every}


@EVERY
def test_the_query_reads_what_is_made(name: str) -> None:
    scenario = SCENARIOS[name]
    query = ew.sql(scenario.text, tick=scenario.tick)
    assert set(scenario.key) <= set(query.schema.names)
    assert scenario.amount is None or scenario.amount in query.schema.names
    assert set(ew.LocalRuntime(query).inputs) == set(elements(name))


def test_a_scenario_without_events_is_refused() -> None:
    with pytest.raises(QueryError, match="at least one event, not 0"):
        next(WEB.epochs(0))


# -- the account -------------------------------------------------------------------------------------------------------

ROW = Schema.of([("page", "string"), ("hits", "int64"), ("bytes", "int64")])


def row(page: str, hits: int) -> dict[str, object]:
    return {"page": page, "hits": hits, "bytes": 0}


def account(*said: tuple[int, int, list[Element]]) -> Account:
    """What was said at which moment, with the largest start let in by then."""
    made = Account(WEB)
    for now, tau, some in said:
        made.take(now, batch_of(some, ROW), tau)
    return made


def test_waits_are_counted_from_the_instant() -> None:
    """An open end says nothing of what is to come; a later change counts as the last."""
    one = account(
        (10, 8, [Insert(5, ew.INF, row("a", 1))]),
        (20, 18, [Adjust(5, ew.INF, 15, row("a", 1)), Insert(15, ew.INF, row("a", 2))]),
        (2_000, 18, [Adjust(5, 15, 7, row("a", 1)), Insert(7, 15, row("a", 3))]),
        (3_000, 2_990, [Adjust(15, ew.INF, 2_000, row("a", 2))]),
    )
    exact = account(
        (0, 0, [Insert(5, 7, row("a", 1)), Insert(7, 15, row("a", 3)), Insert(15, 2_000, row("a", 2))]),
        (3_000, 2_990, []),
    )
    found = compare(one, exact)
    assert found.right == 1.0
    assert found.off == 0.0
    assert sorted(found.first) == [3, 5, 5]  # at 10 for 7 and for 5, at 20 for 15
    assert sorted(found.last) == [5, 5, 1_993]
    assert (one.said, one.adjusts, one.corrections) == (3, 3, 1)


def test_what_was_never_said_has_no_wait() -> None:
    exact = account((10, 8, [Insert(5, 9, row("a", 1)), Insert(5, 9, row("b", 1))]), (3_000, 2_990, []))
    found = compare(account((50, 40, [Insert(5, 9, row("a", 1))]), (3_000, 2_990, [])), exact)
    assert found.first.tolist() == [45]
    assert found.right == 0.5


Histories = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 11), st.integers(1, 9)), max_size=6
)


@settings(max_examples=80)
@given(Histories, Histories)
def test_rightness_is_that_of_every_instant(mine: list[tuple], right: list[tuple]) -> None:
    end = 12
    one, exact = (
        account((end, end, [Insert(lo, lo + length, row(page, hits)) for page, hits, lo, length in some]))
        for some in (mine, right)
    )
    agreed = in_all = missed = expected = 0
    for t in range(end):
        found, wanted = (
            Counter((page, hits) for page, hits, lo, length in some if lo <= t < lo + length) for some in (mine, right)
        )
        agreed += sum((found & wanted).values())
        in_all += sum((found | wanted).values())
        for page in "ab":
            amounts = [sum(hits * n for (p, hits), n in each.items() if p == page) for each in (found, wanted)]
            missed += abs(amounts[0] - amounts[1])
            expected += amounts[1]
    result = compare(one, exact)
    if right:
        assert result.right == pytest.approx(agreed / in_all if in_all else 0.0)
        assert result.off == pytest.approx(missed / max(expected, 1))
    else:
        assert result.right == (0.0 if mine else 1.0)
