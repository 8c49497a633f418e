"""ORDER BY with LIMIT, and OVER."""

from __future__ import annotations

from typing import Final, Literal, cast

from everwhen.language.grammar.expression import Expressions
from everwhen.language.syntax import Constant, Expression, Frame, FrameBound, Limited, Over, Query, Select, SortKey

_LIMITS: Final = ("LIMIT", "OFFSET", "FETCH")


class Ranks(Expressions):
    """The part of the grammar that reads orders of rows."""

    # -- ORDER BY … LIMIT ----------------------------------------------------------------------------------------------

    def limited(self, query: Query, first: int) -> Query:
        """The query with its ORDER BY and LIMIT, if it has a LIMIT; else an ORDER BY is left to whoever may sort."""
        order: tuple[SortKey, ...] = ()
        before = self.at
        distinct_on = isinstance(query, Select) and bool(query.on)
        if self.at_words("ORDER", "BY"):
            if not (distinct_on or self._limit_follows()):
                return query
            order = self.sort_keys()
        if not (self.at_word(*_LIMITS) or distinct_on):
            self.at = before
            return query
        limit, offset, ties = self._limits()
        if ties and not order:
            raise self.error("WITH TIES needs an ORDER BY: else all rows are equal", self.span(before))
        return Limited(query, order, limit, offset, ties, self.span(first))

    def _limit_follows(self) -> bool:
        """Whether LIMIT stands behind this ORDER BY, before its query is over."""
        depth, ahead = 0, 0
        while self.peek(ahead).kind != "end":
            if self.at_symbol("(", ahead=ahead):
                depth += 1
            elif self.at_symbol(")", ahead=ahead):
                depth -= 1
                if depth < 0:
                    return False
            elif depth == 0 and self.at_symbol(";", ahead=ahead):
                return False
            elif depth == 0 and self.at_word(*_LIMITS, ahead=ahead):
                return True
            ahead += 1
        return False

    def sort_keys(self) -> tuple[SortKey, ...]:
        self.advance()
        self.expect_word("BY")
        return tuple(self.listed(self._sort_key))

    def _sort_key(self) -> SortKey:
        first = self.at
        expression = self.expression()
        descending = self.take_word("DESC", "DESCENDING")
        if not descending:
            self.take_word("ASC", "ASCENDING")
        nulls_first = False
        if self.take_word("NULLS"):
            nulls_first = self.expect_word("FIRST", "LAST").text.upper() == "FIRST"
        return SortKey(expression, descending, nulls_first, self.span(first))

    def _limits(self) -> tuple[int | None, int, bool]:
        limit: int | None = None
        offset, ties = 0, False
        seen: set[str] = set()
        while self.at_word(*_LIMITS):
            word = self.peek().text.upper()
            kind = "OFFSET" if word == "OFFSET" else "LIMIT"
            if kind in seen:
                raise self.error(f"{word} stands once behind a query")
            seen.add(kind)
            self.advance()
            if word == "OFFSET":
                offset = self._count("OFFSET")
                self.take_word("ROW", "ROWS")
            elif word == "LIMIT":
                limit = None if self.take_word("ALL") else self._count("LIMIT")
                if self.at_symbol(","):
                    raise self.error("write LIMIT n OFFSET m instead of LIMIT m, n")
                if self.at_symbol("%") or self.at_word("PERCENT"):
                    raise self.error("LIMIT counts rows; a share of them is not part of the language")
            else:
                self.expect_word("FIRST", "NEXT")
                limit = 1 if self.at_word("ROW", "ROWS") else self._count("FETCH FIRST")
                self.expect_word("ROW", "ROWS")
                if self.take_word("WITH"):
                    self.expect_word("TIES")
                    ties = True
                else:
                    self.expect_word("ONLY", "WITH TIES")
        return limit, offset, ties

    def _count(self, what: str) -> int:
        lexeme = self.peek()
        if lexeme.kind != "number" or not lexeme.text.isdecimal() or int(lexeme.text) >= 2**31:
            self.fail_expected(f"a number of rows behind {what}, as a constant")
        self.advance()
        return int(lexeme.text)

    # -- OVER ----------------------------------------------------------------------------------------------------------

    def at_over(self) -> bool:
        return self.at_call("OVER") or (self.at_word("OVER") and self.at_name(1))

    def over(self) -> Over:
        first = self.at
        self.advance()
        if not self.at_symbol("("):
            raise self.error("named windows are not part of the language; write OVER (PARTITION BY … ORDER BY …)")
        self.advance()
        partition: tuple[Expression, ...] = ()
        order: tuple[SortKey, ...] = ()
        with self.nested():
            if self.at_word("PARTITION"):
                self.advance()
                self.expect_word("BY")
                partition = tuple(self.listed(self.expression))
            if self.at_word("ORDER"):
                order = self.sort_keys()
            frame = self._frame() if self.at_word("ROWS", "RANGE", "GROUPS") else None
        if self.at_word("PARTITION"):
            raise self.error("PARTITION BY stands before ORDER BY")
        self.expect_symbol(")", why=" of OVER")
        return Over(partition, order, frame, self.span(first))

    def _frame(self) -> Frame:
        first = self.at
        unit = self.advance().text.lower()
        if unit == "groups":
            raise self.error(
                "GROUPS is not part of the language; a frame counts ROWS, or has a RANGE", self.span(first)
            )
        if self.take_word("BETWEEN"):
            start = self._bound()
            self.expect_word("AND")
            end = self._bound()
        else:
            start = self._bound()
            end = FrameBound(Constant(0, start.span), False, start.span)
        if self.at_word("EXCLUDE"):
            raise self.error("EXCLUDE is not part of the language")
        if (start.offset is None and start.following) or (end.offset is None and not end.following):
            raise self.error("a frame begins before it ends", self.span(first))
        return Frame(cast(Literal["rows", "range"], unit), start, end, self.span(first))

    def _bound(self) -> FrameBound:
        first = self.at
        if self.take_words("CURRENT", "ROW"):
            return FrameBound(Constant(0, self.span(first)), False, self.span(first))
        offset = None if self.take_word("UNBOUNDED") else self.tight_expression()
        following = self.expect_word("PRECEDING", "FOLLOWING").text.upper() == "FOLLOWING"
        return FrameBound(offset, following, self.span(first))
