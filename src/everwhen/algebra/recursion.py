"""`ew.fixpoint`: a stream that reads itself."""

from __future__ import annotations

from collections.abc import Callable

from everwhen.algebra import nodes
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col
from everwhen.algebra.recursion_nodes import FixpointKind
from everwhen.core.loop_options import MAX_LEVEL, MAX_ROWS, LoopOptions, ProgressStrategy
from everwhen.errors import QueryError


def fixpoint(
    base: Stream,
    step: Callable[[Stream], Stream],
    kind: FixpointKind = "union",
    *,
    value: str | None = None,
    name: str = "r",
    rounds: int | None = None,
    progress: ProgressStrategy = "hybrid",
    max_level: int = MAX_LEVEL,
    max_rows: int = MAX_ROWS,
    across: bool = False,
) -> Stream:
    """The least fixed point of `base` and `step` at every instant; `step` is given the stream itself.

    `kind`: "union" has each row once, "union all" once per derivation, "min" and "max" have the best `value` of each
    key, which is all other columns.  `rounds` lets an epoch end after so many rounds, and the rest rides with later
    input; None runs until nothing circulates.  `progress` says how the loop finds out how far it is final.  After
    `max_level` rounds, or `max_rows` rows that went round, in one epoch the loop is taken to diverge: the run fails.
    `across` lets its rounds go through all partitions on Spark, a job per round; in process it changes nothing.

    >>> import everwhen as ew
    >>> link = ew.source("Link", {"a": "int64", "b": "int64"})
    >>> start = ew.source("Start", {"n": "int64"})
    >>> reach = ew.fixpoint(start, lambda r: r.join(link, on={"n": "a"}).select(n=ew.col("b")))
    >>> inputs = {"Start": [ew.Insert(0, 9, {"n": 1})], "Link": [ew.Insert(2, 7, {"a": 1, "b": 2})]}
    >>> print(*ew.run(reach, inputs, emit="all"), sep=chr(10))
    insert [0, 9) n=1
    insert [2, 7) n=2
    cti ∞
    """
    if not isinstance(base, Stream):
        raise QueryError(f"fixpoint() begins with a stream, not {base!r}")
    token = nodes.LoopToken(name)
    derived = step(Stream(nodes.Recursion(token, base.schema)))
    if not isinstance(derived, Stream):
        raise QueryError(f"the step of fixpoint() must give a stream, not {derived!r}")
    found = derived.node
    if found.schema.names != base.schema.names and found.schema.same_types(base.schema):
        columns = zip(base.schema.names, found.schema.names, strict=True)
        found = nodes.Map(found, tuple((called, col(own)) for called, own in columns))
    options = LoopOptions(rounds, progress, max_level, max_rows, across)
    return Stream(nodes.Fixpoint(base.node, found, token, kind, value, options))
