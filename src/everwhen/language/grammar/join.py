"""Joins in FROM: their kinds, and what stands behind them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from everwhen.language.grammar.call import Calls
from everwhen.language.syntax import Expression, FromItem, Ident, JoinItem, JoinKind

_JOIN_WORDS: Final = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_SIDES: Final[dict[str, JoinKind]] = {
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "CROSS": "cross",
    "SEMI": "semi",
    "ANTI": "anti",
}


class Joins(Calls):
    """The part of the grammar that reads joins."""

    @abstractmethod
    def operand_of_join(self) -> FromItem: ...

    def at_join(self) -> bool:
        if self.at_word("SEMI", "ANTI", "ASOF", "POSITIONAL") and self.at_word("JOIN", "LEFT", "INNER", ahead=1):
            return True
        if self.at_word("OUTER") and self.at_word("APPLY", ahead=1):
            return True
        return self.at_word(*_JOIN_WORDS)

    def join(self, left: FromItem, first: int) -> JoinItem:
        natural = self.take_word("NATURAL")
        asof = self.take_word("ASOF")
        kind = self._join_kind()
        if asof and kind not in ("inner", "left"):
            raise self.error(f"ASOF goes with JOIN and LEFT JOIN, not with {kind.upper()} JOIN", self.span(first))
        second = self.at
        right = self.operand_of_join()
        if natural:
            if kind == "cross" or asof or self.at_word("ON", "USING"):
                raise self.error("NATURAL JOIN compares all columns that both sides have; it has no ON and no USING")
            return JoinItem(left, right, kind, None, (), self.span(first), natural=True)
        match = self._match_condition() if asof else None
        if kind != "cross" and match is None:
            with self.nested():
                while self.at_join():
                    right = self.join(right, second)
        on: Expression | None = None
        using: tuple[Ident, ...] = ()
        if kind == "cross":
            if self.at_word("ON", "USING"):
                raise self.error("CROSS JOIN has no condition; write JOIN … ON …")
        elif self.take_word("ON"):
            on = self.expression()
        elif self.take_word("USING"):
            using = self.names_in_parentheses("a column")
        elif match is None:
            self.fail_expected("ON with the condition of the join, or USING (…)")
        return JoinItem(left, right, kind, on, using, self.span(first), asof=asof, match=match)

    def _match_condition(self) -> Expression | None:
        """MATCH_CONDITION (a.ts >= b.ts), as Snowflake writes it."""
        if not self.at_call("MATCH_CONDITION"):
            return None
        self.at += 2
        with self.nested():
            found = self.expression()
            self.expect_symbol(")", why=" of MATCH_CONDITION")
        return found

    def _join_kind(self) -> JoinKind:
        if self.at_word("POSITIONAL"):
            raise self.error("POSITIONAL JOIN is not part of the language")
        if self.at_word("CROSS", "OUTER") and self.at_word("APPLY", ahead=1):
            raise self.error("APPLY is not part of the language; write CROSS JOIN LATERAL (SELECT …) AS t")
        kind: JoinKind = "inner"
        if self.at_word(*_SIDES):
            word = self.advance().text.upper()
            kind = _SIDES[word]
            if word == "LEFT" and self.at_word("SEMI", "ANTI"):
                kind = _SIDES[self.advance().text.upper()]
            elif word in ("RIGHT", "FULL") and self.at_word("SEMI", "ANTI"):
                raise self.error(f"write {self.peek().text.upper()} JOIN with the two sides exchanged")
            elif word in ("LEFT", "RIGHT", "FULL"):
                self.take_word("OUTER")
        self.expect_word("JOIN")
        return kind
