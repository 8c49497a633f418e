"""What stands in FROM: streams, subqueries and conversions with their windows, and joins.

Krämer's thesis, figure 7.1 (windows), 17.4.1 (conversions) and 20.2 (granularity); CEDR's lifetimes.

A window, a granularity or a lifetime stands behind what it is applied to, before or behind its alias.  `[RANGE 60
MINUTES]` is CQL's spelling of `WINDOW(RANGE 60 MINUTES)`.  A comma too many before WHERE, GROUP BY or the end is passed
over, since the thesis prints such queries.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, cast, get_args

from everwhen.core.time import ticks, unit_nanoseconds
from everwhen.errors import QueryError
from everwhen.language.grammar.cursor import MAX_DEPTH
from everwhen.language.grammar.join import Joins
from everwhen.language.grammar.pattern import Patterns
from everwhen.language.grammar.tables import Tables
from everwhen.language.grammar.window import WindowFunctions
from everwhen.language.syntax import (
    Conversion,
    Converted,
    Derived,
    FromItem,
    FromStream,
    Granularity,
    Ident,
    JoinItem,
    Length,
    Lifetime,
    Modifier,
    Name,
    RangeWindow,
    RowsWindow,
    Span,
    StreamRef,
)

_CONVERSIONS: Final = tuple(kind.upper() for kind in get_args(Conversion))
_MODIFIERS: Final = ("WINDOW", "GRANULARITY", "LIFETIME")
_WINDOW_WORDS: Final = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "PARTITION")
_TIME_WORDS: Final = ("nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "tick")
_BEHIND_LENGTH: Final = (
    "SLIDE", "HOP", "ALIGN", "SHIFT", "LENGTH", "BLOCK", "REMEMBER", "PRECEDING", "PARTITION", "DEFINE", "SUBSET",
    "WITHIN", "IDLE", "LATE", "SOURCE", "INSERT", "ARRIVES", "PUNCTUATE", "ORDERED",
)  # fmt: skip
_REFUSED: Final = {
    "TABLE": "TABLE(…) is not part of the language; a stream or relation is read by its name",
}
_REFUSED_BEHIND: Final = {
    "PIVOT": "PIVOT is not part of the language; use SUM(x) FILTER (WHERE …) for each column",
    "UNPIVOT": "UNPIVOT is not part of the language; use UNION ALL",
    "TABLESAMPLE": "TABLESAMPLE is not part of the language: an answer is a function of the streams alone",
}


class Sources(Patterns, WindowFunctions, Joins, Tables):
    """The part of the grammar that reads FROM."""

    @abstractmethod
    def ends_query(self) -> bool: ...

    def sources(self) -> tuple[FromItem, ...]:
        found = [self._item()]
        while self.take_symbol(","):
            if self.at_word("WHERE", "GROUP", "HAVING") or self.ends_query():
                break
            found.append(self._item())
        return tuple(found)

    # -- joins ---------------------------------------------------------------------------------------------------------

    def _item(self) -> FromItem:
        first = self.at
        item = self.operand_of_join()
        length = 0
        while self.at_join():
            item = self.join(item, first)
            length += 1
            if length > MAX_DEPTH:
                raise self.error(f"more than {MAX_DEPTH} joins in a row; name parts of them with WITH")
        return item

    def operand_of_join(self) -> FromItem:
        first = self.at
        item = self._item_alone()
        while self.at_call("MATCH_RECOGNIZE"):
            if isinstance(item, JoinItem):
                raise self.error("MATCH_RECOGNIZE stands behind a stream or a subquery; put the join into (SELECT …)")
            item = self.matched(item, first)
        return item

    def _item_alone(self) -> FromItem:
        if not self.at_symbol("("):
            return self._source()
        with self.nested():
            if not self.starts_query():
                return self._join_in_parentheses()
            if self.at_word("SELECT", "WITH", "VALUES", ahead=1):
                return self._derived()
            return self.alternatives(self._derived, self._join_in_parentheses)

    def _join_in_parentheses(self) -> FromItem:
        """(A JOIN B ON …), or a single source in parentheses."""
        self.expect_symbol("(")
        item = self._item()
        if self.at_symbol(","):
            raise self.error("a comma cannot stand in these parentheses; write CROSS JOIN")
        self.expect_symbol(")")
        if self._at_modifier() or self._at_alias():
            if isinstance(item, JoinItem):
                raise self.error("a join has no alias and no window; make it a subquery: (SELECT * FROM …) P WINDOW(…)")
            raise self.error("an alias or a window stands within these parentheses, behind its stream")
        return item

    # -- sources -------------------------------------------------------------------------------------------------------

    def _source(self) -> FromStream:
        first, lexeme = self.at, self.peek()
        if self.at_window_function():
            return self.window_function()
        if self.at_table_function():
            return self.table_function()
        if self.at_word("LATERAL"):
            return self.lateral()
        if self.at_word("VALUES"):
            rows = self.values()
            alias, columns, modifiers = self.behind_stream()
            return Derived(rows, alias, columns, modifiers, self.span(first))
        if lexeme.is_word(*_REFUSED) and self.at_symbol("(", ahead=1):
            raise self.error(_REFUSED[lexeme.text.upper()])
        if self.at_call(*_CONVERSIONS):
            return self._converted()
        if self.at_call("LMERGE"):
            return self.merged()
        if self.at_word("SELECT", "WITH"):
            with self.nested():
                query = self.query()
            return Derived(query, None, (), (), self.span(first))
        name = self.name("a stream, a relation or a subquery in parentheses")
        if self.at_symbol("."):
            raise self.error("streams and relations have a single name")
        if self.at_symbol("("):
            raise self.error(f"a stream is read by its name; {', '.join(_CONVERSIONS)} may stand before it")
        if self.take_words("FOR", "SYSTEM_TIME", "AS", "OF"):  # rows that are alive together are joined anyway
            self.expression()
        alias, columns, modifiers = self.behind_stream()
        if columns:
            raise self.error("columns are renamed in a subquery: (SELECT a AS b FROM …) P", columns[0].span)
        return StreamRef(name, alias, modifiers, self.span(first))

    def _derived(self) -> FromItem:
        first = self.at
        query = self.query_in_parentheses()
        alias, columns, modifiers = self.behind_stream()
        return Derived(query, alias, columns, modifiers, self.span(first))

    def _converted(self) -> Converted:
        first = self.at
        kind = cast(Conversion, self.advance().text.lower())
        with self.nested():
            self.expect_symbol("(")
            item = self.stream_argument()
            self.expect_symbol(")", why=f" of {kind.upper()}")
        alias, columns, modifiers = self.behind_stream()
        if columns:
            raise self.error("columns are renamed in a subquery: (SELECT a AS b FROM …) P", columns[0].span)
        return Converted(kind, item, alias, modifiers, self.span(first))

    def stream_argument(self) -> FromStream:
        first = self.at
        if not self.at_symbol("(") and self.starts_query():
            return Derived(self.query(), None, (), (), self.span(first))
        if self.at_symbol("("):
            item = self.operand_of_join()
            if self.at_word("UNION", "EXCEPT", "INTERSECT"):
                self.at = first
                return Derived(self.query(), None, (), (), self.span(first))
        else:
            item = self.operand_of_join()
        if isinstance(item, JoinItem) or self.at_join():
            raise self.error("a stream or a subquery stands here; put the join into (SELECT …)", self.span(first))
        return item

    def behind_stream(self) -> tuple[Ident | None, tuple[Ident, ...], tuple[Modifier, ...]]:
        """The alias, its columns and what changes lifetimes, in any order."""
        alias: Ident | None = None
        columns: tuple[Ident, ...] = ()
        modifiers: list[Modifier] = []
        kinds: set[str] = set()
        while True:
            if self._at_modifier():
                first = self.at
                modifier = self._modifier()
                kind = {Lifetime: "lifetime", Granularity: "granularity"}.get(type(modifier), "window")
                if kind in kinds:
                    raise self.error(f"a second {kind}; apply it to a subquery: (SELECT * FROM …) P", self.span(first))
                kinds.add(kind)
                modifiers.append(modifier)
            elif alias is None and self._at_alias():
                self.take_word("AS")
                alias = self.name("an alias")
                if alias.text.upper() in _MODIFIERS and self.at_word(*_WINDOW_WORDS):
                    self.fail_expected("'('")
                if self.at_symbol("("):
                    columns = self.names_in_parentheses("a column")
            else:
                break
        if self.at_word(*_REFUSED_BEHIND):
            raise self.error(_REFUSED_BEHIND[self.peek().text.upper()])
        return alias, columns, tuple(modifiers)

    def _at_alias(self) -> bool:
        if self.at_word("AS"):
            return True
        if self.at_call("MATCH_RECOGNIZE", "MATCH_CONDITION", *_REFUSED_BEHIND) or self.at_words("PARTITION", "BY"):
            return False
        return self.at_name() and not self.at_join() and not self.ends_query() and not self.at_since()

    def _at_modifier(self) -> bool:
        return self.at_symbol("[") or self.at_call(*_MODIFIERS)

    # -- windows -------------------------------------------------------------------------------------------------------

    def _modifier(self) -> Modifier:
        first = self.at
        opening = self.advance()
        closing = "]" if opening.is_symbol("[") else ")"
        if closing == ")":
            self.advance()
        match opening.text.upper():
            case "GRANULARITY":
                granule = self.length()
                self.expect_symbol(closing)
                return Granularity(granule, self.span(first))
            case "LIFETIME":
                return self._lifetime(first)
        return self._window(first, closing)

    def _window(self, first: int, closing: str) -> RangeWindow | RowsWindow:
        partition = self._partition()
        size = slide = None
        kind = self.expect_word(*_WINDOW_WORDS[:4]).text.upper()
        if kind == "NOW":
            size = Length("1", None, self.span(self.at - 1))
        elif kind != "UNBOUNDED" and not self.take_word("UNBOUNDED"):
            size = self.length(rows=kind == "ROWS")
        if kind == "ROWS" and self.peek().kind == "word" and self.peek().text.lower().rstrip("s") in _TIME_WORDS:
            raise self.error("ROWS takes a whole number of rows; for a length of time write RANGE")
        if self.at_word("PRECEDING"):
            raise self.error("PRECEDING is left out: every window reaches into the past")
        if kind in ("RANGE", "ROWS") and self.take_word("SLIDE"):
            slide = self.length(rows=kind == "ROWS")
        partition = partition or self._partition()
        if partition and kind != "ROWS":
            place = Span(partition[0].span.start, partition[-1].span.end)
            raise self.error("PARTITION BY goes with ROWS; a RANGE is the same for every partition", place)
        self.expect_symbol(closing, why=" or SLIDE" if slide is None and kind in ("RANGE", "ROWS") else "")
        if kind == "ROWS":
            return RowsWindow(size, slide, partition, self.span(first))
        return RangeWindow(size, slide, self.span(first))

    def _partition(self) -> tuple[Name, ...]:
        return tuple(self.listed(self.column)) if self.take_words("PARTITION", "BY") else ()

    def _lifetime(self, first: int) -> Lifetime:
        parts: dict[str, Length | None] = {}
        while not parts or not self.at_symbol(")"):
            if parts:
                self.take_symbol(",")
            left = [word for word in ("HOP", "ALIGN", "SHIFT", "LENGTH") if word not in parts]
            if not left:
                self.fail_expected("')'")
            word = self.expect_word(*left).text.upper()
            parts[word] = None if word == "LENGTH" and self.take_word("UNBOUNDED") else self.length()
        self.expect_symbol(")")
        unbounded = "LENGTH" in parts and parts["LENGTH"] is None
        hop, shift, length, align = (parts.get(word) for word in ("HOP", "SHIFT", "LENGTH", "ALIGN"))
        return Lifetime(hop, shift, length, unbounded, align, self.span(first))

    # -- lengths -------------------------------------------------------------------------------------------------------

    def length(self, *, rows: bool = False) -> Length:
        """`10 MINUTES`, `INTERVAL '10' MINUTE`, `INTERVAL '1h 30min'`, or a number of ticks or rows."""
        first = self.at
        if not rows and self.at_word("INTERVAL"):
            return self._interval()
        lexeme = self.peek()
        if lexeme.kind != "number" or not self.is_number(lexeme.text):
            self.fail_expected("a number of rows" if rows else "a number, with a unit or of ticks, such as 10 MINUTES")
        if len(lexeme.text) > 40:
            raise self.error("the number has too many digits")
        self.advance()
        unit = self._unit() if not rows else None
        if unit is None and not lexeme.text.isdecimal():
            raise self.error(f"expected a whole number of {'rows' if rows else 'ticks'}", self.span(first))
        return Length(lexeme.text, unit, self.span(first))

    def _unit(self) -> str | None:
        if self.peek().kind != "word" or self.at_word(*_BEHIND_LENGTH):
            return None
        unit = self.peek().text
        try:
            unit_nanoseconds(unit)
        except QueryError as error:
            raise self.error(str(error)) from error
        self.advance()
        return unit

    def _interval(self) -> Length:
        first = self.at
        self.advance()
        lexeme = self.advance()
        if lexeme.kind not in ("text", "number"):
            self.at -= 1
            self.fail_expected("a length of time, such as INTERVAL '10' MINUTE")
        text = lexeme.text.strip()
        if len(text) > 40:
            raise self.error("the length is too long to be read", self.span(first))
        if self.is_number(text):
            unit = self._unit()
            if unit is None:
                self.fail_expected("the unit of the interval, such as MINUTE")
            return Length(text, unit, self.span(first))
        self.checked_duration(text, self.span(first))
        return Length(str(ticks(text, "1ns")), "ns", self.span(first))
