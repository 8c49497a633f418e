"""A note tells of a change that the engine made: whoever reads elements reads over it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from everwhen.cli.program import main
from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.formats.input_file import InputFile, read_input
from everwhen.formats.json.lines import infer_schema, read_jsonlines

NOTE = '{"op":"note","t":4,"what":"window","of":"q","value":{"range":3}}'
LINES = [
    '{"vs":1,"row":{"item":7}}',
    NOTE,
    '{"vs":5,"row":{"item":8}}',
    NOTE.replace('"t":4', '"t":6'),
    '{"op":"cti","t":9}',
]


@pytest.fixture
def noted(tmp_path: Path) -> str:
    (tmp_path / "noted.jsonl").write_text("\n".join(LINES) + "\n")
    (tmp_path / "plain.jsonl").write_text("\n".join(line for line in LINES if "note" not in line) + "\n")
    return str(tmp_path / "noted.jsonl")


def test_notes_are_no_elements(noted: str) -> None:
    assert infer_schema(noted) == Schema.of([("item", pa.int64())])
    (batch,) = read_jsonlines(noted)
    assert [str(element) for element in batch.elements()] == ["insert [1, 2) item=7", "insert [5, 6) item=8", "cti 9"]
    assert [batch.line(i) for i in range(3)] == [1, 3, 5]


@pytest.mark.parametrize("skip", range(4))
def test_notes_do_not_count_where_a_run_goes_on(noted: str, skip: int) -> None:
    given = InputFile(noted, infer_schema(noted))
    whole = [element for batch in read_input(given, 1) for element in batch.elements()]
    assert [element for batch in read_input(given, 1, skip) for element in batch.elements()] == whole[skip:]


def test_checkers_and_diff_read_over_them(noted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", noted, str(tmp_path / "plain.jsonl")]) == 0
    assert main(["check", noted]) == 0
    assert "elements      3  (2 inserts, 0 adjusts, 1 ctis, 0 patterns)" in capsys.readouterr().out
    (tmp_path / "q.sql").write_text("SELECT item FROM S")
    assert main(["run", str(tmp_path / "q.sql"), "--in", f"S={noted}", "--engine", "local"]) == 0
    assert [json.loads(line).get("row") for line in capsys.readouterr().out.splitlines()][:2] == [
        {"item": 7},
        {"item": 8},
    ]


def test_what_only_looks_like_a_note_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text('{"op":"note","t":4,"whatever":"window"}\n')
    with pytest.raises(InputError, match=r'odd\.jsonl:1: unknown "op" the text "note"'):
        list(read_jsonlines(tmp_path / "odd.jsonl", Schema.of([("item", pa.int64())])))


def test_a_plain_row_that_looks_like_a_note_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"t":4,"op":"note","what":"x"}\n')
    given = InputFile(str(tmp_path / "rows.jsonl"), Schema.of([("op", pa.string()), ("what", pa.string())]), time="t")
    assert sum(len(batch) for batch in read_input(given, 10)) == 1
