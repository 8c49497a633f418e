"""When the output of a merge can still follow its inputs: conditions C1 to C3 of the LMerge paper (III-D, case R3).

Prefixes of streams in which no two events have the same row and start.  Of an event with start `vs` and end `ve`, in a
stream that has promised `last`, is

    fully frozen    ve < last          it stays as it is
    half frozen     vs < last ≤ ve     its end may move, not before `last`
    unfrozen        last ≤ vs          anything may happen

An output is compatible if it can become whatever the inputs can together become (`reachable`: the definition).  C1 to
C3 say so without looking at the future.  In C2 the paper has an inequality reversed: a half-frozen event of the output
needs a half-frozen one of an input with `L ≤ L_m`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everwhen.core.time import NEVER, show
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.testing.cedr_definitions import Verdict

Name = tuple[tuple[Any, ...], int]
"""The row and the start of an event."""


@dataclass(frozen=True)
class Prefix:
    """What a prefix of a stream says: the end of each event by row and start, and the largest CTI."""

    ends: Mapping[Name, int] = field(default_factory=dict)
    last: int = NEVER

    @classmethod
    def of(cls, elements: Iterable[Element]) -> Prefix:
        """
        >>> from everwhen import Adjust, Cti, Insert
        >>> Prefix.of([Insert(2, 9, {"p": "A"}), Adjust(2, 9, 5, {"p": "A"}), Cti(4)])
        Prefix(ends={(('A',), 2): 5}, last=4)
        """
        ends: dict[Name, int] = {}
        last = NEVER
        for e in elements:
            if isinstance(e, Cti):
                last = max(last, e.t)
            elif isinstance(e, Insert | Adjust):
                name = tuple(e.row.values()), e.vs
                end = e.ve if isinstance(e, Insert) else e.vnew
                assert isinstance(e, Adjust) or name not in ends, f"two events with the row and start {name}"
                ends[name] = end
                if end == e.vs:
                    del ends[name]
        return cls(ends, last)


def reachable(vs: int, ve: int | None, last: int, ends: Iterable[int]) -> frozenset[int | None]:
    """To which of some ends an event can still come that now ends at `ve` (None: it is not there)."""
    if vs >= last:
        return frozenset([None, *ends])
    if ve is None or ve < last:
        return frozenset([ve])
    return frozenset(end for end in ends if end >= last)


def compatible(inputs: Sequence[Prefix], output: Prefix) -> Verdict:
    """Whether the output can follow whatever the inputs, which agree, come to: C1, C2 and C3.

    >>> a, b = Prefix({(("A",), 2): 5}, 4), Prefix({}, 2)
    >>> compatible([a, b], Prefix({(("A",), 2): 9}, 4)), compatible([a, b], Prefix({}, 3)).why
    (Verdict(holds=True, why=''), "C3: ('A',) from 2 on must be there, and cannot come any more as it will be")
    """
    most = max(each.last for each in inputs)
    if output.last > most:
        return Verdict(False, f"C1: {show(output.last)} is promised, the inputs have promised {show(most)}")
    for name in {*output.ends, *(name for each in inputs for name in each.ends)}:
        row, vs = name
        end, last = output.ends.get(name), output.last
        said = [(each.ends[name], each.last) for each in inputs if name in each.ends]
        frozen = [ve for ve, reached in said if ve < reached]
        half = [reached for ve, reached in said if vs < reached <= ve]
        is_half = end is not None and vs < last <= end
        of = f"{row} from {vs} on"
        if is_half and not any(last <= each for each in [*half, *frozen]):
            return Verdict(False, f"C2: {of} is there for good, and no input says so")
        if end is not None and end < last and end not in frozen:
            return Verdict(False, f"C2: {of} ends at {show(end)} for good, and no input says so")
        if last <= vs or not (frozen or half):
            continue
        follows = is_half and last <= (frozen[0] if frozen else max(half))
        if not (follows or (frozen and frozen[0] < last and end == frozen[0])):
            return Verdict(False, f"C3: {of} must be there, and cannot come any more as it will be")
    return Verdict(True)
