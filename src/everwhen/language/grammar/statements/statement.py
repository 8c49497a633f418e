"""Statements: CREATE STREAM and RELATION, DROP, and queries to be answered (thesis, 7.2.2, 7.2.4 and 17.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal, cast

from everwhen.language.grammar.statements.progress import Watermark
from everwhen.language.grammar.statements.sink import SinkStatements
from everwhen.language.syntax import (
    AlterQuery,
    Ask,
    ColumnDef,
    Consistency,
    CreateDerived,
    CreateSink,
    CreateSource,
    Drop,
    Ident,
    Length,
    ProgressSyntax,
    SchemeSyntax,
    SourceCall,
    Span,
    Statement,
    TypeName,
)

_THERE_ARE: Final = "there are SELECT, CREATE STREAM, CREATE RELATION, CREATE SINK, INSERT INTO, ALTER QUERY and DROP"
_SHOWN: Final = "is not part of the language; \\streams and \\queries in the shell show what there is"
_REFUSED: Final = {
    "UPDATE": f"UPDATE is not part of the language: rows come from a stream's source; {_THERE_ARE}",
    "DELETE": f"DELETE is not part of the language: rows come from a stream's source; {_THERE_ARE}",
    "MERGE": f"MERGE is not part of the language; {_THERE_ARE}",
    "ALTER": "there is ALTER QUERY name AS SELECT …; a stream is changed by CREATE OR REPLACE STREAM",
    "TRUNCATE": f"TRUNCATE is not part of the language; {_THERE_ARE}",
    "EXPLAIN": "EXPLAIN stands by itself, in a session or the shell; for a file there is everwhen explain",
    "FROM": "a query begins with SELECT",
    "SET": "SET is not part of the language; what may be set are options of the command, and CONSISTENCY of a query",
    "USE": "USE is not part of the language; streams and relations have a single name",
    **{word: f"{word} {_SHOWN}" for word in ("SHOW", "DESCRIBE", "DESC")},
}
_CREATED: Final = {
    "TABLE": "CREATE STREAM name (…), or CREATE RELATION name (…) for rows that stay",
    "VIEW": "CREATE STREAM name AS SELECT …",
}
_CHANGELOG: Final = "what is said when is CONSISTENCY STRONG, MIDDLE or WEAK behind the query"
_BEHIND: Final = {
    "EMIT": f"EMIT is not part of the language; {_CHANGELOG}",
    "LATERAL": "LATERAL VIEW is not part of the language; write CROSS JOIN UNNEST(list) AS t(x)",
    "TUMBLING": "a window of fixed size is FROM TUMBLE(s, DESCRIPTOR(t), INTERVAL '1' MINUTE)",
    "HOPPING": "such a window is FROM HOP(s, DESCRIPTOR(t), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
}
_KINDS: Final = ("CONSTANT", "TEMPORAL", "VARYING")


@dataclass
class _Declared:
    """What stands in the parentheses of CREATE."""

    columns: list[tuple[Ident, TypeName | None, bool]] = field(default_factory=list)
    keys: list[tuple[Ident, ...]] = field(default_factory=list)
    period: tuple[Ident, Ident] | None = None
    watermark: Watermark | None = None
    span: Span = field(default_factory=lambda: Span(0, 0))


class Statements(SinkStatements):
    """The whole grammar."""

    def statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while self.peek().kind != "end":
            if self.take_symbol(";"):
                continue
            found.append(self._statement())
            if self.peek().kind != "end" and not self.at_symbol(";"):
                self._fail_behind()
        if not found:
            raise self.error("there is no query; write for example SELECT * FROM Bid", Span(0, 0))
        return tuple(found)

    def _fail_behind(self) -> None:
        if self.at_symbol(")"):
            raise self.error("this parenthesis was not opened")
        if self.at_symbol("["):
            raise self.error("a window stands behind its stream in FROM")
        if self.at_word("CONSISTENCY"):
            raise self.error("CONSISTENCY stands once, behind a query that is asked")
        if self.at_word(*_BEHIND):
            raise self.error(_BEHIND[self.peek().text.upper()])
        if self.at_symbol("~"):
            raise self.error("~ is not part of the language; write REGEXP_MATCHES(text, regex)")
        self.fail_expected("the end of the statement, or ';'")

    def _statement(self) -> Statement:
        if self.at_word("CREATE"):
            return self._create()
        if self.at_word("DROP"):
            return self._drop()
        if self.at_words("ALTER", "QUERY"):
            return self._alter()
        if self.at_word("INSERT"):
            return self.insert_into()
        if self.at_word(*_REFUSED):
            raise self.error(_REFUSED[self.peek().text.upper()])
        if not self.starts_query():
            near = get_close_matches(self.peek().text.upper(), ["SELECT", "CREATE", "DROP", "INSERT", "WITH"], n=1)
            self.fail_expected("a statement (" + (f"did you mean {near[0]}?" if near else _THERE_ARE) + ")")
        return self.asked()

    def asked(self) -> Ask:
        """A query to be answered, with its order and its level."""
        first = self.at
        query = self.query(sorts=True)
        order = self.order_by() if self.at_word("ORDER") else ()
        if order:
            self.refuse_clauses()
        consistency = self._consistency() if self.at_word("CONSISTENCY") else None
        return Ask(query, consistency, self.span(first), order)

    def _consistency(self) -> Consistency:
        first = self.at
        self.advance()
        if not self.at_symbol("("):
            level = self.expect_word("STRONG", "MIDDLE", "WEAK", "(BLOCK …, REMEMBER …)").text.lower()
            level = cast(Literal["strong", "middle", "weak"], level)
            return Consistency(level, None, None, self.span(first))
        self.advance()
        parts: dict[str, Length] = {}
        while not parts or not self.at_symbol(")"):
            if parts:
                self.take_symbol(",")
            left = [word for word in ("BLOCK", "REMEMBER") if word not in parts]
            if not left:
                self.fail_expected("')'")
            word = self.expect_word(*left).text.upper()
            parts[word] = self.length()
        self.expect_symbol(")")
        return Consistency(None, parts.get("BLOCK"), parts.get("REMEMBER"), self.span(first))

    def _alter(self) -> AlterQuery:
        first = self.at
        self.at += 2
        name = self.name("the name of a running query")
        self.expect_word("AS")
        if not self.starts_query():
            self.fail_expected("a query")
        query = self.query()
        if self.at_word("CONSISTENCY"):
            raise self.error("ALTER QUERY leaves the level as it is; it is changed by change()")
        return AlterQuery(name, query, self.span(first))

    # -- DROP ----------------------------------------------------------------------------------------------------------

    def _drop(self) -> Drop:
        first = self.at
        self.advance()
        if self.at_word("TABLE", "VIEW"):
            raise self.error(f"there are no {self.peek().text.lower()}s; write DROP STREAM or DROP RELATION")
        if self.at_word("QUERY"):
            raise self.error("a query is removed by its name: \\remove in the shell, remove() of a session in Python")
        sink = self.expect_word("STREAM", "RELATION", "SINK").text.upper() == "SINK"
        if_exists = self.take_words("IF", "EXISTS")
        name = self.name("the name of a sink" if sink else "the name of a stream or relation")
        if self.at_word("CASCADE", "RESTRICT"):
            raise self.error("what others depend on cannot be dropped; drop the others first")
        return Drop(name, if_exists, self.span(first), sink)

    # -- CREATE --------------------------------------------------------------------------------------------------------

    def _create(self) -> CreateSource | CreateDerived | CreateSink:
        first = self.at
        self.advance()
        or_replace = self.take_words("OR", "REPLACE")
        if self.at_word("SINK") and not or_replace:
            return self.create_sink(first)
        words = 1 if self.at_word("MATERIALIZED", "TEMPORARY", "TEMP") else 0
        if self.at_word(*_CREATED, ahead=words):
            shown = " ".join(self.peek(i).text.upper() for i in range(words + 1))
            remedy = _CREATED[self.peek(words).text.upper()]
            raise self.error(f"CREATE {shown} is not part of the language; write {remedy}")
        word = self.advance().text.upper() if self.at_word(*_KINDS) else ""
        thing = (self.expect_word("RELATION") if word else self.expect_word("STREAM", "RELATION", *_KINDS)).text.upper()
        if self.at_words("IF", "NOT", "EXISTS"):
            raise self.error("IF NOT EXISTS is not part of the language; write CREATE OR REPLACE")
        name = self.name(f"the name of the {thing.lower()}")
        declared = self._declared() if self.at_symbol("(") else None
        if self.at_word("AS"):
            if thing == "RELATION":
                raise self.error("an answer is a stream; write CREATE STREAM name AS SELECT …")
            self.advance()
            columns = self._plain_columns(declared)
            if not self.starts_query():
                self.fail_expected("a query")
            return CreateDerived(name, columns, self.query(), or_replace, self.span(first))
        if declared is None:
            self.fail_expected(
                f"'(' with the columns of the {thing.lower()}" + (", or AS and a query" * (thing == "STREAM"))
            )
        return self._source_of(first, thing, word, name, declared, or_replace)

    def _plain_columns(self, declared: _Declared | None) -> tuple[Ident, ...]:
        """Those of CREATE STREAM name (a, b) AS …: names alone."""
        if declared is None:
            return ()
        if (
            declared.keys
            or declared.period
            or declared.watermark
            or any(type_name or key for _, type_name, key in declared.columns)
        ):
            raise self.error("with AS SELECT … the columns are names alone: (a, b)", declared.span)
        return tuple(name for name, _, _ in declared.columns)

    def _declared(self) -> _Declared:
        first = self.at
        self.advance()
        declared = _Declared()
        self.listed(lambda: self._declaration(declared))
        self.expect_symbol(")", why=" or ','")
        declared.span = self.span(first)
        if not declared.columns:
            raise self.error("expected at least one column", declared.span)
        return declared

    def _declaration(self, declared: _Declared) -> None:
        first = self.at
        if self.at_call("KEY", "UNIQUE"):
            self.advance()
            declared.keys.append(self.names_in_parentheses("a column"))
        elif self.at_words("PRIMARY", "KEY"):
            self.at += 2
            declared.keys.append(self.names_in_parentheses("a column"))
        elif self.at_call("PERIOD"):
            self.advance()
            names = self.names_in_parentheses("a column")
            if declared.period is not None:
                raise self.error("a second PERIOD", self.span(first))
            if len(names) != 2:
                raise self.error("PERIOD names two columns, the start and the end", self.span(first))
            declared.period = (names[0], names[1])
        elif self.at_words("WATERMARK", "FOR"):
            if declared.watermark is not None:
                raise self.error("a second WATERMARK; a stream has one time")
            declared.watermark = self.watermark()
        else:
            name = self.name("a column, KEY (…) or PERIOD (…)")
            typed = self.peek().kind == "word" and not self.at_word(
                "KEY", "PRIMARY", "UNIQUE", "NOT", "NULL", "DEFAULT"
            )
            type_name = self.type_name() if typed else None
            key = self.take_word("KEY", "UNIQUE") or self.take_words("PRIMARY", "KEY")
            if self.at_word("NOT", "NULL", "DEFAULT", "REFERENCES", "CHECK", "GENERATED"):
                raise self.error(
                    "NOT NULL is not part of the language: any column may hold nulls; a column may be a KEY"
                    if self.peek().is_word("NOT")
                    else f"{self.peek().text.upper()} is not part of the language; a column may be a KEY"
                )
            declared.columns.append((name, type_name, key))

    def _source_of(
        self, first: int, thing: str, word: str, name: Ident, declared: _Declared, or_replace: bool
    ) -> CreateSource:
        columns = []
        for column, type_name, key in declared.columns:
            if type_name is None:
                raise self.error(f"the column {column.text} needs a type, such as {column.text} INT", column.span)
            columns.append(ColumnDef(column, type_name, key))
        source: SourceCall | None = None
        ordered_by: Ident | None = None
        insert_only = False
        arrives: Literal["any", "in order", "strictly"] = "any"
        punctuate: tuple[SchemeSyntax, ...] = ()
        progress: ProgressSyntax | None = None
        while True:
            if self.at_word("SOURCE") and source is None:
                self.advance()
                source = self.connector("the function that connects to the data")
            elif self.at_call("WITH") and source is None:
                source = self.with_options()
            elif self.at_words("ORDERED", "BY") and ordered_by is None:
                self.at += 2
                ordered_by = self.name("the column that holds the time")
            elif self.at_words("INSERT", "ONLY") and not insert_only:
                self.at += 2
                insert_only = True
            elif self.at_words("ARRIVES", "IN", "ORDER") and arrives == "any":
                self.at += 3
                arrives = "strictly" if self.take_word("STRICTLY") else "in order"
            elif self.at_call("PUNCTUATE") and not punctuate:
                punctuate = self.punctuate_clause()
            elif self.at_words("WATERMARK", "FOR"):
                raise self.error("WATERMARK FOR stands among the columns; behind them it is ORDERED BY column WITHIN …")
            elif self.at_progress():
                progress = self.progress_clause(progress)
            elif self.at_word("SOURCE", "WITH", "ORDERED", "INSERT", "ARRIVES", "PUNCTUATE"):
                self.fail_expected(
                    "SOURCE f(…), ORDERED BY column, INSERT ONLY, ARRIVES IN ORDER [STRICTLY] and PUNCTUATE (…) at "
                    "most once each"
                )
            else:
                break
        progress, ordered_by = self.progress_of(progress, declared.watermark, ordered_by)
        kind = word.lower() or ("stream" if thing == "STREAM" else "temporal" if declared.period else "constant")
        if kind == "temporal" and declared.period is None:
            raise self.error("a temporal relation needs PERIOD (start, end) among its columns", declared.span)
        if kind == "constant" and declared.period is not None:
            raise self.error("a constant relation has no PERIOD; write CREATE TEMPORAL RELATION", declared.span)
        return CreateSource(
            cast(Literal["stream", "constant", "temporal", "varying"], kind),
            name,
            tuple(columns),
            tuple(declared.keys),
            source,
            ordered_by,
            declared.period,
            insert_only,
            or_replace,
            self.span(first),
            punctuate,
            arrives,
            progress,
        )
