"""What the page can look at: a session in this process (`engine_loop`), a query on Spark that this process has started
(`spark_watch`), or a job elsewhere (`job_watch`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from everwhen.core.late_count import LateCount
from everwhen.core.time_axis import TimeAxis
from everwhen.engine.observe.answer_book import AnswerBook
from everwhen.engine.observe.graph import GraphNode
from everwhen.engine.session.sql_session import Outcome, SqlQuery
from everwhen.errors import EverwhenError
from everwhen.formats.parquet import read_elements
from everwhen.stream.element_batch import ElementBatch

T = TypeVar("T")


MOST_LATE: Final = 100_000
"""So many late rows of a source are handed out, the last ones."""


class Busy(EverwhenError):
    """Too much is asked at once."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What there is to see between two epochs.  `job` tells of a job, if it is one; rates are averages over `window`
    seconds; `hidden`: the queries whose rows are not seen, and why."""

    clock: float
    epoch: int
    elements: int
    state: str
    problem: str
    rate: float | None
    axis: TimeAxis
    graph: tuple[GraphNode, ...]
    queries: tuple[SqlQuery, ...]
    replaced: frozenset[str]
    taken: Mapping[str, int]
    tau: Mapping[str, int]
    progress: Mapping[str, int]
    late: Mapping[str, LateCount]
    ended: frozenset[str]
    job: Mapping[str, Any] = field(default_factory=dict)
    window: float = 3.0
    hidden: Mapping[str, str] = field(default_factory=dict)


def newest_late(files: Sequence[Path], tick: int | None = None) -> list[ElementBatch]:
    """The elements in files of late rows, the oldest first: as many as may be handed out.  `tick`: how long a tick is,
    in nanoseconds, where times are timestamps."""
    found: list[ElementBatch] = []
    rows = 0
    for file in reversed(files):
        if rows >= MOST_LATE:
            break
        last: deque[ElementBatch] = deque()
        for batch in read_elements(file, tick=tick) if file.stat().st_size else ():
            last.append(batch)
            rows += len(batch)
            while rows - len(last[0]) >= MOST_LATE:
                rows -= len(last.popleft())
        found[:0] = last
    return found


class Watched(Protocol):
    """Something that runs.  Looking is done through `submit` or `aside`; orders through `submit`.  `orders` names those
    that it takes: `run` (play, pause, step, rate), `query` (statements, start, remove), `alter`, `stop`, `level`."""

    @property
    def orders(self) -> frozenset[str]: ...

    books: dict[str, AnswerBook]
    from_zero: bool

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def submit(self, work: Callable[[], T]) -> Future[T]: ...
    def aside(self, work: Callable[..., T], *given: Any) -> T: ...

    # looking
    def observe(self) -> Observation: ...
    def streams(self) -> list[dict[str, Any]]: ...
    def names(self) -> dict[str, Any]: ...
    def metadata(self) -> dict[str, Any]: ...
    def waiting(self, name: str) -> Callable[[], dict[str, Any]]: ...  # the search may take long, and holds nobody
    def analyze(self, name: str) -> dict[str, Any]: ...
    def explain(self, what: str) -> str: ...
    def explain_later(self, what: str) -> Callable[[], str]: ...  # the same in two parts, as `waiting`
    def late_rows(self, source: str) -> list[ElementBatch]: ...

    # orders
    def execute(self, text: str, name: str | None = None) -> list[Outcome]: ...
    def alter(self, name: str, text: str) -> list[Outcome]: ...
    def start_again(self, name: str) -> Outcome: ...
    def stop_query(self, name: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def change(self, name: str, block: int | str | None, remember: int | str | None, emit: str | None) -> SqlQuery: ...
    def set_rate(self, rate: float | None) -> None: ...
    def play(self, playing: bool) -> None: ...
    def step(self) -> None: ...
