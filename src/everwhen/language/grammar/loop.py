"""What may stand between the name of a recursive query and AS: how its loop runs.

    r(a, b) MAX RECURSION LEVEL 50 MAX RECURSION ROWS 1000 ROUNDS 2 PROGRESS PROBING AS (…)
    r(a, b) ACROSS PARTITIONS AS (…)

Each at most once, in any order.
"""

from __future__ import annotations

from typing import Any, Final

from everwhen.language.grammar.cursor import Cursor
from everwhen.language.syntax import LoopClause

_LEVEL: Final = "MAX RECURSION LEVEL"
_ROWS: Final = "MAX RECURSION ROWS"
_ACROSS: Final = "ACROSS PARTITIONS"
_STRATEGIES: Final = (("HYBRID",), ("PROBING",), ("HIGH", "WATER", "MARK"))


class Loops(Cursor):
    """The part of the grammar that reads the options of a recursion."""

    def at_loop_clause(self) -> bool:
        return self.at_words("MAX", "RECURSION") or self.at_word("ROUNDS", "PROGRESS", "ACROSS")

    def loop_clause(self) -> LoopClause:
        first = self.at
        found: dict[str, Any] = {}
        while self.at_loop_clause():
            begin = self.at
            word = self._loop_word()
            if word in found:
                raise self.error(f"{word} is there already", self.span(begin))
            found[word] = self._loop_value(word)
        limits = found.get(_LEVEL), found.get(_ROWS)
        how = found.get("ROUNDS"), found.get("PROGRESS"), found.get(_ACROSS)
        return LoopClause(*limits, *how, self.span(first))

    def _loop_word(self) -> str:
        if self.take_words("ACROSS", "PARTITIONS"):
            return _ACROSS
        if not self.take_words("MAX", "RECURSION"):
            return self.advance().text.upper()
        if self.take_words("ROWS"):
            return _ROWS
        self.expect_word("LEVEL")
        return _LEVEL

    def _loop_value(self, word: str) -> int | str | bool:
        if word == "PROGRESS":
            for strategy in _STRATEGIES:
                if self.take_words(*strategy):
                    return " ".join(strategy).lower()
            self.fail_expected("HYBRID, PROBING or HIGH WATER MARK")
        if word == _ACROSS:
            return True
        lexeme = self.peek()
        if lexeme.kind != "number" or not lexeme.text.isdecimal() or int(lexeme.text) < 1:
            what = "rows" if word == _ROWS else "rounds"
            self.fail_expected(f"a whole number of {what} behind {word}, at least 1")
        self.advance()
        return int(lexeme.text)
