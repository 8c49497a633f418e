"""The binder: a text's syntax against the catalogue, as a logical plan.

Every name is resolved, every type checked; an error says where in the text, what was expected and what there is.
The plan is the query as written (thesis, chapter 9); rewriting makes it a good one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col
from everwhen.core.kinds import common
from everwhen.errors import QueryError, SqlError
from everwhen.language import syntax as s
from everwhen.language.binding import expressions, select
from everwhen.language.binding.context import Aggregated, Bound, Correlation, Names, Rows
from everwhen.language.binding.loops.recursion import recursive_names
from everwhen.language.binding.ranks import rank as ranks
from everwhen.language.binding.scope import TimeWanted, same
from everwhen.language.binding.sources import named
from everwhen.language.binding.spelled.time_windows import with_windows
from everwhen.language.binding.tables.values import constant_rows
from everwhen.language.catalog import Catalog, Entry


class Binder:
    """Binds the queries of one text; `read` collects the names of the catalogue that they use."""

    def __init__(self, text: str, catalog: Catalog, tick: str = "1ms") -> None:
        self.text = text
        self.catalog = catalog
        self.tick = tick
        self.spans: dict[int, tuple[Expr, s.Span]] = {}
        self.read: dict[str, Entry] = {}
        self.names: Names = ()
        self._numbers = count(1)
        self.stamped: set[s.Span] = set()
        self._within = False

    def error(self, problem: str, span: s.Span) -> SqlError:
        return SqlError(problem, self.text, span.start, span.end)

    def name(self, what: str) -> str:
        return f"_{what}{next(self._numbers)}"

    def hidden_time(self, name: s.Ident) -> str:
        for entry in self.read.values():
            ordered = None if entry.declaration is None else entry.declaration.ordered_by
            if ordered is not None and same(name, ordered[0]):
                name_of = entry.name
                return f"; {ordered[0]} is the time of {name_of}, which * leaves out: name it where {name_of} is read"
        return ""

    def stream(self, name: s.Ident) -> n.Node | None:
        for known, named_query in reversed(self.names):
            if same(name, known):
                return named_query if isinstance(named_query, n.Node) else named_query(name)
        try:
            entry = self.catalog.stream(name.text, name.quoted)
            if entry is None and self.catalog.found is not None:
                declaration = self.catalog.found(name.text)
                if declaration is not None:
                    entry = Entry(declaration.name, declaration.source, declaration)
                    self.catalog = self.catalog.with_entry(entry)
        except QueryError as error:
            raise self.error(str(error), name.span) from None
        if entry is None:
            return None
        self.read[entry.name] = entry
        return entry.node

    def expression(self, e: s.Expression, rows: Rows) -> Expr:
        return expressions.bind(e, rows)

    def compared(self, symbol: str, a: Expr, b: Expr, rows: Rows) -> Expr:
        return expressions.compared(symbol, a, b, rows)

    # -- queries ---------------------------------------------------------------------------------------------------

    def query(self, query: s.Query, correlation: Correlation | None = None) -> Bound:
        """The plan of a query; `correlation` if it stands in an expression."""
        if self._within:
            return self._query(query, correlation)
        self._within = True
        try:
            while True:
                try:
                    return self._query(query, correlation)
                except TimeWanted as wanted:
                    self.stamped.add(wanted.place)
                    self._numbers = count(1)
        finally:
            self._within = False

    def _query(self, query: s.Query, correlation: Correlation | None) -> Bound:
        match query:
            case s.Select():
                query = with_windows(query, self)
                if query.on:
                    return ranks.limited(s.Limited(query, (), None, 0, False, query.span), self, correlation)
                return select.select(query, self, correlation)
            case s.SetQuery():
                return self._set(query, correlation)
            case s.With():
                with self._named(query):
                    return self.query(query.body, correlation)
            case s.Values() if correlation is not None:  # it carries what the subquery reads, as others do
                rows = s.Derived(query, None, (), (), query.span)
                return self.query(
                    s.Select((s.Star(None, query.span),), False, (rows,), None, (), None, query.span), correlation
                )
            case s.Values():
                return constant_rows(query, self)
            case s.Limited():
                return ranks.limited(query, self, correlation)
            case s.Cql(kind, inner):
                bound = self.query(inner, correlation)
                if bound.keys:
                    raise self.error(
                        f"{kind.upper()} cannot stand over a subquery that reads the query around it", query.span
                    )
                return Bound(n.RelationToStream(bound.node, kind), bound.columns)

    def single(self, query: s.Query) -> bool:
        match query:
            case s.With(_, body):
                return self.single(body)
            case s.Select():
                return select.is_single(query, self)
        return False

    def aggregated(self, query: s.Query, correlation: Correlation) -> Aggregated:
        match query:
            case s.With(_, body):
                with self._named(query):
                    return self.aggregated(body, correlation)
            case s.Select():
                return select.aggregated(query, self, correlation)
        raise AssertionError("not a single row")

    @contextmanager
    def naming(self, names: Names) -> Iterator[None]:
        before, self.names = self.names, names
        try:
            yield
        finally:
            self.names = before

    @contextmanager
    def _named(self, query: s.With) -> Iterator[None]:
        known: list[str] = []
        for each in query.queries:
            # names that may be read before they are given must differ in more than case: a quoted one is found by both
            if any(same(each.name, other) or (query.recursive and _alike(each.name, other)) for other in known):
                raise self.error(
                    f"WITH names two queries {each.name.text}; give each a name of its own", each.name.span
                )
            known.append(each.name.text)
        with self.naming(self.names):
            if query.recursive:
                self.names = recursive_names(query, self)
            else:
                for each in query.queries:
                    self.names = (*self.names, (each.name.text, named(self.query(each.query), each.columns, self)))
            yield

    def _set(self, query: s.SetQuery, correlation: Correlation | None) -> Bound:
        if correlation is not None:
            correlation.linking = False  # both sides must carry the same columns
            for side in (query.left, query.right):
                if self.single(side):
                    raise self.error(
                        f"an aggregate without GROUP BY cannot stand under {query.kind.upper()} inside a subquery; "
                        "name it with WITH and read it from there",
                        side.span,
                    )
        left, right = self.query(query.left, correlation), self.query(query.right, correlation)
        if len(left.columns) != len(right.columns):
            raise self.error(
                f"{query.kind.upper()} needs as many columns on both sides: {len(left.columns)} on the left, "
                f"{len(right.columns)} on the right",
                query.right.span,
            )
        one, two = self._unified(left.node, right.node, query)
        return Bound(_set_node(query, one, two), left.columns, left.keys)

    def _unified(self, left: n.Node, right: n.Node, query: s.SetQuery) -> tuple[n.Node, n.Node]:
        """Both sides with the same types, and the left side's names."""
        names = left.schema.names
        types = []
        for a, b in zip(left.schema.fields, right.schema.fields, strict=True):
            try:
                types.append(common(a.type, b.type, f"column {a.name} of {query.kind.upper()}"))
            except QueryError as error:
                raise self.error(str(error), query.right.span) from None
        return tuple(_typed(side, names, types) for side in (left, right))  # type: ignore[return-value]


def _alike(name: s.Ident, other: str) -> bool:
    return name.text.lower() == other.lower()


def _typed(node: n.Node, names: tuple[str, ...], types: list) -> n.Node:
    fields = node.schema.fields
    if all(f.type == t for f, t in zip(fields, types, strict=True)):
        return node
    columns = (
        (name, col(f.name) if f.type == t else col(f.name).cast(t))
        for name, f, t in zip(names, fields, types, strict=True)
    )
    return n.Map(node, tuple(columns))


def _set_node(query: s.SetQuery, left: n.Node, right: n.Node) -> n.Node:
    match query.kind, query.all:
        case "union", every:
            node: n.Node = n.Union(left, right)
        case "except", True:
            return n.SetOperation(left, right, "difference")
        case "except", False:
            return n.Distinct(n.SetOperation(left, right, "strict_difference"))
        case _, every:
            node = n.SetOperation(left, right, "intersect")
    return node if every else n.Distinct(node)
