"""What running operators remember of a port that they read: another way to know its past.

A guard knows events that may still change, so what a window of ten seconds has said is known, by the source alone, from
ten seconds behind the promise on.  A join that reads the window has its rows: all from the other side's promise on.  So
a plan with another join order over the same windows is exact from the largest promise on, not a window later.
"""

from __future__ import annotations

from collections.abc import Iterator

from everwhen.engine.dataflow import Dataflow
from everwhen.engine.session.joining.as_of import AsOf
from everwhen.engine.session.output_port import OutputKey, SharedOutput
from everwhen.errors import QueryError
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


def told(flow: Dataflow[OutputKey, SharedOutput], port: Port, codec: RowCodec) -> Iterator[AsOf]:
    """What each reader of a port knows of it; a reader that joined late has seen nothing before that."""
    for node in flow.nodes.values():
        for at, read in enumerate(node.placed.inputs):
            if read != port or node.loading:
                continue
            found = node.placed.operator.remembers(at)
            if found is not None:
                since, known = found
                changes = Changes(codec, known.lo, known.hi, known.weight, known.rows)
                yield AsOf(max(since, node.since), changes)


def refused(why: str, remedy: str) -> QueryError:
    """A plan cannot join."""
    return QueryError(
        f"this query cannot join now, because no instant is known from which on its answer would be right: {why}. "
        "Register it before the first batch, in a session or with a checkpoint of its own; or take a window of time, "
        f"so that the past comes to an end{remedy}"
    )


def needs_past(operator: str) -> QueryError:
    """A plan cannot join, because an operator needs what nobody keeps."""
    return refused(f"the operator '{operator}' needs all of the past", "")


def endless(why: str) -> QueryError:
    """A plan cannot join, because of rows that never end and are not kept."""
    return refused(
        why,
        "; or declare the source with insert_only=False, so that its live events are kept until promises settle them",
    )
