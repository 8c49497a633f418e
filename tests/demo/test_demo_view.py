"""The demo's picture: it fits the terminal, shows what it should, and stays readable when it is narrow."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from everwhen.core.time import INF, NEVER
from everwhen.demo.view import (
    WIDEST,
    DemoView,
    InputView,
    PartView,
    QueryView,
    count,
    moment,
    progress_line,
    render,
    show_row,
    size,
    summary,
)

TITLES = ("in euros", "five items", "short auctions", "highest bid", "closing price", "hot items", "average price")
ROW = show_row([("itemID", 1007), ("price", 12.5), ("sellerID", 12345), ("category", 3)])
FULL = DemoView(
    elapsed=12.3,
    limit=" of 60 s",
    events=1_234_567,
    rate=98_765.4,
    now=1_234_567,
    queries=[
        QueryView(f"q{i}", title, 12, 7_654_321, 345_678, 1_234 * i, (ROW,), i % 2 == 0, 1_230_000)
        for i, title in enumerate((*TITLES, "new sellers", "tumbling bid"), 1)
    ],
    inputs=[
        InputView(name, 12_345_678, 1_230_000, 4_567) for name in ("Person", "OpenAuction", "ClosedAuction", "Bid")
    ],
    parts=[PartView(f"join on item {i}", 123_456 * i, 3, 1_000 * i, 40_000 * i) for i in range(25)],
    stories=[
        ("q5: item 7 closed at 1:13.0 for 5,700.80", "corrected 0.4 s later to 5,912.10", "not final yet"),
        ("q4: item 8 led at 1:10.0 with 99.50", "corrected 2.1 s later to item 9 with 99.75", "final 1.0 s after that"),
    ],
)


def text(picture: RenderableType, width: int, height: int = 50) -> list[str]:
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    console.print(picture)
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (132, 50)])
def test_the_picture_fits(width: int, height: int) -> None:
    lines = text(render(FULL, width, height), width)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    whole = "\n".join(lines)
    for word in ("98.8k events/s", "1.23M events", "12 s of 60 s", "0:20:34", "ClosedAuction", "4.6 s", "Ctrl-C"):
        assert word in whole
    for query in FULL.queries:
        assert f"{query.name} {query.title}" in whole
    assert "itemID 1007  price 12.50" in whole and "11.1k" in whole
    assert "join on item 24" in whole, "the operator with the most state is shown"
    assert "24 of 25 operators keep 11.4 MiB" in whole
    assert "join on item 0" not in whole, "who keeps nothing is not shown"
    assert "q5: item 7 closed at 1:13.0 for 5,700.80; corrected 0.4 s later to 5,9" in lines[2], "the story comes first"
    assert (" 12  " in whole) and ("last: itemID 1007" in whole), "a result that is over says so"


def test_only_the_largest_operators_are_shown() -> None:
    found = [sum("join on item" in line for line in text(render(FULL, 100, h), 100)) for h in (24, 30, 60)]
    assert found == [4, 8, 8]


def test_the_picture_is_no_wider_than_can_be_read() -> None:
    assert max(map(cell_len, text(render(FULL, 200, 50), 200))) <= WIDEST


def test_a_query_without_a_row_alive_shows_no_zero_beside_its_last_result() -> None:
    over = replace(FULL, queries=[QueryView("q5", "closing price", 0, 5, 0, 1, (ROW,), False, 7)])
    (line,) = (line for line in text(render(over, 100, 30), 100) if "q5 closing" in line)
    assert "last: itemID 1007" in line and " - " in line


def test_before_the_first_correction_the_place_of_the_story_is_kept() -> None:
    few = text(render(replace(FULL, stories=()), 100, 30), 100)
    many = text(render(FULL, 100, 30), 100)
    assert "No answer has been corrected yet" in few[2] and len(few) == len(many)


def test_before_the_first_event_there_is_a_picture_too() -> None:
    empty = DemoView(queries=[QueryView("q1", "in euros")], inputs=[InputView("Bid")])
    whole = "\n".join(text(render(empty, 80, 24), 80))
    assert "nothing yet" in whole and "Bid" in whole
    assert "Done: 0 events through 1 queries" in "\n".join(text(summary(empty, "Done", 80), 80))


def test_the_summary_says_what_was_done() -> None:
    after = DemoView(
        elapsed=10.0, events=2_000_000, queries=FULL.queries, parts=FULL.parts, inputs=FULL.inputs, kept_after=0
    )
    whole = " ".join(" ".join(text(summary(after, "Stopped", 100), 100)).split())
    assert "Stopped: 2,000,000 events in 10.0 s, 200,000 events/s through 9 queries" in whole
    assert "25 operators kept 300,000 rows (11.4 MiB), 0 once the inputs were closed" in whole


def test_a_line_of_progress() -> None:
    line = progress_line(FULL)
    assert "1,234,567 events" in line and "lag 4.6 s" in line and "corrected 55.5k" in line and "\n" not in line


@pytest.mark.parametrize("number", [0, 9_999, 10_000, 99_999, 999_499, 999_500, 999_499_999, 999_500_000, 10**12])
def test_counts_stay_short(number: int) -> None:
    written = count(number)
    assert len(written) <= 6
    unit = {"k": 1e3, "M": 1e6, "G": 1e9}.get(written[-1], 1.0)
    assert float(written.rstrip("kMG")) * unit == pytest.approx(number, rel=0.01)


def test_sizes_and_moments() -> None:
    assert [size(0), size(1023), size(1024), size(5 * 2**40)] == ["0 B", "1023 B", "1.0 KiB", "5120.0 GiB"]
    assert [moment(NEVER), moment(INF), moment(86_399_999)] == ["-", "∞", "23:59:59"]


SPARK = replace(
    FULL,
    queries=[
        replace(query, latest=(ROW, f"second of {query.name}", f"third of {query.name}")) for query in FULL.queries[:4]
    ],
    inputs=[replace(one, holds=one.name == "Bid") for one in FULL.inputs],
    parts=[PartView(f"{i} in 2 buckets", 123_456 * i, 3, 1_000 * i, 40_000 * i) for i in range(1, 4)],
    part="stage",
    depth=4,
    engine="NEXMark on Spark",
    epochs="Epoch 12: 0.8 s, next: 0.2 s.",
    waiting="Bid holds progress back.",
)


@pytest.mark.parametrize(("width", "height", "depth"), [(80, 24, 2), (100, 30, 4)])
def test_four_queries_on_spark_show_more_of_their_results(width: int, height: int, depth: int) -> None:
    lines = text(render(SPARK, width, height), width)
    assert len(lines) <= height and max(map(cell_len, lines)) <= width
    whole = "\n".join(lines)
    for word in ("NEXMark on Spark", "final to", "0:20:30", "3 in 2 buckets", "Bid holds progress back"):
        assert word in whole
    assert "Epoch 12: 0.8 s" in whole and "Ctrl-C" in whole
    assert whole.count("second of") == 4 and whole.count("third of") == (4 if depth > 2 else 0)


def test_the_summary_of_spark_counts_stages() -> None:
    whole = " ".join(" ".join(text(summary(SPARK, "Done", 100), 100)).split())
    assert "through 4 queries; 3 stages kept 6,000 rows" in whole and "Epoch 12: 0.8 s" in whole
