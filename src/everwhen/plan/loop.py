"""A recursion as a body that can be stepped in rounds: what it reads from outside, and the plan between.

The ports of a loop are its base and every largest part of its step that does not read the recursion.  What is left of
the step is linear or bilinear: filters, maps, unions, joins.  Where derivations may be taken back, each node carries
the *birth* of the youngest recursive row in it, in a hidden column; what does not read the recursion counts as born
before everything.  In a set loop copies do not count, so a Distinct is nothing, and a semi-join with the recursion or
an INTERSECT is a join.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Call, Expr, col, lit
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.operators.loop.head import BIRTH_COLUMN, with_birth
from everwhen.plan.properties import emitted

RECURSION = "$recursion"
"""The body's input that is the loop itself."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """`externals`: what comes in by ports.  `body`: a plan over `Exchange` leaves, one per external and `RECURSION`.
    `births`: whether rows carry them."""

    externals: tuple[n.Node, ...]
    names: tuple[str, ...]
    body: n.Node
    births: bool


def loop_plan(node: n.Fixpoint) -> LoopPlan:
    """Cut a recursion into what is outside and what goes round."""
    outside = _outside(node)
    births = node.kind != "union all" and not all(emitted(each, Emit.ALL).insert_only for each in outside)
    births = births or node.kind in ("min", "max") or (node.kind == "union" and _takes_away(node))
    work = _Cut(node, births)
    step, base = work.carried(node.step), work.carried(node.base)
    return LoopPlan(tuple(work.externals), tuple(work.names), n.Union(base, step), births)


def _outside(node: n.Fixpoint) -> list[n.Node]:
    """The largest parts of base and step that do not read the recursion."""
    found: dict[int, n.Node] = {}

    def visit(each: n.Node) -> None:
        if not n.reads_recursion(each, node.token):
            found.setdefault(id(each), each)
        else:
            for child in each.inputs:
                visit(child)

    visit(node.base)
    visit(node.step)
    return list(found.values())


def _takes_away(node: n.Fixpoint) -> bool:
    """Whether more input may mean fewer derivations."""
    joins = (each for each in n.walk(node.step) if isinstance(each, n.Join) and each.kind in ("anti", "left"))
    return any(n.reads_recursion(each, node.token) for each in joins)


@dataclass
class _Cut:
    """Rebuilds the step over leaves."""

    loop: n.Fixpoint
    births: bool
    externals: list[n.Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _leaves: dict[int, n.Node] = field(default_factory=dict)

    @property
    def _set(self) -> bool:
        return self.loop.kind != "union all"

    def carried(self, node: n.Node) -> n.Node:
        """A branch with the loop's columns, and the birth behind them if rows carry one."""
        found = self.node(node)
        columns: list[tuple[str, Expr]] = [(name, col(name)) for name in node.schema.names]
        if self.births:
            columns.append((BIRTH_COLUMN, col(BIRTH_COLUMN) if _born(found) else lit(0, pa.int64())))
        named = found.schema.names == tuple(name for name, _ in columns)
        return found if named else n.Map(found, tuple(columns))

    def node(self, node: n.Node) -> n.Node:
        """The node over leaves; it has its own columns, and the birth somewhere among them if it reads the loop."""
        if not n.reads_recursion(node, self.loop.token):
            return self._external(node)
        match node:
            case n.Recursion(_, columns):
                return n.Exchange(RECURSION, with_birth(columns) if self.births else columns)
            case n.Filter(input):
                return replace(node, input=self.node(input))
            case n.Map(input, columns):
                below = self.node(input)
                born = ((BIRTH_COLUMN, col(BIRTH_COLUMN)),) if _born(below) else ()
                return n.Map(below, columns + born)
            case n.Union(left, right):
                return n.Union(self.carried(left), self.carried(right))
            case n.Distinct(input) if self._set:
                return self.node(input)
            case n.SetOperation(left, right, "intersect") if self._set:
                names = left.schema.names
                both = self._join(n.Join(left, right, names, right.schema.names, null_safe=True))
                return _selected(both, names)
            case n.Join():
                return self._join(node)
        raise QueryError(
            f"{type(node).__name__} cannot stand between the recursion {self.loop.token.name!r} and itself; "
            "filters, projections, joins and unions can"
        )

    def _join(self, node: n.Join) -> n.Node:
        left, right = self.node(node.left), self.node(node.right)
        if node.kind in ("anti", "left", "semi") and not n.reads_recursion(node.right, self.loop.token):
            return replace(node, left=left, right=right)
        if node.kind == "semi" and self._set:
            inner = self._pairs(replace(node, kind="inner", left=left, right=right))
            return _selected(inner, node.left.schema.names)
        if node.kind != "inner":
            raise QueryError(
                f"a {node.kind} join cannot have the recursion {self.loop.token.name!r} on its right side: "
                "what is derived could take back what it was derived from"
            )
        return self._pairs(replace(node, left=left, right=right))

    def _pairs(self, joined: n.Join) -> n.Node:
        """An inner join with one birth: the younger of two."""
        if not (_born(joined.left) and _born(joined.right)):
            return joined
        first, second = (name for name in joined.schema.names if name.startswith(BIRTH_COLUMN))
        rest = [(name, col(name)) for name in joined.schema.names if name not in (first, second)]
        return n.Map(joined, (*rest, (BIRTH_COLUMN, Call("greatest", (col(first), col(second))))))

    def _external(self, node: n.Node) -> n.Node:
        if id(node) not in self._leaves:
            name = f"$input {len(self.externals)}"
            self.externals.append(node)
            self.names.append(name)
            self._leaves[id(node)] = n.Exchange(name, node.schema)
        return self._leaves[id(node)]


def _born(node: n.Node) -> bool:
    return any(name.startswith(BIRTH_COLUMN) for name in node.schema.names)


def _selected(node: n.Node, names: tuple[str, ...]) -> n.Node:
    columns: list[tuple[str, Expr]] = [(name, col(name)) for name in names]
    born = [(name, col(name)) for name in node.schema.names if name.startswith(BIRTH_COLUMN)]
    return n.Map(node, (*columns, *born))


def sent_schema(node: n.Fixpoint, births: bool) -> Schema:
    """The columns that go round."""
    return with_birth(node.schema) if births else node.schema
