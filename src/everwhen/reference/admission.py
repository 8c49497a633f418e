"""What Finalize(M) admits and in which order Align(B) lets it through, element by element: the definition.

`finalized` is CEDR's Finalize (section 4.6) with the decisions of this project: progress is forced to the largest start
seen minus M; an insert behind it is dropped, a shrink behind it is cut there, and an adjust finds its event by the end
that the stream believes in.  An adjust that comes before its insert waits for it as long as the insert could still be
admitted.  `aligned` is its Align (4.5): elements wait up to B behind the largest sync time, and what waits is merged.
Both are short rather than fast, and know no punctuation by attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everwhen.core.time import INF, NEVER
from everwhen.reference.order import canonical_row
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert

LATE, CUT, UNKNOWN, IN_VAIN = "late", "cut", "unknown", "in vain"


@dataclass
class Finalized:
    """What was said for each element, and what was given up: (position, reason)."""

    said: list[list[Element]] = field(default_factory=list)
    dropped: list[tuple[int, str]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    cti: int = NEVER

    @property
    def elements(self) -> list[Element]:
        return [element for said in self.said for element in said]


def finalized(elements: Iterable[Element], remember: int, changes: Mapping[int, int] | None = None) -> Finalized:
    """Finalize with M = `remember`; `changes` are other M from the elements at these positions on."""
    out, tau = Finalized(), NEVER
    events: list[tuple[int, int, int, object]] = []  # start, end by name, end as said, row: the newest last
    broken: list[tuple[int, int, int, object, int]] = []  # start, end, new end, row, position
    announced: list[ExternalCti] = []
    syncs: list[int] = []

    def repaired(vs: int, end: int, row: object) -> int:
        while vs >= out.cti and end > vs:
            found = next((b for b in reversed(broken) if (b[0], b[1], b[3]) == (vs, end, row)), None)
            if found is None:
                break
            broken.remove(found)
            end = found[2]
        return end

    for at, element in enumerate(elements):
        before, said = out.cti, list[Element]()
        remember = (changes or {}).get(at, remember)
        out.cti = max(out.cti, tau - remember) if tau > NEVER and remember < INF else out.cti
        match element:
            case Insert(vs, ve, payload):
                row = canonical_row(payload.values())
                if vs < out.cti:
                    out.dropped.append((at, LATE))
                elif (end := repaired(vs, ve, row)) > vs:
                    events.append((vs, end, end, row))
                    said.append(Insert(vs, end, payload))
                tau = max(tau, vs)
            case Adjust(vs, ve, vnew, payload):
                row = canonical_row(payload.values())
                known = [e for e in events if (e[0], e[1], e[3]) == (vs, ve, row) and e[2] >= out.cti]
                if known:
                    events.reverse()
                    events.remove(known[-1])
                    events.reverse()
                    if vnew < out.cti:
                        out.dropped.append((at, CUT))
                    name = repaired(vs, vnew, row)
                    end = max(name, out.cti) if vs < out.cti else name
                    if name > vs:
                        events.append((vs, name, end, row))
                    if end != known[-1][2]:
                        said.append(Adjust(vs, known[-1][2], end, payload))
                elif vs >= out.cti:
                    broken.append((vs, ve, vnew, row, at))
                else:
                    out.dropped.append((at, UNKNOWN))
            case Cti(t):
                out.cti = max(out.cti, t)
            case ExternalCti():
                if element.ve > out.cti:
                    past = sum(element.vs <= sync < element.ve and sync >= out.cti for sync in syncs)
                    announced.append(ExternalCti(element.vs, element.ve, element.count - past))
        if isinstance(element, Insert | Adjust):
            syncs.append(element.sync)
            announced = [ExternalCti(a.vs, a.ve, a.count - (a.vs <= element.sync < a.ve)) for a in announced]
        out.cti = max(out.cti, tau - remember) if tau > NEVER and remember < INF else out.cti
        while fires := [a for a in announced if a.count <= 0 and a.vs <= max(out.cti, 0) and a.ve > out.cti]:
            out.cti = fires[0].ve
        announced = [a for a in announced if a.ve > out.cti]
        out.dropped += [(b[4], IN_VAIN) for b in broken if b[0] < out.cti]
        broken = [b for b in broken if b[0] >= out.cti]
        out.said.append(said + ([Cti(out.cti)] if out.cti > before else []))
    out.waiting = [b[4] for b in broken]
    return out


def aligned(epochs: Sequence[Sequence[Element]], block: int) -> list[list[Element]]:
    """Align with B = `block` over one input, epoch by epoch: what is let through."""
    waiting: list[tuple[int, int, int | None, object, Insert | Adjust]] = []  # start, end, end said before, row
    out: list[list[Element]] = []
    latest = cti = NEVER
    for epoch in epochs:
        for element in epoch:
            if isinstance(element, Cti):
                cti = max(cti, element.t)
            if not isinstance(element, Insert | Adjust):
                continue
            row = canonical_row(element.row.values())
            latest = max(latest, element.sync) if element.sync != INF else latest
            if isinstance(element, Insert):
                waiting.append((element.vs, element.ve, None, row, element))
                continue
            vs, end, before = element.vs, element.vnew, element.ve
            match = [w for w in waiting if (w[0], w[1], w[3]) == (vs, element.ve, row)]
            if match:
                waiting.reverse()
                waiting.remove(match[-1])
                waiting.reverse()
                before = match[-1][2] if match[-1][2] is not None else vs
                if match[-1][2] is None and end > vs:
                    waiting.append((vs, end, None, row, Insert(vs, end, element.row)))
                    continue
            if end != before:
                waiting.append((vs, end, before, row, Adjust(vs, before, end, element.row)))
        horizon = NEVER if block == INF or latest == NEVER else latest - block
        due = [w for w in waiting if w[4].sync <= horizon or w[4].sync < cti]
        waiting = [w for w in waiting if w not in due]
        out.append([w[4] for w in sorted(due, key=lambda w: w[4].sync)])
    return out
