"""Every example in README and docs runs as it is printed.  Those on Spark: `tests/spark/test_spark_document.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from doc_examples import DOCUMENTS, ROOT, blocks, run_document

ON_SPARK = {ROOT / "docs" / "spark.md", ROOT / "docs" / "own_csv.md"}


@pytest.mark.parametrize("name", [path.relative_to(ROOT).as_posix() for path in DOCUMENTS if path not in ON_SPARK])
def test_examples_run_as_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(ROOT / name, tmp_path, capsys)


def test_readme_shows_both_kinds_of_example() -> None:
    languages = {block.language for block in blocks(ROOT / "README.md")}
    assert {"python", "console"} <= languages
