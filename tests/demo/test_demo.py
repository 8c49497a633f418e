"""The demo in process: its loop and its table of results, over a runtime that only repeats its input."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest
from rich.console import Console

from everwhen.algebra.builder import Stream
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.demo import local as demo
from everwhen.demo.local import CONFIG, Demo, demo_queries
from everwhen.demo.nexmark import SCHEMAS, STREAMS
from everwhen.demo.program import main
from everwhen.demo.results import Results
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import CTI, ElementBatch, batch_of, empty_elements

PRICES = Schema.of([("item", pa.int64()), ("price", pa.float64())])


@dataclass
class Kept:
    name: str
    rows_in: int
    rows_out: int
    state_rows: int
    state_bytes: int


class Echo:
    """Gives every query its bids back; interrupts at the epoch it is told to."""

    def __init__(self, queries: Mapping[str, Stream], interrupt_at: int = -1) -> None:
        self.queries = tuple(queries)
        self.progress = dict.fromkeys(STREAMS, NEVER)
        self.epochs = 0
        self.rows = 0
        self.closed = False
        self.interrupt_at = interrupt_at

    def push(self, batches: dict[str, ElementBatch]) -> dict[str, ElementBatch]:
        assert not self.closed
        if self.epochs == self.interrupt_at:
            raise KeyboardInterrupt
        self.epochs += 1
        for name, batch in batches.items():
            if (batch.op == CTI).any():
                self.progress[name] = int(batch.vs[batch.op == CTI].max())
        self.rows += len(batches["Bid"])
        return dict.fromkeys(self.queries, batches["Bid"])

    def close(self) -> dict[str, ElementBatch]:
        self.closed = True
        self.progress = dict.fromkeys(STREAMS, INF)
        return {name: empty_elements(SCHEMAS["Bid"]) for name in self.queries}

    def metadata(self) -> list[Kept]:
        return [Kept("echo", self.rows, self.rows, 0 if self.closed else 5, 0 if self.closed else 4096)]


def console(terminal: bool) -> Console:
    return Console(width=100, height=30, file=io.StringIO(), force_terminal=terminal, color_system=None)


def output(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def epoch(*elements: Element) -> ElementBatch:
    return batch_of(elements, PRICES)


def row(price: float) -> dict[str, object]:
    return {"item": 1, "price": price}


# -- the table of results ------------------------------------------------------------------------------------------


def test_results_hold_the_rows_alive_at_the_latest_instant() -> None:
    results = Results()
    results.take(epoch(Insert(0, 5, row(1.0)), Insert(2, INF, row(2.0)), Insert(9, 30, row(3.0)), Cti(1)), NEVER, 8)
    assert results.alive(8) == [(2, (1, 2.0))]
    assert sorted(results.alive(9)) == [(2, (1, 2.0)), (9, (1, 3.0))]
    assert results.view("q4", "", 9).latest == ("item 1  price 3.00",), "what started last is shown"
    results.take(epoch(Adjust(2, INF, 12, row(2.0)), Adjust(9, 30, 9, row(3.0)), Insert(12, INF, row(4.0))), 8, 15)
    assert results.alive(15) == [(12, (1, 4.0))]
    assert (results.inserts, results.ended, results.corrected) == (4, 2, 0)


def test_a_change_of_an_answered_instant_is_a_correction() -> None:
    results = Results()
    results.take(epoch(Insert(0, INF, row(1.0))), NEVER, 10)
    results.take(epoch(Adjust(0, INF, 10, row(1.0)), Insert(10, INF, row(2.0))), 10, 20)
    results.take(epoch(Adjust(10, INF, 25, row(2.0)), Insert(25, INF, row(5.0))), 20, 30)
    assert (results.ended, results.corrected) == (1, 1)
    assert results.alive(30) == [(25, (1, 5.0))]


def test_copies_are_counted_and_unknown_events_do_no_harm() -> None:
    results = Results()
    results.take(epoch(Insert(0, 50, row(1.0)), Insert(0, 50, row(1.0))), NEVER, 10)
    assert len(results.alive(10)) == 2
    results.take(epoch(Adjust(0, 50, 0, row(1.0)), Adjust(3, 40, 3, row(9.0))), 10, 11)
    assert results.alive(11) == [(0, (1, 1.0))]


def test_a_result_that_grows_back_after_its_end_is_alive_again() -> None:
    results = Results()
    results.take(epoch(Insert(0, 5, row(1.0))), NEVER, 8)
    assert results.alive(8) == [] and results.last == (1, 1.0)
    results.take(epoch(Adjust(0, 5, 20, row(1.0))), 8, 9)
    assert results.alive(9) == [(0, (1, 1.0))] and results.corrected == 1


def test_the_table_stays_small() -> None:
    results = Results()
    for t in range(0, 20_000, 10):
        results.take(epoch(Insert(t, t + 30, row(float(t))), Insert(t, t + 1, row(0.5))), t - 10, t)
    assert len(results.rows) < 300 and len(results.alive(19_990)) == 4


def test_the_view_falls_back_to_the_last_result() -> None:
    results = Results()
    assert results.view("q5", "closing price", 0).latest == ()
    results.take(epoch(Insert(3, 4, row(2.5))), NEVER, 9)
    view = results.view("q5", "closing price", 9)
    assert (view.latest, view.is_current, view.alive, view.final) == (("item 1  price 2.50",), False, 0, NEVER)


def test_the_newest_rows_come_first_and_promises_are_remembered() -> None:
    results = Results()
    results.take(epoch(Insert(3, 40, row(2.5)), Insert(5, 40, row(3.5)), Insert(4, 40, row(4.5)), Cti(3)), NEVER, 9)
    view = results.view("q5", "", 9, depth=2)
    assert (view.latest, view.alive, view.final) == (("item 1  price 3.50", "item 1  price 4.50"), 3, 3)


# -- the loop ------------------------------------------------------------------------------------------------------


def test_every_query_of_the_thesis_is_in_the_demo() -> None:
    queries = demo_queries()
    assert list(queries) == [f"q{i}" for i in range(1, 10)] == list(demo.TITLES)


def test_a_run_counts_what_it_reads_and_knows_its_lag() -> None:
    run = Demo(Echo(demo_queries()), demo_queries(), CONFIG)
    for _ in range(10):
        run.step(1_000)
    view = run.view()
    assert view.events == 10_000 and sum(one.elements for one in view.inputs) >= 9_900
    assert view.now == max(run.newest.values())
    bid = view.inputs[-1]
    assert bid.name == "Bid" and bid.lag is not None and 3_000 <= bid.lag <= 5_000, (
        "late by 3 s at most, CTIs every 0.5"
    )
    assert all(query.inserts == view.queries[0].inserts > 8_000 for query in view.queries)


@pytest.fixture(autouse=True)
def small_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "WARM_UP_EVENTS", 400)


def test_the_local_runtime_answers_every_query() -> None:
    out = console(terminal=False)
    run = Demo(demo.local_runtime(demo_queries()), demo_queries(), CONFIG)
    for _ in range(12):
        run.step(2_000)
    run.close()
    silent = {name for name, results in run.results.items() if not results.inserts}
    assert silent <= {"q2"}, f"{silent} said nothing"
    assert run.shown.kept_after is not None
    assert main(["--engine", "local", "--events", "20000"], console=out) == 0
    assert "Done: 20,000 events" in output(out)


def test_without_a_terminal_it_prints_lines_and_the_summary() -> None:
    out = console(terminal=False)
    assert main(["--events", "5000"], console=out, runtime=Echo) == 0
    said = output(out)
    assert said.startswith("Starting nine queries. At the very first start it is slow until loops are compiled")
    assert "through 9 queries" in said and "Done: 5,000 events" in said and "\x1b" not in said
    assert "5 rows (4.0 KiB), 0 once the inputs were closed" in " ".join(said.split())


def test_plain_works_in_a_terminal_and_time_ends_the_run() -> None:
    out = console(terminal=True)
    assert main(["--plain", "--seconds", "0.3"], console=out, runtime=Echo) == 0
    assert "Done:" in output(out) and "\x1b[?1049h" not in output(out)


def test_the_live_view_uses_the_whole_screen_and_leaves_it() -> None:
    out = console(terminal=True)
    assert main(["--events", "3000"], console=out, runtime=Echo) == 0
    said = output(out)
    assert said.index("\x1b[?1049h") < said.index("q4 highest bid") < said.index("\x1b[?1049l") < said.index("Done:")


@pytest.mark.parametrize("arguments", [[], ["--plain"]])
def test_ctrl_c_ends_cleanly_with_the_summary(arguments: list[str]) -> None:
    made: list[Echo] = []

    def runtime(queries: Mapping[str, Stream]) -> Echo:
        made.append(Echo(queries, interrupt_at=3 if made else -1))
        return made[-1]

    out = console(terminal=True)
    assert main(arguments, console=out, runtime=runtime) == 0
    assert "Stopped: " in output(out) and not made[-1].closed
    assert "\x1b[?1049l" in output(out) or arguments


def test_ctrl_c_before_the_first_answer_ends_cleanly_too() -> None:
    out = console(terminal=False)
    runtimes = iter([-1, 0])  # the first one is that whose loops are compiled
    assert main([], console=out, runtime=lambda queries: Echo(queries, interrupt_at=next(runtimes))) == 0
    assert "Stopped: 0 events" in output(out)


def test_the_picture_says_that_loops_are_being_compiled() -> None:
    slow = Demo(Echo(demo_queries()), demo_queries(), CONFIG, is_compiling=lambda: True)
    assert slow.view().waiting == "Loops are being compiled. Until then they are interpreted."
    assert Demo(Echo(demo_queries()), demo_queries(), CONFIG).view().waiting == ""


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--events", "-3"], ["--seconds", "soon"]])
def test_wrong_arguments_end_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments, console=console(False), runtime=Echo)
    assert ended.value.code == 2
    assert "a positive number is needed" in capsys.readouterr().err
