"""EXPLAIN: what a query means, what it was turned into and why, what runs, what that keeps, and what may grow.

`explain_text` is the whole of it, for people who see a plan for the first time: plain text of at most 120 columns.
`explain_stages` is its last part, how a plan is spread over machines: what comes in, how it is spread over the
partitions, what is computed, what goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from everwhen.algebra.explain import WIDTH, explain, wrapped
from everwhen.algebra.nodes import LMerge, Node, Source, sources_of
from everwhen.core.emit import Emit
from everwhen.operators.join.join import Area, JoinOperator
from everwhen.operators.loop.fixpoint import FixpointOperator
from everwhen.operators.merge.inputs import MergeOperator
from everwhen.operators.output.changelog import EventChangelogEncoder
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.plan.lower import lower
from everwhen.plan.merge_kernel import merged_by
from everwhen.plan.physical import PhysicalPlan, Port
from everwhen.plan.properties import emitted
from everwhen.plan.sanity.advice import advise
from everwhen.plan.sanity.bounded import unbounded
from everwhen.plan.sanity.instants import one_instant
from everwhen.plan.sanity.silence import needs_promises
from everwhen.plan.stages.model import StagePlan, StreamIn

_AREAS: Final[dict[Area, str]] = {
    "keyed": "hash table by key",
    "nearest": "nearest by key",
    "sorted": "list sorted by value",
    "list": "plain list",
}
_INSIDE: Final = WIDTH - 2
"""Columns within a section, which is indented."""
_BRANCHES: Final = str.maketrans({"├": "│", "└": " ", "─": " "})
_LEGEND: Final = (
    "Read a plan from the bottom up: a step reads the steps indented below it.  In brackets is what is known of its "
    "stream: insert-only, nothing is taken back; ordered, by start; chronon, lifetimes of one tick; key(…), no two "
    "rows alive together agree on it; one row, at most one is alive at a time."
)
_KEEPS: Final = (
    "c is the latest CTI, the promise that nothing before it changes; ve is the end of a lifetime.  State goes as "
    "promises come in."
)


def explain_text(
    title: str,
    logical: Node,
    rewritten: Node | None = None,
    applied: Sequence[tuple[str, str]] = (),
    *,
    emit: Emit = Emit.CURRENT,
    stages: StagePlan | None = None,
    punctuation: bool = False,
) -> str:
    """The sections of EXPLAIN.

    `applied` are the rewriting rules used, in order, as (name, reason); without `rewritten` the plan runs as it is.
    `stages` adds how Spark spreads it, `punctuation` which promises about data would free its state.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string", "x": "int64"}, chronons=True)
    >>> print(explain_text("totals", s.range(5).group_by("k").agg(total=ew.sum("x")).node))  # doctest: +ELLIPSIS
    EXPLAIN totals
    ...
    The plan as written
      1  Aggregate by k: total = sum(x)                          [key(k)]
      2  └─ Window range 5                                       [lifetime 5]
      3     └─ Source S (k string, x int64), one tick each
    ...
    """
    final = logical if rewritten is None else rewritten
    sections = [("The plan as written", _tree(logical, emit))]
    if rewritten is not None:
        sections.append(("The plan as rewritten", [*_rules(applied), *_rewritten(logical, rewritten, emit)]))
    sections.append(("What runs, and what it keeps", _operators(final, lower({"answer": final}, emit))))
    sections.append(("What may grow for ever", _growth(final)))
    alone = one_instant(logical)
    if alone:
        sections.append(
            ("What may not be meant", [part for each in alone for part in wrapped(each, "- ", "  ", _INSIDE)])
        )
    waits = needs_promises(final, emit)
    if waits is not None:
        sections.append(("What it waits for", wrapped(waits, "", "", _INSIDE)))
    if punctuation:
        sections.append(("What punctuation would do", advise(final).lines()))
    if stages is not None:
        sections.append(("On Spark", [part for line in explain_stages(stages).splitlines() for part in _broken(line)]))
    head = [f"EXPLAIN {title}", *wrapped(_LEGEND, "", "")]
    texts = ["\n".join(head), *("\n".join([name, *(f"  {line}".rstrip() for line in body)]) for name, body in sections)]
    return "\n\n".join(texts)


def _tree(root: Node, emit: Emit) -> list[str]:
    def words(node: Node) -> str:
        if isinstance(node, Source):
            return ""  # its line says what it declares
        known = emitted(node, emit).words()
        return "; ".join(filter(None, [merged_by(node), known])) if isinstance(node, LMerge) else known

    return explain(root, words, _INSIDE).splitlines()


def _broken(line: str) -> list[str]:
    """A line that is too wide, in parts that stand below each other, behind the branches of a tree."""
    words = line.lstrip(" │├└─")
    first = line[: len(line) - len(words)]
    return [line] if len(line) <= _INSIDE else wrapped(words, first, first.translate(_BRANCHES) + "  ", _INSIDE)


def _rules(applied: Iterable[tuple[str, str]]) -> list[str]:
    times = Counter(applied)
    lines: list[str] = []
    for (rule, reason), count in times.items():
        lines += wrapped(f"{rule}{f' ({count} times)' if count > 1 else ''}: {reason}", "by ", "     ", _INSIDE)
    return lines


def _rewritten(logical: Node, rewritten: Node, emit: Emit) -> list[str]:
    lines = _tree(rewritten, emit)
    return ["nothing to rewrite"] if lines == _tree(logical, emit) else lines


def _operators(root: Node, plan: PhysicalPlan) -> list[str]:
    """One line per operator in the order in which they run: its number, its name, what it reads, what it keeps."""
    rows = [("", f"source {name}", "", _guard_keeps(source)) for name, source in plan.sources.items()]
    for number, placed in enumerate(plan.operators, 1):
        operator, name = placed.operator, placed.name
        if isinstance(operator, JoinOperator):
            name = f"{name.partition(' (')[0]} ({_AREAS[operator.area]})"
        elif isinstance(operator, MergeOperator):
            name = f"{name} {operator.kernel}"
        elif isinstance(operator, FixpointOperator):
            name = f"{name} {operator.name}"
        rows.append((str(number), name, ", ".join(map(_port, placed.inputs)), operator.keeps))
        if isinstance(operator, FixpointOperator):
            rows += _loop(operator, number, placed.inputs)
    for sink in plan.sinks:
        match sink.encoder:
            case EventChangelogEncoder():
                keeps = "nothing"
            case GroupChangelogEncoder():
                keeps = "per group the lifetimes said, until ve ≤ c"
            case _:
                keeps = "the rows said, until ve ≤ c"
        if sink.filter is not None:
            keeps = f"{sink.filter.keeps}; {keeps}"
        rows.append(("", sink.name, _port(sink.port), keeps))
    lines = wrapped(_KEEPS, "", "", _INSIDE)
    for place, name, reads, keeps in rows:
        start = f"{place:>2}  {name}" + (f" of {reads}" if reads else "")
        if not keeps:
            lines += wrapped(name.strip(), " " * 6, " " * 8, _INSIDE)
            continue
        lines += wrapped(f"keeps {keeps}", f"{start:<52}  ", " " * 56, _INSIDE)
    return lines


def _loop(operator: FixpointOperator, number: int, inputs: Sequence[Port]) -> list[tuple[str, str, str, str]]:
    """How a loop runs, and what goes on inside."""
    outside = [*map(_port, inputs), operator.name]
    rows = [("", f"  {operator.runs}; {operator.counts}", "", "")]
    for at, each in enumerate(operator.body, 1):
        reads = [outside[-1 - port] if port < 0 else f"{number}.{port + 1}" for port in each.inputs]
        name = each.name
        if isinstance(each.operator, JoinOperator):
            name = f"{name.partition(' (')[0]} ({_AREAS[each.operator.area]})"
        rows.append(("", f"  {number}.{at} {name}", ", ".join(reads), each.operator.keeps))
    return rows


def _guard_keeps(source: Source) -> str:
    return "nothing: it is insert-only" if source.insert_only else "its events until ve < c, to check adjusts"


def _port(port: Port) -> str:
    return port.source if port.source is not None else str(port.operator + 1)


def _growth(root: Node) -> list[str]:
    found = unbounded(root)
    lines = [] if found else ["nothing: every row goes when its lifetime has ended"]
    for entry in found:
        lines += wrapped(str(entry), "! " if entry.fatal else "- ", "  ", _INSIDE)
    sources = sources_of(root)
    for name, source in sources.items():
        if source.times.start is not None and source.policy.within is None and not source.is_finite:
            text = (
                f"{name} declares no WITHIN: unless its connector or CTIs in the input promise, nothing is final and "
                f"nothing goes before it ends (ORDERED BY {source.times.start} WITHIN 30 MINUTES)"
            )
            lines += wrapped(text, "- ", "  ", _INSIDE)
    return lines


def explain_stages(plan: StagePlan) -> str:
    """One paragraph per stage.

    >>> import everwhen as ew
    >>> from everwhen.plan.stages.stages import cut
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
      in  @1 to one partition: segments
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
        lines += [f"  {words}" for words in stage.loops]
        for name, node in stage.handed.items():
            if name in stage.returns:
                lines.append(f"  back to the beginning of the round: {name}")
                continue
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
        return "to every partition"
    return f"by {', '.join(stream.by)}" if stream.by else "to one partition"


def _form(stream: StreamIn) -> str:
    if stream.feed is None:
        return "segments" if stream.form == "segments" else "whole events"
    return f"{stream.form} of {stream.feed.source.name}"


def _merging(stream: StreamIn) -> list[str]:
    assert stream.feed is not None
    steps = []
    if stream.feed.window is not None:
        steps.append(f"then {stream.feed.window}")
    if stream.feed.partial is not None:
        lanes = ", ".join(f"{lane.name} = {lane}" for lane in stream.feed.partial.lanes)
        steps.append(f"then rows of one lifetime and group merged: {lanes}")
    return steps
