"""The stages of a plan as text: what comes in, how it is spread over the buckets, what is computed, what goes on."""

from __future__ import annotations

from everwhen.algebra.explain import explain
from everwhen.model.time import INF
from everwhen.plan.stages import StagePlan, StreamIn


def explain_stages(plan: StagePlan) -> str:
    """One paragraph per stage.

    >>> import everwhen as ew
    >>> from everwhen.plan.stages import cut
    >>> s = ew.source("S", {"k": "string", "x": "int64"})
    >>> totals = s.group_by("k").agg(total=ew.sum("x")).aggregate(most=ew.max("total"))
    >>> print(explain_stages(cut({"out": totals.node}, {}, lambda expr, schema: True)))
    Stage 1
      in  @0 by k: elements of S
          Source S (k string, x int64)
      to stage 2: @1
          Aggregate: max_total = max(total)
          └─ Aggregate by k: total = sum(x)
             └─ Source @0 (k string, x int64)
    Stage 2
      in  @1 to one bucket: segments
      answer out
          Select most = max_total
          └─ Aggregate: max_total = max(max_total)
             └─ Exchange @1 (max_total int64)
    """
    lines: list[str] = []
    for stage in plan.stages:
        lines.append(f"Stage {stage.level}")
        for stream in stage.inputs:
            lines.append(f"  in  {stream.name} {_spread(stream)}: {_form(stream)}")
            if stream.feed is not None:
                lines += _indented(explain(stream.feed.node))
                lines += [f"      {step}" for step in _merging(stream)]
        for name, node in stage.handed.items():
            lines.append(f"  to stage {stage.level + 1}: {name}")
            lines += _indented(explain(node))
        for name, node in stage.queries.items():
            lines.append(f"  answer {name}")
            lines += _indented(explain(node))
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return [f"      {line}" for line in text.splitlines()]


def _spread(stream: StreamIn) -> str:
    if stream.by is None:
        return "to every bucket"
    return f"by {', '.join(stream.by)}" if stream.by else "to one bucket"


def _form(stream: StreamIn) -> str:
    if stream.feed is None:
        return "segments" if stream.form == "segments" else "whole events"
    return f"{stream.form} of {stream.feed.source.name}"


def _merging(stream: StreamIn) -> list[str]:
    assert stream.feed is not None
    steps = []
    if stream.feed.window is not None:
        size, slide = stream.feed.window
        steps.append(f"then window {'unbounded' if size == INF else f'range {size}'} slide {slide}")
    if stream.feed.partial is not None:
        lanes = ", ".join(f"{lane.name} = {lane}" for lane in stream.feed.partial.lanes)
        steps.append(f"then rows of one lifetime and group merged: {lanes}")
    return steps
