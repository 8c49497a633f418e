"""The warehouse and the auction of Tucker et al., as examples: what they print, and that it is so."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import everwhen as ew
from everwhen.errors import QueryError
from everwhen.plan.sanity.advice import advise
from everwhen.plan.sanity.bounded import require_bounded
from everwhen.stream.element_batch import INSERT, PUNCT
from everwhen.stream.validity import check
from scenarios.auctions import AUCTION, Auctions
from scenarios.warehouse import SENSORS, WAREHOUSE, warehouse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def found_here() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))
    for name in ("warehouse", "auction", "punctuation_table"):
        sys.modules.pop(name, None)


def test_the_warehouse(found_here: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.import_module("warehouse").main(["--hours", "12"])
    printed = capsys.readouterr().out
    silent, *others = found.values()
    assert len(silent.answers) == 12 and silent.before_the_end == 0 and silent.left == silent.peak
    for name, run in list(found.items())[1:]:
        assert run.answers == silent.answers and run.before_the_end == 12
        assert run.left == 0 and run.peak < silent.peak / 4
        assert name in printed
    assert others[0].of_operator["distinct"][-1] == 0 < silent.of_operator["distinct"][-1]


def test_the_auction(found_here: None, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module("auction")
    found = module.main(["--bids", "8000"])
    closed, open_ = found.values()
    assert closed.answers == open_.answers and len(closed.answers) == closed.before_the_end
    assert closed.left == 0 and closed.peak <= 3 * module.AT_ONCE < open_.left
    assert "freed by what is declared: GIVEN item of Bid" in capsys.readouterr().out


@pytest.mark.parametrize("example", ["warehouse", "auction"])
def test_it_is_a_program(example: str) -> None:
    small = {"warehouse": ["--hours", "2"], "auction": ["--bids", "2000"]}[example]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{example}.py"), *small], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "most state rows" in done.stdout


def test_the_queries_are_bounded_by_punctuation_and_nothing_is_declared_in_vain() -> None:
    for query in (ew.sql(WAREHOUSE, optimize=False), ew.sql(AUCTION)):
        node = query.node
        assert require_bounded(node) == ()
        assert advise(node).missing == advise(node).idle == ()


@pytest.mark.parametrize("per_hour", [0, 1, 2, 30])
@pytest.mark.parametrize("batch", [7, 60, 1_000])
def test_reports_are_grammatical_and_the_same_at_every_rate(per_hour: int, batch: int) -> None:
    epochs = list(warehouse(3, 120, per_hour, batch))
    for name in SENSORS:
        elements = [element for epoch in epochs for element in epoch[name].elements()]
        check(elements)
    ops = np.concatenate([epoch["Sensor1"].op for epoch in epochs])
    assert (ops == INSERT).sum() == 360 and (ops == PUNCT).sum() == 3 * per_hour
    assert [epoch["Sensor2"].columns[3].drop_null().to_pylist() for epoch in epochs] == [
        epoch["Sensor2"].columns[3].to_pylist() for epoch in warehouse(3, 120, 0, batch)
    ]


def test_minutes_must_be_whole() -> None:
    with pytest.raises(QueryError, match="divisor of 60"):
        next(warehouse(1, 60, 7, 60))


def test_bids_come_for_open_auctions_only() -> None:
    auctions = Auctions(3_000, at_once=20, each=10, batch=100)
    epochs = list(auctions)
    for name in ("Auction", "Bid"):
        check([element for epoch in epochs for element in epoch[name].elements()])
    items = sum(len(epoch["Auction"]) for epoch in epochs)
    assert len(auctions.prices) == items and min(auctions.prices.values()) > 0
