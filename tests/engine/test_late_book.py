"""Where late rows of runs over files are kept, and what is told of them and of silence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from everwhen.cli.program import main
from everwhen.core.late_count import LateCount, LateWarnings
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.engine.files.late_book import LateBook, SilenceWatch, silence
from everwhen.errors import QueryError
from everwhen.formats.input_file import InputFile
from everwhen.operators.ingress.finalize import DroppedElements
from everwhen.stream.element import Adjust, Element, Insert
from everwhen.stream.element_batch import batch_of

SCHEMA = Schema.of([("x", pa.int64())])


def lost(*elements: Element) -> DroppedElements:
    return DroppedElements(batch_of(elements, SCHEMA), np.ones(len(elements), np.uint8))


def kept(place: Path) -> list[int]:
    return [json.loads(line)["row"]["x"] for line in place.read_text().splitlines()]


def test_rows_are_kept_once_though_work_is_done_again(tmp_path: Path) -> None:
    place = tmp_path / "late.jsonl"
    place.write_text("of an earlier run\n")
    given = {"S": InputFile("s.jsonl", SCHEMA, late_rows=str(place)), "T": InputFile("t.jsonl", SCHEMA)}
    book = LateBook(given, lambda _: None)
    book.begin({})
    book.note("S", lost(Insert(1, 2, {"x": 1}), Adjust(1, 3, 2, {"x": 2})))
    book.note("T", lost(Insert(1, 2, {"x": 9})))
    book.flush()
    assert kept(place) == [1, 2]
    book.note("S", lost(Insert(1, 2, {"x": 3})))
    book.close()
    book = LateBook(given, lambda _: None)
    book.begin({"S": 2})
    book.note("S", lost(Insert(1, 2, {"x": 3}), Insert(1, 2, {"x": 4})))
    book.close()
    assert kept(place) == [1, 2, 3, 4]


def test_totals_and_warnings_are_told(tmp_path: Path) -> None:
    told: list[str] = []
    book = LateBook({"S": InputFile("s.jsonl", SCHEMA, late_rows=str(tmp_path / "l"))}, told.append)
    for count in (
        LateCount(99, 9),
        LateCount(100, 1),
        LateCount(1_000, 11),
        LateCount(1_500, 21),
        LateCount(2_000, 22),
    ):
        book.look({"S": count})
    assert [words.split(" came")[0] for words in told] == [
        "S: 11 of 1,000 rows (1.1 %)",
        "S: 22 of 2,000 rows (1.1 %)",
    ]
    told.clear()
    book.end({"S": LateCount(50, 0, 2), "T": LateCount(10)})
    assert told == ["S: 2 of 50 rows (4 %) came behind what the stream had promised: 2 moved to the promise"]
    assert LateWarnings().look({"S": LateCount()}) == []


def test_an_epoch_full_of_late_rows_is_told_however_many_were_on_time() -> None:
    warnings = LateWarnings()
    assert warnings.look({"S": LateCount(1_000_000, 5)}) == []
    assert warnings.look({"S": LateCount(1_000_050, 55)}) == []  # an epoch of a few
    (told,) = warnings.look({"S": LateCount(1_001_050, 155)})
    assert told.startswith("S: 155 of 1,001,050 rows (0.015 %)")


def test_two_streams_do_not_share_a_file() -> None:
    files = {name: InputFile(f"{name}.jsonl", SCHEMA, late_rows="late.jsonl") for name in "ST"}
    with pytest.raises(QueryError, match=r"the late rows of S, T cannot all go to late.jsonl; give each a file"):
        LateBook(files, lambda _: None)


def test_silence_is_told_where_nothing_was_promised() -> None:
    assert silence({"S": NEVER, "T": 5}, True, 3) is not None
    assert silence({"S": NEVER}, False, 0) is not None
    assert silence({"S": NEVER}, False, 3) is None
    assert silence({"S": 4}, True, 0) is None


def test_a_run_that_goes_on_tells_it_once_after_a_while() -> None:
    told: list[str] = []
    watch = SilenceWatch(told.append, final=True, after=3.0)
    for now in (0.0, 2.9, 3.0, 9.0):
        watch.look({"S": NEVER}, 0, now)
        assert len(told) == (now >= 3.0)
    for final, said in ((False, 0), (True, 1)):
        quiet = SilenceWatch(told.append, final, 0.0)
        quiet.look({"S": NEVER}, said, 1.0)
        quiet.look({"S": NEVER}, said, 2.0)
    assert len(told) == 1


def test_times_are_written_as_the_answer_has_them(tmp_path: Path) -> None:
    place, rows = tmp_path / "late.jsonl", "at,x\n2024-03-01 08:00:00,1\n2024-03-01 09:00:00,2\n2024-03-01 07:00:00,3\n"
    (tmp_path / "s.csv").write_text(rows)
    text = "CREATE STREAM S (at TIMESTAMP, x INT) ORDERED BY at WITHIN 1 MINUTE LATE ROWS DROP; SELECT x FROM S"
    (tmp_path / "q.sql").write_text(text)
    given = [f"{tmp_path}/q.sql", "--in", f"S={tmp_path}/s.csv", "--batch", "1", "--engine", "local"]
    assert main(["run", *given, "--late-rows", str(place)]) == 0
    assert json.loads(place.read_text())["vs"] == "2024-03-01T07:00:00Z"
    assert main(["run", *given, "--late-rows", str(place), "--times", "ticks"]) == 0
    assert json.loads(place.read_text())["vs"] == 1709276400000


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.jsonl").write_text('{"op":"cti","t":9}\n{"vs":2,"row":{"x":1}}\n{"op":"cti","t":null}\n')
    (tmp_path / "q.sql").write_text("SELECT x FROM S")
    given = ["run", f"{tmp_path}/q.sql", "--in", f"S={tmp_path}/s.jsonl", "--late", "drop", "--engine", "local"]
    assert main([*given, "--late-rows", "/dev/full"]) == 1
    assert "/dev/full: cannot keep the late rows of S: no space is left (free some" in capsys.readouterr().err
    assert main([*given, "--late-rows", "/dev/null"]) == 0


def test_a_run_that_goes_on_writes_them_as_its_answer_has_them(tmp_path: Path) -> None:
    place, file = tmp_path / "late.jsonl", tmp_path / "s.jsonl"
    rows = ['{"op":"cti","t":"2024-03-01T09:00:00Z"}', '{"vs":"2024-03-01T07:00:00Z","row":{"x":1}}']
    file.write_text("\n".join([*rows, '{"op":"cti","t":null}\n']))
    (tmp_path / "q.sql").write_text("CREATE STREAM S (x INT) LATE ROWS DROP; SELECT x FROM S")
    given = ["run", f"{tmp_path}/q.sql", "--in", f"S={file}", "--follow", "--batch", "1", "--late-rows", str(place)]
    assert main([*given, "--out", f"{tmp_path}/out/"]) == 0
    assert json.loads(place.read_text())["vs"] == "2024-03-01T07:00:00Z"
    assert main([*given, "--out", f"{tmp_path}/ticks/", "--times", "ticks"]) == 0
    assert json.loads(place.read_text())["vs"] == 1709276400000
