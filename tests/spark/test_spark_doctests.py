"""The examples in the docstrings of `ew.spark` that need a running session, which they read as `spark`."""

from __future__ import annotations

import ast
import doctest
import inspect
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import everwhen as ew


def examples_of(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(ew.spark, name)) or "")


def reads_spark(name: str) -> bool:
    trees = [ast.parse(example.source) for example in examples_of(name)]
    return any(isinstance(node, ast.Name) and node.id == "spark" for tree in trees for node in ast.walk(tree))


WITH_A_SESSION = [name for name in ew.spark.__all__ if reads_spark(name)]


def test_there_are_some() -> None:
    assert {"run", "session", "start", "Handle"} <= set(WITH_A_SESSION)


@pytest.mark.parametrize("name", WITH_A_SESSION)
def test_the_example_runs(name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    globals_: dict[str, Any] = {"spark": spark}
    test = doctest.DocTest(examples_of(name), globals_, f"ew.spark.{name}", None, None, None)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert not report, "".join(report)
