"""What a second look from outside has found: messages that led astray, tables that were hard to read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import everwhen as ew
from everwhen.errors import InputError, SqlError
from newuser.desk import Desk

STREAM = "CREATE STREAM S (ts TIMESTAMP, name TEXT, v INT) ORDERED BY ts;"
FRAME = pd.DataFrame({"ts": pd.to_datetime(["2024-03-31 00:30"]), "name": ["a"], "v": [1]})


def test_a_structure_in_a_table_is_no_python() -> None:
    query = ew.sql(f"{STREAM} SELECT name, window, COUNT(*) AS n FROM S GROUP BY name, window(ts, '1 hour')")
    shown = "{start: 2024-03-31 00:00:00, end: 2024-03-31 01:00:00}"
    answer = ew.run(query, {"S": FRAME})
    assert shown in str(answer) and shown in answer._repr_html_()


def test_the_index_of_a_frame_is_named() -> None:
    query = ew.sql(f"{STREAM} SELECT name FROM S")
    with pytest.raises(InputError, match=r"'ts' is the index of the frame, which is not read \(make it a column"):
        list(ew.run(query, {"S": FRAME.set_index("ts")}))
    assert len(list(ew.run(query, {"S": FRAME.set_index(pd.Index([7], name="other"))}))) == 2


HEADERS = {
    "ts;name;v": "are these columns with ';' between them? In .csv there are commas, in .tsv tabs",
    "ts\tname\tv": "are these columns with tabs between them?",
    "TS,name,v": "the file writes it 'TS': declare TS",
    "ts, name,v": "the file writes it ' name': declare \" name\"",
    "time,name,v": "there is neither a column 'vs' nor 'ts' (there is time, name, v)",
}


@pytest.mark.parametrize("header", HEADERS)
def test_why_a_column_is_not_there(header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path, capsys)
    between = next((mark for mark in ";\t" if mark in header), ",")
    desk.write("odd.csv", f"{header}\n{between.join(['2024-03-31 00:30', 'a', '1'])}\n")
    query = desk.write("q.sql", f"{STREAM} SELECT name FROM S")
    status, _, err = desk.call("run", query, "--in", f"S={tmp_path / 'odd.csv'}", "--engine", "local")
    assert status == 3 and HEADERS[header] in err


def test_the_argument_of_an_aggregate_is_told_as_it_was_written() -> None:
    with pytest.raises(SqlError, match="sum\\(v > 1\\) needs numbers; v > 1 is of type bool"):
        ew.sql(f"{STREAM} SELECT SUM(v > 1) AS n FROM S")


def test_what_has_not_run_has_cost_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path, capsys)
    script = desk.write("s.sql", f"{STREAM} SELECT name, SUM(v) AS n FROM S GROUP BY name; EXPLAIN ANALYZE q1;")
    rows = desk.write("rows.csv", "ts,name,v\n2024-03-31 00:30,a,1\n")
    status, out, _ = desk.call("shell", script, "--in", f"S={rows}")
    assert status == 0 and "No operator has had anything to do." in out and "1.000 s" not in out


def test_a_job_that_does_not_run_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    desk.write("in.jsonl", '{"vs":1,"row":{"k":1}}\n{"op":"cti","t":null}\n')
    text = "CREATE STREAM S (k INT) SOURCE file('in.jsonl'); CREATE SINK f FROM S INTO file('out.jsonl')"
    assert desk.call("start", desk.write("job.sql", text), "--checkpoint", "st", "--engine", "local")[0] == 0
    status, out, _ = desk.call("status", "st", "--waiting", "--analyze")
    assert status == 0 and "it does not run, so it cannot be asked (waiting, analyze)" in out
