"""The words and symbols of a text: a dialect of sqlglot whose tokens carry their place.

The dialect knows no keywords: every bare word is a word, and only the grammar (`grammar_*.py`) decides what it means
where it stands.  So `WINDOW`, `KEY` or `timestamp` stay names of columns wherever no clause of that name can begin.

Guarantee: what lies between two lexemes is white space and whole comments, nothing else; no character is passed over
unseen.  Every failure is an `SqlError` at its place.

The grammar on top is ours and not sqlglot's parser, which is made to read many dialects and forgives much on the way:
a missing AND, THEN or closing parenthesis, a doubled comma, an unfinished comment.  A continuous query runs for a long
time; what it means must be exactly what was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from everwhen.errors import SqlError

Kind = Literal["word", "quoted", "text", "number", "symbol", "end"]

_KINDS: Final[dict[TokenType, Kind]] = {
    TokenType.VAR: "word",
    TokenType.IDENTIFIER: "quoted",
    TokenType.STRING: "text",
    TokenType.NUMBER: "number",
}
_WORD: Final = re.compile(r"[^\W\d][\w$]*")
_NUMBER: Final = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")


class Everwhen(Dialect):
    """SQL's strings, quoted names and comments; no keywords, no strings of other kinds, no commands."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]
        NESTED_COMMENTS = True
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            "<=": TokenType.LTE,
            ">=": TokenType.GTE,
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            "==": TokenType.EQ,
            "=>": TokenType.FARROW,
            "||": TokenType.DPIPE,
            "::": TokenType.DCOLON,
            "//": TokenType.DIV,
            "->": TokenType.ARROW,
            "->>": TokenType.DARROW,
        }


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word, quoted name, string, number or symbol; `text` is what it stands for, `start` to `end` where it stands."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether this is one of the words (given in upper case); a name in quotation marks never is."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


def lexemes(text: str) -> tuple[Lexeme, ...]:
    """The lexemes of a text, and one of kind `end` behind them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as bad:
        problem = f"U+{ord(text[bad.start]):04X} is half of a character; write the whole one, or leave it out"
        raise SqlError(problem, text[: bad.start] + "?" + text[bad.start + 1 :], bad.start) from None
    tokenizer = Everwhen.Tokenizer(dialect=Everwhen())
    try:
        found = tokenizer.tokenize(text)
    except TokenError as error:
        at = _skip(text, tokenizer.tokens[-1].end + 1 if tokenizer.tokens else 0, len(text))
        raise _unfinished(text, at) from error
    result: list[Lexeme] = []
    position = 0
    for token in found:
        at = _skip(text, position, token.start)
        if at < token.start:
            raise SqlError(f"{text[at : at + 2]!r} has no meaning here; comments are -- … and /* … */", text, at)
        position = token.end + 1
        result.append(_lexeme(text, token))
    at = _skip(text, position, len(text))
    if at < len(text):
        raise SqlError(f"unexpected {text[at]!r}; comments are -- … and /* … */", text, at)
    return (*result, Lexeme("end", "", len(text), len(text)))


def _lexeme(text: str, token: Token) -> Lexeme:
    kind = _KINDS.get(token.token_type, "symbol")
    start, end = token.start, token.end + 1
    match kind:
        case "word" if not _WORD.fullmatch(token.text):
            bad = next((i for i, c in enumerate(token.text) if not (c.isalnum() or c in "_$")), 0)
            raise SqlError(
                f"unexpected character {token.text[bad]!r}; a name with other characters than letters, digits and _ "
                'stands in double quotation marks: "…"',
                text,
                start + bad,
            )
        case "number" if not _NUMBER.fullmatch(token.text):
            raise SqlError(f"{token.text!r} is not a number; write 12, 1.5 or 1.5e3", text, start, end)
        case "quoted" if not token.text:
            raise SqlError("a name in quotation marks cannot be empty", text, start, end)
        case "symbol" if token.token_type == TokenType.NATIONAL_STRING:
            raise SqlError("N'…' is not needed: every text is Unicode; write '…'", text, start, end)
    return Lexeme(kind, token.text, start, end)


def _skip(text: str, at: int, stop: int) -> int:
    """The first place from `at` on that is neither white space nor part of a comment."""
    while at < stop:
        if text[at].isspace():
            at += 1
        elif text.startswith("--", at):
            while at < stop and text[at] not in "\r\n":
                at += 1
        elif text.startswith("/*", at):
            at = _end_of_comment(text, at)
        else:
            break
    return at


def _end_of_comment(text: str, start: int) -> int:
    """Comments within comments are counted, as SQL has it."""
    depth, at = 1, start + 2
    while depth:
        if at >= len(text):
            raise SqlError("the comment is not closed; expected */", text, start, start + 2)
        if text.startswith("*/", at):
            depth, at = depth - 1, at + 2
        elif text.startswith("/*", at):
            depth, at = depth + 1, at + 2
        else:
            at += 1
    return at


def _unfinished(text: str, at: int) -> SqlError:
    opening = text[at : at + 1]
    if opening in ("'", '"', "`") and opening:
        what = "text" if opening == "'" else "name"
        return SqlError(f"the {what} is not closed; expected another {opening}", text, at)
    return SqlError("the text cannot be read from here on", text, at)
