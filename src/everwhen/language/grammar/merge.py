"""LMERGE in FROM: physically different copies of one stream, merged into one.

LMERGE(a, b SINCE 40, (SELECT …) [WITH FIRST | LEADER | QUORUM k | FINAL, EAGER | LAZY, AUDIT, R0 … R4])
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from everwhen.core.merge_policy import KERNELS
from everwhen.language.grammar.call import Calls
from everwhen.language.syntax import FromStream, Ident, Merged, MergeInput, Modifier, Span

_GROUPS: Final = (("FIRST", "LEADER", "QUORUM", "FINAL"), ("EAGER", "LAZY"), ("AUDIT",), KERNELS)
"""Of each group a merge has one word at most."""
_WORDS: Final = tuple(word for group in _GROUPS for word in group)


class Merges(Calls):
    """The part of the grammar that reads LMERGE."""

    @abstractmethod
    def stream_argument(self) -> FromStream:
        """A stream or a subquery between parentheses."""

    @abstractmethod
    def behind_stream(self) -> tuple[Ident | None, tuple[Ident, ...], tuple[Modifier, ...]]:
        """The alias, its columns and what changes lifetimes."""

    def merged(self) -> Merged:
        first = self.at
        self.at += 2
        with self.nested():
            copies = tuple(self.listed(self._merge_copy))
            words, quorum = self._merge_words() if self.take_word("WITH") else ((), None)
            self.expect_symbol(")", why=" or ','" if words else " of LMERGE, SINCE, WITH or ','")
        if len(copies) < 2:
            raise self.error(
                "LMERGE merges copies of one stream: name at least two, as in LMERGE(a, b)", self.span(first)
            )
        alias, columns, modifiers = self.behind_stream()
        if columns:
            raise self.error("columns are renamed in a subquery: (SELECT a AS b FROM …) P", columns[0].span)
        return Merged(copies, words, quorum, alias, modifiers, self.span(first))

    def at_since(self) -> bool:
        """Whether SINCE with an instant stands here; otherwise it is a name as any other."""
        return self.at_word("SINCE") and (
            self.peek(1).kind == "number" or self.at_symbol("-", ahead=1) or self.at_word("TIMESTAMP", ahead=1)
        )

    def _merge_copy(self) -> MergeInput:
        first = self.at
        item = self.stream_argument()
        since: int | str | None = None
        if self.at_since():
            self.advance()
            since = self._merge_instant()
        return MergeInput(item, since, self.span(first))

    def _merge_instant(self) -> int | str:
        first = self.at
        if self.take_word("TIMESTAMP"):
            if self.peek().kind != "text":
                self.fail_expected("a timestamp in quotation marks, as in TIMESTAMP '2015-09-02 06:45:00'")
            return self.advance().text
        sign = -1 if self.take_symbol("-") else 1
        text = self.peek().text
        if self.peek().kind != "number" or not text.isdecimal() or len(text) > 18:
            self.at = first
            self.fail_expected("an instant in ticks, as in SINCE 40")
        self.advance()
        return sign * int(text)

    def _merge_words(self) -> tuple[tuple[tuple[str, Span], ...], int | None]:
        found: list[tuple[str, Span]] = []
        quorum: int | None = None
        for word, span, number in self.listed(self._merge_word):
            for group in _GROUPS:
                if word in group and (other := next((each for each, _ in found if each in group), None)):
                    what = "is there already" if other == word else f"does not go with {other}"
                    raise self.error(f"{word} {what}; of {', '.join(group)} a merge has one", span)
            found.append((word, span))
            quorum = number if word == "QUORUM" else quorum
        return tuple(found), quorum

    def _merge_word(self) -> tuple[str, Span, int | None]:
        first = self.at
        word = self.expect_word(*_WORDS).text.upper()
        if word != "QUORUM":
            return word, self.span(first), None
        text = self.peek().text
        if self.peek().kind != "number" or not text.isdecimal() or len(text) > 9:
            self.fail_expected("how many inputs must say it, as in QUORUM 2")
        self.advance()
        return word, self.span(first), int(text)
