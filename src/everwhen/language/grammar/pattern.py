"""MATCH_RECOGNIZE behind a stream in FROM: runs of neighbouring rows that spell a pattern.

FROM s [WINDOW(…)] MATCH_RECOGNIZE ([PARTITION BY k] ORDER BY t [DESC] [MEASURES FIRST(t) AS b, …] [ONE ROW PER MATCH]
     [AFTER MATCH SKIP TO NEXT ROW] PATTERN (A B* C) [WITHIN d] [DEFINE A AS …]) [alias]
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from everwhen.algebra.patterns.pattern import Pattern, PatternProblem, Token, parse
from everwhen.language.grammar.merge import Merges
from everwhen.language.syntax import FromStream, Ident, Length, Matched, Measure, Modifier, Name, Span

_REFUSED: Final = {
    "SUBSET": "SUBSET is not part of the language; give the variables conditions of their own, or read each of them",
    "SEEK": "SEEK is not part of the language: a match may begin at every row",
    "INITIAL": "INITIAL is not part of the language: a match may begin at every row",
}


class Patterns(Merges):
    """The part of the grammar that reads MATCH_RECOGNIZE."""

    @abstractmethod
    def length(self, *, rows: bool = False) -> Length:
        """A length of time."""

    def matched(self, item: FromStream, first: int) -> Matched:
        self.at += 2
        self.in_match, outside = True, self.in_match
        try:
            with self.nested():
                return self._matched(item, first)
        finally:
            self.in_match = outside

    def _matched(self, item: FromStream, first: int) -> Matched:
        partition = tuple(self.listed(self.column)) if self.take_words("PARTITION", "BY") else ()
        if not self.take_words("ORDER", "BY"):
            self.fail_expected("ORDER BY with the order in which rows are neighbours")
        order = tuple(self.listed(self._ordered_by))
        measures = tuple(self.listed(self._measure)) if self.take_word("MEASURES") else ()
        self._rows_per_match()
        self._after_match()
        self._refuse_clauses()
        self.expect_word("PATTERN")
        pattern, place = self._pattern()
        within = self.length() if self.take_word("WITHIN") else None
        self._refuse_clauses()
        define = tuple(self.listed(self._definition)) if self.take_word("DEFINE") else ()
        self.expect_symbol(")", why=" of MATCH_RECOGNIZE" if define else ", WITHIN or DEFINE")
        span = self.span(first)
        alias, columns, modifiers = self.behind_stream()
        if columns:
            raise self.error("the columns of a match are named in MEASURES", columns[0].span)
        return Matched(item, partition, order, measures, pattern, place, within, define, alias, modifiers, span)

    @abstractmethod
    def behind_stream(self) -> tuple[Ident | None, tuple[Ident, ...], tuple[Modifier, ...]]:
        """The alias, its columns and what changes lifetimes."""

    def _ordered_by(self) -> tuple[Name, bool]:
        name = self.column()
        falling = self.at_word("DESC")
        if not self.take_word("DESC"):
            self.take_word("ASC")
        if self.at_word("NULLS") and self.at_word("FIRST", ahead=1):
            raise self.error("NULLS FIRST is not part of the language: rows without a value come last")
        self.take_words("NULLS", "LAST")
        return name, falling

    def _measure(self) -> Measure:
        if self.at_word("RUNNING", "FINAL") and self.peek(1).kind == "word" and self.at_symbol("(", ahead=2):
            raise self.error(
                f"{self.peek().text.upper()} is not part of the language: there is one row per match, and measures are "
                "those of its end; leave it out"
            )
        expression = self.expression()
        self.expect_word("AS", why=" with the name of the measure")
        return Measure(self.name("the name of the measure"), expression)

    def _definition(self) -> Measure:
        name = self.name("a variable of the pattern")
        self.expect_word("AS", why=" with the condition of the variable")
        return Measure(name, self.expression())

    def _rows_per_match(self) -> None:
        if self.at_words("ALL", "ROWS"):
            raise self.error(
                "ALL ROWS PER MATCH is not part of the language: there is one row per match; join the matches with the "
                "rows on a measure"
            )
        if self.take_word("ONE"):
            for word in ("ROW", "PER", "MATCH"):
                self.expect_word(word)

    def _after_match(self) -> None:
        if not self.take_word("AFTER"):
            return
        self.expect_word("MATCH")
        self.expect_word("SKIP")
        place = self.at
        if not self.take_words("TO", "NEXT", "ROW"):
            self.at = min(place + 3, len(self.lexemes) - 1)
            raise self.error(
                "only AFTER MATCH SKIP TO NEXT ROW is part of the language: with any other, one late row would decide "
                "anew about all that follow; the longest match of every row is the answer",
                self.span(place),
            )

    def _refuse_clauses(self) -> None:
        if self.at_word(*_REFUSED):
            raise self.error(_REFUSED[self.peek().text.upper()])

    def _pattern(self) -> tuple[Pattern, Span]:
        first = self.at
        self.expect_symbol("(", why=" and a pattern")
        tokens: list[Token] = []
        spelled: dict[str, str] = {}
        depth = 0
        while not (self.at_symbol(")") and depth == 0):
            lexeme = self.peek()
            if lexeme.kind == "end":
                self.fail_expected("')' behind the pattern")
            depth += lexeme.is_symbol("(") - lexeme.is_symbol(")")
            text, is_name = lexeme.text, lexeme.kind in ("word", "quoted")
            if is_name and lexeme.kind == "word":  # written in capitals or not, it is one variable
                text = spelled.setdefault(text.lower(), text)
            tokens.append(Token(text, lexeme.start, lexeme.end, is_name))
            self.advance()
        end = self.peek().start
        self.advance()
        try:
            return parse(tokens, end), self.span(first)
        except PatternProblem as problem:
            raise self.error(str(problem), Span(problem.start, max(problem.end, problem.start + 1))) from None
