"""The book of an answer: its snapshots are those of the history, whatever was cut, corrected or sampled."""

from __future__ import annotations

import random

import numpy as np

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe import answer_book
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History

SCHEMA = ew.source("S", {"k": "string", "x": "int64"}).schema


def book_of(*batches: list[Element]) -> AnswerBook:
    book, tau = AnswerBook(SCHEMA, Emit.CURRENT, lambda: 7.0), NEVER
    for elements in batches:
        starts = [each.vs for each in elements if isinstance(each, Insert)]
        tau = max([tau, *starts])
        book.take(batch_of(elements, SCHEMA), tau)
    return book


def rows_at(book: AnswerBook, t: int) -> list[tuple[object, ...]]:
    return sorted(tuple(each["row"]) for each in book.snapshot(t, 10_000)["rows"] for _ in range(each["n"]))


def row(k: str, x: int) -> dict[str, object]:
    return {"k": k, "x": x}


def random_stream(seed: int) -> list[list[Element]]:
    draw = random.Random(seed)
    alive: list[Insert] = []
    batches: list[list[Element]] = []
    for epoch in range(12):
        batch: list[Element] = []
        for _ in range(draw.randrange(20)):
            if alive and draw.random() < 0.4:
                old = alive.pop(draw.randrange(len(alive)))
                new = draw.choice([old.vs, old.vs + 1 + draw.randrange(30), INF])
                batch.append(Adjust(old.vs, old.ve, new, old.row))
                if new > old.vs:
                    alive.append(Insert(old.vs, new, old.row))
            else:
                start = 10 * epoch + draw.randrange(10)
                made = Insert(start, draw.choice([start + 5, INF]), row(draw.choice("abc"), draw.randrange(3)))
                batch.append(made)
                alive.append(made)
        batches.append(batch)
    return batches


def test_a_sample_in_which_nothing_is_left_is_empty() -> None:
    start = next(t for t in range(100) if not answer_book._kept(np.array([t]), 64)[0])
    book = book_of([Insert(start, INF, row("a", x)) for x in range(40)])
    book.settle()
    book.take(batch_of([Insert(start, INF, row("b", x)) for x in range(64)], SCHEMA), start)
    book.settle(most=1)
    told = book.snapshot(None, 10)
    assert told["sample"] == 64 and told["rows"] == [] and told["total"] == 0
    assert book.timeline(0, 200, 10)["events"] == []


def test_a_snapshot_at_any_instant_is_that_of_the_history() -> None:
    for seed in range(10):
        batches = random_stream(seed)
        history = History.of([each for batch in batches for each in batch], SCHEMA)
        book = book_of(*batches)
        for t in range(-1, 160, 7):
            assert rows_at(book, t) == sorted(history.snapshot(t).elements()), (seed, t)


def test_now_is_the_largest_start_and_final_what_is_promised() -> None:
    told = book_of([Insert(3, 9, row("a", 1)), Insert(5, INF, row("b", 2)), Cti(4)]).snapshot(None, 10)
    assert (told["at"], told["final_before"], told["final"], told["total"]) == (5, 4, False, 2)
    assert [each["ve"] for each in told["rows"]] == [9, "inf"]
    assert book_of([Insert(3, 9, row("a", 1)), Cti(4)]).snapshot(3, 10)["final"]


def test_an_end_that_becomes_known_is_no_correction_and_a_late_row_is_one() -> None:
    book = book_of(
        [Insert(1, INF, row("a", 1)), Insert(10, INF, row("b", 1))],
        [Adjust(1, INF, 12, row("a", 1)), Insert(12, INF, row("a", 2))],
        [Adjust(10, INF, 10, row("b", 1)), Insert(4, INF, row("c", 1)), Adjust(1, 12, 6, row("a", 1))],
    )
    found = book.changed(0)
    assert [(each.kind, each.row) for each in found] == [
        ("taken back", ["b", 1]),
        ("late", ["c", 1]),
        ("moved", ["a", 1]),
    ]
    assert book.counts == answer_book.Counts(4, 3, 3)
    assert [each.row[0] for each in book.changed(0, at=5)] == ["c"]
    assert [each.row[0] for each in book.changed(0, at=8)] == ["c", "a"]
    assert book.changed(found[-1].number) == []


def test_what_is_kept_is_bounded_and_says_from_when_on_it_is_whole() -> None:
    n = 3 * answer_book.EVENTS
    book = AnswerBook(SCHEMA, Emit.CURRENT)
    for begin in range(0, n, 5_000):
        book.take(batch_of([Insert(t, t + 3, row("a", t)) for t in range(begin, begin + 5_000)], SCHEMA), begin + 4_999)
        book.settle()
        book.settle()
    told = book.snapshot(n - 1, 10)
    assert told["total"] == 3 and told["known"] and told["sample"] == 1
    assert not book.snapshot(5, 10)["known"]
    assert len(book._vs) <= answer_book.EVENTS


def test_of_too_many_rows_a_sample_is_kept_with_all_their_changes() -> None:
    n = 24_000
    book = AnswerBook(SCHEMA, Emit.CURRENT)
    book.take(batch_of([Insert(t, INF, row("a", t)) for t in range(n)], SCHEMA), n)
    book.settle(4_000)
    told = book.snapshot(None, 10)
    assert told["sample"] == 8 and n / 8 * 0.8 < told["total"] < n / 8 * 1.2
    book.take(batch_of([Adjust(t, INF, n, row("a", t)) for t in range(n)], SCHEMA), n)
    assert book.snapshot(n + 1, 10)["total"] == 0


def test_values_that_a_browser_cannot_hold_are_text() -> None:
    told = book_of([Insert(0, 5, row("<b>", 2**60))]).snapshot(None, 5)
    assert told["rows"][0]["row"] == ["<b>", str(2**60)]


def test_a_timeline_has_the_latest_events_of_a_span() -> None:
    book = book_of([Insert(t, t + 2, row("a", t)) for t in range(10)])
    told = book.timeline(3, 6, 2)
    assert [each["vs"] for each in told["events"]] == [5, 4] and told["total"] == 4


def test_what_a_sample_leaves_out_goes_at_once_and_comes_back_when_it_is_calm() -> None:
    """A row that gets no more changes would stand there, wrong."""
    book = AnswerBook(SCHEMA, Emit.CURRENT)
    book.take(batch_of([Insert(t, INF, row("old", t)) for t in range(64)], SCHEMA), 63)
    assert book.snapshot(None, 100)["total"] == 64
    changes = [Adjust(t, INF, 70, row("old", t)) for t in range(64)]
    book.take(batch_of(changes + [Insert(70 + t, 71 + t, row("new", t)) for t in range(64)], SCHEMA), 133)
    book.settle(16)
    told = book.snapshot(100, 1000)
    assert told["sample"] == 8 and all(each["row"][0] == "new" for each in told["rows"])
    for _ in range(40):
        book.settle()
    book.take(batch_of([Insert(200, INF, row("all", t)) for t in range(50)], SCHEMA), 200)
    assert book.snapshot(None, 100)["sample"] == 1 and book.snapshot(None, 100)["total"] == 50
