"""What a source policy makes of the batches of a source: the definition.

A batch is taken against what was promised when it began, and against the CTIs within it.  A row whose first change lies
before that is late.  ERROR: it is wrong.  DROP: it is left out, and so is an adjust in time of an event that is not
there, because its insert was left out.  ADJUST: it starts at the promise that it broke; its end stays, and if nothing
is left it is left out; an event of one tick is moved as a whole.  After the batch everything before the largest start
so far minus the bound is promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from everwhen.core.source_policy import SourcePolicy
from everwhen.core.time import NEVER
from everwhen.reference.order import canonical_row
from everwhen.stream.element import Adjust, Cti, Element, Insert


class LateError(Exception):
    """A row is late, and that is an error: (batch, position)."""


@dataclass
class OnTime:
    """What is said to each batch, and which rows were late: (batch, position)."""

    said: list[list[Element]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)
    cti: int = NEVER


def on_time(batches: Sequence[Sequence[Element]], policy: SourcePolicy) -> OnTime:
    """The policy of one source, over elements that are right but for being late."""
    out, tau = OnTime(), NEVER
    events: list[tuple[int, int, object]] = []
    for number, batch in enumerate(batches):
        promised, said = out.cti, list[Element]()
        for at, element in enumerate(batch):
            match element:
                case Cti(t):
                    promised = max(promised, t)
                    said.append(element)
                    continue
                case Insert(vs, ve, row) if vs < promised and policy.late == "adjust":
                    end = promised + 1 if ve == vs + 1 else ve
                    if promised < end:
                        out.moved.append((number, at))
                        said.append(Insert(promised, end, row))
                    else:
                        out.dropped.append((number, at))
                    continue
                case Insert(vs, ve, row) if vs >= promised:
                    tau = max(tau, vs)
                    events.append((vs, ve, canonical_row(row.values())))
                    said.append(element)
                    continue
                case Adjust(vs, ve, vnew, row) if min(ve, vnew) >= promised:
                    name = (vs, ve, canonical_row(row.values()))
                    if name in events:
                        events.remove(name)
                        events += [(vs, vnew, name[2])] * (vnew > vs)
                        said.append(element)
                        continue
            if policy.late == "error":
                raise LateError(number, at)
            out.dropped.append((number, at))
        derived = NEVER if policy.within is None or tau == NEVER else tau - policy.within
        if max(promised, derived) > promised:
            said.append(Cti(derived))
        out.cti = max(promised, derived)
        out.said.append(said)
    return out
