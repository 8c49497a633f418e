"""A job of `everwhen start`, in process or on Spark, seen through its checkpoint: what it tells twice a second.

It is another process, so it is looked at and not changed: sources, its plan as one node, and its sinks in the place of
queries.  The rows of its answers are in its sinks.  A job that fails or is killed while it is watched is said in words.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from everwhen.core.emit import Emit
from everwhen.core.late_count import LateCount
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.answer_book import AnswerBook, Counts
from everwhen.engine.observe.graph import GraphNode
from everwhen.engine.session.query_registry import State
from everwhen.engine.session.sql_session import SqlQuery
from everwhen.errors import EverwhenError, QueryError
from everwhen.jobs.status import Found, late_rows_files, read_status
from everwhen.jobs.status_view import axis_of, status_text
from everwhen.serve.watched import Observation, newest_late
from everwhen.stream.element_batch import ElementBatch

T = TypeVar("T")
_PLAN = "plan"
_NOTHING = Schema(())
_GONE = {"failed": "the job failed", "killed": "the job is gone without a word: its process was killed"}


class JobWatch:
    """The job of a checkpoint; `StateError` if there is none."""

    orders: frozenset[str] = frozenset()

    def __init__(self, place: str | Path) -> None:
        self.place = Path(place)
        self.books: dict[str, AnswerBook] = {}
        self.from_zero = False
        self._lock = threading.Lock()
        self._found = read_status(self.place)

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """It goes on."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(self.aside(work))
        except Exception as error:  # it is the caller's
            done.set_exception(error)
        return done

    def aside(self, work: Callable[..., T], *given: Any) -> T:
        with self._lock:
            return work(*given)

    # -- looking --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """What the job has told last."""
        problem = ""
        try:
            self._found = read_status(self.place)
        except (EverwhenError, OSError) as error:
            problem = str(error)
        found, status = self._found, self._found.status
        sources: Mapping[str, Any] = status.get("sources", {})
        sinks: Mapping[str, Any] = status.get("sinks", {})
        for name, sink in sinks.items():
            self._note(name, sink)
        why = f": {status['error']}" if status.get("error") else ""
        problem = problem or (f"{_GONE[found.state]}{why}" if found.state in _GONE else "")
        sources = {
            name: {**each, "ended": each["ended"] or each["promised"] == "inf"} for name, each in sources.items()
        }
        promised = {name: _instant(each["promised"]) for name, each in sources.items()}
        latest = max((_instant(each["now"]) for each in sinks.values()), default=NEVER)
        return Observation(
            float(status.get("updated", time.time())), int(status.get("epochs", 0)),
            sum(each["rows"] for each in sources.values()), found.state, problem, None, axis_of(status),
            _graph({**status, "sources": sources}, promised, latest),
            tuple(_query(found, name, each) for name, each in sinks.items()),
            frozenset(), {name: each["rows"] for name, each in sources.items()},
            dict.fromkeys(sources, latest), promised,
            {name: LateCount(each["rows"], each["late"]) for name, each in sources.items()},
            frozenset(name for name, each in sources.items() if each["ended"]),
            {name: status.get(name) for name in ("job", "engine", "pid", "host", "started", "restarts")},
            hidden=dict.fromkeys(sinks, "The rows of a job are in its sink."),
        )  # fmt: skip

    def _note(self, name: str, sink: Mapping[str, Any]) -> None:
        book = self.books.setdefault(name, AnswerBook(_NOTHING, Emit.CURRENT))
        corrections = int(sink["corrections"])
        book.counts = Counts(int(sink["elements"]) - corrections, corrections, corrections)
        book.now, book.final = _instant(sink["now"]), _instant(sink["final"])

    def streams(self) -> list[dict[str, Any]]:
        found: Mapping[str, Any] = self._found.status.get("sources", {})
        return [
            {"name": name, "kind": "stream", "columns": [], "times": [], "text": "", "made_from": [], "read_by": [],
             "is_running": not each["ended"], "keys": [], "from": each["connector"]}
            for name, each in found.items()
        ]  # fmt: skip

    def names(self) -> dict[str, Any]:
        return {"streams": {}, "queries": (), "functions": (), "commands": ()}

    def metadata(self) -> dict[str, Any]:
        return {each["name"]: each for each in self._found.status.get("operators", ())}

    def waiting(self, name: str) -> Callable[[], dict[str, Any]]:
        text = self._found.status.get("waiting") or "nothing is waited for"
        return lambda: {"query": name, "reason": "", "text": text, "sources": [], "needs": [], "first": None}

    def analyze(self, name: str) -> dict[str, Any]:
        return {"operators": list(self._found.status.get("operators", ())), "text": status_text(self._found)}

    def late_rows(self, source: str) -> list[ElementBatch]:
        """What the job has kept of a source's rows that came too late."""
        return newest_late(late_rows_files(self.place, source), axis_of(self._found.status).tick)

    # -- orders -----------------------------------------------------------------------------------------------------

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise QueryError("a job is watched here, not changed; everwhen stop and everwhen start do that")

    explain = explain_later = _refuse
    execute = alter = start_again = stop_query = remove = change = set_rate = play = step = _refuse


def _instant(told: Any) -> int:
    return NEVER if told is None else INF if told == "inf" else int(told)


def _query(found: Found, name: str, sink: Mapping[str, Any]) -> SqlQuery:
    states: Mapping[str, State] = {"running": "running", "starting": "running", "failed": "failed", "killed": "failed"}
    text = f"-- {sink['elements']:,} elements in the form {sink['form']} into {sink['connector']}"
    sources = tuple(found.status.get("sources", ()))
    error = _GONE.get(found.state, "")
    return SqlQuery(name, text, _NOTHING, states.get(found.state, "stopped"), 0, NEVER, sources, sources, error)


def _graph(status: Mapping[str, Any], promised: Mapping[str, int], latest: int) -> tuple[GraphNode, ...]:
    """Sources, the plan, sinks: how its operators hang together a job does not tell."""
    sources: Mapping[str, Any] = status.get("sources", {})
    sinks: Mapping[str, Any] = status.get("sinks", {})
    rows_in, rows_out = sum(s["rows"] for s in sources.values()), sum(s["elements"] for s in sinks.values())
    nodes = [
        GraphNode(
            f"source {name}", "source", name, (), tuple(sinks), 0, each["rows"], 0.0, 0, 0, "nothing", promised[name],
            latest, (), None, each["ended"],
        )
        for name, each in sources.items()
    ]  # fmt: skip
    before = tuple(node.id for node in nodes)
    least = min(promised.values(), default=NEVER)
    slowest = tuple(f"source {name}" for name, t in promised.items() if t == least and t < INF)
    nodes.append(
        GraphNode(
            _PLAN,
            "operator",
            "plan",
            before,
            tuple(sinks),
            rows_in,
            rows_out,
            0.0,
            int(status.get("state_rows", 0)),
            int(status.get("state_bytes", 0)),
            "the state of all operators",
            least,
            latest,
            slowest,
        )
    )
    for name, each in sinks.items():
        final = _instant(each["final"])
        nodes.append(
            GraphNode(
                f"query {name}",
                "query",
                name,
                (_PLAN,),
                (name,),
                each["elements"],
                each["elements"],
                0.0,
                each["waiting_rows"],
                0,
                "rows that wait until they are final",
                final,
                _instant(each["now"]),
                (_PLAN,) if final < INF else (),
            )
        )
    return tuple(nodes)
