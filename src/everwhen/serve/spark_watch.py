"""A query on Spark that a program has started (`ew.spark.start`), watched from the same process.

It is looked at a few times a second (`spark/api/watching.py`).  It can be stopped, moved to another level, and become
another query; how fast data comes is Spark's matter.  A query that fails while it is watched is said in words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from everwhen.core.emit import Emit
from everwhen.core.late_count import LateCount
from everwhen.core.time import INF, NEVER
from everwhen.core.time_axis import times_shown
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.plain import plain_time
from everwhen.engine.session.query_registry import State
from everwhen.engine.session.sql_session import Outcome, SqlQuery
from everwhen.errors import EverwhenError, QueryError
from everwhen.plan.explain import explain_text
from everwhen.serve.watched import Busy, Observation, newest_late
from everwhen.shell.completion import sql_functions
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.watching import QuerySight, QueryWatch
from everwhen.stream.element_batch import ElementBatch, empty_elements

T = TypeVar("T")
_WINDOW: Final = 12.0
"""Rates are averages over so many seconds: an epoch of Spark may take some."""
_THREADS: Final = 4
_HIDDEN: Final = "Its sink takes the rows in Spark's workers, so they are not seen here."
_ORDERS: Final = 32
"""So much may be asked at once."""


class SparkWatch:
    """The query of a handle.  `start` and `stop` once each; the query goes on after `stop`."""

    orders = frozenset({"stop", "alter", "level"})

    def __init__(self, handle: Handle) -> None:
        self.from_zero = False
        self.watch = QueryWatch(handle, self._take)
        emit = handle.consistency.emit
        self.books = {name: AnswerBook(schema, emit) for name, schema in self.watch.schemas.items()}
        self._pool = ThreadPoolExecutor(_THREADS, "everwhen-spark-page")
        self._waiting = 0
        self._over, self._told = False, False

    def _take(self, name: str, batch: ElementBatch, tau: int) -> None:
        self.books[name].take(batch, tau)

    def start(self) -> None:
        """Begin to look; it runs already."""
        self.watch.open()

    def stop(self) -> None:
        """Look no more; it goes on."""
        self._over = True
        self.watch.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """On a thread of its own: what asks Spark may take seconds."""
        if self._over:
            raise Busy("the query is not watched any more")
        if self._waiting >= _ORDERS:
            raise Busy("too much is asked at once; try again in a moment")
        self._waiting += 1
        done = self._pool.submit(self.aside, work)
        done.add_done_callback(self._done)
        return done

    def _done(self, _: Future[Any]) -> None:
        self._waiting -= 1

    def aside(self, work: Callable[..., T], *given: Any) -> T:
        with times_shown(self.watch.axis):
            return work(*given)

    # -- looking --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """What the last epoch has told."""
        seen = self.watch.see()
        if not self._told:  # what was said before came without a time
            self._told = True
            for name, book in self.books.items():
                book.take(empty_elements(book.schema), seen.tau)
                if name in self.watch.cut:
                    book.known_from = max(book.known_from, book.now)
        for book in self.books.values():
            book.emit = Emit(seen.level.emit)
        failed = f"the Spark query failed: {seen.problem}" if seen.state == "failed" else seen.problem
        hidden = [name for name in self.books if not self.watch.is_seen(name)]
        return Observation(
            time.monotonic(), seen.epoch, sum(seen.rows.values()), seen.state, failed, None, seen.axis, seen.graph,
            tuple(self._query(name, seen) for name in self.books),
            frozenset(self.books if seen.replaced_at is not None else ()), seen.rows,
            dict.fromkeys(seen.progress, seen.tau), seen.progress,
            {name: LateCount(rows, min(seen.late.get(name, 0), rows)) for name, rows in seen.rows.items()},
            frozenset(name for name, t in seen.progress.items() if t == INF),
            window=_WINDOW, hidden=dict.fromkeys(hidden, _HIDDEN),
        )  # fmt: skip

    def _query(self, name: str, seen: QuerySight) -> SqlQuery:
        states: Mapping[str, State] = {"failed": "failed", "stopped": "stopped"}
        names = tuple(self.watch.sources)
        error = seen.problem if seen.state == "failed" else ""
        return SqlQuery(
            name, self.watch.text(name), self.books[name].schema, states.get(seen.state, "running"), 0, NEVER, names,
            names, error, seen.level,
        )  # fmt: skip

    def streams(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "kind": "stream", "times": [], "text": "", "made_from": [], "is_running": True,
             "columns": [[n, str(t)] for n, t in zip(node.schema.names, node.schema.types, strict=True)],
             "read_by": list(self.books), "keys": [], "from": "Spark"}
            for name, node in self.watch.sources.items()
        ]  # fmt: skip

    def names(self) -> dict[str, Any]:
        columns = {name: node.schema.names for name, node in self.watch.sources.items()}
        return {"streams": columns, "queries": tuple(self.books), "functions": sql_functions(), "commands": ()}

    def metadata(self) -> dict[str, Any]:
        nodes = (node for node in self.watch.see().graph if node.kind == "operator")
        return {
            node.id: {**asdict(node), "progress": plain_time(node.progress),
                      "largest_start": plain_time(node.largest_start)}
            for node in nodes
        }  # fmt: skip

    def waiting(self, name: str) -> Callable[[], dict[str, Any]]:
        self._require_running()
        told = self.watch.handle.waiting(name).to_plain()
        return lambda: {**told, "first": None if told["first"] is None else plain_time(told["first"])}

    def analyze(self, name: str) -> dict[str, Any]:
        found = self.watch.handle.analyze()
        told = found.lines() if found.operators else [found.remark or "Nothing has been measured yet."]
        return {**found.to_plain(), "text": "\n".join(told)}

    def explain(self, what: str) -> str:
        if what in self.books:
            return self.watch.handle.explain()
        query = self.watch.planned(what)
        return explain_text("query", query.asked or query.node, query.node, emit=self.watch.handle.consistency.emit)

    def explain_later(self, what: str) -> Callable[[], str]:
        return lambda: self.explain(what)

    def late_rows(self, source: str) -> list[ElementBatch]:
        """What the query has kept of a source's rows that came too late, where its checkpoint is on this machine."""
        place = Path(self.watch.handle.late_rows(source))
        files = place.glob("epoch=*/*.parquet")
        return newest_late(sorted(files, key=lambda each: (int(each.parent.name.removeprefix("epoch=")), each.name)))

    # -- orders -----------------------------------------------------------------------------------------------------

    def _require_running(self) -> None:
        handle = self.watch.handle
        if not handle.is_active:
            failed = handle.last_error
            raise QueryError("the Spark query has stopped" if failed is None else f"the Spark query failed: {failed}")

    def _refuse(self, what: str) -> NoReturn:
        raise QueryError(f"a query on Spark is watched here: {what}")

    def stop_query(self, name: str) -> None:
        """Stop the streaming query, with all that it answers."""
        self._require_running()
        self.watch.handle.stop()

    def alter(self, name: str, text: str) -> list[Outcome]:
        """Let a query become another one while it runs."""
        self._require_running()
        return [Outcome("altered", "query", name, text, (), self.watch.become(name, text))]

    def change(self, name: str, block: int | str | None, remember: int | str | None, emit: str | None) -> SqlQuery:
        """Move all its queries to another level, from the next epoch on."""
        self._require_running()
        try:
            self.watch.handle.change(block, remember, self.watch.axis.tick_text, emit=emit)
        except EverwhenError as bad:
            raise QueryError(str(bad)) from None
        return self._query(name, self.watch.see())

    def execute(self, text: str, name: str | None = None) -> list[Outcome]:
        self._refuse("another one is started by a program, with ew.spark.start; Change lets this one become another")

    def start_again(self, name: str) -> Outcome:
        self._refuse("it is started again by a program, with ew.spark.start and its checkpoint")

    def remove(self, name: str) -> None:
        self._refuse("its checkpoint and its sink are files of yours; it is not removed from here")

    def set_rate(self, rate: float | None) -> None:
        self._refuse("its trigger and its sources decide how fast data comes")

    def play(self, playing: bool) -> None:
        self._refuse("it cannot be paused; stop it, and start it again with its checkpoint")

    def step(self) -> None:
        self._refuse("its trigger decides when an epoch begins")
