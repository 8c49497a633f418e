"""Functions that other systems have and the language has not: what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_CLOCKS: Final = (
    "now", "mz_now", "current_timestamp", "current_date", "current_time", "current_row_timestamp", "proctime",
    "getdate", "sysdate", "localtimestamp", "localtime",
)  # fmt: skip
_BY_CHANCE: Final = ("random", "rand", "rand_integer", "uuid", "gen_random_uuid", "newid", "setseed")
_WINDOWS: Final = ("tumble", "hop", "session", "cumulate")
_UNNEST: Final = "rows of a list stand in FROM: CROSS JOIN UNNEST(list) AS t(x)"
_PARTS: Final = "parts of a time are EXTRACT(EPOCH FROM t), seconds since 1970, and its like"

_REMEDIES: Final = {
    **dict.fromkeys(("explode", "explode_outer", "posexplode", "unnest", "flatten", "regexp_split_to_table"), _UNNEST),
    **dict.fromkeys(("first_value", "last_value", "nth_value"), "of a group write FIRST(x, t) or LAST(x, t), by the "
                    "column t; with OVER (PARTITION BY … ORDER BY …) it is one of a frame"),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2"), "it follows from "
                    "sums: SUM(x * y), SUM(x), SUM(y), SUM(x * x) and COUNT(*)"),
    **dict.fromkeys(("product", "geomean", "geometric_mean"), "write EXP(SUM(LN(x))) where x is positive"),
    **dict.fromkeys(("json_agg", "jsonb_agg", "json_arrayagg"), "write ARRAY_AGG(x): a list is an array in JSON lines"),
    "timestampdiff": f"a difference in seconds is EXTRACT(EPOCH FROM b - a); {_PARTS}",
    **dict.fromkeys(("time_bucket", "date_bin"), "windows of time are FROM TUMBLE(s, DESCRIPTOR(t), INTERVAL '5' "
                    "MINUTE); a time is cut by DATE_TRUNC('hour', t)"),
    **dict.fromkeys(("dayofweek", "weekday"), "DAY_OF_WEEK(t) counts from Monday, which is 1; from Sunday it is "
                    "DAY_OF_WEEK(t) % 7 + 1"),
    **dict.fromkeys(("dayname", "monthname"), "write STRFTIME(t, '%A') or STRFTIME(t, '%B')"),
    **dict.fromkeys(("from_unixtime", "to_timestamp_ltz", "timestamp_seconds", "timestamp_millis"), "write "
                    "TO_TIMESTAMP(seconds)"),
    "date": "write CAST(t AS DATE)",
    "age": "write a - b, which is an interval",
    "timestampadd": "write t + INTERVAL '1' HOUR",
    "log": "write LN(x), LOG10(x), or LN(x) / LN(b)",
    "log2": "write LN(x) / LN(2)",
    "regexp_like": "write REGEXP_MATCHES(text, regex)",
    "convert_tz": "write t AT TIME ZONE 'Europe/Berlin'",
    "typeof": "EXPLAIN shows the types of columns",
}  # fmt: skip


def unknown_function(name: str, known: Iterable[str]) -> str:
    """What to say of a function that is not there."""
    shown = name.upper()
    if name in _CLOCKS:
        return f"there is no {shown}: a query has no clock, its times are those of the data{_of_late(name)}"
    if name in _BY_CHANCE:
        return f"there is no {shown}: an answer is a function of the streams alone"
    kind = name.split("_")[0]
    if name in _WINDOWS or (kind in _WINDOWS and name.endswith(("_start", "_end", "_rowtime", "_proctime"))):
        word, more = kind.upper(), ", INTERVAL '5' MINUTE" if kind in ("hop", "cumulate") else ""
        read = f"FROM {word}(s, DESCRIPTOR(t), INTERVAL '1' MINUTE{more}) GROUP BY …, window_start, window_end"
        return f"{word} is a function of a table: {read}"
    remedy = _REMEDIES.get(name)
    if remedy is None:
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
        remedy = f"did you mean {near[0].upper()}?" if near else "the language reference lists what there is"
    return f"unknown function {shown}; {remedy}"


def clock_problem(name: str) -> str | None:
    """What to say of a name without parentheses that is a clock elsewhere."""
    return unknown_function(name, ()) if name in _CLOCKS and name.startswith(("current_", "local")) else None


def _of_late(name: str) -> str:
    return "; rows of the last five minutes are FROM s WINDOW(RANGE 5 MINUTES)" if name in ("mz_now", "now") else ""
