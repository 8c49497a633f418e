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
_LENGTHS: Final = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "CUMULATE": ("STEP", "SIZE"), "SESSION": ("GAP",)}
"""The names of the lengths of a function, in their order, as Flink has them."""


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
            self._argument_name(kind, "DATA")
            if not self.at_symbol("(", ahead=1):
                self.take_word("TABLE")
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
            untimed = self.at_word(*_LENGTHS[kind]) and self.at_symbol("=>", ahead=1)
            if not untimed:
                self._argument_name(kind, "TIMECOL")
            time = None if untimed else self._time()
            lengths = self._lengths(kind, first)
            zone = self._zone()
            self.expect_symbol(")", why=f" of {kind}")
        if wrapped:
            self.expect_symbol(")", why=" of TABLE")
        alias, columns, modifiers = self.behind_stream()
        if columns:
            raise self.error("columns are renamed in a subquery: (SELECT a AS b FROM …) P", columns[0].span)
        word = cast(Literal["tumble", "hop", "cumulate", "session"], kind.lower())
        return Windowed(word, item, time, tuple(partition), lengths, alias, modifiers, self.span(first), zone)

    def _argument_name(self, kind: str, *names: str) -> str | None:
        """`SIZE =>` before an argument: the name, if there is one."""
        if not (self.at_name() and self.at_symbol("=>", ahead=1)):
            return None
        if not self.at_word(*names):
            arguments = ("DATA", "TIMECOL", *_LENGTHS[kind])
            what = f"the arguments of {kind} are {', '.join(arguments)}, in this order"
            more = "; windows begin at whole sizes, an offset is not part of the language"
            raise self.error(what + more * self.at_word("OFFSET"))
        name = self.advance().text.upper()
        self.advance()
        return name

    def _lengths(self, kind: str, first: int) -> tuple[Length, ...]:
        """The lengths in the order of the function; those with names may stand in any."""
        names = _LENGTHS[kind]
        found: list[tuple[str | None, Length]] = [(self._argument_name(kind, *names), self.length())]
        while self.at_symbol(",") and self.peek(1).kind != "text":
            self.advance()
            found.append((self._argument_name(kind, *names), self.length()))
        if len(found) != len(names):
            wanted = " and ".join(f"a {name.lower()}" for name in names)
            more = "; windows begin at whole sizes, an offset is not part of the language"
            raise self.error(
                f"{kind} takes {wanted}, not {len(found)} lengths{more * (len(found) > len(names))}", self.span(first)
            )
        given = [name for name, _ in found]
        if None not in given:
            if len(set(given)) != len(given):
                raise self.error(f"{kind} has an argument twice", self.span(first))
            found.sort(key=lambda each: names.index(each[0] or ""))
        elif any(given):
            raise self.error(f"name all lengths of {kind}, or none", self.span(first))
        return tuple(length for _, length in found)

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
        if self.at_word("DESCRIPTOR", "INTERVAL", ahead=ahead) or self.at_symbol("=>", ahead=ahead + 1):
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
