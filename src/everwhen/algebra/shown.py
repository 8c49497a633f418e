"""How streams look: as the tree of their plan, in a line, in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from everwhen.algebra.explain import explain

if TYPE_CHECKING:
    from everwhen.algebra.node import Node
    from everwhen.core.schema import Schema


class Shown:
    """What people see of a stream."""

    if TYPE_CHECKING:
        node: Node

        @property
        def schema(self) -> Schema: ...

    def explain(self) -> str:
        """The logical plan as an indented tree."""
        return explain(self.node)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<Stream {self.schema}>"

    def _repr_html_(self) -> str:
        """The columns and the plan, for a notebook."""
        return f"<p>Stream {escape(str(self.schema))}</p><pre>{escape(self.explain())}</pre>"
