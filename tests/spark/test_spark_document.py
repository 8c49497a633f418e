"""Every example of docs/spark.md that needs no other system runs as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from doc_examples import ROOT, run_document


def test_examples_run_as_printed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(ROOT / "docs" / "spark.md", tmp_path, capsys)
