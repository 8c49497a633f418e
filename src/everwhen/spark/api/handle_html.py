"""A running query on Spark as a picture for notebooks, in the form of a session's (`engine/observe/graph_html.py`): how
it is, its graph, its answers as of now.

It is watched from the first time that it is shown on (`watching.py`): operators measure what they do from then on, and
answers are kept from then on, with what the sink has kept of what was said before.
"""

from __future__ import annotations

from html import escape

from everwhen.core.time_axis import times_shown
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.graph_html import MOST_TABLES, answer_html, graph_html
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.watching import QuerySight, QueryWatch
from everwhen.stream.element_batch import ElementBatch, empty_elements


class HandlePicture:
    """Calling it draws the query of a handle as it is now."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._watch: QueryWatch | None = None
        self._books: dict[str, AnswerBook] = {}

    def __call__(self) -> str:
        if self._watch is None:
            self._watch = QueryWatch(self._handle, self._take)
            emit = self._handle.consistency.emit
            self._books = {name: AnswerBook(schema, emit) for name, schema in self._watch.schemas.items()}
            self._watch.open()
        seen = self._watch.see()
        with times_shown(seen.axis):
            return graph_html(_words(seen), seen.graph) + "".join(self._tables(self._watch, seen))

    def _take(self, name: str, batch: ElementBatch, tau: int) -> None:
        self._books[name].take(batch, tau)

    def _tables(self, watch: QueryWatch, seen: QuerySight) -> list[str]:
        found = []
        for name, book in list(self._books.items())[:MOST_TABLES]:
            if not watch.is_seen(name):
                found.append(f"<p>{escape(name)}: its sink takes the rows in Spark's workers; read them there</p>")
                continue
            book.emit = seen.level.emit
            book.take(empty_elements(book.schema), seen.tau)  # what was said before came without a time
            if name in watch.cut:
                book.known_from = max(book.known_from, book.now)
            found.append(answer_html(name, book))
        return found


def _words(seen: QuerySight) -> str:
    epochs = "1 epoch" if seen.epoch == 1 else f"{seen.epoch:,} epochs"
    return f"on Spark: {seen.state}, {seen.level.name}, {epochs}{': ' * bool(seen.problem)}{seen.problem}"
