"""What may stand between the name of a recursive query and AS: how its loop runs.

    r(a, b) MAX RECURSION LEVEL 50 ROUNDS 2 PROGRESS PROBING AS (…)
    r(a, b) ACROSS PARTITIONS AS (…)

Each at most once, in any order.
"""

from __future__ import annotations

from typing import Any, Final

from everwhen.language.grammar.cursor import Cursor
from everwhen.language.syntax import LoopClause

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
            word = self.advance().text.upper()
            if word in found:
                raise self.error(f"{_called(word)} is there already", self.span(begin))
            found[word] = self._loop_value(word)
        return LoopClause(
            found.get("MAX"), found.get("ROUNDS"), found.get("PROGRESS"), found.get("ACROSS"), self.span(first)
        )

    def _loop_value(self, word: str) -> int | str | bool:
        if word == "PROGRESS":
            for strategy in _STRATEGIES:
                if self.take_words(*strategy):
                    return " ".join(strategy).lower()
            self.fail_expected("HYBRID, PROBING or HIGH WATER MARK")
        if word == "ACROSS":
            self.expect_word("PARTITIONS")
            return True
        if word == "MAX":
            self.expect_word("RECURSION")
            self.expect_word("LEVEL")
        lexeme = self.peek()
        if lexeme.kind != "number" or not lexeme.text.isdecimal() or int(lexeme.text) < 1:
            self.fail_expected(f"a whole number of rounds behind {_called(word)}, at least 1")
        self.advance()
        return int(lexeme.text)


def _called(word: str) -> str:
    return {"MAX": "MAX RECURSION LEVEL", "ACROSS": "ACROSS PARTITIONS"}.get(word, word)
