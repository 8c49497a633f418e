"""Lines put together to statements and commands, wherever they are cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.shell.reader import Piece, Reader

STATEMENTS = (
    "SELECT ';' FROM Bid;",
    "SELECT 'it''s; fine' AS \"a;b\" FROM Bid;",
    "SELECT `;` /* ; /* nested; */ still; */ FROM Bid;",
    "SELECT 1 -- not yet;\nFROM Bid;",
    "SELECT 2*/* a star; */3\n\n  FROM\nBid;",
    "SELECT 1 - -2 / 3 FROM Bid;",
)


def pieces(text: str, numbered: bool = False) -> list[Piece]:
    reader = Reader(numbered)
    return [piece for line in text.split("\n") for piece in reader.take(line)] + reader.finish()


@given(st.lists(st.sampled_from(STATEMENTS)), st.sampled_from((" ", "\n", "\n\n", " ; \n", "\n-- a; comment\n")))
@settings(max_examples=100, deadline=None)
def test_statements_come_out_as_they_went_in(statements: list[str], between: str) -> None:
    found = [piece.text.strip() for piece in pieces(between.join(statements))]
    assert [_bare(text) for text in found] == list(map(_bare, statements))


def _bare(text: str) -> str:
    """Without a comment that stands before it."""
    return text.removeprefix("-- a; comment").strip()


@given(st.lists(st.sampled_from(STATEMENTS), min_size=1), st.sampled_from((" ", "\n", "  \n")))
@settings(max_examples=50, deadline=None)
def test_places_are_those_of_the_script(statements: list[str], between: str) -> None:
    script = between.join(statements)
    for piece in pieces(script, numbered=True):
        at = len(piece.text) - len(piece.text.lstrip())
        line, column = piece.text.count("\n", 0, at), at - piece.text.rfind("\n", 0, at) - 1
        assert script.split("\n")[line][column:].startswith(piece.text.lstrip().split("\n")[0])


def test_a_command_is_a_line_also_amid_a_statement() -> None:
    assert pieces("\\show q1\nSELECT\n  \\help\n1 FROM Bid;") == [
        Piece("\\show q1", True),
        Piece("\\help", True),
        Piece("SELECT\n\n1 FROM Bid;"),
    ]
    assert pieces("SELECT '\n\\help\n' FROM Bid;") == [Piece("SELECT '\n\\help\n' FROM Bid;")]


def test_what_is_left_is_handed_on_and_what_is_cancelled_is_not() -> None:
    assert pieces("SELECT 1") == [Piece("SELECT 1")]
    assert pieces("-- nothing\n\n ; ; ") == []
    assert pieces("/* never closed") == [Piece("/* never closed")]
    reader = Reader()
    reader.take("SELECT 'a")
    assert reader.is_under_way
    reader.cancel()
    assert not reader.is_under_way and reader.take("\\quit") == [Piece("\\quit", True)]
