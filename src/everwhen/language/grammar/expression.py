"""Expressions: operators by precedence, CASE, casts, literals, subqueries as values.

From loose to tight: OR, AND, NOT, IS, comparison, BETWEEN / IN / LIKE, ||, -> ->>, + -, * / // %, the sign, `::` and
AT TIME ZONE.  That is PostgreSQL's order.  Comparisons do not chain: `a < b < c` is refused, since it hardly ever means
what it says.
"""

from __future__ import annotations

from typing import Final, Literal, cast

from everwhen.language.grammar.cursor import MAX_DEPTH
from everwhen.language.grammar.operand import Operands
from everwhen.language.syntax import (
    CastTo,
    Constant,
    Expression,
    Function,
    Operator,
    Quantified,
    Query,
    Row,
    Span,
    Symbol,
    Values,
)

_OR, _AND, _NOT, _IS, _COMPARE, _RANGE, _CONCAT, _ARROW, _ADD, _MULTIPLY, _SIGN = range(1, 12)
_COMPARISONS: Final = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_BINARY: Final[dict[str, int]] = {
    "||": _CONCAT,
    "->": _ARROW,
    "->>": _ARROW,
    "+": _ADD,
    "-": _ADD,
    "*": _MULTIPLY,
    "/": _MULTIPLY,
    "//": _MULTIPLY,
    "%": _MULTIPLY,
}
_SPELLINGS: Final = {"==": "=", "!=": "<>"}
_REFUSED: Final = {
    "SIMILAR": "SIMILAR TO is not part of the language; use LIKE or regexp_matches(text, regex)",
    "REGEXP": "REGEXP is not part of the language; use regexp_matches(text, regex)",
    "RLIKE": "RLIKE is not part of the language; use regexp_matches(text, regex)",
    "GLOB": "GLOB is not part of the language; use LIKE or regexp_matches(text, regex)",
    "COLLATE": "COLLATE is not part of the language; texts are compared character by character",
    "OVERLAPS": "OVERLAPS is not part of the language; compare the four ends, or let windows and lifetimes do it",
    "DIV": "DIV is not part of the language; use // for whole quotients, rounded down",
    "MOD": "MOD is a function here: mod(a, b), or a % b",
    "XOR": "XOR is not part of the language; use <> between two conditions",
}
_WINDOW_WORDS: Final = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "PARTITION")
MAX_CHAIN: Final = 100
"""How many operators of one level may follow one another; AND and OR are not limited."""


