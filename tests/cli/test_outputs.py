"""An answer never takes the place of what it was computed from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everwhen.cli.program import main

LINES = '{"vs":1,"row":{"item":7,"price":2}}\n{"vs":2,"row":{"item":8,"price":1}}\n'


@pytest.mark.parametrize("link", (None, os.symlink, os.link))
def test_the_answer_does_not_replace_an_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], link) -> None:  # type: ignore[no-untyped-def]
    bids, out = tmp_path / "bids.jsonl", tmp_path / "bids.jsonl"
    bids.write_text(LINES)
    if link is not None:
        out = tmp_path / "other.jsonl"
        link(bids, out)
    (tmp_path / "q.sql").write_text("SELECT item FROM Bid")
    query = str(tmp_path / "q.sql")
    assert main(["run", query, "--in", f"Bid={bids}", "--engine", "local", "--out", str(out)]) == 2
    assert f"--out {out} is the input Bid, which the answer would replace" in capsys.readouterr().err
    assert bids.read_text() == LINES


def test_nor_a_changelog_that_it_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bids.jsonl").write_text(LINES + '{"op":"cti","t":null}\n')
    (tmp_path / "q.sql").write_text("SELECT item, price FROM Bid")
    query, log = str(tmp_path / "q.sql"), f"{tmp_path}/log/"
    assert main(["run", query, "--in", f"Bid={tmp_path}/bids.jsonl", "--engine", "local", "--out", log]) == 0
    assert main(["run", query, "--in", f"Bid={log}", "--follow", "--out", log]) == 2
    assert "is the input Bid" in capsys.readouterr().err


def test_csv_is_refused_by_all_commands_on_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("vs,item\n1,7\n")
    for command in (["check", str(rows)], ["history", str(rows)], ["diff", str(rows), str(rows)]):
        assert main(command) == 2
        assert "CSV is read by run and shell" in capsys.readouterr().err
