"""NEXMark q0 to q23 over dirty streams, judged by DuckDB over what happened, at every instant."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import everwhen as ew
from demo.nexmark_oracle import AT, CHANGES, EVENTS, Oracle, edges, plain
from everwhen.algebra import nodes as n
from everwhen.demo.nexmark.suite.streams import SuiteConfig, SuiteStreams
from everwhen.demo.nexmark.suite.texts import TEXTS, text
from everwhen.engine.local import LocalRuntime
from everwhen.stream.history import History

DIRTY = {"late": 0.2, "corrections": 0.1, "duplicates": 0.1}
SMALL = SuiteStreams(SuiteConfig(bids=160, step=290, lateness=12, **DIRTY))
JUDGE = Oracle(SMALL)


def answered(name: str, streams: SuiteStreams, epoch: int, consistency: ew.Consistency) -> list[ew.ElementBatch]:
    """The answer over what arrives."""
    query = ew.sql(text(name))
    runtime = LocalRuntime(query, consistency=consistency)
    reads = {node.name for node in n.walk(query.node) if isinstance(node, n.Source)}
    found: list[ew.ElementBatch] = []
    for batches in streams.epochs(epoch):
        said = runtime.push({source: batch for source, batch in batches.items() if source in reads})
        found += said.values()
    return found


def snapshot(history: History, t: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row, times in history.snapshot(t).items():
        found[plain(row)] += times
    return found


def test_there_are_all_queries() -> None:
    assert list(TEXTS) == [f"q{i}" for i in range(24)]
    assert sorted((*EVENTS, *AT)) == sorted(TEXTS)
    assert list(AT) == list(CHANGES)


def test_the_streams_are_dirty_and_come_right() -> None:
    clean = SuiteStreams(SuiteConfig(bids=160, step=290, lateness=12))
    dirty = History.of([batch["Bid"] for batch in SMALL.epochs(20)])
    assert dirty == History.of([batch["Bid"] for batch in clean.epochs(20)])
    adjusts = sum(int((batch["Bid"].op == 1).sum()) for batch in SMALL.epochs(20))
    assert adjusts > 10


FINAL = (
    "q3",
    "q5",
    "q6",
    "q8",
    "q9",
    "q11",
    "q13",
    "q18",
    "q19",
)  # waiting for what is final matters to those with state


@pytest.mark.parametrize(
    ("name", "consistency"), [*((name, ew.MIDDLE) for name in TEXTS), *((name, ew.STRONG) for name in FINAL)], ids=str
)
def test_an_answer_is_that_of_duckdb(name: str, consistency: ew.Consistency) -> None:
    answer = answered(name, SMALL, 40 if consistency is ew.MIDDLE else 60, consistency)
    found = edges(answer)
    assert found and found == JUDGE.edges(name)
    if name in AT:  # the lifetimes are what the instants say
        history = History.of(answer)
        bids = SMALL.tables()["Bid"].column("vs").to_pylist()
        instants = [*bids[::13], bids[-1], bids[-1] + 30_000]
        answers = [snapshot(history, t) for t in instants]
        assert answers == [JUDGE.at(name, t) for t in instants]
        assert any(answers)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_an_answer_over_a_hundred_thousand_bids_is_that_of_duckdb(name: str) -> None:
    streams = SuiteStreams(SuiteConfig(bids=100_000, **DIRTY))
    assert edges(answered(name, streams, 10_000, ew.MIDDLE)) == Oracle(streams).edges(name)
