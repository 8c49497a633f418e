"""The table of `README.md` here is complete and its tests are there; and the problems that have no other test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import everwhen as ew
from everwhen.demo.spark import SparkDemo
from everwhen.stream.element_batch import batch_of
from newuser.desk import DECLARED, Desk

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = re.findall(
    r"^\| (P\d+|pages|demo) \| (.+) \| `([\w/]+\.py)::(\w+)` \|$", (HERE / "README.md").read_text(), re.MULTILINE
)


def test_every_problem_is_in_the_table() -> None:
    rows = [line for line in (HERE / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == len(TABLE) + 1, "a line of the table without a test"
    assert {problem for problem, *_ in TABLE} == {*(f"P{i}" for i in range(1, 14)), "pages", "demo"}


@pytest.mark.parametrize(("file", "name"), sorted({(file, name) for *_, file, name in TABLE}))
def test_the_test_of_a_problem_is_there(file: str, name: str) -> None:
    text = (ROOT / "tests" / file).read_text()
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file}::{name}"


# -- P13 ---------------------------------------------------------------------------------------------------------------


def test_the_three_largest_are_what_limit_says(desk: Desk) -> None:
    rows = "".join(f"2015-02-26 21:42:53,S{i},{i * 7 % 11}\n" for i in range(10))
    desk.write("ten.csv", "timestamp,symbol,value\n" + rows)
    status, out, err = desk.run("SELECT symbol, value FROM Tweets ORDER BY value DESC LIMIT 3", "ten.csv")
    assert status == 0 and "every instant has ranks of its own" in err, "these rows are all of one"
    found = [json.loads(line) for line in out.splitlines()]
    assert {row["row"]["value"] for row in found if row["op"] == "insert"} == {10, 9, 8}
    status, _, err = desk.run("SELECT TOP 3 symbol FROM Tweets", "ten.csv")
    assert status == 2 and "write ORDER BY … LIMIT" in err, "who writes it otherwise is shown how"


# -- P4 ----------------------------------------------------------------------------------------------------------------


def test_between_two_epochs_the_picture_of_the_demo_moves() -> None:
    source = ew.source("S", {"x": "int64"})
    demo = SparkDemo(["q"])
    for epoch, tau in enumerate((100, 200)):
        steps = range(tau - 100, tau, 10)
        demo.sink("q")(epoch, batch_of([ew.Insert(t, t + 10, {"x": t}) for t in steps], source.schema))
        progress: Any = dict.fromkeys(demo.read, tau)
        demo.take([SimpleNamespace(epoch=epoch, tau=tau, progress=progress, holding=(), buckets=[], seconds=9.0)])
    shown = []
    for share in (0.05, 0.35, 0.65):
        now = demo.playing(demo.last + share * demo.pace)
        shown.append([row for _, row in demo.results["q"].alive(now)])
    assert shown == [[(100,)], [(130,)], [(160,)]], "while the third epoch runs, the second passes by"


# -- the pages ---------------------------------------------------------------------------------------------------------

SAID = [
    ("README.md", r"(?s)\A.{0,1500}## Why not Spark or Flink alone\?.{0,1200}\| corrections as input \|"),
    ("README.md", r"pip install '\.\[spark\]'"),
    ("docs/coming-from.md", r"withWatermark.*`ORDERED BY at WITHIN 5 SECONDS` behind CREATE STREAM.*`--within 5s`"),
    ("docs/coming-from.md", r"## From Materialize, RisingWave, Feldera"),
    ("docs/sql.md", r"### Where promises come from"),
    ("docs/spark.md", r"A row behind the frontier of its own source, as it was when the epoch began, is late"),
    ("docs/spark.md", r"## Kafka"),
    ("docs/jobs.md", r"CREATE SINK"),
]


@pytest.mark.parametrize(("page", "pattern"), SAID)
def test_the_pages_say_what_was_missing(page: str, pattern: str) -> None:
    assert re.search(pattern, (ROOT / page).read_text())
    assert "An answer has no order" not in (ROOT / page).read_text(), "sql.md has a chapter on ORDER BY"


def test_a_page_begins_with_a_csv_of_timestamps(desk: Desk) -> None:
    page = (ROOT / "docs" / "own_csv.md").read_text()
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", page[:3000]) and "own_csv.md" in (ROOT / "README.md").read_text()
    status, out, err = desk.run("SELECT symbol, value FROM Tweets", "tweets.csv", declared="")
    assert (status, out) == (3, "") and DECLARED.split("ORDERED")[0].strip() in err, "the first error has the remedy"
