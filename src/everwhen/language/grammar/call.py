"""Calls of functions in SQL's spellings, and the names of types.

A call keeps the name that was written, in lower case: whether it is a scalar function, an aggregate or the user's own
is for the binder to say.  Only spellings are settled here: `SUBSTRING(x FROM 2 FOR 3)` is `substr(x, 2, 3)`,
`EXTRACT(YEAR FROM x)` is `year(x)`, `CEILING` is `ceil`.
"""

from __future__ import annotations

from typing import Final

from everwhen.language.grammar.rank import Ranks
from everwhen.language.syntax import Case, CastTo, Constant, Expression, Function, Ident, Name, Operator, TypeName

_SPELLINGS: Final = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "dayofmonth": "day",
    "dayofyear": "day_of_year",
    "endswith": "ends_with",
    "ifnull": "coalesce",
    "instr": "position",
    "isodow": "day_of_week",
    "lcase": "lower",
    "len": "length",
    "nvl": "coalesce",
    "pow": "power",
    "regexp_like": "regexp_matches",
    "startswith": "starts_with",
    "strpos": "position",
    "substring": "substr",
    "truncate": "trunc",
    "ucase": "upper",
    "weekofyear": "week",
    "list_value": "array",
    "split": "string_split",
    "string_to_array": "string_split",
    "size": "cardinality",
    "array_length": "cardinality",
    "array_size": "cardinality",
    "array_to_string": "array_join",
    "list_contains": "array_contains",
}
_PARTS: Final = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "week",
    "day": "day",
    "isodow": "day_of_week",
    "doy": "day_of_year",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "isoyear": "iso_year",
    "yearofweek": "iso_year",
    "dayofyear": "day_of_year",
    "dayofweek_iso": "day_of_week",
    "epoch": "epoch",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}
_NOT_PARTS: Final = {
    "dow": "day of the week from Sunday is not part of the language; ISODOW counts from Monday, which is 1",
}
_REFUSED_CALLS: Final = {
    "TRY_CAST": "TRY_CAST is not part of the language: CAST says what cannot be converted",
    "SAFE_CAST": "SAFE_CAST is not part of the language: CAST says what cannot be converted",
    "LMERGE": "LMERGE makes one stream of copies and stands in FROM: SELECT … FROM LMERGE(a, b)",
}
_LONG_TYPES: Final[tuple[tuple[str, ...], ...]] = (
    ("DOUBLE", "PRECISION"),
    ("CHARACTER", "VARYING"),
    ("CHAR", "VARYING"),
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"),
    ("TIMESTAMP", "WITH", "TIME", "ZONE"),
    ("TIMESTAMP", "WITH", "LOCAL", "TIME", "ZONE"),
    ("TIME", "WITHOUT", "TIME", "ZONE"),
    ("TIME", "WITH", "TIME", "ZONE"),
)


