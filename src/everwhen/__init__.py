"""Everwhen: continuous queries over data streams, with an exact answer at every instant.

>>> import everwhen as ew
>>> bids = ew.source("Bid", {"item": "int64", "price": "float64"})
>>> highest = bids.range("10 minutes").group_by("item").agg(top=ew.max("price"))
>>> highest.schema.names
('item', 'top')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from everwhen.algebra.aggregates import (
    UserAggregate,
    aggregate,
    avg,
    count,
    count_distinct,
    first,
    last,
    max,
    median,
    min,
    quantile,
    stddev,
    stddev_pop,
    sum,
    top_k,
    variance,
    variance_pop,
)
from everwhen.algebra.builder import Stream, source
from everwhen.algebra.expressions.build import col, function, lit, udf, when
from everwhen.algebra.punctuation_schemes import (
    bounds,
    clustered_by,
    complete,
    given,
    selection,
    sorted_by,
    unique,
)
from everwhen.core.consistency import MIDDLE, STRONG, WEAK, Consistency, consistency
from everwhen.core.promise import Nothing, OneOf, Promise, Range
from everwhen.core.time import INF, ticks
from everwhen.engine.local import LocalRuntime
from everwhen.engine.run import run, run_batches
from everwhen.errors import EverwhenError, InputError, QueryError
from everwhen.stream.element import Adjust, Cti, Insert, Punct

if TYPE_CHECKING:
    from everwhen import spark, testing
    from everwhen.engine.session.sql_session import SqlSession
    from everwhen.query import sql

__version__ = "0.4.0"

__all__ = [
    "INF",
    "MIDDLE",
    "STRONG",
    "WEAK",
    "Adjust",
    "Consistency",
    "Cti",
    "EverwhenError",
    "InputError",
    "Insert",
    "LocalRuntime",
    "Nothing",
    "OneOf",
    "Promise",
    "Punct",
    "QueryError",
    "Range",
    "SqlSession",
    "Stream",
    "UserAggregate",
    "aggregate",
    "avg",
    "bounds",
    "clustered_by",
    "col",
    "complete",
    "consistency",
    "count",
    "count_distinct",
    "first",
    "function",
    "given",
    "last",
    "lit",
    "max",
    "median",
    "min",
    "quantile",
    "run",
    "run_batches",
    "selection",
    "sorted_by",
    "source",
    "spark",
    "sql",
    "stddev",
    "stddev_pop",
    "sum",
    "testing",
    "ticks",
    "top_k",
    "udf",
    "unique",
    "variance",
    "variance_pop",
    "when",
]


_LATER: Final = {"sql": "everwhen.query", "SqlSession": "everwhen.engine.session.sql_session"}


def __getattr__(name: str) -> object:
    """What Spark's workers do without comes when it is asked for: `ew.spark` brings PySpark along, `ew.testing` the
    oracle, and what reads SQL its grammar and rewriting."""
    if name in ("spark", "testing"):
        return import_module(f"everwhen.{name}")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'everwhen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
