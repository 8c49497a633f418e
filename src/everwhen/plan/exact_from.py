"""From which instant on a plan in stages is exact, if its sources are known from certain instants on only.

By induction over the plan: a stream is exact from the latest instant from which on its inputs are, and what an operator
adds to that (`Operator.exact_from`): nothing where single snapshots matter, its length for a window.  An exchange adds
nothing.  Infinity: never, and then the operator is named.
"""

from __future__ import annotations

from collections.abc import Mapping

from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.plan.lower import lower
from everwhen.plan.physical import Port
from everwhen.plan.stages.model import StagePlan, StreamIn


def exact_from(plan: StagePlan, emit: Emit, known: Mapping[str, int]) -> int:
    """The instant from which on all queries of a plan are exact; `known`: the same of each source."""
    streams: dict[str, int] = {}
    answers = NEVER
    for stage in plan.stages:
        for stream in stage.inputs:
            if stream.feed is not None:
                streams[stream.name] = _fed(stream, known[stream.feed.source.name])
        physical = lower(stage.queries, emit, handed=stage.handed, facing=stage.facing)
        exact: list[int] = []

        def at(port: Port, exact: list[int] = exact, streams: dict[str, int] = streams) -> int:
            return streams[port.source] if port.source is not None else exact[port.operator]

        for placed in physical.operators:
            since = max(map(at, placed.inputs), default=NEVER)
            found = since if since == NEVER else placed.operator.exact_from(since)
            if found == INF:
                raise _never(f"the operator '{placed.name}' needs all of the past")
            exact.append(found)
        streams.update({handed.name: at(handed.port) for handed in physical.handed})
        answers = max([answers, *(at(sink.port) for sink in physical.sinks)])
    return answers


def _fed(stream: StreamIn, known: int) -> int:
    assert stream.feed is not None
    if stream.feed.window is None or known == NEVER:
        return known
    found = stream.feed.window.exact_from(known)
    if found == INF:
        raise _never(f"a window over {stream.feed.source.name!r} has no bound, so it needs all of the past")
    return found


def _never(why: str) -> QueryError:
    return QueryError(
        f"the new query cannot take over: no instant is known from which on its answer would be right, because {why}. "
        "Start it beside this one with a checkpoint of its own, and let it read its sources from the beginning"
    )
