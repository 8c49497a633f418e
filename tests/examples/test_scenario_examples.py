"""The examples run, and what they say of levels of consistency is so."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import everwhen as ew
from scenarios import MACHINES, SCENARIOS, STOCKS, WEB, Account, Scenario, compare, follow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = {"machine_maintenance": 3_000, "web_statistics": 6_000, "stock_corrections": 4_000}
EVENTS = {"machines": 3_000, "web": 6_000, "stocks": 13_000}
OF_PUNCTUATION = ("warehouse", "auction", "punctuation_table")  # test_punctuation_examples.py tries them
EVERY = pytest.mark.parametrize("name", SCENARIOS)


@pytest.fixture
def found_here() -> Iterator[None]:
    """The examples import what they share from their own folder."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))
    for name in (*SMALL, "comparison"):
        sys.modules.pop(name, None)


@cache
def accounted(name: str, level: ew.Consistency, events: int = 0) -> Account:
    scenario: Scenario = SCENARIOS[name]
    runtime = ew.LocalRuntime(ew.sql(scenario.text, tick=scenario.tick), consistency=level)
    return follow(scenario, runtime, scenario.epochs(events or EVENTS[name]))


def test_every_example_is_tried() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == {*SMALL, "comparison", *OF_PUNCTUATION}


@pytest.mark.parametrize("example", SMALL)
def test_an_example_prints_its_table(example: str, found_here: None, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(example)
    found = module.main(["--events", str(SMALL[example])])
    printed = capsys.readouterr().out
    assert list(found) == list(module.LEVELS)
    for level, (account, _) in found.items():
        line = next(line for line in printed.splitlines() if line.startswith(f"│ {level} "))
        assert f" {account.peak_rows:,} " in line and f" {account.corrections:,} " in line


def test_an_example_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "stock_corrections.py"), "--events", "500"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "remember 72 hours" in done.stdout


@EVERY
def test_strong_takes_nothing_back_and_middle_comes_to_the_same(name: str) -> None:
    strong, middle = accounted(name, ew.STRONG), accounted(name, ew.MIDDLE)
    assert strong.adjusts == 0
    assert middle.corrections > 0
    beside = compare(strong, middle)
    assert (beside.right, beside.off) == (1.0, 0.0)
    assert compare(middle, strong).latency < beside.latency  # and sooner
    assert strong.dropped == middle.dropped == 0


@EVERY
def test_the_sides_of_the_triangle(name: str) -> None:
    """Who blocks as long as it remembers corrects nothing; who remembers for the disorder gives nothing up."""
    disorder = SCENARIOS[name].disorder
    exact = accounted(name, ew.MIDDLE)
    for part in (4, 1):
        diagonal = accounted(name, ew.consistency(disorder // part, disorder // part))
        assert diagonal.corrections == 0
        assert compare(diagonal, exact).percentile(0.5) >= disorder // part * (name != "machines")
    for block in (0, disorder // 4, disorder):
        remembers = accounted(name, ew.consistency(block, disorder))
        assert remembers.dropped == 0
        assert compare(remembers, exact).right == 1.0
    assert accounted(name, ew.consistency(disorder)).corrections == 0


@EVERY
def test_to_remember_less_is_to_keep_less_and_be_less_right(name: str) -> None:
    disorder, exact = SCENARIOS[name].disorder, accounted(name, ew.MIDDLE)
    levels = [ew.WEAK, ew.consistency(0, disorder // 8), ew.consistency(0, disorder)]
    accounts = [accounted(name, level) for level in levels]
    lost = [account.dropped for account in accounts]
    right = [compare(account, exact).right for account in accounts]
    assert lost == sorted(lost, reverse=True) and lost[0] > lost[-1] == 0
    assert right[0] < right[-1] == 1.0
    assert accounts[0].peak_rows < accounts[1].peak_rows < accounts[2].peak_rows


def test_false_alarms_are_sent_out_taken_back_or_never_heard_of() -> None:
    """Machines: middle alerts for machines that are fine and takes it back; weak leaves it at that."""
    strong, middle, weak = (accounted(MACHINES.name, level) for level in (ew.STRONG, ew.MIDDLE, ew.WEAK))
    assert middle.said == strong.said + middle.corrections
    assert weak.corrections == 0
    assert weak.said > strong.said


def test_weak_keeps_no_more_however_long_the_stream() -> None:
    """Web: without promises middle keeps everything, weak what is alive."""
    short, long = EVENTS[WEB.name], 3 * EVENTS[WEB.name]
    weak = [accounted(WEB.name, ew.WEAK, events).peak_rows for events in (short, long)]
    middle = [accounted(WEB.name, ew.MIDDLE, events).peak_rows for events in (short, long)]
    assert weak[1] <= 1.2 * weak[0]
    assert middle[1] > 2.5 * middle[0]
    assert weak[1] < middle[1] / 20


def test_trades_are_made_at_once_and_corrected_within_72_hours() -> None:
    """Stocks: the promise 72 hours behind is all that is needed."""
    middle = accounted(STOCKS.name, ew.MIDDLE)
    beside = compare(middle, middle)
    assert beside.percentile(0.5) <= STOCKS.every
    assert beside.last.max() <= STOCKS.disorder + STOCKS.every
    bounded = accounted(STOCKS.name, ew.consistency(0, STOCKS.disorder))
    assert (bounded.said, bounded.corrections, bounded.dropped) == (middle.said, middle.corrections, 0)
