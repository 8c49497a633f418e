"""PUNCTUATE (…) of CREATE STREAM: what is known of a stream beside its rows (Tucker, 6.2), and ORDER BY of a query.

    PUNCTUATE (SORTED BY hour WITHIN 1, CLUSTERED BY item, temp BETWEEN 20 AND 95, UNIQUE (item),
               COMPLETE hour FOR sid IN ('s1', 's2') EACH 60, GIVEN item)

What the words mean is in `everwhen.punctuation.schemes`.
"""

from __future__ import annotations

from typing import Any

from everwhen.language.grammar.query import Queries
from everwhen.language.syntax import (
    Given,
    Ident,
    Length,
    OrderItem,
    SchemeBounds,
    SchemeClustered,
    SchemeComplete,
    SchemeGiven,
    SchemeSorted,
    SchemeSyntax,
    SchemeUnique,
)


class BatchPunctuation(Queries):
    """The part of the grammar that reads what is said about order."""

    def punctuate_clause(self) -> tuple[SchemeSyntax, ...]:
        self.advance()
        self.expect_symbol("(")
        found = self.listed(self._scheme)
        self.expect_symbol(")", why=" or ','")
        return tuple(found)

    def _scheme(self) -> SchemeSyntax:
        first = self.at
        if self.take_words("SORTED", "BY"):
            column = self.name("the column by which rows are sorted")
            down = self._direction()
            within = self._within() if self.take_word("WITHIN") else None
            return SchemeSorted(column, down, within, self.span(first))
        if self.take_words("CLUSTERED", "BY"):
            return SchemeClustered(self.name("the column whose equal values stand together"), self.span(first))
        if self.at_call("UNIQUE"):
            self.advance()
            return SchemeUnique(self.names_in_parentheses("a column"), self.span(first))
        if self.at_word("COMPLETE") and (self.at_symbol("(", ahead=1) or self.at_word("FOR", ahead=2)):
            return self._complete(first)
        if self.at_word("GIVEN") and (self.at_symbol("(", ahead=1) or self.at_name(ahead=1)):
            return self._given(first)
        return self._bounds(first)

    def _given(self, first: int) -> SchemeGiven:
        self.advance()
        what = "a column that the source's own punctuation speaks of"
        columns = self.names_in_parentheses(what) if self.at_symbol("(") else (self.name(what),)
        return SchemeGiven(columns, self.span(first))

    def _complete(self, first: int) -> SchemeComplete:
        self.advance()
        group = self.names_in_parentheses("a column") if self.at_symbol("(") else (self.name("a column"),)
        self.expect_word("FOR")
        unit = self.name("the column that names who reports")
        self.expect_word("IN")
        self.expect_symbol("(")
        units = self.listed(self._constant)
        self.expect_symbol(")", why=" or ','")
        each = self._constant() if self.take_word("EACH") else None
        return SchemeComplete(group, unit, tuple(units), each, self.span(first))

    def _bounds(self, first: int) -> SchemeBounds:
        if not self.at_name():
            self.fail_expected(
                "SORTED BY, CLUSTERED BY, UNIQUE (…), COMPLETE … FOR, GIVEN, or a column with its bounds"
            )
        column = self.ident()
        low: Given | None = None
        high: Given | None = None
        if self.take_word("BETWEEN"):
            low = self._constant()
            self.expect_word("AND")
            high = self._constant()
        elif self.take_symbol(">="):
            low = self._constant()
        elif self.take_symbol("<="):
            high = self._constant()
        elif self.at_symbol("<", ">", "="):
            raise self.error("bounds are inclusive; write >=, <= or BETWEEN … AND …")
        else:
            self.fail_expected(
                "BETWEEN … AND …, >= or <= behind the column (or SORTED BY, CLUSTERED BY, UNIQUE, COMPLETE, GIVEN)"
            )
        return SchemeBounds(column, low, high, self.span(first))

    def _within(self) -> Given | Length:
        """A distance: a number, or a length of time with its unit."""
        first = self.at
        if self.peek().kind == "number" and self.peek(1).kind != "word":
            value = self.number()
            return Given(value, self.span(first))
        return self.length()

    def _constant(self) -> Given:
        first = self.at
        if self.at_word("DATE", "TIMESTAMP", "TIME") and self.peek(1).kind == "text":
            self.advance()
        return Given(self._value(), self.span(first))

    def _value(self) -> Any:
        lexeme = self.peek()
        if lexeme.kind == "text":
            return self.advance().text
        if lexeme.is_word("TRUE", "FALSE"):
            return self.advance().text.upper() == "TRUE"
        if lexeme.is_word("NULL"):
            raise self.error("a null has no place here; expected a constant")
        negative = self.take_symbol("-")
        if self.peek().kind != "number" and not (self.at_symbol(".") and self.peek(1).kind == "number"):
            self.fail_expected("a constant: a number or a text")
        value = self.number()
        return -value if negative else value

    # -- ORDER BY ------------------------------------------------------------------------------------------------------

    def order_by(self) -> tuple[OrderItem, ...]:
        self.advance()
        self.expect_word("BY")
        return tuple(self.listed(self._order_item))

    def _order_item(self) -> OrderItem:
        first = self.at
        if self.peek().kind == "number":
            raise self.error("ORDER BY names columns of the answer; write the name instead of its position")
        name: Ident = self.name("a column of the answer")
        if self.at_symbol(".", "(", "+", "-", "*", "/", "||"):
            raise self.error("ORDER BY takes columns of the answer by their names; compute it in SELECT … AS name")
        down = self._direction()
        if self.take_word("NULLS"):
            if self.at_word("FIRST"):
                raise self.error("nulls come last: else nothing could be said before the last one is known")
            self.expect_word("LAST")
        return OrderItem(name, down, self.span(first))

    def _direction(self) -> bool:
        if self.take_word("DESC", "DESCENDING"):
            return True
        self.take_word("ASC", "ASCENDING")
        return False
