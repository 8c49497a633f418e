"""The thread that owns a session: it pushes epochs, and does what others ask between two of them.

Nobody else touches the session or its feeds.  Whoever wants something hands in a function (`submit`) and gets a
future; a full queue refuses at once, so that browsers cannot pile up work.

**Guarantee.**  Nothing that goes wrong with the data ends the thread: it pauses, and `problem` says why in words.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.core.time_axis import TimeAxis, times_shown
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.graph import GraphNode
from everwhen.engine.observe.plain import plain_time
from everwhen.engine.session.sql_session import Outcome, SqlQuery, SqlSession
from everwhen.errors import EverwhenError, InputError, QueryError, SqlError
from everwhen.operators.contract import StateSize
from everwhen.serve.watched import Busy, Observation
from everwhen.shell.completion import names_of
from everwhen.shell.input import Feeds
from everwhen.stream.element_batch import ElementBatch

ORDERS: Final = 64
"""So many orders may wait."""
COUNTING_SHARE: Final = 0.01
"""To count what operators keep takes at most so much of the engine's time."""
MOST_QUERIES: Final = 64
_EPOCHS: Final = 10
"""So many epochs a second are aimed at, where a rate is given."""
_BEHIND: Final = 1.0
"""Who is behind by so many seconds does not try to catch up."""
_MOMENT: Final = 0.05

T = TypeVar("T")


@dataclass
class Pace:
    """When the next epoch is due, at so many elements a second."""

    rate: float | None
    clock: Callable[[], float]
    _began: float | None = None
    _read: int = 0

    def set(self, rate: float | None) -> None:
        self.rate, self._began = rate, None

    def left(self, read: int) -> float:
        """Seconds until so many elements are due."""
        if self.rate is None:
            return 0.0
        now = self.clock()
        if self._began is None or now - self._began - (read - self._read) / self.rate > _BEHIND:
            self._began, self._read = now, read
        return self._began + (read - self._read) / self.rate - now


