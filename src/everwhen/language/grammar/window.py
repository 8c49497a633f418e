"""Windows as functions of tables, as Flink writes them: TUMBLE, HOP, CUMULATE, SESSION.

    TUMBLE(TABLE Bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    SESSION(TABLE Bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)

Words that say nothing here may be left out: TABLE, DESCRIPTOR, and the name of the time, which is that of the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Literal, cast

from everwhen.language.grammar.call import Calls
from everwhen.language.syntax import Constant, FromStream, Ident, Length, Modifier, Name, Windowed

WINDOW_FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


class WindowFunctions(Calls):
    """The part of the grammar that reads TUMBLE and its like."""

    @abstractmethod
    def stream_argument(self) -> FromStream: ...

    @abstractmethod
    def behind_stream(self) -> tuple[Ident | None, tuple[Ident, ...], tuple[Modifier, ...]]: ...

    @abstractmethod
    def length(self, *, rows: bool = False) -> Length: ...

    def at_window_function(self) -> bool:
        ahead = 2 if self.at_call("TABLE") else 0
        return self.at_word(*WINDOW_FUNCTIONS, ahead=ahead) and self.at_symbol("(", ahead=ahead + 1)

    def window_function(self) -> Windowed:
        first = self.at
        wrapped = self.at_call("TABLE")
        self.at += 2 * wrapped
        kind = self.advance().text.upper()
        with self.nested():
            self.expect_symbol("(")
            if not self.at_symbol("(", ahead=1):
                self.take_word("TABLE")
            if self.at_name() and self.at_symbol("=>", ahead=1):
                example = f"{kind}(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE)"
                raise self.error(f"arguments of {kind} have places, not names: {example}")
            item = self.stream_argument()
            partition: list[Name] = []
            if self.take_words("PARTITION", "BY"):
                if kind != "SESSION":
                    raise self.error(
                        f"{kind} is the same for every partition; leave PARTITION BY out", self.span(first)
                    )
                partition = [self.column()]
                while self.at_symbol(",") and self.at_name(1) and not self._at_time(1):
                    self.advance()
                    partition.append(self.column())
            self.expect_symbol(",")
            time = self._time()
            lengths = [self.length()]
            while self.at_symbol(",") and self.peek(1).kind != "text":
                self.advance()
                lengths.append(self.length())
            zone = self._zone()
            self.expect_symbol(")", why=f" of {kind}")
        if wrapped:
            self.expect_symbol(")", why=" of TABLE")
        wanted = 1 if kind in ("TUMBLE", "SESSION") else 2
        if len(lengths) != wanted:
            names = {"HOP": "a slide and a size", "CUMULATE": "a step and a size", "SESSION": "a gap"}.get(
                kind, "a size"
            )
            raise self.error(f"{kind} takes {names}, not {len(lengths)} lengths", self.span(first))
        alias, columns, modifiers = self.behind_stream()
        if columns:
            raise self.error("columns are renamed in a subquery: (SELECT a AS b FROM …) P", columns[0].span)
        word = cast(Literal["tumble", "hop", "cumulate", "session"], kind.lower())
        return Windowed(word, item, time, tuple(partition), tuple(lengths), alias, modifiers, self.span(first), zone)

    def _zone(self) -> Constant | None:
        """`, 'Europe/Berlin'` or `AT TIME ZONE 'Europe/Berlin'` behind the size."""
        if not (self.take_symbol(",") or self.take_words("AT", "TIME", "ZONE")):
            return None
        first = self.at
        if self.peek().kind != "text":
            self.fail_expected("the name of a time zone in quotation marks")
        return Constant(self.advance().text, self.span(first))

    def _at_time(self, ahead: int) -> bool:
        """Whether the time or a length comes here: behind a name alone stands a length."""
        if self.at_word("DESCRIPTOR", "INTERVAL", ahead=ahead):
            return True
        return self.at_symbol(",", ahead=ahead + 1) and (
            self.at_word("INTERVAL", ahead=ahead + 2) or self.peek(ahead + 2).kind == "number"
        )

    def _time(self) -> Ident | None:
        """DESCRIPTOR(ts), or ts alone; with a comma behind it."""
        time: Ident | None = None
        if self.at_call("DESCRIPTOR"):
            self.at += 2
            time = self.name("the column that holds the time")
            self.expect_symbol(")", why=" of DESCRIPTOR")
        elif self.at_name() and not self.at_word("INTERVAL"):
            time = self.ident()
        if time is not None:
            self.expect_symbol(",")
        return time