class Calls(Ranks):
    """The part of the grammar that reads calls and types."""

    in_match = False
    """Whether this is inside MATCH_RECOGNIZE, where COUNT(A.*) has a meaning."""

    def call(self) -> Expression:
        first = self.at
        lexeme = self.peek()
        word = lexeme.text.upper() if lexeme.kind == "word" else ""
        if word in _REFUSED_CALLS:
            raise self.error(_REFUSED_CALLS[word])
        with self.nested():
            match word:
                case "CAST":
                    return self._cast()
                case "EXTRACT":
                    return self._extract()
                case "DATE_PART" | "DATEPART":
                    return self._date_part()
                case "TRIM":
                    return self._trim()
                case "POSITION":
                    return self._position()
                case "SUBSTRING" | "SUBSTR":
                    return self._substring()
                case "IF" | "IIF" | "IFF":
                    return self._if()
                case "MOD":
                    return self._mod()
            return self._plain(first)

    def _open(self) -> int:
        """Reads `name(`; the number of the first lexeme."""
        first = self.at
        self.at += 2
        return first

    def _close(self, why: str = "") -> None:
        self.expect_symbol(")", why=why)

    def _function(self, name: str, args: tuple[Expression, ...], first: int) -> Function:
        return Function(name, args, self.span(first))

    def _plain(self, first: int) -> Function:
        name = self.peek().text.lower()
        self._open()
        args: tuple[Expression, ...] = ()
        star = distinct = False
        if self.at_symbol("*") and self.at_symbol(")", ahead=1):
            self.advance()
            star = True
        elif not self.at_symbol(")"):
            distinct = self.take_word("DISTINCT")
            if not distinct and self.at_word("ALL"):
                self.advance()
            args = tuple(self.listed(self._argument))
        order = self._ordering() if self.at_words("ORDER", "BY") else ()
        if self.at_word("SEPARATOR", "LIMIT"):
            raise self.error(f"{self.peek().text.upper()} within a call is not part of the language")
        self._null_treatment()
        self._close(why=" or ','" if args else "")
        if self.at_words("WITHIN", "GROUP"):
            self.at += 2
            self.expect_symbol("(", why=" with ORDER BY behind WITHIN GROUP")
            order = self._ordering()
            self._close(why=" of WITHIN GROUP")
        where = None
        if self.at_call("FILTER"):
            self.at += 2
            self.expect_word("WHERE")
            where = self.expression()
            self._close(why=" of FILTER")
        self._null_treatment()
        over = self.over() if self.at_over() else None
        return Function(_SPELLINGS.get(name, name), args, self.span(first), star, distinct, where, over, order)

    def _ordering(self) -> tuple[tuple[Expression, bool], ...]:
        """ORDER BY within a call: the expressions, and whether they descend."""
        self.expect_word("ORDER")
        self.expect_word("BY")
        return tuple(self.listed(self._ordered))

    def _ordered(self) -> tuple[Expression, bool]:
        expression = self.expression()
        descending = self.take_word("DESC")
        if not descending:
            self.take_word("ASC")
        if self.at_word("NULLS"):
            wanted = "LAST" if descending else "FIRST"
            if not self.take_words("NULLS", wanted):
                raise self.error(
                    f"nulls are smaller than all else in an aggregate's order: only NULLS {wanted} fits here"
                )
        return expression, descending

    def _argument(self) -> Expression:
        if self.at_name() and self.at_symbol("=>", ahead=1):
            raise self.error("arguments have no names here; write the values in their order")
        if self.in_match and self.at_name() and self.at_symbol(".", ahead=1) and self.at_symbol("*", ahead=2):
            first = self.at
            name = self.ident()
            self.at += 2
            return Name((name, Ident("*", False, self.span(self.at - 1))), self.span(first))
        if self.starts_query() and not self.at_symbol("("):
            raise self.error("a subquery stands in parentheses of its own: f((SELECT …))")
        return self.expression()

    def _null_treatment(self) -> None:
        if self.at_word("IGNORE", "RESPECT") and self.at_word("NULLS", ahead=1):
            raise self.error(f"{self.peek().text.upper()} NULLS is not part of the language; use FILTER (WHERE …)")

    # -- spellings of their own ----------------------------------------------------------------------------------------

    def _cast(self) -> CastTo:
        first = self._open()
        operand = self.expression()
        self.expect_word("AS")
        type_name = self.type_name()
        self._close(why=" of CAST")
        return CastTo(operand, type_name, self.span(first))

    def _extract(self) -> Function:
        first = self._open()
        name = self._part(self.peek().text)
        if self.peek().kind not in ("word", "text"):
            self.fail_expected(f"one of {', '.join(_PARTS)}")
        self.advance()
        if not self.take_symbol(","):
            self.expect_word("FROM")
        operand = self.expression()
        self._close(why=" of EXTRACT")
        return self._function(name, (operand,), first)

    def _date_part(self) -> Function:
        first = self._open()
        if self.peek().kind != "text":
            self.fail_expected("the part in quotation marks, such as 'year'")
        name = self._part(self.peek().text)
        self.advance()
        self.expect_symbol(",")
        operand = self.expression()
        self._close()
        return self._function(name, (operand,), first)

    def _part(self, written: str) -> str:
        part = written.lower()
        if part in _NOT_PARTS:
            raise self.error(_NOT_PARTS[part])
        found = _PARTS.get(part) or _PARTS.get(part.removesuffix("s"))
        if found is None:
            self.fail_expected(f"one of {', '.join(_PARTS)}")
        return found

    def _trim(self) -> Function:
        first = self._open()
        names = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}
        name = "trim"
        sided = self.at_word(*names) and not self.at_symbol(",", ")", ".", ahead=1)
        if sided:
            name = names[self.advance().text.upper()]
        if sided and self.take_word("FROM"):
            args = [self.expression()]
        else:
            args = self.listed(self.expression)
            if len(args) == 1 and self.take_word("FROM"):
                args = [self.expression(), args[0]]
            elif sided:
                self.expect_word("FROM")
        self._close()
        return self._function(name, tuple(args), first)

    def _position(self) -> Function:
        first = self._open()
        args = self.listed(self.tight_expression)
        if len(args) == 1:
            self.expect_word("IN")
            args = [self.expression(), args[0]]
        self._close()
        return self._function("position", tuple(args), first)

    def _substring(self) -> Function:
        first = self._open()
        args = self.listed(self.expression)
        if len(args) == 1:
            if self.take_word("FROM"):
                args.append(self.expression())
            elif self.at_word("FOR"):
                args.append(Constant(1, self.span(self.at)))
            if len(args) == 2 and self.take_word("FOR"):
                args.append(self.expression())
        self._close(why=" or ','")
        return self._function("substr", tuple(args), first)

    def _if(self) -> Case:
        first = self._open()
        args = self.listed(self.expression)
        self._close()
        if len(args) not in (2, 3):
            raise self.error("IF takes a condition, a value and maybe another: IF(a > b, a, b)", self.span(first))
        return Case(None, ((args[0], args[1]),), args[2] if len(args) == 3 else None, self.span(first))

    def _mod(self) -> Operator:
        first = self._open()
        args = self.listed(self.expression)
        self._close()
        if len(args) != 2:
            raise self.error("MOD takes two numbers: MOD(a, b)", self.span(first))
        return Operator("%", tuple(args), self.span(first))

    # -- types ---------------------------------------------------------------------------------------------------------

    def type_name(self) -> TypeName:
        """A type as written, in lower case: `decimal(10, 2)`, `double precision`."""
        first = self.at
        if self.peek().kind != "word" or not self.at_name():
            self.fail_expected("a type")
        words = next((each for each in _LONG_TYPES if self.at_words(*each)), (self.peek().text,))
        self.at += len(words)
        text = " ".join(words).lower()
        if text in ("struct", "row") and self.at_symbol("<", "("):
            return self._struct_type(first)
        if self.at_symbol("("):
            self.advance()
            numbers = self.listed(self._type_parameter)
            self._close(why=" or ','")
            text += f"({', '.join(numbers)})"
            for tail in (("WITHOUT", "TIME", "ZONE"), ("WITH", "TIME", "ZONE"), ("WITH", "LOCAL", "TIME", "ZONE")):
                if words[0].upper() in ("TIME", "TIMESTAMP") and self.take_words(*tail):
                    text += " " + " ".join(tail).lower()
        if text == "array" and self.at_symbol("<"):
            self.advance()
            text = f"{self.type_name().text}[]"
            self.expect_symbol(">", why=" of ARRAY")
        while True:  # INT[] and INT ARRAY are the same
            if self.take_symbol("["):
                self.expect_symbol("]", why=" of a list")
            elif not self.take_word("ARRAY"):
                return TypeName(text, self.span(first))
            text += "[]"

    def _struct_type(self, first: int) -> TypeName:
        """STRUCT<a INT, b TEXT>, ROW(a INT, b TEXT)."""
        closing = ">" if self.advance().text == "<" else ")"
        with self.nested():
            fields = self.listed(self._field)
        self.expect_symbol(closing, why=" or ','")
        text = f"struct<{', '.join(fields)}>"
        while self.take_symbol("["):
            self.expect_symbol("]", why=" of a list")
            text += "[]"
        return TypeName(text, self.span(first))

    def _field(self) -> str:
        name = self.name("the name of a field").text
        self.take_symbol(":")
        return f"{name} {self.type_name().text}"

    def _type_parameter(self) -> str:
        lexeme = self.peek()
        if lexeme.kind != "number" or not lexeme.text.isdecimal():
            self.fail_expected("a whole number")
        self.advance()
        return lexeme.text