@dataclass
class EngineLoop:
    """A session with its data.  `start` and `stop` once each; all else through `submit`.  `books` may be read."""

    orders: ClassVar[frozenset[str]] = frozenset({"run", "query", "alter", "stop", "level"})

    session: SqlSession
    feeds: Feeds
    rate: float | None = None
    playing: bool = True
    axis: TimeAxis | None = None
    """How times are shown; as the streams tell it, unless given."""
    from_zero: bool = False
    """Times count from the beginning, and are shown as minutes and seconds."""
    clock: Callable[[], float] = time.monotonic
    books: dict[str, AnswerBook] = field(default_factory=dict)
    problem: str = ""
    elements: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        self._orders: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue(ORDERS)
        self._wake, self._catalogue = threading.Event(), threading.Lock()
        self._over = self._asked = False
        self._counted = -math.inf
        self._counting = 0.0
        self._sizes: dict[str, StateSize] = {}
        self._most = self.feeds.batch
        self._pace = Pace(None, self.clock)
        self._state = "starting"
        self._thread = threading.Thread(target=self._run, name="everwhen-engine", daemon=True)
        self.set_rate(self.rate)
        for query in self.session.queries():
            self._open_book(query.name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the epoch under way; waits a moment for it."""
        self._over = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do something with the session, between two epochs."""
        done: Future[T] = Future()
        if self._over:
            raise Busy("the session has ended")
        try:
            self._orders.put_nowait((work, done))
        except queue.Full:
            raise Busy("too much is asked at once; try again in a moment") from None
        self._wake.set()
        return done

    def aside(self, work: Callable[..., T], *given: Any) -> T:
        """Do something that only reads the catalogue, on the caller's thread, also while an epoch runs: only orders
        change the catalogue, and none is done meanwhile."""
        with self._catalogue, times_shown(self.shown_axis()):
            return work(*given)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over:
            self._do_orders()
            moved = False
            if self.playing or self.steps:
                self.steps = max(self.steps - 1, 0)
                with times_shown(self.shown_axis()):
                    moved = self._tried_epoch()
            else:
                self._state = "paused"
                self._say_pending()
            left = self._pace.left(self.elements) if moved else _MOMENT
            while left > 0 and not self._over:
                self._wake.wait(left)
                self._wake.clear()
                self._do_orders()
                left = self._pace.left(self.elements) if moved and not self.steps else 0.0
        self._state = "ended"
        while not self._orders.empty():
            self._orders.get_nowait()[1].set_exception(Busy("the session has ended"))

    def _do_orders(self) -> None:
        while True:
            try:
                work, done = self._orders.get_nowait()
            except queue.Empty:
                return
            if not done.set_running_or_notify_cancel():
                continue
            try:
                with self._catalogue, times_shown(self.shown_axis()):
                    done.set_result(work())
            except BaseException as error:  # it is the caller's
                done.set_exception(error)

    def _tried_epoch(self) -> bool:
        try:
            moved = self._epoch()
            self._state = "running" if moved else "waiting for data"
            return moved
        except InputError as error:
            self.feeds.back()
            self._pause(f"an input is wrong: {error}")
        except (EverwhenError, OSError) as error:
            self._pause(str(error))
        except Exception as error:  # whatever it is, the page tells it
            self._pause(f"unforeseen {type(error).__name__}: {error}")
        return False

    def _pause(self, why: str) -> None:
        self.playing, self.steps, self.problem, self._state = False, 0, why, "paused"

    def _epoch(self) -> bool:
        found = self.feeds.epoch(self.session)
        if found is None:
            return self._say_pending()
        for name in found.closes:
            self.feeds.ended.add(name)
            if name in self.session.inputs:
                self._take(self.session.close_input(name))
        batches = {name: batch for name, batch in found.batches.items() if name in self.session.inputs}
        if batches:
            self._take(self.session.push(batches))
            self.elements += sum(map(len, batches.values()))
        return bool(batches or found.closes)

    def push(self, batches: Mapping[str, ElementBatch]) -> dict[str, ElementBatch]:
        """Data of a program, on the thread."""
        results = self.session.push(batches)
        self.feeds.note(batches)
        self._take(results)
        self.elements += sum(map(len, batches.values()))
        return results

    def _say_pending(self) -> bool:
        """What queries say because of an order comes with the next epoch, also where no data does."""
        if self._asked:
            self._asked = False
            self._take(self.session.push({}))
        return False

    def _take(self, results: Mapping[str, ElementBatch]) -> None:
        for name, batch in results.items():
            sources = self.session.query(name).sources
            tau = max((self.feeds.tau.get(source, NEVER) for source in sources), default=NEVER)
            self.books[name].take(batch, tau)

    # -- orders: on the thread ------------------------------------------------------------------------------------

    def shown_axis(self) -> TimeAxis:
        return self.axis or self.feeds.axis(self.session.inputs, self.session.catalog)

    def set_rate(self, rate: float | None) -> None:
        """So many elements a second; None: as fast as it goes."""
        if rate is not None and not 0 < rate <= 1e9:
            raise QueryError(f"a rate is more than 0 and at most 1,000,000,000, not {rate:g}")
        self.rate = rate
        self._pace.set(rate)
        self.feeds.set_batch(self._most if rate is None else max(1, min(self._most, int(rate / _EPOCHS))))

    def play(self, playing: bool) -> None:
        self.playing, self.problem = playing, ""
        self._pace.set(self.rate)

    def step(self) -> None:
        """One epoch more."""
        self.playing, self.problem, self.steps = False, "", self.steps + 1

    def execute(self, text: str, name: str | None = None) -> list[Outcome]:
        """Statements; with a name, the one query that the text is gets it."""
        running = sum(each.state == "running" for each in self.session.queries())
        if running >= MOST_QUERIES:
            raise Busy(f"{running} queries run, and no more may; stop one first")
        outcomes = self.session.execute(text) if name is None else [self.session.start(name, text)]
        for outcome in outcomes:
            if outcome.kind in ("dropped", "replaced"):
                self.feeds.begin_anew(outcome.name)
            elif outcome.kind == "started":
                self._open_book(outcome.name)
        self._asked = True
        return outcomes

    def alter(self, name: str, text: str) -> list[Outcome]:
        """A running query becomes another one."""
        quoted = name.replace('"', '""')
        head = f'ALTER QUERY "{quoted}" AS '
        try:
            return self.execute(head + text)
        except SqlError as error:  # its place is one in the text that was given
            raise SqlError(error.problem, text, max(error.start - len(head), 0)) from None

    def _open_book(self, name: str) -> None:
        query = self.session.query(name)
        self.books[name] = AnswerBook(query.schema, query.consistency.emit)

    def start_again(self, name: str) -> Outcome:
        outcome = self.session.start(name)
        self._open_book(name)
        self._asked = True
        return outcome

    def stop_query(self, name: str) -> None:
        self.session.stop(name)
        self.feeds.release(self.session)

    def remove(self, name: str) -> None:
        self.session.remove(name)
        self.feeds.release(self.session)
        self.books.pop(name, None)

    def change(self, name: str, block: int | str | None, remember: int | str | None, emit: str | None) -> SqlQuery:
        """Move a query to another level."""
        self.session.change(name, block, remember, emit=emit)
        query = self.session.query(name)
        self.books[name].emit = Emit(query.consistency.emit)
        self._asked = True
        return query

    def _graph(self) -> tuple[GraphNode, ...]:
        """The graph; what its nodes keep is counted once a second, or less often where that costs a look at much: it
        may take a hundredth of the thread's time."""
        now, began = self.clock(), time.thread_time()
        fresh = now - self._counted >= max(1.0, self._counting / COUNTING_SHARE)
        found = self.session.graph(None if fresh else self._sizes)
        if fresh:
            self._counted, self._sizes = now, {each.id: StateSize(each.state_rows, each.state_bytes) for each in found}
            self._counting = time.thread_time() - began
        return found

    def observe(self) -> Observation:
        """What there is to see."""
        queries = tuple(self.session.queries())
        running = [query.name for query in queries if query.state == "running"]
        return Observation(
            self.clock(), self.session.epoch, self.elements, self._state, self.problem, self.rate, self.shown_axis(),
            self._graph(), queries, frozenset(filter(self.session.is_replaced, running)),
            dict(self.feeds.taken), dict(self.feeds.tau), dict(self.session.progress), dict(self.session.late()),
            frozenset(self.feeds.ended),
        )  # fmt: skip

    # -- looking: on the thread, or aside -----------------------------------------------------------------------

    def streams(self) -> list[dict[str, Any]]:
        """The catalogue."""
        catalog = self.session.catalog
        return [
            {
                "name": each.name, "kind": each.kind, "times": list(each.times), "text": each.text,
                "columns": [[n, str(t)] for n, t in zip(each.schema.names, each.schema.types, strict=True)],
                "made_from": list(each.made_from), "read_by": list(each.read_by), "is_running": each.is_running,
                "keys": [list(key) for key in each.keys], "from": Path(self.feeds.shown(each.name, catalog)).name,
            }
            for each in self.session.streams()
        ]  # fmt: skip

    def names(self) -> dict[str, Any]:
        """What can be named in SQL."""
        return asdict(names_of(self.session, list(self.feeds.files), []))

    def metadata(self) -> dict[str, Any]:
        found = self.session.metadata().items()
        return {name: {**asdict(each), "progress": plain_time(each.progress)} for name, each in found}

    def waiting(self, name: str) -> Callable[[], dict[str, Any]]:
        search, axis = self.session.waiting_later(name), self.shown_axis()

        def tell() -> dict[str, Any]:
            with times_shown(axis):
                told = search().to_plain()
            return {**told, "first": None if told["first"] is None else plain_time(told["first"])}

        return tell

    def analyze(self, name: str) -> dict[str, Any]:
        found = self.session.analyze(name)
        return {**found.to_plain(), "text": "\n".join(found.lines())}

    def explain(self, what: str) -> str:
        return self.session.explain(what)

    def explain_later(self, what: str) -> Callable[[], str]:
        """What looks at what runs, in two parts: the state is taken now."""
        return self.session.explain_later(what)

    def late_rows(self, source: str) -> list[ElementBatch]:
        """What was given up of a source lately."""
        return self.session.latest_dropped(source)
