"""What the shell shows: aligned, within its width, and harmless."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from everwhen.core.time import INF, NEVER
from everwhen.shell.view import InputView, LiveView, picture, plain, rows_shown, table

VALUES = st.one_of(st.none(), st.integers(-1000, 1000), st.text(max_size=30))


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=6), st.integers(30, 120))
@settings(max_examples=100, deadline=None)
def test_a_table_fits_its_width_and_is_one_line_per_row(rows: list[tuple[object, ...]], width: int) -> None:
    lines = table(("a", "a longer name", "c"), rows, width)
    assert len(lines) == len(rows) + 2
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)


def test_a_table_needs_no_width() -> None:
    wide = "x" * 500
    assert table(("t",), [(wide,)])[2] == wide
    assert rows_shown(("n",), [(1,), (2,), (3,)], None, 2)[-1] == "… and 1 more row"
    assert table(("only",), []) == ["only", "────"]


def test_what_cannot_be_printed_is_shown_as_an_escape() -> None:
    assert plain("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"


def test_the_picture_fits_the_terminal() -> None:
    for width, height in ((40, 12), (80, 24), (120, 50)):
        for many in (0, 3, 500):
            view = LiveView(
                "q1", "SELECT a very long text " * 9, ("item", "price"), [(n, n * 1.5) for n in range(many)],
                [f"adjust [{n}, ∞ -> {n + 1}) item={n} " + "x" * 200 for n in range(many)], 17, 12,
                [InputView("Bid", 1000, 12, False), InputView("Item", 3, INF, True)], 7, 1003, 1e6, 3.2, 2,
            )  # fmt: skip
            out = io.StringIO()
            Console(file=out, width=width, height=height).print(picture(view, width, height))
            lines = out.getvalue().splitlines()
            assert len(lines) < height and all(cell_len(line) <= width for line in lines)
            assert "read: Bid 1,000 CTI 12, Item 3 ended"[: width - 1] in out.getvalue()


def test_a_picture_of_nothing() -> None:
    out = io.StringIO()
    empty = LiveView("q1", "SELECT 1", ("x",), (), (), NEVER, NEVER, (), 0, 0, 0.0, 0.0)
    Console(file=out, width=80).print(picture(empty, 80, 24))
    assert "0 rows nothing has come yet" in out.getvalue()