class Expressions(Operands):
    """The part of the grammar that reads expressions."""

    def expression(self) -> Expression:
        """An expression; (a, b) is none outside of IN."""
        found = self.expression_or_row()
        self.no_row(found)
        return found

    def expression_or_row(self) -> Expression:
        return self._climb(_OR)

    def tight_expression(self) -> Expression:
        """One without comparisons and logic, where IN or AND behind it belong to something else."""
        return self._operand(_CONCAT)

    # -- operators -----------------------------------------------------------------------------------------------------

    def _climb(self, least: int) -> Expression:
        first = self.at
        left = self._prefix(least)
        last, length = 0, 0
        while level := self._level():
            if level < least:
                break
            if not self._at_membership():
                self.no_row(left)
            if level in (_COMPARE, _RANGE) and level == last:
                raise self.error("comparisons do not chain; put one of them in parentheses")
            left = self._junction(left, first, level) if level in (_OR, _AND) else self._apply(left, first, level)
            last, length = level, length + 1
            if length > MAX_CHAIN:
                raise self.error(f"more than {MAX_CHAIN} operators in a row; put parts of it in parentheses")
        return left

    def _level(self) -> int:
        """How tightly the operator under the cursor binds; 0 if there is none."""
        lexeme = self.peek()
        if lexeme.kind == "symbol":
            return _COMPARE if lexeme.text in _COMPARISONS else _BINARY.get(lexeme.text, 0)
        if lexeme.kind != "word":
            return 0
        word = lexeme.text.upper()
        match word:
            case "OR":
                return _OR
            case "AND":
                return _AND
            case "IS" | "ISNULL" | "NOTNULL":
                return _IS
            case "BETWEEN" | "IN" | "LIKE" | "ILIKE":
                return _RANGE
            case "NOT":
                return _RANGE if self.at_word("BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR", "REGEXP", ahead=1) else 0
            case _ if word in _REFUSED and (self.peek(1).kind != "end" and not self._ends_alias(1)):
                raise self.error(_REFUSED[word])
        return 0

    def _ends_alias(self, ahead: int) -> bool:
        """Whether what follows shows that the word before was a name: `SELECT a mod FROM …`."""
        return self.at_symbol(",", ")", ";", ahead=ahead) or self.at_word("FROM", ahead=ahead)

    def _at_membership(self) -> bool:
        return self.at_word("IN") or (self.at_word("NOT") and self.at_word("IN", ahead=1))

    def _prefix(self, least: int) -> Expression:
        first = self.at
        if self.at_word("NOT"):
            if least > _NOT:
                raise self.error("NOT binds looser than the operator before it; put NOT … in parentheses")
            self.advance()
            with self.nested():
                operand = self._operand(_NOT)
            return Operator("not", (operand,), self.span(first))
        if self.at_symbol("+", "-"):
            minus = self.advance().text == "-"
            if minus and self.peek().kind == "number" and not self.at_symbol("::", ahead=1):
                value = self.number()
                return Constant(-value, self.span(first))
            with self.nested():
                operand = self._prefix(_SIGN)
            self.no_row(operand)
            return Operator("negate", (operand,), self.span(first)) if minus else operand
        return self._postfix(self.operand(), first)

    def _postfix(self, operand: Expression, first: int) -> Expression:
        casts = 0
        while self.at_symbol("::") or self.at_words("AT", "TIME", "ZONE") or self._at_element():
            self.no_row(operand)
            if self.take_symbol("."):
                name = self.ident()
                operand = Function("struct_extract", (operand, Constant(name.text, name.span)), self.span(first))
                continue
            if self.take_symbol("["):
                with self.nested():
                    place = self.expression()
                self.expect_symbol("]", why=" behind the place of an element")
                operand = Function("element_at", (operand, place), self.span(first))
                continue
            if self.take_symbol("::"):
                operand = CastTo(operand, self.type_name(), self.span(first))
            else:
                self.at += 3
                zone = self._prefix(_SIGN)
                operand = Function("from_utc_timestamp", (operand, zone), self.span(first))
            casts += 1
            if casts > MAX_DEPTH:
                raise self.error("more casts in a row than make sense")
        if self.at_symbol("[") and self.at_word(*_WINDOW_WORDS, ahead=1):
            raise self.error("[…] with a window stands only behind a stream in FROM")
        return operand

    def _at_element(self) -> bool:
        if self.at_symbol(".") and self.peek(1).kind in ("word", "quoted") and self.at > 0:
            return self.lexemes[self.at - 1].is_symbol(")", "]")  # a field of what a call makes
        return self.at_symbol("[") and not self.at_word(*_WINDOW_WORDS, ahead=1)

    def _junction(self, left: Expression, first: int, level: int) -> Expression:
        """A chain of ANDs or ORs.  Long ones become a balanced tree, so that their depth stays small."""
        word: Literal["AND", "OR"] = "AND" if level == _AND else "OR"
        starts, parts = [first], [(left, self.span(first))]
        while self.take_word(word):
            starts.append(self.at)
            part = self._operand(level + 1)
            parts.append((part, self.span(starts[-1])))
        symbol: Symbol = "and" if level == _AND else "or"

        def join(a: tuple[Expression, Span], b: tuple[Expression, Span]) -> tuple[Expression, Span]:
            span = Span(a[1].start, b[1].end)
            return Operator(symbol, (a[0], b[0]), span), span

        while len(parts) > 32:
            pairs = [join(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[len(pairs) * 2 :]
        result = parts[0]
        for each in parts[1:]:
            result = join(result, each)
        return result[0]

    def _apply(self, left: Expression, first: int, level: int) -> Expression:
        match level:
            case _ if level == _IS:
                return self._is(left, first)
            case _ if level == _RANGE:
                return self._range(left, first)
            case _ if level == _COMPARE:
                return self._comparison(left, first)
        symbol = cast(Symbol, self.advance().text)
        return Operator(symbol, (left, self._operand(level + 1)), self.span(first))

    def _operand(self, least: int) -> Expression:
        found = self._climb(least)
        self.no_row(found)
        return found

    def _comparison(self, left: Expression, first: int) -> Expression:
        written = self.advance().text
        symbol = cast(Literal["=", "<>", "<", "<=", ">", ">="], _SPELLINGS.get(written, written))
        if self.at_call("ALL", "ANY", "SOME") and self._quantifies():
            quantifier: Literal["all", "any"] = "all" if self.at_word("ALL") else "any"
            self.advance()
            if not self.starts_query():
                raise self.error(
                    f"{quantifier.upper()} compares with a subquery: {written} {quantifier.upper()} (SELECT …)"
                )
            query = self.query_in_parentheses()
            return Quantified(left, symbol, quantifier, query, self.span(first))
        return Operator(symbol, (left, self._operand(_RANGE)), self.span(first))

    def _quantifies(self) -> bool:
        """Whether this is no aggregate: SOME(x) and ANY(x) of conditions are."""
        return self.at_word("ALL") or self.starts_query(1)

    def _is(self, left: Expression, first: int) -> Expression:
        word = self.advance().text.upper()
        if word != "IS":
            return Operator("is_null" if word == "ISNULL" else "not_null", (left,), self.span(first))
        negated = self.take_word("NOT")
        if self.take_words("DISTINCT", "FROM"):
            right = self._operand(_COMPARE)
            return Operator("is_not_distinct" if negated else "is_distinct", (left, right), self.span(first))
        symbols: dict[str, tuple[Symbol, Symbol]] = {
            "NULL": ("is_null", "not_null"),
            "UNKNOWN": ("is_null", "not_null"),
            "TRUE": ("is_true", "is_not_true"),
            "FALSE": ("is_false", "is_not_false"),
        }
        word = self.expect_word(*symbols, "DISTINCT FROM").text.upper()
        return Operator(symbols[word][negated], (left,), self.span(first))

    def _range(self, left: Expression, first: int) -> Expression:
        negated = self.take_word("NOT")
        word = self.advance().text.upper()
        found: Expression
        match word:
            case "BETWEEN":
                if self.at_word("SYMMETRIC", "ASYMMETRIC") and not self.at_word("AND", ahead=1):
                    raise self.error("BETWEEN SYMMETRIC is not part of the language; write the smaller end first")
                low = self._operand(_CONCAT)
                self.expect_word("AND", why=" and the upper end of BETWEEN")
                found = Operator("between", (left, low, self._operand(_CONCAT)), self.span(first))
            case "LIKE" | "ILIKE":
                if self.at_call("ALL", "ANY", "SOME"):
                    raise self.error(f"{word} compares with one pattern; join several with AND or OR")
                pattern = self._operand(_CONCAT)
                if self.at_word("ESCAPE"):
                    raise self.error("ESCAPE is not part of the language; use regexp_matches(text, regex)")
                found = Operator("like" if word == "LIKE" else "ilike", (left, pattern), self.span(first))
            case "IN":
                found = self._in(left, first)
            case _:
                self.at -= 1
                raise self.error(_REFUSED[word])
        return Operator("not", (found,), self.span(first)) if negated else found

    def _in(self, left: Expression, first: int) -> Expression:
        if not self.at_symbol("("):
            self.fail_expected("'(' with a list or a subquery behind IN")
        if self.starts_query():
            return self.alternatives(
                lambda: self._among(left, self.query_in_parentheses(), first),
                lambda: self._in_list(left, first),
            )
        return self._in_list(left, first)

    def _among(self, left: Expression, query: Query, first: int) -> Expression:
        """`x IN (VALUES (1), (2))` is `x IN (1, 2)`."""
        if isinstance(query, Values) and not isinstance(left, Row) and len(query.rows[0]) == 1:
            return Operator("in", (left, *(row[0] for row in query.rows)), self.span(first))
        return Quantified(left, "=", "any", query, self.span(first))

    def _in_list(self, left: Expression, first: int) -> Expression:
        self.no_row(left)
        self.expect_symbol("(")
        with self.nested():
            listed = self.listed(self.expression)
        self.expect_symbol(")", why=" or ','")
        return Operator("in", (left, *listed), self.span(first))
