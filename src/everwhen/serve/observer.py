"""Looks at the engine a few times a second, and makes frames: all that browsers are shown.

A frame is made once for all who look, as bytes.  Its counts are totals, so whoever misses frames has missed nothing but
their movement.  The observer takes a small share of the time: after a look that took long it rests for longer.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import TimeoutError as TooSlow
from dataclasses import dataclass
from typing import Any, Final

from everwhen.core.consistency import Consistency
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.answer_book import AT_ONCE, AnswerBook, Counts
from everwhen.engine.observe.graph import GraphNode
from everwhen.engine.observe.plain import plain_time
from everwhen.engine.session.sql_session import SqlQuery
from everwhen.errors import EverwhenError
from everwhen.serve.subscribers import Frame, Subscribers, View
from everwhen.serve.watched import Observation, Watched

LOOKED_AT: Final = 0.25
"""Seconds between two looks while somebody is there,"""
ALONE: Final = 1.0
"""and while nobody is."""
_EFFORT: Final = 10
"""So many times as long as a look took is the time to the next one, at least,"""
_LONGEST: Final = 1.5
"""but not longer than so many seconds."""
POINTS: Final = 300
ROWS: Final = 200
_LEAST: Final = 4_000
"""So many changes of an answer that nobody looks at are applied in a look, at least."""
_PATIENCE: Final = 3.0


@dataclass(frozen=True, slots=True)
class _Moment:
    clock: float
    counts: Mapping[str, int]


class Observer:
    """The thread that looks."""

    def __init__(self, engine: Watched, subscribers: Subscribers) -> None:
        self.engine, self.subscribers = engine, subscribers
        self.points: deque[dict[str, Any]] = deque(maxlen=POINTS)
        self._moments: deque[_Moment] = deque()
        self._last: dict[str, Any] = {}
        self._known: dict[View, tuple[Any, bytes]] = {}
        self._number, self._pointed = 0, 0.0
        self._over, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="everwhen-observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        rest = 0.0
        while not self._over.wait(rest):
            began = time.perf_counter()
            try:
                self.look()
            except (EverwhenError, TooSlow):
                self._say("busy: an epoch takes long, perhaps because loops are being compiled")
                rest = ALONE
                continue
            except Exception as error:  # whatever it is, the page tells it, and the next look may go well
                self._say("busy: it cannot be looked at", f"the page: unforeseen {type(error).__name__}: {error}")
                rest = ALONE
                continue
            took = time.perf_counter() - began
            wish = LOOKED_AT if self.subscribers.count else ALONE
            rest = max(wish - took, min(_EFFORT * took, _LONGEST), 0.02)

    def look(self) -> Frame:
        """One frame, handed to all who look; from any thread but the engine's."""
        with self._lock:
            return self._look()

    def _look(self) -> Frame:
        seen = self.engine.submit(self.engine.observe).result(_PATIENCE)
        books = dict(self.engine.books)
        watched = {view.query for view in self.subscribers.views()}
        for name, book in books.items():
            book.settle(AT_ONCE if name in watched else max(_LEAST, 2 * AT_ONCE // len(books)))
        counts = {name: book.counts for name, book in books.items()}
        self._note(seen, counts)
        self._number += 1
        told = self._told(seen, books, counts)
        if seen.clock - self._pointed >= 1.0 or not self.points:
            self._pointed = seen.clock
            self.points.append(_point(told))
        told["point"] = self.points[-1]
        self._last = told
        views = {view: self._answer(view, books) for view in self.subscribers.views()}
        self._known = {view: known for view, known in self._known.items() if view in views}
        frame = Frame(self._number, _bytes(told), {view: answer for view, answer in views.items() if answer})
        self.subscribers.publish(frame)
        return frame

    def _say(self, state: str, problem: str = "") -> None:
        """There is nothing new to see: what was seen last, and why."""
        with self._lock:
            if not self._last:
                return
            self._number += 1
            told = {**self._last, "frame": self._number, "time": time.time(), "state": state}
            told["problem"] = problem or told["problem"]
            self.subscribers.publish(Frame(self._number, _bytes(told), {}))

    def _answer(self, view: View, books: Mapping[str, AnswerBook]) -> bytes:
        """The answer that a view shows, made anew only where something has changed."""
        book = books.get(view.query)
        if book is None:
            return b""
        state = id(book), book.counts, book.now if view.at is None else None, book.final, book.sample
        known = self._known.get(view)
        if known is not None and known[0] == state:
            return known[1]
        told = {"query": view.query, **book.snapshot(view.at, ROWS)}
        told["corrections"] = [each.to_plain() for each in book.changed(0, limit=30)]
        made = _bytes(told)
        self._known[view] = state, made
        return made

    # -- figures --------------------------------------------------------------------------------------------------

    def _note(self, seen: Observation, counts: Mapping[str, Counts]) -> None:
        now = {"elements": seen.elements, **{f"taken {name}": n for name, n in seen.taken.items()}}
        for node in seen.graph:
            now |= {f"in {node.id}": node.rows_in, f"out {node.id}": node.rows_out}
            now[f"ns {node.id}"] = int(node.seconds * 1e9)
        for name, said in counts.items():
            now |= {f"said {name}": said.inserts + said.adjusts, f"corrected {name}": said.corrections}
        if self._moments and self._moments[-1].clock == seen.clock:
            self._moments.pop()  # nothing was told since
        self._moments.append(_Moment(seen.clock, now))
        while len(self._moments) > 2 and seen.clock - self._moments[0].clock > seen.window:
            self._moments.popleft()

    def _rate(self, name: str) -> float:
        first, last = self._moments[0], self._moments[-1]
        before, after = first.counts.get(name), last.counts.get(name)
        if before is None or after is None or last.clock <= first.clock:
            return 0.0
        return round(max(after - before, 0) / (last.clock - first.clock), 3)

    def _told(self, seen: Observation, books: Mapping[str, AnswerBook], counts: Mapping[str, Counts]) -> dict[str, Any]:
        return {
            "frame": self._number,
            "time": time.time(),
            "epoch": seen.epoch,
            "elements": seen.elements,
            "elements_per_second": self._rate("elements"),
            "state": seen.state,
            "problem": seen.problem,
            "rate": seen.rate,
            "job": dict(seen.job) or None,
            "orders": sorted(self.engine.orders),
            "axis": {"tick": seen.axis.tick, "dated": seen.axis.dated, "clock": self.engine.from_zero},
            "queries": [self._query(each, seen, books.get(each.name), counts) for each in seen.queries],
            "nodes": [self._node(each) for each in seen.graph],
            "sources": [self._source(name, seen) for name in sorted(seen.progress)],
        }

    def _query(
        self, query: SqlQuery, seen: Observation, book: AnswerBook | None, counts: Mapping[str, Counts]
    ) -> dict[str, Any]:
        said = counts.get(query.name, Counts())
        return {
            "name": query.name,
            "text": query.text,
            "state": query.state,
            "error": query.error,
            "columns": [[name, str(type_)] for name, type_ in zip(query.schema.names, query.schema.types, strict=True)],
            "sources": list(query.sources),
            "reads": list(query.reads),
            "valid_from": plain_time(query.valid_from),
            "level": None if seen.job else plain_level(query.consistency),
            "hidden": seen.hidden.get(query.name, ""),
            "is_replaced": query.name in seen.replaced,
            "inserts": said.inserts,
            "adjusts": said.adjusts,
            "corrections": said.corrections,
            "said_per_second": self._rate(f"said {query.name}"),
            "corrected_per_second": self._rate(f"corrected {query.name}"),
            "lag": None if book is None else _lag(book.now, book.final),
            **({} if book is None else book.facts()),
        }

    def _node(self, node: GraphNode) -> dict[str, Any]:
        taken = f"taken {node.name}" if node.kind == "source" else ""
        return {
            "id": node.id,
            "kind": node.kind,
            "name": node.name,
            "inputs": list(node.inputs),
            "queries": list(node.queries),
            "rows_in": node.rows_in,
            "rows_out": self._moments[-1].counts.get(taken, 0) if taken else node.rows_out,
            "in_per_second": self._rate(f"in {node.id}"),
            "out_per_second": self._rate(taken or f"out {node.id}"),
            "busy": round(self._rate(f"ns {node.id}") / 1e9, 4),
            "state_rows": node.state_rows,
            "state_bytes": node.state_bytes,
            "keeps": node.keeps,
            "does": node.does,
            "progress": plain_time(node.progress),
            "largest_start": plain_time(node.largest_start),
            "lag": _lag(node.largest_start, node.progress),
            "waits_for": list(node.waits_for),
            "silent": node.silent,
            "ended": node.ended,
            "dropped": node.dropped,
        }

    def _source(self, name: str, seen: Observation) -> dict[str, Any]:
        late = seen.late.get(name)
        node = next((each for each in seen.graph if each.kind == "source" and each.name == name), None)
        tau = seen.tau.get(name, NEVER)
        ended = name in seen.ended
        return {
            "name": name,
            "taken": seen.taken.get(name, 0),
            "per_second": self._rate(f"taken {name}"),
            "progress": "inf" if ended else plain_time(seen.progress[name]),
            "largest_start": plain_time(tau),
            "lag": 0 if ended else _lag(tau, seen.progress[name]),
            "silent": None if node is None else node.silent,
            "ended": ended,
            "queries": [] if node is None else list(node.queries),
            "late": None if late is None else {"rows": late.rows, "dropped": late.dropped, "moved": late.moved},
        }


def plain_level(level: Consistency) -> dict[str, Any]:
    """A level of consistency: B and M in ticks, and what is said when."""
    return {
        "name": level.name,
        "block": plain_time(level.block),
        "remember": plain_time(level.remember),
        "emit": level.emit.value,
    }


def _lag(largest: int, promised: int) -> int | None:
    """How far a promise is behind what has come; None where either is missing."""
    if promised == INF:
        return 0
    return None if NEVER in (largest, promised) or largest == INF else max(largest - promised, 0)


def _point(told: Mapping[str, Any]) -> dict[str, Any]:
    """A point of the small charts."""
    return {
        "time": told["time"],
        "elements": told["elements_per_second"],
        "state": sum(node["state_rows"] for node in told["nodes"]),
        "queries": {
            each["name"]: [each["said_per_second"], each["corrected_per_second"], each["lag"]]
            for each in told["queries"]
        },
        "sources": {each["name"]: [each["per_second"], each["lag"]] for each in told["sources"]},
    }


def _bytes(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
