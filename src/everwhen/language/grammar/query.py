"""Queries: SELECT, set operations, WITH, and CQL's conversions over whole queries.

INTERSECT binds tighter than UNION and EXCEPT, which are read from left to right, as SQL has it.  Clauses that have no
meaning for an answer that changes with time are refused by name.  ORDER BY stands with a LIMIT, or at the end of the
query that is asked, where its answer leaves.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final, Literal, cast

from everwhen.language.grammar.cursor import MAX_DEPTH
from everwhen.language.grammar.grouping import Groupings
from everwhen.language.grammar.loop import Loops
from everwhen.language.grammar.source import Sources
from everwhen.language.syntax import (
    Common,
    Cql,
    Expression,
    Ident,
    Item,
    Query,
    Row,
    Select,
    SetQuery,
    Star,
    With,
)

_CQL: Final = ("ISTREAM", "DSTREAM", "RSTREAM")
_SET_WORDS: Final = ("UNION", "EXCEPT", "INTERSECT")
_REFUSED: Final = {
    "ORDER": "ORDER BY stands at the end of the query that is asked, since rows have an order only at a sink, or "
    "before a LIMIT",
    "LIMIT": "LIMIT stands once, behind the query that it is about",
    "OFFSET": "OFFSET stands once, behind the query that it is about",
    "FETCH": "FETCH stands once, behind the query that it is about",
    "QUALIFY": "QUALIFY is not part of the language; rank in a query in FROM, and compare the rank in WHERE",
    "MINUS": "MINUS is not part of the language; write EXCEPT",
    "SORT": "SORT BY is not part of the language; write ORDER BY, at the end of the query that is asked",
    "DISTRIBUTE": "DISTRIBUTE BY is not part of the language; the engine distributes by itself",
    "CLUSTER": "CLUSTER BY is not part of the language; the engine distributes by itself",
    "CONNECT": "CONNECT BY is not part of the language",
}
_WITH_BY: Final = ("SORT", "DISTRIBUTE", "CLUSTER", "CONNECT")


class Queries(Sources, Groupings, Loops):
    """The part of the grammar that reads queries."""

    def starts_query(self, ahead: int = 0) -> bool:
        """Whether a query may stand here: SELECT, WITH, ISTREAM(SELECT …), behind any number of parentheses."""
        while True:
            while self.at_symbol("(", ahead=ahead):
                ahead += 1
            if not (self.at_word(*_CQL, ahead=ahead) and self.at_symbol("(", ahead=ahead + 1)):
                return self.at_word("SELECT", "WITH", "VALUES", ahead=ahead)
            ahead += 2

    def ends_query(self) -> bool:
        """Whether a clause begins here that ends FROM, or the query is over."""
        if self.at_symbol(")", ";") or self.peek().kind == "end" or self.at_word(*_SET_WORDS):
            return True
        if self.at_word("CONSISTENCY"):
            return self.at_word("STRONG", "MIDDLE", "WEAK", ahead=1) or self.at_symbol("(", ahead=1)
        if self.at_word("WINDOW") and self.at_name(1) and self.at_word("AS", ahead=2):
            return True
        return self._at_refused_clause()

    def _at_refused_clause(self) -> bool:
        return self.at_word(*_REFUSED) and (not self.at_word(*_WITH_BY) or self.at_word("BY", ahead=1))

    # -- queries -------------------------------------------------------------------------------------------------------

    def query(self, sorts: bool = False) -> Query:
        """A query with its set operations; nothing but the end of it may follow, and ORDER BY if it `sorts`."""
        if self.at_word("WITH"):
            return self._with(sorts)
        first = self.at
        query = self._set_query(0)
        found = self.limited(query, first)
        if not (sorts and found is query and self.at_word("ORDER")):
            self.refuse_clauses()
        return found

    def _set_query(self, least: int) -> Query:
        first = self.at
        left = self._operand_of_set()
        length = 0
        while self.at_word(*_SET_WORDS):
            level = 1 if self.at_word("INTERSECT") else 0
            if level < least:
                break
            kind = cast(Literal["union", "except", "intersect"], self.advance().text.lower())
            keep = self.take_word("ALL")
            if not keep:
                self.take_word("DISTINCT")
            if self.at_words("BY", "NAME") or self.at_word("CORRESPONDING"):
                raise self.error(f"{kind.upper()} matches columns by their place; name them in that order")
            right = self._set_query(level + 1)
            left = SetQuery(kind, keep, left, right, self.span(first))
            length += 1
            if length > MAX_DEPTH:
                raise self.error(f"more than {MAX_DEPTH} queries in a row; put parts of them in parentheses")
        return left

    def _operand_of_set(self) -> Query:
        first = self.at
        if self.at_symbol("("):
            return self.query_in_parentheses()
        if self.at_call(*_CQL):
            kind = cast(Literal["istream", "dstream", "rstream"], self.advance().text.lower())
            return Cql(kind, self.query_in_parentheses(), self.span(first))
        if self.at_word("SELECT"):
            return self._select()
        if self.at_word("VALUES"):
            return self.values()
        if self.at_word("WITH"):
            raise self.error("WITH stands before the whole query, or in parentheses of its own")
        self.fail_expected("SELECT")

    def refuse_clauses(self) -> None:
        if self._at_refused_clause():
            raise self.error(_REFUSED[self.peek().text.upper()])
        if self.at_word("WINDOW") and not self.at_symbol("(", ahead=1):
            raise self.error("named windows are not part of the language; a window stands behind its stream in FROM")
        if self.at_word("FOR"):
            raise self.error("FOR UPDATE and the like are not part of the language")

    def _with(self, sorts: bool) -> With:
        first = self.at
        self.advance()
        recursive = self.at_word("RECURSIVE") and not self.at_word("AS", ahead=1) and not self.at_symbol("(", ahead=1)
        if recursive:
            self.advance()
        queries = self.listed(lambda: self._common(recursive))
        if self.at_word("WITH"):
            raise self.error("one WITH names all: WITH a AS (…), b AS (…) SELECT …")
        return With(tuple(queries), self.query(sorts), self.span(first), recursive)

    def _common(self, recursive: bool) -> Common:
        first = self.at
        name = self.name("a name for the query")
        columns = self.names_in_parentheses("a column") if self.at_symbol("(") else ()
        loop = self.loop_clause() if self.at_loop_clause() else None
        if loop is not None and not recursive:
            raise self.error("this is about a query that reads itself; write WITH RECURSIVE", loop.span)
        self.expect_word("AS")
        if self.at_word("MATERIALIZED", "NOT"):
            raise self.error("MATERIALIZED is not part of the language; a query read twice is shared by itself")
        if not self.starts_query() or not self.at_symbol("("):
            self.fail_expected("'(' and a query")
        query = self.query_in_parentheses()
        if self.at_words("SEARCH", "DEPTH") or self.at_words("SEARCH", "BREADTH") or self.at_word("CYCLE"):
            raise self.error(
                f"{self.peek().text.upper()} is not part of the language: rows have no order, and UNION ends at cycles"
            )
        return Common(name, columns, query, self.span(first), loop)

    # -- SELECT --------------------------------------------------------------------------------------------------------

    def _select(self) -> Select | Cql:
        first = self.at
        self.advance()
        distinct, on = self._distinct(), self._distinct_on()
        kind, closing = self._conversion_of_list()
        distinct = (closing and self._distinct()) or distinct
        items = self._items(distinct)
        if closing:
            self.expect_symbol(")", why=f" of {kind}")
            if not self.at_word("FROM"):
                self.fail_expected(f"FROM ({kind} stands around all columns of SELECT)")
        constant = self.ends_query() or self.at_word("WHERE", "GROUP", "HAVING")
        if not constant and not self.take_word("FROM"):
            alias = items[-1].alias if isinstance(items[-1], Item) else None
            if alias is not None and get_close_matches(alias.text.upper(), ["FROM"], cutoff=0.7):
                raise self.error(f"expected ',' or FROM; {alias.text} came: did you mean FROM?", alias.span)
            self.fail_expected("',' or FROM")
        sources = () if constant else self.sources()
        where = self.expression() if self.take_word("WHERE") else None
        group_by, sets = self.group_by() if self.at_word("GROUP") else ((), ())
        having = self.expression() if self.take_word("HAVING") else None
        self._check_order_of_clauses()
        query = Select(items, distinct, sources, where, group_by, having, self.span(first), on, sets)
        if not kind:
            return query
        return Cql(cast(Literal["istream", "dstream", "rstream"], kind.lower()), query, query.span)

    def _check_order_of_clauses(self) -> None:
        if self.at_word("WHERE", "GROUP", "HAVING", "FROM"):
            word = self.peek().text.upper()
            raise self.error(f"{word} cannot stand here; the order is FROM, WHERE, GROUP BY, HAVING, each once")
        if self.at_symbol("["):
            raise self.error("a window stands behind its stream in FROM")

    def _distinct(self) -> bool:
        if self.at_word("DISTINCT") and self.at_word("ON", ahead=1):
            return False
        if self.at_word("TOP") and self.peek(1).kind == "number":
            raise self.error(
                f"TOP is not part of the language; write ORDER BY … LIMIT {self.peek(1).text} behind the query"
            )
        distinct = self.take_word("DISTINCT")
        if not distinct:
            self.take_word("ALL")
        return distinct

    def _distinct_on(self) -> tuple[Expression, ...]:
        if not self.take_words("DISTINCT", "ON"):
            return ()
        self.expect_symbol("(")
        found = tuple(self.listed(self.expression))
        self.expect_symbol(")", why=" of DISTINCT ON")
        return found

    def _conversion_of_list(self) -> tuple[str, bool]:
        """CQL: `SELECT ISTREAM(a, b) FROM`, `SELECT ISTREAM * FROM`."""
        if not self.at_word(*_CQL):
            return "", False
        word = self.peek().text.upper()
        if self.at_symbol("*", ahead=1) and self.at_word("FROM", ahead=2):
            self.advance()
            return word, False
        if self.at_symbol("(", ahead=1) and not self.starts_query():
            self.at += 2
            return word, True
        return "", False

    def _items(self, distinct: bool) -> tuple[Star | Item, ...]:
        if self.at_word("FROM"):
            self.fail_expected("the columns of SELECT, or *")
        items = self.listed(self._item_of_select)
        found: list[Star | Item] = []
        for item in items:
            if isinstance(item, Item) and isinstance(item.expression, Row):
                if not distinct or len(items) > 1 or item.alias is not None:
                    raise self.error("a list in parentheses stands only behind DISTINCT", item.span)
                found.extend(Item(each, None, each.span) for each in item.expression.items)
            else:
                found.append(item)
        return tuple(found)

    def _item_of_select(self) -> Star | Item:
        first = self.at
        star = self._star()
        if star is not None:
            return star
        if self.at_symbol(",", ")") or self.peek().kind == "end":
            self.fail_expected("a column of SELECT")
        expression = self.expression_or_row()
        alias: Ident | None = None
        if self.take_word("AS"):
            alias = self.name("an alias")
        elif self.at_word("INTO") and self.at_name(1):
            raise self.error("SELECT INTO is not part of the language; write CREATE STREAM name AS SELECT …")
        elif self.at_name():
            alias = self.ident()
        elif self.peek().kind == "text":
            raise self.error('an alias is a name; names stand in double quotation marks: "…"')
        return Item(expression, alias, self.span(first))

    def _star(self) -> Star | None:
        first = self.at
        qualifier = None
        if self.at_name() and self.at_symbol(".", ahead=1) and self.at_symbol("*", ahead=2):
            qualifier = self.ident()
            self.advance()
        if not self.take_symbol("*"):
            return None
        if self.at_word("EXCEPT", "EXCLUDE", "REPLACE", "RENAME") and self.at_symbol("(", ahead=1):
            raise self.error(f"* {self.peek().text.upper()} is not part of the language; name the columns")
        return Star(qualifier, self.span(first))
