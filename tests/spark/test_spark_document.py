"""Every example of the pages with Spark that needs no other system runs as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from doc_examples import ROOT, run_document


@pytest.mark.parametrize("page", ["spark.md", "own_csv.md"])
def test_examples_run_as_printed(
    page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(ROOT / "docs" / page, tmp_path, capsys)
