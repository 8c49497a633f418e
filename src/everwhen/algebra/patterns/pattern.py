"""Row patterns: variables in sequence, alternatives, repetition; and how they are read from text.

>>> print(read_pattern("A (B | C)+ D{2,3} E?"))
A (B | C)+ D{2,3} E?
>>> variables(read_pattern("B (A | B)*"))
('B', 'A')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from everwhen.errors import QueryError


@dataclass(frozen=True, slots=True)
class Symbol:
    """One row that is mapped to a variable."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Concatenation:
    """One part behind the other."""

    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Alternation) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the parts."""

    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Repeat:
    """At least `least` and at most `most` times (None: without limit)."""

    part: Pattern
    least: int
    most: int | None

    def __str__(self) -> str:
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.least, self.most))
        if sign is None:
            sign = f"{{{self.least},{'' if self.most is None else self.most}}}"
            sign = f"{{{self.least}}}" if self.least == self.most else sign
        return (str(self.part) if isinstance(self.part, Symbol) else f"({self.part})") + sign


Pattern = Symbol | Concatenation | Alternation | Repeat


def variables(pattern: Pattern) -> tuple[str, ...]:
    """The variables in the order in which the pattern first names them."""
    match pattern:
        case Symbol(name):
            return (name,)
        case Repeat(part):
            return variables(part)
        case Concatenation(parts) | Alternation(parts):
            return tuple(dict.fromkeys(name for part in parts for name in variables(part)))


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a pattern's text, from `start` to `end`."""

    text: str
    start: int
    end: int
    is_name: bool


class PatternProblem(Exception):
    """What is wrong with a pattern's text, from `start` to `end`."""

    def __init__(self, problem: str, start: int, end: int) -> None:
        super().__init__(problem)
        self.start, self.end = start, end


_TOKEN: Final = re.compile(r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<number>\d+)|(?P<symbol>\S))")
_DEEPEST: Final = 50
_MOST_TIMES: Final = 1000


def read_pattern(text: str) -> Pattern:
    """The pattern that a text says."""
    found, at = [], 0
    while (token := _TOKEN.match(text, at)) is not None:
        found.append(Token(token.group().strip(), token.end() - len(token.group().strip()), token.end(),
                           token["name"] is not None))  # fmt: skip
        at = token.end()
    try:
        return parse(found, len(text))
    except PatternProblem as problem:
        raise QueryError(f"the pattern {text!r}, at {problem.start + 1}: {problem}") from None


def parse(tokens: Sequence[Token], end: int) -> Pattern:
    """The pattern that tokens say; `end` is where the text ends."""
    reader = _Reader(tokens, end)
    found = reader.alternation(0)
    if reader.at < len(tokens):
        reader.fail("expected a variable, a quantifier, '|' or the end of the pattern")
    return found


class _Reader:
    def __init__(self, tokens: Sequence[Token], end: int) -> None:
        self.tokens, self.at, self._end = tokens, 0, end

    def _peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def fail(self, problem: str) -> NoReturn:
        if self.at >= len(self.tokens):
            raise PatternProblem(f"{problem}; the pattern ends here", self._end, self._end)
        token = self.tokens[self.at]
        raise PatternProblem(f"{problem}; {token.text} came", token.start, token.end)

    def _refuse(self, problem: str) -> NoReturn:
        token = self.tokens[self.at]
        raise PatternProblem(problem, token.start, token.end)

    def alternation(self, depth: int) -> Pattern:
        parts = [self._concatenation(depth)]
        while self._peek() == "|":
            self.at += 1
            parts.append(self._concatenation(depth))
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def _concatenation(self, depth: int) -> Pattern:
        parts = [self._repeated(depth)]
        while self.at < len(self.tokens) and self._peek() not in ("|", ")"):
            parts.append(self._repeated(depth))
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _repeated(self, depth: int) -> Pattern:
        found = self._element(depth)
        limits = self._quantifier()
        if limits is not None:
            found = Repeat(found, *limits)
            if self._peek() == "?":
                self._refuse("reluctant quantifiers are not part of the language: the longest match is the answer; "
                             "leave out the question mark")  # fmt: skip
            if self._peek() in ("*", "+", "{"):
                self._refuse("a second quantifier; put what it repeats in parentheses")
        return found

    def _element(self, depth: int) -> Pattern:
        text = self._peek()
        if self.at < len(self.tokens) and self.tokens[self.at].is_name:
            if text.upper() == "PERMUTE" and self._peek(1) == "(":
                self._refuse("PERMUTE is not part of the language; write the orders with |, as in (A B | B A)")
            self.at += 1
            return Symbol(text)
        if text == "(":
            if depth >= _DEEPEST:
                self._refuse(f"more than {_DEEPEST} parentheses within each other")
            self.at += 1
            found = self.alternation(depth + 1)
            if self._peek() != ")":
                self.fail("expected ')'")
            self.at += 1
            return found
        if text in ("^", "$"):
            self._refuse("anchors are not part of the language: a match may begin at every row; compare the row with "
                         "PREV, as in DEFINE A AS PREV(x) IS NULL")  # fmt: skip
        if text == "{" and self._peek(1) == "-":
            self._refuse("exclusions {- … -} are not part of the language: there is one row per match; leave the "
                         "variable out of MEASURES")  # fmt: skip
        self.fail("expected a variable or '('")

    def _quantifier(self) -> tuple[int, int | None] | None:
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        if sign != "{" or self._peek(1) == "-":
            return None
        self.at += 1
        least = self._number()
        most: int | None = least
        if self._peek() == ",":
            self.at += 1
            most = self._number()
            least = least or 0
        elif least is None:
            self.fail("expected a number, as in {2,3}")
        if self._peek() != "}":
            self.fail("expected '}'")
        if most is not None and (most < (least or 0) or most == 0):
            self._refuse(f"a pattern cannot be repeated at least {least} and at most {most} times")
        self.at += 1
        return least or 0, most

    def _number(self) -> int | None:
        text = self._peek()
        if not text.isdecimal():
            return None
        if len(text) > 6 or int(text) > _MOST_TIMES:
            self._refuse(f"more than {_MOST_TIMES} times; write a condition on COUNT instead")
        self.at += 1
        return int(text)
