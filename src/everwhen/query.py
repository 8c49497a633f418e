"""`sql`: a query from text, over streams of the fluent API or streams that the text declares.

>>> import everwhen as ew
>>> bids = ew.source("Bid", {"item": "int64", "price": "float64"})
>>> q = ew.sql("SELECT item, MAX(price) AS best FROM Bid WINDOW(RANGE 10 MINUTES) GROUP BY item", bids)
>>> [str(e) for e in ew.run(q, {"Bid": [ew.Insert(0, 1, {"item": 7, "price": 2.5})]}, consistency=ew.STRONG)]
['insert [0, 600000) item=7 best=2.5', 'cti ∞']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.errors import LoopError, QueryError
from everwhen.language.catalog import Catalog, Entry
from everwhen.language.program import AskedConsistency, Functions, program
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.tables.given import source_of


def sql(
    text: str,
    *streams: Stream | Mapping[str, Stream] | Catalog,
    functions: Functions | None = None,
    tick: str = "1ms",
    optimize: bool = True,
    **tables: Any,
) -> Stream:
    """The query that the text ends with.

    `streams` are sources, which have names, mappings of names to streams of any kind, or a catalogue.  `functions` are
    Python functions and aggregates that the text may call; `tick` is the length of one tick.  With `optimize` the plan
    is rewritten (`everwhen.rewrite`).  `tables` name tables or files whose columns a stream takes that the text does
    not declare: `Bid=frame`, `Bid=everwhen.rows(frame, time="ts")`; their rows are given to `run`.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"x": "int64"})
    >>> print(ew.sql("SELECT x FROM S WHERE x > 1", s))
    Filter x > 1
    └─ Source S (x int64)
    """
    catalog = Catalog(functions=functions or {})
    for given in streams:
        for entry in _entries(given):
            catalog = catalog.with_entry(entry)
    for name, table in tables.items():
        catalog = catalog.with_entry(Entry(name, source_of(name, table, tick)))
    found = program(text, catalog, tick)
    query = _asking(found.query.node, found.consistency)
    try:
        return optimized(query) if optimize else replace(query, node=legal_loops(query.node), asked=query.node)
    except LoopError as error:
        raise error.within(text) from None


def optimized(query: Stream) -> Stream:
    """The same answer by a plan that costs less."""
    return replace(query, node=legal_loops(rewrite(query.node).node), asked=query.node)


def _asking(node: n.Node, asked: AskedConsistency | None) -> Stream:
    """A plan with the consistency that its text asks for."""
    if asked is None:
        return Stream(node)
    return Stream(node, asked.level or (asked.block, asked.remember))


def _entries(given: Stream | Mapping[str, Stream] | Catalog) -> list[Entry]:
    match given:
        case Catalog():
            return list(given.entries.values())
        case Stream(node):
            if isinstance(node, n.Source):
                return [Entry(node.name, node)]
            raise QueryError("a stream that is no source has no name; give it as {'name': stream}")
        case Mapping():
            return [Entry(name, stream.node) for name, stream in given.items()]
    raise QueryError(f"sql() takes streams, or names and streams, not {given!r}")
