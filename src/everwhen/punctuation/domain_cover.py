"""Whether patterns on columns that are projected away cover all values together.

A projection may forget a column once its patterns have become a wildcard (Tucker leaves the condition open in section
4.2): for one column they must cover its type, null included unless the column has none.  `uncovered` answers for boxes
over several columns by cutting each column where any box begins or ends: exact, but its cost grows with the product of
the cuts, so it is for a few boxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from everwhen.punctuation.pattern_index import Box
from everwhen.values.sets import Key, Spans, holds, union

Point = dict[str, Key | None]
"""A key, or None for a null, of each column; columns left out may have any value."""


def uncovered(boxes: Sequence[Box], lowest: Mapping[str, Key | None], never_null: Set[str]) -> Point | None:
    """A point that no box holds; None if boxes cover all values of all columns together.

    `lowest` is the smallest key of each column.
    """
    if any(not box for box in boxes):
        return None
    names = {name for box in boxes for name in box}
    if not names:
        return {}
    # The column that fewest boxes leave open parts them best.
    name = max(sorted(names), key=lambda n: sum(n in box for box in boxes))
    found = [box.get(name) for box in boxes]
    if len(names) == 1:
        return _gap(name, [spans for spans in found if spans is not None], lowest[name], name in never_null)
    rest = [{other: spans for other, spans in box.items() if other != name} for box in boxes]
    cuts: list[Key | None] = [] if name in never_null else [None]
    if lowest[name] is not None:
        bounds = {bound for spans in found if spans for run in spans.runs for bound in run if bound is not None}
        cuts += sorted({lowest[name], *bounds})
    for cut in cuts:
        inside = [box for box, spans in zip(rest, found, strict=True) if spans is None or holds(spans, cut)]
        point = uncovered(inside, lowest, never_null)
        if point is not None:
            return {name: cut, **point}
    return None


def _gap(name: str, found: Sequence[Spans], lowest: Key | None, never_null: bool) -> Point | None:
    """The same for one column."""
    if not never_null and not any(spans.null for spans in found):
        return {name: None}
    if lowest is None:
        return None
    runs = union(run for spans in found for run in spans.runs)
    if not runs or runs[0][0] != lowest:
        return {name: lowest}
    return None if runs[0][1] is None else {name: runs[0][1]}
