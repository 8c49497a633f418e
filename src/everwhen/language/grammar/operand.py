"""Operands of expressions: literals, columns, CASE, INTERVAL, and what stands in parentheses."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from everwhen.core.time import ticks
from everwhen.errors import QueryError, SqlError
from everwhen.language.grammar.cursor import Cursor
from everwhen.language.syntax import (
    Case,
    CastTo,
    Constant,
    Duration,
    Exists,
    Expression,
    Function,
    Name,
    Query,
    Row,
    Scalar,
    Span,
    TypeName,
)

T = TypeVar("T")

_MONTHS: Final = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
_OF_MONTHS: Final = re.compile(r"(\d{1,9})\s*(month|mon|quarter|year|decade|century)s?\b\s*")


def without_months(text: str) -> tuple[str, int]:
    """A length of time without its months and years, and how many months these are.

    >>> without_months("1 year 2 months 3 days")
    ('3 days', 14)
    """
    months = sum(int(each[1]) * _MONTHS[each[2]] for each in _OF_MONTHS.finditer(text))
    return _OF_MONTHS.sub("", text).strip(), months


_TYPED_LITERALS: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME")


class Operands(Cursor):
    """The part of the grammar that reads what operators are applied to."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._failed: dict[int, SqlError] = {}

    @abstractmethod
    def call(self) -> Expression: ...

    @abstractmethod
    def type_name(self) -> TypeName: ...

    @abstractmethod
    def expression_or_row(self) -> Expression: ...

    def no_row(self, found: Expression) -> None:
        if isinstance(found, Row):
            raise self.error("a list in parentheses stands only before IN (SELECT …)", found.span)

    def operand(self) -> Expression:
        first, lexeme = self.at, self.peek()
        match lexeme.kind:
            case "number":
                return Constant(self.number(), self.span(first))
            case "text":
                self.advance()
                if self.peek().kind == "text":
                    raise self.error("two texts in a row; join them with ||")
                return Constant(lexeme.text, self.span(first))
            case "symbol" if lexeme.text == "(":
                return self._parenthesis()
            case "symbol" if lexeme.text == "." and self.peek(1).kind == "number" and self.peek(1).start == lexeme.end:
                return Constant(self.number(), self.span(first))
            case "symbol" if lexeme.text == "[":
                return self._array()
            case "symbol" if lexeme.text in ("?", ":", "@", "{"):
                raise self.error("a query has no parameters; write the value itself")
            case "word":
                return self._word()
            case "quoted":
                return self.call() if self.at_symbol("(", ahead=1) else self.column()
        self.fail_expected("an expression")

    def _word(self) -> Expression:
        first, word = self.at, self.peek().text.upper()
        following = self.peek(1)
        match word:
            case "TRUE" | "FALSE" | "NULL":
                self.advance()
                return Constant({"TRUE": True, "FALSE": False}.get(word), self.span(first))
            case "CASE":
                with self.nested():
                    return self._case()
            case "EXISTS" if following.is_symbol("("):
                self.advance()
                if not self.starts_query():
                    raise self.error("EXISTS needs a subquery: EXISTS (SELECT …)")
                return Exists(self.query_in_parentheses(), self.span(first))
            case "INTERVAL" if following.kind in ("text", "number"):
                return self._duration()
            case _ if word in _TYPED_LITERALS and following.kind == "text":
                self.advance()
                type_name = TypeName(word.lower(), self.span(first))
                text = self.at
                self.advance()
                return CastTo(Constant(following.text, self.span(text)), type_name, self.span(first))
            case "ARRAY" if following.is_symbol("["):
                self.advance()
                return self._array()
            case "MAP" | "STRUCT" if following.is_symbol("[", "{"):
                raise self.error(f"{word} values are written STRUCT(a AS x, b AS y)")
            case "STRUCT" | "ROW" if following.is_symbol("("):
                return self._struct()
            case "ANY" | "SOME" if following.is_symbol("(") and not self.starts_query(1):
                return self.call()
            case "ALL" | "ANY" | "SOME" if following.is_symbol("("):
                raise self.error(f"{word} stands only behind a comparison: x >= {word} (SELECT …)")
            case "LEFT" | "RIGHT" | "LIKE" if following.is_symbol("("):
                return self.call()
            case "SELECT" | "WITH":
                raise self.error("a subquery stands in parentheses: (SELECT …)")
        if not self.at_name():
            named = following.is_symbol(",", ")", ".", "=", "<", ">") or following.is_word("FROM")
            self.fail_expected("an expression" + f' (as a name {word} is written "{self.peek().text}")' * named)
        return self.call() if following.is_symbol("(") else self.column()

    def _array(self) -> Function:
        """ARRAY[1, 2], [1, 2]: a list."""
        first = self.at
        self.expect_symbol("[")
        with self.nested():
            items = [] if self.at_symbol("]") else self.listed(self.expression)
        self.expect_symbol("]", why=" or ','")
        return Function("array", tuple(items), self.span(first))

    def _struct(self) -> Function:
        """STRUCT(a AS x, b), ROW(a, b): named values; without a name the column's, or f1, f2, …"""
        first = self.at
        self.at += 2
        args: list[Expression] = []
        with self.nested():
            while not args or self.take_symbol(","):
                begin = self.at
                value = self.expression()
                name = value.parts[-1].text if isinstance(value, Name) else f"f{len(args) // 2 + 1}"
                if self.take_word("AS"):
                    name = self.name("the name of a field").text
                args += [Constant(name, self.span(begin)), value]
        self.expect_symbol(")", why=" or ','")
        return Function("named_struct", tuple(args), self.span(first))

    def column(self) -> Name:
        """`price` or `B.price`; behind the point any word is a name."""
        first = self.at
        parts = [self.name("a column")]
        while self.take_symbol("."):
            if self.at_symbol("*"):
                raise self.error("a * stands only in SELECT and in COUNT(*), and COUNT(A.*) in MATCH_RECOGNIZE")
            if self.peek().kind not in ("word", "quoted"):
                self.fail_expected("the name of a column")
            parts.append(self.ident())
        if len(parts) > 6:
            raise self.error("a column is written name or stream.name, with its fields behind it", self.span(first))
        if self.at_symbol("("):
            raise self.error("a function is called by its name alone", self.span(first))
        return Name(tuple(parts), self.span(first))

    def number(self) -> int | float:
        first = self.at
        text = "0." if self.take_symbol(".") else ""
        text += self.advance().text
        lexeme = self.lexemes[self.at - 1]
        following = self.peek()
        if following.start == lexeme.end and following.kind in ("word", "quoted", "number"):
            raise self.error("expected a space or an operator behind the number")
        if len(text) > 400:
            raise self.error("the number has more digits than any type can hold", self.span(first))
        if text.count(".") > 1:
            raise self.error(f"{text[1:]} is not a number", self.span(first))
        if text.isdecimal():
            return int(text)
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise self.error("the number is larger than any type can hold", self.span(first))
        return value

    def _duration(self) -> Duration:
        first = self.at
        self.advance()
        lexeme = self.advance()
        text = lexeme.text.strip().lower()
        if self.take_words("YEAR", "TO", "MONTH"):
            years, _, months = text.partition("-")
            if not (years.isdecimal() and months.isdecimal()):
                raise self.error("INTERVAL '1-6' YEAR TO MONTH is a year and six months", self.span(first))
            return Duration("", self.span(first), self._months(int(years) * 12 + int(months), first))
        if self.peek().kind == "word" and self.at_name() and self.is_number(text):
            text = f"{text} {self.advance().text.lower()}"
            if self.at_word("TO"):
                raise self.error("INTERVAL … TO … is not part of the language; write INTERVAL '1h 30min'")
            if self.at_symbol("(") and self.peek(1).kind == "number" and self.at_symbol(")", ahead=2):
                self.at += 3  # the number of digits of the unit, as the standard has it
        rest, months_found = without_months(text)
        months_found = self._months(months_found, first)
        if months_found and not rest:
            return Duration("", self.span(first), months_found)
        return Duration(self.checked_duration(rest, self.span(first)), self.span(first), months_found)

    def _months(self, months: int, first: int) -> int:
        if months > 120_000:
            raise self.error("so many months are longer than there is time", self.span(first))
        return months

    @staticmethod
    def is_number(text: str) -> bool:
        return (
            text.isascii() and text[:1].isdecimal() and text[-1:].isdecimal() and text.replace(".", "", 1).isdecimal()
        )

    def checked_duration(self, text: str, span: Span) -> str:
        """The text, if it is a length of time."""
        try:
            ticks(text, "1ns")
        except QueryError as error:
            raise self.error(f"{error}", span) from error
        except ValueError as error:
            raise self.error("the number has too many digits", span) from error
        return text

    def _case(self) -> Case:
        first = self.at
        self.advance()
        operand = None if self.at_word("WHEN") else self.expression()
        whens: list[tuple[Expression, Expression]] = []
        if not self.at_word("WHEN"):
            self.fail_expected("WHEN")
        while self.take_word("WHEN"):
            when = self.expression()
            self.expect_word("THEN")
            whens.append((when, self.expression()))
        otherwise = self.expression() if self.take_word("ELSE") else None
        self.expect_word("END", why=" of CASE" if otherwise is not None else ", WHEN or ELSE")
        return Case(operand, tuple(whens), otherwise, self.span(first))

    # -- parentheses ---------------------------------------------------------------------------------------------------

    def query_in_parentheses(self) -> Query:
        self.expect_symbol("(")
        with self.nested():
            query = self.query()
        self.expect_symbol(")", why=" behind the subquery")
        return query

    def _parenthesis(self) -> Expression:
        first = self.at
        with self.nested():
            if not self.starts_query():
                return self._row_or_expression()
            return self.alternatives(
                lambda: Scalar(self.query_in_parentheses(), self.span(first)), self._row_or_expression
            )

    def _row_or_expression(self) -> Expression:
        first = self.at
        self.expect_symbol("(")
        items = self.listed(self.expression_or_row)
        self.expect_symbol(")", why=" or ','" if len(items) > 1 else "")
        if len(items) == 1:
            return items[0]
        for item in items:
            self.no_row(item)
        return Row(tuple(items), self.span(first))

    def alternatives(self, one: Callable[[], T], other: Callable[[], T]) -> T:
        """The first that can be read; if none can, the error that is further to the right.

        What could not be read the first way is not tried that way again, so that nesting costs no more than its depth.
        """
        first, depth = self.at, self._depth
        error = self._failed.get(first)
        if error is None:
            try:
                return one()
            except SqlError as problem:
                self.at, self._depth = first, depth
                error = self._failed[first] = problem
        try:
            return other()
        except SqlError as second:
            raise (second if second.start > error.start else error) from None
