"""Everwhen: continuous queries over data streams, with an exact answer at every instant.

    >>> import everwhen as ew
    >>> bids = ew.source("Bid", {"item": "int64", "price": "float64"})
    >>> highest = bids.range("10 minutes").group_by("item").agg(top=ew.max("price"))
    >>> highest.schema.names
    ('item', 'top')
"""

from everwhen import testing
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
from everwhen.errors import EverwhenError, InputError, QueryError
from everwhen.model.element import Adjust, Cti, Insert
from everwhen.model.time import INF, ticks
from everwhen.runtime.run import MIDDLE, STRONG, run
from everwhen.runtime.local import LocalRuntime

__version__ = "0.1.0"
