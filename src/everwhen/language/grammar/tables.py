"""Tables that are made in the text.

VALUES (1, 'a'), (2, 'b')
FROM s, UNNEST(s.tags) WITH ORDINALITY AS t(tag, place)
FROM s CROSS JOIN LATERAL (SELECT … WHERE … = s.k) AS t
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Literal, cast

from everwhen.language.grammar.call import Calls
from everwhen.language.syntax import Expression, Ident, Lateral, Modifier, Row, TableFunction, Values

TABLE_FUNCTIONS: Final = ("UNNEST", "EXPLODE", "GENERATE_SERIES", "RANGE", "FLATTEN")
_NAMES: Final = {"EXPLODE": "unnest"}


class Tables(Calls):
    """The part of the grammar that reads VALUES, UNNEST and LATERAL."""

    @abstractmethod
    def behind_stream(self) -> tuple[Ident | None, tuple[Ident, ...], tuple[Modifier, ...]]: ...

    def values(self) -> Values:
        first = self.at
        self.expect_word("VALUES")
        rows = self.listed(self._row_of_values)
        for row in rows:
            if len(row) != len(rows[0]):
                where = self.span(first)
                raise self.error(f"the rows of VALUES have {len(rows[0])} and {len(row)} columns", where)
        return Values(tuple(rows), self.span(first))

    def _row_of_values(self) -> tuple[Expression, ...]:
        self.take_word("ROW")
        if not self.at_symbol("("):
            found = self.expression()  # VALUES 1, 2, as Spark writes a single column
            return (found,)
        with self.nested():
            row = self.expression_or_row()
        return row.items if isinstance(row, Row) else (row,)

    def at_table_function(self) -> bool:
        ahead = 2 if self.at_call("TABLE") else 1 if self.at_word("LATERAL") else 0
        return self.at_word(*TABLE_FUNCTIONS, ahead=ahead) and self.at_symbol("(", ahead=ahead + 1)

    def table_function(self) -> TableFunction:
        first = self.at
        self.take_word("LATERAL")
        wrapped = self.at_call("TABLE")
        self.at += 2 * wrapped
        word = self.advance().text.upper()
        if word == "FLATTEN":
            raise self.error("FLATTEN is not part of the language; write UNNEST(list)", self.span(first))
        with self.nested():
            self.expect_symbol("(")
            args = tuple(self.listed(self.expression))
            self.expect_symbol(")", why=f" of {word}")
        if wrapped:
            self.expect_symbol(")", why=" of TABLE")
        ordinality = self.take_words("WITH", "ORDINALITY")
        if self.at_words("WITH", "OFFSET"):
            raise self.error("WITH OFFSET is not part of the language; WITH ORDINALITY counts from 1 on")
        alias, columns, modifiers = self.behind_stream()
        name = cast(Literal["unnest", "generate_series", "range"], _NAMES.get(word, word.lower()))
        return TableFunction(name, args, ordinality, alias, columns, modifiers, self.span(first))

    def lateral(self) -> Lateral:
        first = self.at
        self.expect_word("LATERAL")
        if self.at_word("VIEW"):
            raise self.error("LATERAL VIEW is not part of the language; write CROSS JOIN UNNEST(list) AS t(x)")
        if not self.at_symbol("("):
            self.fail_expected("a subquery in parentheses, or UNNEST(…), behind LATERAL")
        query = self.query_in_parentheses()
        alias, columns, modifiers = self.behind_stream()
        return Lateral(query, alias, columns, modifiers, self.span(first))
