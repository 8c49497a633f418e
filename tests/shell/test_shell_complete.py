"""Completion: what a word may become, by where it stands; and a history that never gets in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from everwhen.engine.session.sql_session import SqlSession
from everwhen.shell.commands import COMMANDS
from everwhen.shell.completion import Names, candidates, history_file, line_editing, names_of


@pytest.fixture
def names() -> Names:
    session = SqlSession()
    session.execute("CREATE STREAM Bid (item INT, bid_price INT); CREATE STREAM Ask (item INT, ask_price INT)")
    session.start("best", "SELECT item FROM Bid")
    return names_of(session, ["Person"], list(COMMANDS))


@pytest.mark.parametrize(
    ("before", "word", "expected"),
    [
        ("SELECT * FROM ", "Bi", ["Bid"]),
        ("SELECT * FROM ", "bid", ["bid_price"]),
        ("SELECT ", "bi", ["bid_price", "bit_and(", "bit_or(", "bit_xor("]),
        ("SELECT * FROM ", "pers", ["Person"]),
        ("SELECT ", "ask.", ["ask.item", "ask.ask_price"]),
        ("SELECT ", "b.bid", ["b.bid_price"]),
        ("SELECT ", "medi", ["median("]),
        ("", "CRE", ["CREATE"]),
        ("", "cre", ["create"]),
        ("SELECT 1 FROM Bid ", "WIN", ["WINDOW"]),
        ("", "\\st", ["\\streams", "\\step", "\\state", "\\stop", "\\start"]),
        ("\\stop ", "", ["best"]),
        ("\\explain ", "B", ["Bid"]),
        ("\\explain ", "b", ["best"]),
        ("\\open ", "A", ["Ask"]),
        ("SELECT ", "zzz", []),
    ],
)
def test_candidates(names: Names, before: str, word: str, expected: list[str]) -> None:
    assert candidates(before, word, names) == expected


def test_files_are_completed_where_a_file_is_due(names: Names, tmp_path: Path) -> None:
    (tmp_path / "bids.jsonl").touch()
    (tmp_path / "bids").mkdir()
    found = candidates("\\open Bid ", f"{tmp_path}/bi", names)
    assert found == [f"{tmp_path}/bids.jsonl", f"{tmp_path}/bids/"]


def test_history_is_kept_in_the_state_directory_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: Names
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "everwhen" / "history"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))  # no directory can be made there
    with line_editing(lambda: names):
        pass
    assert (tmp_path / "file").read_text() == ""
