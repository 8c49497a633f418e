"""The catalogue of queries: their names, what they read, and how they are (Krämer, 7.2.4, "Query Catalog").

A name is the user's, or generated and told before the query runs.  A query whose stream others read cannot stop before
they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.engine.session.output_port import OutputKey, Step, Subscription
from everwhen.errors import QueryError
from everwhen.sinks.base import EpochSink
from everwhen.stream.element_batch import ElementBatch, joined

State = Literal["running", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """An entry as users see it.

    `since` counts epochs: how many the session had run when the query was started the last time.  Every snapshot of its
    answer from the instant `valid_from` on is what it would be had the query run from the start; it says nothing about
    earlier instants, or nothing reliable if it was fast-forwarded to `valid_from`.  `reads` names sources,
    `depends_on` other queries.  `error` says why it failed.  `consistency` is the level at which it runs now.
    """

    name: str
    schema: Schema
    state: State
    since: int
    valid_from: int
    reads: tuple[str, ...]
    depends_on: tuple[str, ...]
    error: str
    consistency: Consistency = MIDDLE


@dataclass
class Entry:
    """A query with its plan, and while it runs its place in the network: `exit` names it.

    `outlet` is the plan without its last filters; `own` counts its moves to other levels, since it was started.
    """

    name: str
    node: Node
    depends_on: tuple[str, ...]
    reads: tuple[str, ...]
    outlet: Node
    steps: tuple[Step, ...]
    level: Consistency
    sink: EpochSink | None = None
    state: State = "stopped"
    since: int = 0
    valid_from: int = INF
    error: Exception | None = None
    subscription: Subscription | None = None
    pending: ElementBatch | None = None
    next_commit: int = 0
    exit: OutputKey | None = None
    own: int = 0
    whole: bool = False
    """Its plan is not cut at its last filters, and it shares its output with nobody: it has replaced another one."""
    split: bool = False
    """It was looked up that its plan ends in filters, which stay operators."""
    over: Emit | None = None
    """The policy of the operators below, if they emit more, when it was replaced."""
    replaces: Entry | None = None
    """The query that still says what is before the cutover."""

    @property
    def how(self) -> str:
        """Its state, in words, with what it failed of."""
        return f"is {self.state}" if self.error is None else f"has failed ({self.error})"

    def shared_nodes(self) -> tuple[Node, ...]:
        """The nodes of its plan in the network that other queries may use."""
        if self.exit is None:
            return ()
        node = self.exit[0]
        return node.inputs if self.whole else (node,)

    def deliver(self, batch: ElementBatch) -> ElementBatch:
        """An epoch's elements, behind those that waited for it; the sink has them."""
        if self.pending is not None:
            batch, self.pending = joined(self.pending, batch), None
        if self.sink is not None:
            self.sink.commit(self.next_commit, batch)
            self.next_commit += 1
        return batch

    def leave(self, error: Exception | None) -> None:
        """It runs no more, because of an error or because it was stopped."""
        self.state, self.error = ("stopped", None) if error is None else ("failed", error)
        self.subscription = self.pending = self.exit = self.replaces = None
        if self.sink is not None:
            try:
                self.sink.close()
            except Exception as failure:  # the query has left; others must not notice
                self.state, self.error = "failed", self.error or failure

    def info(self) -> QueryInfo:
        error = "" if self.error is None else str(self.error) or type(self.error).__name__
        return QueryInfo(
            self.name,
            self.node.schema,
            self.state,
            self.since,
            self.valid_from if self.subscription is None else max(self.valid_from, self.subscription.wanted),
            self.reads,
            self.depends_on,
            error,
            self.level,
        )


@dataclass
class QueryRegistry:
    """Entries by name, in the order in which they were registered."""

    entries: dict[str, Entry] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def free_name(self, wanted: str | None) -> str:
        """The name for a new query: the wanted one if it is free, else one of ours."""
        if wanted is None:
            return next(name for name in (f"q{number}" for number in self._numbers) if name not in self.entries)
        if not wanted or not isinstance(wanted, str):
            raise QueryError(f"a query's name is a text, not {wanted!r}")
        if wanted in self.entries:
            raise QueryError(
                f"there is a query {wanted!r} already ({self.entries[wanted].state}); take another name, or stop and "
                "remove it first"
            )
        return wanted

    def __getitem__(self, name: str) -> Entry:
        if name not in self.entries:
            raise QueryError(f"there is no query {name!r}; there is {', '.join(self.entries) or 'none'}")
        return self.entries[name]

    def running(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state == "running"]

    def require_running(self, names: Iterable[str]) -> None:
        """QueryError unless the queries whose streams are to be read are running."""
        for name in names:
            if self[name].state != "running":
                raise QueryError(f"the stream of the query {name!r} cannot be read: it is {self[name].state}; start it")

    def require_unread(self, name: str, what: str) -> None:
        """QueryError if a running query reads this one's stream."""
        readers = [entry.name for entry in self.running() if name in entry.depends_on]
        if readers:
            raise QueryError(
                f"the query {name!r} cannot be {what}: {', '.join(readers)} read{'s' * (len(readers) == 1)} its "
                "stream; stop what reads it first"
            )
