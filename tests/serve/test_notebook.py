"""A session in a notebook: the graph and the answer as HTML, and a widget that is drawn anew after epochs."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.language.program import program
from everwhen.stream.element_batch import batch_of

S = ew.source("S", {"k": "string", "x": "int64"})
BEST = S.range(10).group_by("k").agg(best=ew.max("x"))


def push(session: ew.Session, *elements: ew.Insert | ew.Cti | ew.Adjust) -> None:
    session.push({"S": batch_of(elements, S.schema)})


def row(t: int, k: str, x: int) -> ew.Insert:
    return ew.Insert(t, t + 1, {"k": k, "x": x})


def test_a_query_shows_its_answer_as_of_now_also_what_stood_before_it_was_asked() -> None:
    session = ew.Session()
    query = session.register("best", BEST)
    push(session, row(1, "<b>", 7), row(2, "c", 5), ew.Cti(2))
    html = query._repr_html_()
    assert html.count("<tr>") == 3 and "&lt;b&gt;" in html and "<b>" not in html
    assert "best as of 2: 2 rows; final before 2" in html and "○ open" in html
    push(session, row(4, "c", 9), row(12, "d", 1), ew.Cti(13))  # the first ones have ended
    html = session._repr_html_()
    assert "1 query runs, 2 epochs" in html and "<td>9</td>" in html and "<td>7</td>" not in html
    session.stop("best")
    assert "<table" not in query._repr_html_() and "stopped" in query._repr_html_()


def test_an_answer_that_is_said_when_it_is_final_has_rows_too() -> None:
    session = ew.Session(emit="final")
    query = session.register("best", BEST)
    query._repr_html_()
    push(session, row(1, "a", 7), ew.Cti(5))
    assert "<td>7</td>" in query._repr_html_() and "final before 5" in query._repr_html_()


def test_times_are_shown_as_the_sources_have_them() -> None:
    session = ew.Session()
    text = "CREATE STREAM S (at TIMESTAMP, x INT) ORDERED BY at; SELECT MAX(x) AS m FROM S WINDOW(RANGE 10 MINUTES)"
    query = session.register("m", program(text).query)
    at = 1709276400000
    session.push({"S": batch_of([ew.Insert(at, at + 1, {"x": 7}), ew.Cti(at)], session.schema_of("S"))})
    for html in (session._repr_html_(), query._repr_html_()):
        assert "as of 2024-03-01 07:00:00" in html and "final before 2024-03-01 07:00:00" in html
        assert ">final before 2024-03-01 07:00:00</text>" in html and "<td>2024-03-01 07:00:00</td>" in html
        assert str(at) not in html


def test_an_sql_session_shows_all_its_queries() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (k TEXT, x INT); SELECT k FROM S; SELECT MAX(x) AS m FROM S WINDOW(RANGE 10)")
    session.push({"S": batch_of([row(1, "a", 7)], session.schema_of("S"))})
    assert session._repr_html_().count("<table") == 2


def test_a_widget_is_drawn_anew_after_epochs_until_it_is_closed() -> None:
    pytest.importorskip("anywidget", reason="there is no anywidget: it comes with everwhen[notebook]")
    session = ew.Session()
    session.register("best", BEST)
    widget = ew.live(session, every=1e-9)
    push(session, row(1, "a", 7))
    assert "<td>7</td>" in widget.html and widget._esm
    widget.close()
    before = widget.html
    push(session, row(2, "a", 8))
    assert widget.html == before and not session.watchers
    slow = ew.live(session, every=3_600)
    push(session, row(3, "a", 9))
    assert "<td>9</td>" not in slow.html  # not so soon
    slow.close()


def test_what_is_missing_or_wrong_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ew.Session()
    with pytest.raises(ew.QueryError, match="more than 0"):
        ew.live(session, every=0)
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    with pytest.raises(ew.QueryError, match=r"pip install 'everwhen\[notebook\]'"):
        ew.live(session)
