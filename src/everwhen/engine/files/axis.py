"""On which axis a query over files tells its times: as its text asks, else as its inputs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from everwhen.algebra.builder import Stream, node_of
from everwhen.algebra.nodes import Source, walk
from everwhen.core.time_axis import TimeAxis, common_axis
from everwhen.engine.local import Query
from everwhen.formats.dated import shows_dates
from everwhen.formats.input_file import InputFile


def axis_of_inputs(query: Query, inputs: Mapping[str, InputFile]) -> TimeAxis:
    """The axis of the answer.  If one input has timestamps it has them; what an input does not show is as declared."""
    if isinstance(query, Stream) and query.axis is not None:
        return query.axis
    node = node_of(query)
    axes = []
    for source in walk(node):
        if isinstance(source, Source):
            shown = shows_dates(inputs[source.name]) if source.name in inputs else None
            axes.append(source.axis if shown is None else replace(source.axis, dated=shown))
    return common_axis(axes)
