"""A query on Spark as a notebook shows it: its graph and its answer, as a session's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import everwhen as ew
from everwhen.sinks import MemorySink
from everwhen.spark.sources.source import SparkSource
from spark.test_bad_input import S, begin, read, write

pytestmark = pytest.mark.spark


def test_a_notebook_shows_the_graph_and_the_answer(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("insert", t, t + 5, None, "<a>", t) for t in (1, 2)]
    write(tmp_path / "S", 0, [*rows, ("cti", 1, None, None, None, None)])
    query = ew.sql("SELECT k, MAX(x) AS best FROM S GROUP BY k", S)
    source = SparkSource("vs", end="ve", op="op", vnew="vnew")
    inputs = {"S": read(spark, tmp_path / "S")}
    handle = begin(
        spark, tmp_path, MemorySink(), query, inputs=inputs, sources={"S": source}, trigger="20 milliseconds"
    )
    try:
        handle.process_available()
        html = handle._repr_html_()
        assert html is not None and "<svg" in html and "on Spark: running, middle" in html and "aggregate" in html
        assert html.count("<table") == 1 and "<td>&lt;a&gt;</td><td>2</td>" in html and "<script" not in html
        write(tmp_path / "S", 1, [("insert", 3, 9, None, "b", 7)])
        handle.process_available()
        assert "<td>b</td><td>7</td>" in str(handle._repr_html_())
    finally:
        handle.stop()
    assert "on Spark: stopped" in str(handle._repr_html_())
