"""Functions and operators of values in generated queries: numbers, texts, lists, structures, JSON, times, mixed types.

The template for DuckDB says the same in its words where docs/sql.md says that dialects differ."""

from __future__ import annotations

from generated.expressions import Reach
from generated.scopes import Scope
from generated.tables import Made, TablesGrammar
from generated.tree import Expr, Node

_I = (
    ("({0} // {1})", "ii", "//", "CAST(floor(CAST({0} AS DOUBLE) / NULLIF({1}, 0)) AS BIGINT)"),
    ("({0} % {1})", "ii", "%", "((({0} % NULLIF({1}, 0)) + {1}) % NULLIF({1}, 0))"),
    ("mod({0}, 3)", "i", "mod", "((({0} % 3) + 3) % 3)"),
    ("({0} * {1})", "ii", "*", None),
    ("sign({0})", "i", "sign", None),
    ("greatest({0}, {1})", "ii", "greatest", None),
    ("least({0}, {1}, {2})", "iii", "least", None),
    (
        "CASE WHEN abs({0}) < 99 THEN CAST({0} AS INT) END",
        "f",
        "cast to INT",
        "CASE WHEN abs({0}) < 99 THEN CAST(trunc({0}) AS BIGINT) END",
    ),
    ("CAST({0} AS INT)", "b", "cast to INT", "CAST({0} AS BIGINT)"),
    ("CAST({0} AS SMALLINT)", "i", "cast to SMALLINT", "CAST({0} AS BIGINT)"),
    ("CAST(CAST({0} AS VARCHAR) AS INT)", "i", "cast from text", "{0}"),
    ("position({0}, {1})", "ss", "position", "strpos({0}, {1})"),
    ("IF({0}, {1}, {2})", "bii", "IF", "CASE WHEN {0} THEN {1} ELSE {2} END"),
    ("CASE {0} WHEN {1} THEN {2} WHEN 2 THEN 9 ELSE {3} END", "iiii", "simple case", None),
    ("CASE {0} WHEN 'a' THEN {1} END", "si", "simple case", None),
    ("round({0}, -1)", "i", "round", "CAST(round(CAST({0} AS DOUBLE), -1) AS BIGINT)"),
    ("try_add({0}, {1})", "ii", "try_add", "({0} + {1})"),
    ("cardinality([{0}, {1}])", "ii", "list", "len([{0}, {1}])"),
    ("element_at([{0}, {1}], 2)", "ii", "list", "([{0}, {1}])[2]"),
    ("element_at([{0}, {1}], -2)", "ii", "list", "([{0}, {1}])[-2]"),
    ("cardinality(string_split({0}, 'a'))", "s", "string_split", "len(string_split({0}, 'a'))"),
    ("STRUCT({0} AS a, {1} AS b).a", "is", "struct", "({{'a': {0}, 'b': {1}}}).a"),
    ("CAST(json_value('{{\"a\": [' || CAST({0} AS VARCHAR) || ']}}', '$.a[0]') AS INT)", "i", "json", "{0}"),
    ("ifnull({0}, {1})", "ii", "ifnull", None),
)
_S = (
    ("lower(upper({0}))", "s", "lower", None),
    ("reverse({0})", "s", "reverse", None),
    ("concat({0}, {1})", "ss", "concat", "({0} || {1})"),
    ("trim({0} || ' ')", "s", "trim", None),
    ("ltrim({0}, 'a')", "s", "ltrim", None),
    ("rtrim({0}, 'ab')", "s", "rtrim", None),
    ("substr({0}, 2)", "s", "substr", None),
    ("substr({0}, 1, 1)", "s", "substr", None),
    ("substr({0}, -1, 1)", "s", "substr", None),
    ("left({0}, 1)", "s", "left", None),
    ("right({0}, 1)", "s", "right", None),
    ("replace({0}, 'a', 'cc')", "s", "replace", None),
    ("split_part({0}, 'a', 2)", "s", "split_part", None),
    ("CAST({0} AS VARCHAR(1))", "s", "VARCHAR(1)", "left({0}, 1)"),
    ("CAST({0} AS VARCHAR)", "b", "truth as text", None),
    ("regexp_extract({0}, '(a)(b?)', 2)", "s", "regexp_extract", None),
    ("regexp_replace({0}, '(a)(b?)', '<$2>')", "s", "regexp_replace", "regexp_replace({0}, '(a)(b?)', '<\\2>', 'g')"),
    ("repeat({0}, {1})", "si", "repeat", None),
    ("lpad({0}, 3, 'xy')", "s", "lpad", None),
    ("rpad({0}, {1}, 'z')", "si", "rpad", "rpad({0}, CAST({1} AS INT), 'z')"),
    ("greatest({0}, {1})", "ss", "greatest", None),
    ("IF({0}, {1}, {2})", "bss", "IF", "CASE WHEN {0} THEN {1} ELSE {2} END"),
    ("array_join([{0}, 'z', {1}], '-')", "ss", "array_join", "array_to_string([{0}, 'z', {1}], '-')"),
    ("element_at(string_split({0}, 'b'), 1)", "s", "string_split", "string_split({0}, 'b')[1]"),
    ("STRUCT({0} AS a, {1} AS b).b", "is", "struct", "({{'a': {0}, 'b': {1}}}).b"),
    ("(('{{\"k\": \"' || {0} || '\"}}') ->> 'k')", "s", "json", "{0}"),
    ("CAST({0} AS VARCHAR)", "y", "date as text", None),
    ("date_format({0}, 'yyyy-MM-dd HH:mm:ss')", "t", "date_format", "strftime({0}, '%Y-%m-%d %H:%M:%S')"),
    ("to_char({0}, 'DD.MM.YYYY HH24:MI')", "t", "to_char", "strftime({0}, '%d.%m.%Y %H:%M')"),
)
_F = (
    ("(-{0})", "f", "minus", None),
    ("({0} * 0.5)", "f", "*", None),
    ("({0} - {1})", "ff", "-", None),
    ("({0} * {1})", "if", "mixed *", None),
    ("({0} + {1})", "fi", "mixed +", None),
    ("floor({0})", "f", "floor", None),
    ("ceil({0})", "f", "ceil", None),
    ("trunc({0})", "f", "trunc", None),
    ("round({0})", "f", "round", None),
    ("abs({0})", "f", "abs", None),
    ("greatest({0}, {1})", "ff", "greatest", None),
    ("COALESCE({0}, {1})", "if", "mixed coalesce", None),
    ("COALESCE({0}, {1})", "fi", "mixed coalesce", None),
    ("CASE WHEN {0} THEN {1} ELSE {2} END", "bif", "mixed case", None),
    ("(4 / NULLIF(abs({0}) % 3, 0))", "i", "/", None),
    ("({0} / 0)", "i", "/ 0", "({0} / CAST(NULL AS DOUBLE))"),
    ("CAST({0} AS DOUBLE)", "d", "decimal as float", None),
)
_D = (
    ("({0} - {1})", "dd", "-", None),
    ("abs({0})", "d", "abs", None),
    ("(-{0})", "d", "minus", None),
    ("CAST({0} AS DECIMAL(9, 2))", "i", "cast to DECIMAL", None),
    ("CASE WHEN abs({0}) < 99 THEN CAST(floor({0}) AS DECIMAL(9, 2)) END", "f", "cast to DECIMAL", None),
    ("greatest({0}, {1})", "dd", "greatest", None),
    ("COALESCE({0}, {1})", "di", "mixed coalesce", None),
    ("({0} + {1})", "di", "mixed +", None),
)
_T = (
    ("({0} + INTERVAL '90' MINUTE)", "t", "plus minutes", None),
    ("({0} + INTERVAL '1' MONTH)", "t", "plus a month", None),
    ("({0} - INTERVAL '1 year 2 months')", "t", "minus months", None),
    ("CAST({0} AS TIMESTAMP)", "y", "date as timestamp", None),
    ("greatest({0}, {1})", "tt", "greatest", None),
    ("least({0}, {1})", "tt", "least", None),
    ("CASE WHEN {0} THEN {1} END", "bt", "case", None),
    ("({0} AT TIME ZONE 'Europe/Berlin')", "t", "zone", "({0} AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin')"),
    ("from_utc_timestamp({0}, '+02:00')", "t", "zone, fixed", "({0} + INTERVAL 2 HOUR)"),
    (
        "to_utc_timestamp({0}, 'America/New_York')",
        "t",
        "zone, back",
        "({0} AT TIME ZONE 'America/New_York' AT TIME ZONE 'UTC')",
    ),
    *(
        (f"date_trunc('{unit}', {{0}})", "t", f"trunc {unit}", None)
        for unit in ("second", "hour", "day", "week", "quarter", "year")
    ),
)
_Y = (
    ("({0} + INTERVAL '1' MONTH)", "y", "date plus a month", "CAST({0} + INTERVAL '1' MONTH AS DATE)"),
    ("({0} - INTERVAL '29' DAY)", "y", "date minus days", "CAST({0} - INTERVAL '29' DAY AS DATE)"),
    ("({0} + 7)", "y", "date plus days", None),
    ("date_add({0}, 1)", "y", "date_add", "({0} + 1)"),
    ("add_months({0}, -1)", "y", "add_months", "CAST({0} - INTERVAL '1' MONTH AS DATE)"),
    ("last_day({0})", "y", "last_day", None),
    ("greatest({0}, {1})", "yy", "greatest", None),
)
_OF_TIME = (
    ("datediff({0}, {1})", "yy", "datediff", "({0} - {1})"),
    ("EXTRACT(WEEK FROM {0})", "y", "week", None),
    ("EXTRACT(ISODOW FROM {0})", "t", "isodow", None),
    ("day_of_year({0})", "y", "day_of_year", "dayofyear({0})"),
    ("EXTRACT(QUARTER FROM {0})", "t", "quarter", None),
    ("second({0})", "t", "second", None),
    ("iso_year({0})", "y", "iso_year", "isoyear({0})"),
    ("(epoch_ms({0}) // 86400000000)", "t", "epoch_ms", "CAST(floor(epoch_ms({0}) / 86400000000) AS BIGINT)"),
)
_B = (
    ("({0} LIKE {1})", "ss", "like a column", "(reverse(reverse({0})) LIKE {1})"),
    ("({0} ILIKE 'A%')", "s", "ilike", "(reverse(reverse({0})) ILIKE 'A%')"),
    ("({0} LIKE '\\%a')", "s", "like, escaped", "({0} LIKE '\\%a' ESCAPE '\\')"),
    ("starts_with({0}, {1})", "ss", "starts_with", "starts_with(reverse(reverse({0})), {1})"),
    ("ends_with({0}, {1})", "ss", "ends_with", "ends_with(reverse(reverse({0})), {1})"),
    ("contains({0}, {1})", "ss", "contains", "contains(reverse(reverse({0})), {1})"),
    ("regexp_matches({0}, '^a?b')", "s", "regexp_matches", "regexp_matches(reverse(reverse({0})), '^a?b')"),
    ("(({0} < {1}) IS UNKNOWN)", "ii", "is unknown", "(({0} < {1}) IS NULL)"),
    ("(({0}) IS FALSE)", "b", "is false", None),
    ("(({0}) = ({1}))", "bb", "truth compared", None),
    ("({0} NOT BETWEEN {1} AND {2})", "iii", "not between", None),
    ("({0} NOT IN (1, NULL, {1}))", "ii", "not in null", None),
    ("({0} IN ('a', {1}, NULL))", "ss", "in null", None),
    ("({0} < {1})", "if", "mixed comparison", None),
    ("({0} >= {1})", "fi", "mixed comparison", None),
    ("({0} = {1})", "if", "mixed comparison", None),
    ("({0} <> {1})", "id", "mixed comparison", None),
    ("({0} IN (0.5, {1}))", "fi", "mixed in", None),
    ("({0} = {1})", "fd", "mixed comparison", None),
    ("{0} IS NOT DISTINCT FROM {1}", "if", "mixed not distinct", None),
    ("({0} = {1})", "ff", "floats equal", None),
    ("({0} > {1})", "ff", "floats compared", None),
    ("({0} LIKE '%.%')", "s", "like a dot", "(reverse(reverse({0})) LIKE '%.%')"),
    ("array_contains([{0}, {1}], {2})", "iii", "array_contains", "list_contains([{0}, {1}], {2})"),
    ("(({0} = {1}) IS NOT DISTINCT FROM ({1} < {0}))", "ii", "truth not distinct", None),
    ("IF({0}, {1}, {2})", "bbb", "IF", "CASE WHEN {0} THEN {1} ELSE {2} END"),
    ("COALESCE({0}, {1})", "bb", "coalesce", None),
)
_OF_TIME_B = (
    ("(({0} - {1}) > INTERVAL '1' DAY)", "tt", "interval compared", None),
    ("({0} > '2024-01-31')", "y", "date and text", None),
    ("(CAST({0} AS DATE) = {1})", "ty", "cast to a date", None),
    ("({0} BETWEEN {1} AND {2})", "ttt", "times between", None),
)
FUNCTIONS = {"i": _I, "s": _S, "f": _F, "d": _D, "t": _T, "y": _Y, "b": _B}


