"""Reading lexemes from left to right, with places and with errors that say what was expected and what came.

`Cursor` is the base of the grammar's classes.  A method whose name begins with `take_` reads on if it can and says
whether it did; `expect_` reads on or fails; `at_` only looks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, TypeVar

from everwhen.errors import SqlError
from everwhen.language.grammar.tokens import Lexeme, lexemes
from everwhen.language.syntax import Expression, Ident, Query, Span

T = TypeVar("T")

MAX_DEPTH: Final = 60
"""How deeply parentheses, subqueries and the like may be nested: what reads the tree recurses over it."""

RESERVED: Final = frozenset({
    "ALL", "AND", "ANY", "AS", "BETWEEN", "CASE", "CREATE", "CROSS", "DISTINCT", "DROP", "ELSE", "END",
    "EXCEPT", "EXISTS", "FALSE", "FETCH", "FROM", "FULL", "GROUP", "HAVING", "ILIKE", "IN", "INNER",
    "INTERSECT", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "MINUS", "NATURAL", "NOT", "NULL", "OFFSET",
    "ON", "OR", "ORDER", "QUALIFY", "RIGHT", "SELECT", "SOME", "THEN", "TRUE", "UNION", "USING", "VALUES",
    "WHEN", "WHERE", "WITH",
})  # fmt: skip
"""Words that are names only in quotation marks, since a clause or operator may begin with them wherever a name ends."""


class Cursor(ABC):
    """A place in the lexemes of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lexemes = lexemes(text)
        self.at = 0
        self._depth = 0

    @abstractmethod
    def query(self, sorts: bool = False) -> Query: ...

    @abstractmethod
    def expression(self) -> Expression: ...

    @abstractmethod
    def starts_query(self, ahead: int = 0) -> bool: ...

    # -- looking -------------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Lexeme:
        return self.lexemes[min(self.at + ahead, len(self.lexemes) - 1)]

    def at_word(self, *words: str, ahead: int = 0) -> bool:
        return self.peek(ahead).is_word(*words)

    def at_words(self, *sequence: str) -> bool:
        """Whether these words follow one after the other."""
        return all(self.peek(i).is_word(word) for i, word in enumerate(sequence))

    def at_symbol(self, *symbols: str, ahead: int = 0) -> bool:
        return self.peek(ahead).is_symbol(*symbols)

    def at_call(self, *words: str) -> bool:
        """Whether one of these words stands here with a parenthesis behind it."""
        return self.at_word(*words) and self.at_symbol("(", ahead=1)

    def at_name(self, ahead: int = 0) -> bool:
        lexeme = self.peek(ahead)
        return lexeme.kind == "quoted" or (lexeme.kind == "word" and lexeme.text.upper() not in RESERVED)

    # -- reading -------------------------------------------------------------------------------------------------------

    def advance(self) -> Lexeme:
        lexeme = self.peek()
        self.at = min(self.at + 1, len(self.lexemes) - 1)
        return lexeme

    def take_word(self, *words: str) -> bool:
        found = self.at_word(*words)
        if found:
            self.advance()
        return found

    def take_words(self, *sequence: str) -> bool:
        found = self.at_words(*sequence)
        if found:
            self.at += len(sequence)
        return found

    def take_symbol(self, *symbols: str) -> bool:
        found = self.at_symbol(*symbols)
        if found:
            self.advance()
        return found

    def expect_word(self, *words: str, why: str = "") -> Lexeme:
        if not self.at_word(*words):
            self.fail_expected(" or ".join(words) + why)
        return self.advance()

    def expect_symbol(self, symbol: str, why: str = "") -> Lexeme:
        if not self.at_symbol(symbol):
            self.fail_expected(f"'{symbol}'{why}")
        return self.advance()

    def name(self, what: str) -> Ident:
        """A name; words of the language are names only in quotation marks."""
        if not self.at_name():
            word = self.peek()
            self.fail_expected(
                f'{what} (a word of the language is a name only as "{word.text}")' if word.kind == "word" else what
            )
        return self.ident()

    def ident(self) -> Ident:
        """The next word or quoted name, whatever it is."""
        lexeme = self.advance()
        return Ident(lexeme.text, lexeme.kind == "quoted", Span(lexeme.start, lexeme.end))

    def listed(self, element: Callable[[], T]) -> list[T]:
        """One or more, with commas between them."""
        found = [element()]
        while self.take_symbol(","):
            found.append(element())
        return found

    def names_in_parentheses(self, what: str) -> tuple[Ident, ...]:
        self.expect_symbol("(")
        found = self.listed(lambda: self.name(what))
        self.expect_symbol(")", why=" or ','")
        return tuple(found)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Counts how deep the grammar has gone."""
        if self._depth >= MAX_DEPTH:
            raise self.error(f"nested too deeply: there are more than {MAX_DEPTH} levels; name parts of it with WITH")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    # -- places and errors ---------------------------------------------------------------------------------------------

    def span(self, first: int) -> Span:
        """From the lexeme of that number to the one before the cursor."""
        return Span(self.lexemes[first].start, self.lexemes[max(first, self.at - 1)].end)

    def error(self, problem: str, place: Span | None = None) -> SqlError:
        """At `place`, or at the lexeme under the cursor."""
        if place is None:
            place = Span(self.peek().start, self.peek().end)
        return SqlError(problem, self.text, place.start, place.end)

    def fail_expected(self, what: str) -> NoReturn:
        lexeme = self.peek()
        if lexeme.kind == "end":
            found = "the text ends here"
        else:
            written = self.text[lexeme.start : lexeme.end]
            found = f"{written if len(written) <= 40 else written[:39] + '…'} came"
        raise self.error(f"expected {what}; {found}")
