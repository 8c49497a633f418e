"""How a source makes progress: WITHIN, IDLE AFTER and LATE ROWS behind its columns, or Flink's WATERMARK among them.

    CREATE STREAM t (ts TIMESTAMP, x INT) ORDERED BY ts WITHIN 30 MINUTES IDLE AFTER 10 SECONDS LATE ROWS DROP
    CREATE STREAM t (ts TIMESTAMP, x INT, WATERMARK FOR ts AS ts - INTERVAL '30' MINUTE)

The second says of the order what the first says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast

from everwhen.language.grammar.statements.punctuate import BatchPunctuation
from everwhen.language.syntax import Ident, Length, ProgressSyntax, Span

_POLICIES: Final = ("ERROR", "DROP", "ADJUST")


@dataclass(frozen=True)
class Watermark:
    """WATERMARK FOR column AS column [- length]."""

    column: Ident
    within: Length
    span: Span


class ProgressClauses(BatchPunctuation):
    """The clauses of progress."""

    def at_progress(self) -> bool:
        """Whether one of the clauses begins here."""
        return self.at_word("WITHIN", "IDLE") or self.at_words("LATE", "ROWS")

    def progress_clause(self, before: ProgressSyntax | None) -> ProgressSyntax:
        """One more of the clauses."""
        first, known = self.at, before or ProgressSyntax()
        word = self.advance().text.upper()
        within, idle, late = known.within, known.idle, known.late
        if word == "WITHIN":
            if within is not None:
                raise self.error("a second WITHIN; a stream has one bound of its disorder", self.span(first))
            within = self.length()
        elif word == "IDLE":
            self.expect_word("AFTER", why=" and a length of time, such as IDLE AFTER 10 SECONDS")
            if idle is not None:
                raise self.error("a second IDLE AFTER", self.span(first))
            idle = self.length()
            if idle.unit is None:
                raise self.error("IDLE AFTER is a time of the clock, which needs a unit: 10 SECONDS", idle.span)
        else:
            self.advance()
            if late is not None:
                raise self.error("a second LATE ROWS", self.span(first))
            found = self.expect_word(*_POLICIES, why=", what becomes of rows that break a promise").text.lower()
            late = cast(Literal["error", "drop", "adjust"], found)
        span = self.span(first)
        start = span.start if before is None else min(before.span.start, span.start)
        return ProgressSyntax(within, idle, late, Span(start, span.end))

    def watermark(self) -> Watermark:
        """What stands among the columns in Flink's SQL."""
        first = self.at
        self.at += 2
        column = self.name("the column that holds the time")
        self.expect_word("AS")
        if not self.at_name() or self.at_symbol("(", ahead=1) or self.peek().text.lower() != column.text.lower():
            self._other_watermark(column)
        at = self.ident().span
        if not self.take_symbol("-"):
            if not self.at_symbol(")", ","):
                self._other_watermark(column)
            return Watermark(column, Length("0", None, at), self.span(first))
        return Watermark(column, self.length(), self.span(first))

    def _other_watermark(self, column: Ident) -> None:
        raise self.error(
            f"a watermark is the column of the time, or that minus a length: {column.text}, or {column.text} - "
            "INTERVAL '30' MINUTE; a source that says itself how far it has come says it by CTIs"
        )

    def progress_of(
        self, clauses: ProgressSyntax | None, watermark: Watermark | None, ordered_by: Ident | None
    ) -> tuple[ProgressSyntax | None, Ident | None]:
        """What the clauses and the watermark say together, and the column of the time."""
        if watermark is not None:
            if ordered_by is not None and ordered_by.text.lower() != watermark.column.text.lower():
                raise self.error(
                    f"the watermark is for {watermark.column.text}, and the order by {ordered_by.text}; a stream has "
                    "one time",
                    watermark.span,
                )
            if clauses is not None and clauses.within is not None:
                raise self.error("WITHIN and WATERMARK say the same; write one of them", clauses.span)
            late = ProgressSyntax(span=watermark.span) if clauses is None else clauses
            clauses = ProgressSyntax(watermark.within, late.idle, late.late, late.span)
            ordered_by = ordered_by or watermark.column
        if clauses is None:
            return None, ordered_by
        if clauses.within is not None and ordered_by is None:
            raise self.error(
                "WITHIN says how far rows are out of the order of their time; write ORDERED BY column WITHIN …",
                clauses.span,
            )
        promises = clauses.within is not None or clauses.idle is not None or ordered_by is None
        if clauses.late is not None and not promises:
            raise self.error(
                "LATE ROWS is about rows that break a promise, and this stream derives none; write how far rows are "
                f"out of order: ORDERED BY {ordered_by.text if ordered_by else 'column'} WITHIN 30 MINUTES",
                clauses.span,
            )
        return clauses, ordered_by