class Functions(TablesGrammar):
    """Draws functions of values."""

    def _built(self, type_: str, reach: Reach, size: int) -> Expr:
        if type_ not in FUNCTIONS or not self.chance(0.45):
            return super()._built(type_, reach, size)
        return self._function(type_, reach, size)

    def predicate(self, reach: Reach, size: int) -> Expr:
        if not self.chance(0.3):
            return super().predicate(reach, size)
        return self._function("b", reach, min(size, 1))

    def _function(self, type_: str, reach: Reach, size: int) -> Expr:
        known = {each.type for each in (*reach.columns, *reach.outer, *(reach.aggregated or ()))}
        choices = FUNCTIONS[type_]
        if known & {"t", "y"} and type_ in "ib" and self.chance(0.5):
            choices = _OF_TIME if type_ == "i" else _OF_TIME_B
        template, types, name, theirs = self.rng.choice(choices)
        parts = tuple(self._argument(t, reach, size - 1) for t in types)
        return Expr(template, type_, parts, (f"{type_}: {name}",), theirs)

    def constant(self, type_: str) -> Expr:
        if type_ == "f" and self.chance(0.25):
            text = self.rng.choice(("CAST('nan' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "(-(0.0))"))
            return Expr(text, "f", (), ("special float",), text.replace("0.0", "CAST(0 AS DOUBLE)"))
        if type_ == "s" and self.chance(0.2):
            return Expr(self.rng.choice(("'a%'", "'_'", "'.'", "'é'", "'A'", "'a.b'", "'it''s'")), "s")
        return super().constant(type_)

    def membership(self, reach: Reach) -> Expr:
        known = {each.type for each in reach.columns}
        if not known & {"f", "d"} or reach.subquery is None or not self.chance(0.5):
            return super().membership(reach)
        mine = "f" if "f" in known else "d"
        theirs = self.rng.choice(("i", mine) if mine == "f" else ("i", "d"))
        query, _ = reach.subquery(reach, theirs)
        a = self.expr(mine, reach, 0)
        how = self.rng.choice(("IN", "NOT IN", "= ANY", "< ALL", ">= ANY", "<> ALL"))
        return Expr(f"{{0}} {how} ({{1}})", "b", (a, query), ("subquery: mixed types",))

    def _made(self, source: Node, scope: Scope, depth: int) -> tuple[Node, Scope]:
        times = [each for each in scope.qualified if each.type == "t"]
        if not times or not self.chance(0.3):
            return super()._made(source, scope, depth)
        text = "generate_series({0}, {0} + INTERVAL '40' HOUR, INTERVAL '1' DAY)"
        made = Expr(text, "t", (self.rng.choice(times),), ("series of timestamps",))
        return self._with_made(source, scope, Made(source, made, self._alias(), ("x",), False), ("t",))

    def _argument(self, type_: str, reach: Reach, size: int) -> Expr:
        if type_ == "b" and size <= 0:
            return super().predicate(reach, 0)
        return self.expr(type_, reach, size)
