"""The handle of a query in a session: how it is, its stream, other levels, its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everwhen.algebra.builder import Stream
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Duration
from everwhen.core.emit import Emit
from everwhen.core.time_axis import times_shown
from everwhen.engine.observe.graph_html import answer_html, graph_html
from everwhen.engine.session.cutover import Migration
from everwhen.engine.session.query_registry import QueryInfo
from everwhen.operators.ingress.finalize import Reason
from everwhen.stream.element_batch import ElementBatch

if TYPE_CHECKING:
    from everwhen.engine.session.session_queries import SessionQueries


@dataclass(frozen=True, slots=True)
class QueryHandle:
    """A registered query."""

    name: str
    session: SessionQueries

    @property
    def info(self) -> QueryInfo:
        """Its entry in the catalogue, as it is now."""
        return self.session.query(self.name)

    @property
    def valid_from(self) -> int:
        """The instant from which on every snapshot of the answer is right."""
        return self.info.valid_from

    @property
    def stream(self) -> Stream:
        """Its answer, for other queries to read."""
        return self.session.stream(self.name)

    def change(
        self,
        block: Duration | None = None,
        remember: Duration | None = None,
        tick: str = "1ms",
        *,
        emit: str | Emit | None = None,
    ) -> None:
        """Move it to another level; see `Session.change`."""
        self.session.change(self.name, block, remember, tick, emit=emit)

    def fast_forward(self, t: int) -> dict[str, ElementBatch]:
        """Its answer before `t` is of no interest; see `Session.fast_forward`."""
        return self.session.fast_forward(self.name, t)

    @property
    def dropped(self) -> dict[str, dict[Reason, int]]:
        """How many elements of each source its level gave up, by reason."""
        return self.session.dropped(self.name)

    def replace(self, query: Stream | Node, at: int | None = None) -> int:
        """Become another query from an instant on; see `Session.replace`."""
        return self.session.replace(self.name, query, at)

    def migrate(self, query: Stream | Node) -> Migration:
        """Go over to another plan that means the same; see `Session.migrate`."""
        return self.session.migrate(self.name, query)

    def _repr_html_(self) -> str:
        """How it is, its part of the graph, and its answer as of now, for notebooks."""
        info = self.info
        nodes = [node for node in self.session.graph() if self.name in node.queries]
        words = f"{self.name} {info.schema}: {info.state}, {info.consistency.name}{': ' * bool(info.error)}{info.error}"
        with times_shown(self.session.axis(self.name)):
            table = answer_html(self.name, self.session.answer(self.name)) if info.state == "running" else ""
            return graph_html(words, nodes) + table

    def stop(self) -> None:
        self.session.stop(self.name)
