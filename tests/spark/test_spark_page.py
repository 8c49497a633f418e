"""The page of a query on Spark: every view against one that runs, in a real Chromium where there is one; what can be
ordered; and one that fails while it is watched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.serve.opened import Page as OpenPage
from everwhen.sinks import ChangelogSink, MemorySink
from everwhen.spark.sources.source import SparkSource
from serve.browser import Browser, Page
from serve.conftest import browser
from serve.served import until
from spark.test_bad_input import S, begin, read, write

__all__ = ["browser"]

TOKEN = "the-token-of-the-tests"
TEXT = "SELECT k, MAX(x) AS best FROM S WINDOW(RANGE 10 MILLISECONDS) GROUP BY k"
OTHER = "SELECT k, MIN(x) AS best FROM S WINDOW(RANGE 10 MILLISECONDS) GROUP BY k"
BEST = ew.sql(TEXT, S)


def row(t: int, k: str, x: int) -> tuple[Any, ...]:
    return ("insert", t, t + 1, None, k, x)


def cti(t: int) -> tuple[Any, ...]:
    return ("cti", t, None, None, None, None)


class Live:
    """A query that runs, its page, and who asks there."""

    def __init__(self, spark: SparkSession, place: Path, sink: Any, **options: Any) -> None:
        self.place, self.files = place, 0
        source = SparkSource("vs", end="ve", op="op", vnew="vnew", late="drop")
        self.handle = begin(
            spark, place, sink, BEST, inputs={"S": read(spark, place / "S")}, sources={"S": source},
            trigger="20 milliseconds", **options,
        )  # fmt: skip
        self.opened: OpenPage = ew.page(self.handle, token=TOKEN)
        base = self.opened.address.partition("/#")[0]
        self.client = httpx.Client(base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=90)

    def write(self, *rows: tuple[Any, ...]) -> None:
        """A file, whole and with its time, and wait until its epoch is done."""
        before = len(self.handle.recent)
        write(self.place / "aside", self.files, rows)
        name = f"{self.files:06d}.parquet"
        (self.place / "aside" / name).replace(self.place / "S" / name)
        self.files += 1
        until(lambda: len(self.handle.recent) > before or self.handle.last_error is not None)

    def get(self, path: str, **params: Any) -> Any:
        response = self.client.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: dict[str, Any] | None = None, status: int = 200) -> Any:
        response = self.client.post(path, json=body or {})
        assert response.status_code == status, response.text
        return response.json()

    def rows(self, at: str = "now") -> list[list[Any]]:
        return [each["row"] for each in self.get("/api/queries/out/answer", at=at)["rows"]]

    def close(self) -> None:
        self.client.close()
        self.opened.close()
        self.handle.stop()


@pytest.fixture(scope="module")
def live(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    place = tmp_path_factory.mktemp("paged")
    found = Live(spark, place, ChangelogSink(place / "answers"))
    found.write(row(1, "a", 4), row(4, "b", 7), cti(3))
    found.write(row(5, "a", 9), row(9, "a", 3), cti(4))
    yield found
    found.close()


def test_the_graph_the_answer_and_the_figures_are_those_of_the_query(live: Live) -> None:
    until(lambda: live.get("/api/state")["elements"] == 4)
    told = live.get("/api/state")
    assert told["state"] == "running" and not told["problem"] and told["orders"] == ["alter", "level", "stop"]
    nodes = {each["id"]: each for each in told["nodes"]}
    assert [each["name"] for each in nodes.values()] == ["S", "window", "aggregate", "out"]
    _, window, aggregate, _ = nodes.values()
    assert window["inputs"] == ["source S"] and aggregate["inputs"] == [window["id"]]
    assert (
        nodes["query out"]["inputs"] == [aggregate["id"]] and aggregate["rows_in"] > 0 and aggregate["state_rows"] > 0
    )
    assert nodes["source S"]["progress"] == nodes["query out"]["progress"] == 4 and nodes["query out"]["lag"] == 5
    assert aggregate["waits_for"] == [window["id"]] and nodes["source S"]["rows_out"] == 4
    (query,) = told["queries"]
    assert (query["name"], query["state"], query["final_before"]) == ("out", "running", 4)
    assert query["text"].startswith("-- ") and query["level"]["emit"] == "current" and not query["hidden"]
    assert live.rows("2") == [["a", 4]] and live.rows() == [["a", 9], ["b", 7]]
    assert live.get("/api/queries/out/timeline", **{"from": "0", "to": "30"})["events"]


def test_waiting_analyze_explain_and_the_catalogue_are_told(live: Live) -> None:
    until(lambda: live.client.get("/api/queries/out/waiting").status_code == 200)  # at first loops are compiled
    told = live.get("/api/queries/out/waiting")
    assert told["query"] == "out" and "S has promised 4" in told["text"]
    assert "ask again" in live.get("/api/queries/out/analyze")["text"]
    live.write(row(10, "b", 1))
    assert "Costliest" in live.get("/api/queries/out/analyze")["text"]
    assert "stage" in live.get("/api/queries/out/explain")["text"].lower()
    assert live.get("/api/streams")["streams"][0]["columns"] == [["k", "string"], ["x", "int64"]]
    assert live.get("/api/names")["streams"] == {"S": ["k", "x"]} and "max" in live.get("/api/names")["functions"]
    assert "Filter" in live.post("/api/explain", {"text": "SELECT k FROM S WHERE x > 1"})["text"]
    told = live.post("/api/explain", {"text": "SELECT k, y FROM S"}, 422)["error"]
    assert told["column"] == 11 and any(each.startswith("1: ") for each in live.get("/api/metadata")["operators"])


def test_what_spark_decides_is_refused_in_words(live: Live) -> None:
    for path, body, word in (
        ("/api/statements", {"text": TEXT}, "ew.spark.start"),
        ("/api/run", {"action": "pause"}, "cannot be paused"),
        ("/api/run", {"rate": 10}, "trigger"),
        ("/api/queries/out/start", {}, "checkpoint"),
        ("/api/queries/out/remove", {}, "not removed"),
        ("/api/queries/out/consistency", {"block": 5}, "neither waits nor forgets"),
    ):
        assert word in live.post(path, body, 409)["error"]["message"]


def test_late_rows_are_downloaded_from_its_checkpoint(live: Live) -> None:
    live.write(row(2, "late", 8), row(11, "b", 1))
    until(lambda: live.get("/api/state")["sources"][0]["late"]["dropped"] == 1)
    told = json.loads(live.client.get("/api/sources/S/late").text)
    assert told == {"op": "insert", "vs": 2, "ve": 3, "row": {"k": "late", "x": 8}}


def view(page: Page, name: str) -> None:
    page.click(f"#tab-{name}")
    page.until(f"document.querySelector('#tab-{name}').getAttribute('aria-selected') === 'true'")


def says(page: Page, selector: str, words: str) -> None:
    page.until(f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(words)})", 60)


@pytest.mark.slow
def test_every_view_shows_it_and_it_changes_and_stops_from_there(browser: Browser, live: Live) -> None:
    page = browser.page()
    page.open(live.opened.address)
    page.until("document.querySelectorAll('.graph .node').length === 4")
    says(page, ".legend", "S holds it back")
    page.click("[data-node='query out']")
    says(page, "#why", "S")
    says(page, "#cost", "Costliest")
    view(page, "answer")
    page.until("document.querySelectorAll('#answer tbody tr').length === 2")
    live.write(("adjust", 4, 5, 4, "b", 7), cti(4))
    says(page, "#corrections", "b · 7")  # it is taken back, and seen
    view(page, "time")
    page.until("document.querySelector('.cti-text').textContent === 'final before 4'")
    view(page, "sources")
    says(page, "[data-source=S]", "holds back out")
    view(page, "consistency")
    says(page, "#level", "remembers ∞")
    page.run("document.querySelector('#emit').value = 'final'")
    page.run("document.querySelector('#emit').dispatchEvent(new Event('change'))")
    until(lambda: live.handle.consistency.emit.value == "final")
    live.post("/api/queries/out/consistency", {"emit": "current"})
    view(page, "editor")
    assert page.run("[...document.querySelectorAll('#start, #drop, #play, #step')].every((e) => !e.checkVisibility())")
    page.type("#sql", OTHER.replace("best", "worst"))
    page.click("#alter")
    says(page, "#toast", "column")  # other columns have no place in its sink
    page.run("document.querySelector('#sql').value = ''")
    page.type("#sql", OTHER)
    says(page, "#plan", "min(x)")
    page.click("#alter")
    says(page, "#toast", "altered query out")
    live.write(row(30, "a", 5), row(31, "a", 2), cti(30))
    page.until("document.querySelector('[data-query=out]').innerText.includes('final before 30')", 60)
    assert live.rows("31") == [["a", 2]]
    page.click("#stop")
    says(page, "[data-query=out] .badge", "stopped")
    assert not live.handle.is_active and live.handle.last_error is None
    assert not page.complaints()
    page.close()


def test_a_query_that_fails_while_it_is_watched_is_said_in_words(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sink = MemorySink()
    live = Live(spark, tmp_path, sink, consistency=ew.consistency(remember="inf"))
    try:
        live.write(row(5, "a", 1), cti(4))
        until(lambda: live.rows() == [["a", 1]])
        told = live.post("/api/queries/out/consistency", {"block": 3})["level"]
        assert told["block"] == 3 and live.handle.consistency.block == 3
        live.write(("gossip", 90, 91, None, "z", 1))
        until(lambda: live.handle.last_error is not None)
        told = live.get("/api/state")
        assert told["state"] == "failed" and told["problem"].startswith("the Spark query failed: ")
        assert str(live.handle.last_error) in told["problem"] and told["queries"][0]["state"] == "failed"
        assert "failed" in live.post("/api/queries/out/stop", status=409)["error"]["message"]
        page = request.getfixturevalue("browser").page()
        page.open(live.opened.address)
        says(page, "#problem", "the Spark query failed")
        page.close()
    finally:
        live.close()
