"""Messages that new users met first: each names the remedy that helps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.cli.program import main
from everwhen.errors import QueryError
from everwhen.shell.completion import KEYWORDS

STREAM = "CREATE STREAM S (symbol TEXT, n INT, r REAL, b BOOLEAN, t TIMESTAMP, d DATE)"


@pytest.mark.parametrize(
    ("condition", "to"),
    [("symbol = 5", "INT"), ("symbol = 1.5", "DOUBLE"), ("symbol = b", "BOOLEAN"), ("symbol < t", "TIMESTAMP")],
)
def test_text_beside_another_type_is_cast_to_that_type(condition: str, to: str) -> None:
    with pytest.raises(QueryError, match=rf"cast the text, for example CAST\(x AS {to}\)"):
        ew.sql(f"{STREAM}; SELECT n FROM S WHERE {condition}")


@pytest.mark.parametrize("unit", ["MONTH", "months", "YEARS"])
def test_a_month_has_no_length(unit: str) -> None:
    with pytest.raises(QueryError, match="has no fixed length; write days or weeks"):
        ew.sql(f"{STREAM}; SELECT n FROM S WINDOW(RANGE 1 {unit})")


def test_a_csv_without_lifetimes_is_answered_with_a_declaration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.sql").write_text("SELECT symbol FROM T")
    (tmp_path / "in.csv").write_text("symbol,timestamp\na,2015-02-26 21:42:53\n")
    assert main(["run", str(tmp_path / "q.sql"), "--in", f"T={tmp_path / 'in.csv'}", "--engine", "local"]) == 3
    assert "ORDERED BY timestamp" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="a folder in which nobody can write")
def test_a_place_that_cannot_be_written_is_named_as_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"vs":1,"row":{"a":1}}\n')
    assert main(["history", str(tmp_path / "in.jsonl"), "--out", "/proc/x.jsonl"]) == 2
    said = capsys.readouterr().err
    assert "/proc/x.jsonl: " in said and ".part" not in said


def test_completion_offers_no_word_that_is_refused() -> None:
    assert not {"QUALIFY", "LIMIT", "OFFSET"} & set(KEYWORDS)
    assert {"SELECT", "WINDOW", "UNION"} <= set(KEYWORDS)
