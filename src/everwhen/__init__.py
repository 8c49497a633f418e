"""Everwhen: continuous queries over data streams, with an exact answer at every instant.

>>> import everwhen as ew
>>> bids = ew.source("Bid", {"item": "int64", "price": "float64"})
>>> highest = bids.range("10 minutes").group_by("item").agg(top=ew.max("price"))
>>> highest.schema.names
('item', 'top')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from everwhen import startup as startup  # before all that takes long to load

# isort: split
from everwhen import punctuation
from everwhen.algebra.aggregates.calls import (
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
from everwhen.algebra.aggregates.lists import array_agg, quantile_disc
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col, function, lit, udf, when
from everwhen.algebra.lmerge import lmerge
from everwhen.algebra.named_source import source
from everwhen.algebra.patterns import terms as patterns
from everwhen.algebra.ranks import frames
from everwhen.algebra.recursion import fixpoint
from everwhen.core.consistency import MIDDLE, STRONG, WEAK, Consistency, consistency
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.schema import Schema
from everwhen.core.time import INF, ticks
from everwhen.engine.local import LocalRuntime
from everwhen.engine.run import run, run_batches
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
from everwhen.stream.element import Adjust, Cti, Insert, Punct
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.tables.answer import Answer
from everwhen.tables.given import rows

if TYPE_CHECKING:
    from everwhen import reference, spark, testing
    from everwhen.engine.files.copies import copies
    from everwhen.engine.files.follow import follow
    from everwhen.engine.session.session import Session
    from everwhen.engine.session.sql_session import SqlSession
    from everwhen.formats.changelog.reading import read_changelog
    from everwhen.language.catalog import UserFunction
    from everwhen.plan.sanity.advice import advise
    from everwhen.plan.sanity.bounded import require_bounded
    from everwhen.query import sql
    from everwhen.serve.notebook import live
    from everwhen.serve.opened import page

__version__ = "0.5.0"

__all__ = [
    "INF",
    "MIDDLE",
    "STRONG",
    "WEAK",
    "Adjust",
    "Answer",
    "Consistency",
    "Cti",
    "ElementBatch",
    "EvaluationError",
    "EverwhenError",
    "History",
    "InputError",
    "Insert",
    "LocalRuntime",
    "MergePolicy",
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
    "array_agg",
    "avg",
    "col",
    "consistency",
    "copies",
    "count",
    "count_distinct",
    "first",
    "fixpoint",
    "follow",
    "frames",
    "function",
    "last",
    "lit",
    "live",
    "lmerge",
    "max",
    "median",
    "min",
    "page",
    "patterns",
    "punctuation",
    "quantile",
    "quantile_disc",
    "read_changelog",
    "reference",
    "require_bounded",
    "rows",
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
    "Session": "everwhen.engine.session.session",
    "SqlSession": "everwhen.engine.session.sql_session",
    "UserFunction": "everwhen.language.catalog",
    "advise": "everwhen.plan.sanity.advice",
    "copies": "everwhen.engine.files.copies",
    "follow": "everwhen.engine.files.follow",
    "live": "everwhen.serve.notebook",
    "page": "everwhen.serve.opened",
    "read_changelog": "everwhen.formats.changelog.reading",
    "require_bounded": "everwhen.plan.sanity.bounded",
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
    return sorted({*globals(), *__all__})
