"""Everwhen: continuous queries over data streams, with an exact answer at every instant.

>>> import everwhen as ew
>>> bids = ew.source("Bid", {"item": "int64", "price": "float64"})
>>> highest = bids.range("10 minutes").group_by("item").agg(top=ew.max("price"))
>>> highest.schema.names
('item', 'top')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from everwhen import punctuation
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
from everwhen.algebra.expr import col, function, lit, udf, when
from everwhen.api import Stream, source
from everwhen.errors import (
    EvaluationError,
    EverwhenError,
    InputError,
    QueryError,
    SinkError,
    SqlError,
    StateError,
    TimeRangeError,
)
from everwhen.model.element import Adjust, Cti, Insert, Punct
from everwhen.model.elements import ElementBatch
from everwhen.model.history import History
from everwhen.model.schema import Schema
from everwhen.model.time import INF, ticks
from everwhen.runtime.consistency import MIDDLE, STRONG, WEAK, Consistency, consistency
from everwhen.runtime.local import LocalRuntime
from everwhen.runtime.run import run, run_batches

if TYPE_CHECKING:
    from everwhen import reference, spark, testing
    from everwhen.language.catalog import UserFunction
    from everwhen.plan.advice import advise
    from everwhen.plan.sanity import require_bounded
    from everwhen.query import sql
    from everwhen.runtime.session import Session
    from everwhen.runtime.sql_session import SqlSession

__version__ = "0.4.0"

__all__ = [
    "INF",
    "MIDDLE",
    "STRONG",
    "WEAK",
    "Adjust",
    "Consistency",
    "Cti",
    "ElementBatch",
    "EvaluationError",
    "EverwhenError",
    "History",
    "InputError",
    "Insert",
    "LocalRuntime",
    "Punct",
    "QueryError",
    "Schema",
    "Session",
    "SinkError",
    "SqlError",
    "SqlSession",
    "StateError",
    "Stream",
    "TimeRangeError",
    "UserAggregate",
    "UserFunction",
    "advise",
    "aggregate",
    "avg",
    "col",
    "consistency",
    "count",
    "count_distinct",
    "first",
    "function",
    "last",
    "lit",
    "max",
    "median",
    "min",
    "punctuation",
    "quantile",
    "reference",
    "require_bounded",
    "run",
    "run_batches",
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
    "variance",
    "variance_pop",
    "when",
]

_MODULES: Final = ("reference", "spark", "testing")
_LATER: Final = {
    "Session": "everwhen.runtime.session",
    "SqlSession": "everwhen.runtime.sql_session",
    "UserFunction": "everwhen.language.catalog",
    "advise": "everwhen.plan.advice",
    "require_bounded": "everwhen.plan.sanity",
    "sql": "everwhen.query",
}


def __getattr__(name: str) -> object:
    """Import on first use what Spark's workers do not need: PySpark (`ew.spark`), the reference implementation and the
    test helpers (`ew.reference`, `ew.testing`), and everything that parses SQL."""
    if name in _MODULES:
        return import_module(f"everwhen.{name}")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'everwhen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
