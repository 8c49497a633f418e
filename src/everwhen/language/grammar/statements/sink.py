"""CREATE SINK and INSERT INTO, and how connectors and their options are written.

SOURCE kafka('localhost:9092', topic = 'bids')          arguments by place, then options by name
WITH ('connector' = 'kafka', 'topic' = 'bids')          the same, as other systems write it
CREATE SINK best FROM Best INTO delta('/lake/best', form = 'upsert', key = 'item')
CREATE SINK best INTO delta('/lake/best') [AS SELECT …]
INSERT INTO best SELECT …
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any

from everwhen.language.grammar.statements.progress import ProgressClauses
from everwhen.language.syntax import Ask, CreateSink, InsertInto, OptionWritten, SourceCall


class SinkStatements(ProgressClauses):
    """What the text of a job has beyond that of a query."""

    @abstractmethod
    def asked(self) -> Ask: ...

    def create_sink(self, first: int) -> CreateSink:
        self.advance()
        name = self.name("the name of the sink")
        stream = None
        if self.take_word("FROM"):
            if self.starts_query() or self.at_symbol("("):
                raise self.error("FROM names a stream here; for a query write INTO …(…) AS SELECT …, or INSERT INTO")
            stream = self.name("the stream that is written")
        if self.at_call("WITH"):
            into = self.with_options()
        else:
            self.expect_word("INTO", why=" and where it goes, such as INTO file('best.jsonl')")
            into = self.connector("where the rows go, such as file('best.jsonl')")
        query = None
        if self.at_word("AS"):
            if stream is not None:
                raise self.error(f"the sink takes the stream {stream.text}; leave FROM out to write AS SELECT …")
            self.advance()
            query = self._query("AS")
        return CreateSink(name, stream, into, query, self.span(first))

    def insert_into(self) -> InsertInto:
        first = self.at
        self.advance()
        self.expect_word("INTO")
        sink = self.name("the name of a sink")
        if self.at_symbol("("):
            raise self.error("INSERT INTO takes the columns as the query names them; leave the list of columns out")
        if self.at_word("VALUES"):
            raise self.error("rows come from a stream's source; write INSERT INTO sink SELECT …")
        return InsertInto(sink, self._query("INSERT INTO"), self.span(first))

    def _query(self, behind: str) -> Ask:
        if not self.starts_query():
            self.fail_expected(f"a query behind {behind}")
        return self.asked()

    # -- connectors ----------------------------------------------------------------------------------------------------

    def connector(self, what: str) -> SourceCall:
        """name('argument', option = value, …)"""
        first = self.at
        name = self.name(what)
        self.expect_symbol("(")
        written = [] if self.at_symbol(")") else self.listed(self._option)
        self.expect_symbol(")", why=" or ','")
        for before, each in pairwise(written):
            if before.name and not each.name:
                raise self.error("arguments without a name stand before those with one", each.span)
        self._check_once(written)
        return SourceCall(name.text, tuple(written), self.span(first))

    def with_options(self) -> SourceCall:
        """WITH ('connector' = 'kafka', 'topic' = 'bids')"""
        first = self.at
        self.advance()
        self.expect_symbol("(")
        written = self.listed(self._option)
        self.expect_symbol(")", why=" or ','")
        for each in written:
            if not each.name:
                raise self.error("an option has a name here: 'topic' = 'bids'", each.span)
        self._check_once(written)
        chosen = [each for each in written if each.name.lower() == "connector"]
        if not chosen:
            raise self.error("which connector? Write 'connector' = 'kafka' among the options", self.span(first))
        if not isinstance(chosen[0].value, str):
            raise self.error("the connector is a text, such as 'kafka'", chosen[0].span)
        return SourceCall(chosen[0].value, tuple(each for each in written if each is not chosen[0]), self.span(first))

    def _check_once(self, written: list[OptionWritten]) -> None:
        seen: set[str] = set()
        for each in written:
            if each.name and each.name.lower() in seen:
                raise self.error(f"the option {each.name} stands here twice", each.span)
            seen.add(each.name.lower())

    def _option(self) -> OptionWritten:
        first = self.at
        named = self.peek().kind in ("word", "quoted", "text") and self.at_symbol("=", ahead=1)
        name = self.advance().text if named else ""
        if named:
            self.advance()
        elif self.peek().kind == "word" and self.at_symbol("=>", ":=", ".", ahead=1):
            self.fail_expected("an option as name = value; a name with a point stands in quotation marks")
        value = self._option_value()
        return OptionWritten(name, value, self.span(first))

    def _option_value(self) -> Any:
        lexeme = self.peek()
        if lexeme.kind == "text":
            return self.advance().text
        if lexeme.is_word("TRUE", "FALSE", "NULL"):
            return {"TRUE": True, "FALSE": False}.get(self.advance().text.upper())
        sign = -1 if self.take_symbol("-") else 1
        if self.peek().kind != "number":
            self.fail_expected("a text or a number")
        return sign * self.number()
