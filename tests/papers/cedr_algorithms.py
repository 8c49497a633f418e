"""The snapshot-oriented operator of the CEDR paper, algorithms 1 to 5, element by element, in three policies.

`ended` is section 3.4 (perfectness preserving), `current` and `all` are the changes that section 3.5 sketches (order
preserving, minimum latency).  A list of entries is the paper's POS, another list its ECQ.  Where running the paper's
lines gives wrong answers they are corrected, and each correction says `slip`; docs/papers.md lists them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Adjust, Cti, Element, Insert

Payload = int
Tuple = tuple[int, int, Payload]
Row = Mapping[str, int]


@dataclass
class Entry:
    """A POS entry: what is alive from `ts` to the next entry.

    `refs` counts the end points of tuples that lie here (slip: the paper's tests ask for the number of contributors).
    `cut`: it ends a piece for another reason, so it never goes away.
    """

    ts: int
    state: Counter[Payload]
    refs: int = 0
    cut: bool = False


@dataclass
class SnapshotOperator:
    """τ, POS and ECQ, with the elements said for each element taken.

    `lost` says whether some entry has lost its last end point, so that nothing changes there any more.
    """

    policy: str
    row_of: Callable[[Counter[Payload]], Row]
    tau: int = NEVER
    cti: int = NEVER
    pos: list[Entry] = field(default_factory=lambda: [Entry(NEVER, Counter(), cut=True)])
    ecq: list[Tuple] = field(default_factory=list)
    lost: bool = False
    cuts: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.policy == "all":  # there is no future: every end point has an entry, and ECQ stays empty
            self.tau = INF

    def take(self, element: Element) -> list[Element]:
        match element:
            case Insert(vs, ve, row):
                return self._insert((vs, ve, row["x"]))
            case Adjust(vs, ve, vnew, row):
                return self._retract((vs, ve, row["x"]), vnew)
            case Cti(t):
                return self._cti(t)
        raise AssertionError(element)

    # -- algorithm 1 ---------------------------------------------------------------------------------------------

    def _insert(self, new: Tuple) -> list[Element]:
        vs, ve, payload = new
        if vs > self.tau:
            said_before, out = self.pos[-1], self._shorten_open(vs, vs)
            self._move(vs)
        else:
            out = self._taken_back(self._search(vs, ve), vs)
        self._end_point(vs)
        known = True
        if ve <= self.tau and ve < INF:
            known = self._entry(ve) is not None
            self._end_point(ve)
        elif ve > self.tau:
            self.ecq.append(new)
        for entry in self._search(vs, ve):
            entry.state[payload] += 1
        if vs > self.tau:
            # slip: the paper shortens an open piece to vs, but a tuple may have ended before
            behind = [entry for entry in self.pos if entry.ts >= said_before.ts]
            self.tau = vs
            return out + self._said(behind if self.policy == "ended" else behind[1:])
        again = self._search(vs, ve)
        if not known:
            again += [entry for entry in self.pos if entry.ts == ve]
        return out + self._said(again)

    # -- algorithm 2 ---------------------------------------------------------------------------------------------

    def _move(self, t: int) -> None:
        """Ends that τ is about to pass become entries; tuples that end together make one entry."""
        for old in sorted((old for old in self.ecq if old[1] <= t), key=lambda old: old[1]):
            self.ecq.remove(old)
            self._end_point(old[1])
            self.pos[-1].state[old[2]] -= 1

    # -- algorithm 4 ---------------------------------------------------------------------------------------------

    def _retract(self, old: Tuple, vnew: int) -> list[Element]:
        vs, ve, payload = old
        full = vnew == vs
        if ve > self.tau:
            self.ecq.remove(old)
            if vnew > self.tau:  # slip: its payload must stay in the last entry, from which line 27 takes it
                self.ecq.append((vs, vnew, payload))
                return []
        gone = [t for t in ([ve] if ve <= self.tau and ve < INF else []) + ([vs] if full else []) if self._leaves(t)]
        touched = self._search(vnew, ve)
        if ve in gone:
            touched += [entry for entry in self.pos if entry.ts == ve]
        if (
            vs in gone
        ):  # slip: lines 9 to 13 take back the payloads of the entry, where those of the one before are meant
            touched.insert(0, self.pos[self._index(vs) - 1])
        out = self._taken_back(touched, self.pos[self._index(vs) - 1].ts if vs in gone else vnew)
        if full and vs not in gone:
            self._release(vs)
        elif not full:
            self._end_point(vnew)  # slip: line 23 says SearchEQ, and the entry need not be there
        for entry in self._search(vnew, ve):
            entry.state[payload] -= 1
        if ve <= self.tau and ve < INF and ve not in gone:
            self._release(ve)
        self.lost |= bool(gone)
        self.pos = [entry for entry in self.pos if entry.ts not in gone]
        return out + self._said(self._search(vnew, ve))

    def _leaves(self, t: int) -> bool:
        """Whether the entry at an end point that is about to lose a reference goes away, and the pieces on both sides
        are said as one.

        The last entry stands for τ and stays.  Slip: so must one whose other side starts before the CTI, because that
        piece may not be taken back.
        """
        at = self._index(t)
        entry = self.pos[at]
        last = entry is self.pos[-1] and self.policy != "all"
        return entry.refs == 1 and not entry.cut and not last and self.pos[at - 1].ts >= self.cti

    def _release(self, t: int) -> None:
        entry = self._entry(t)
        assert entry is not None
        entry.refs -= 1
        if entry.refs == 0 and not entry.cut:
            entry.cut = self.lost = True
            self.cuts.add(t)

    # -- algorithm 5 ---------------------------------------------------------------------------------------------

    def _cti(self, t: int) -> list[Element]:
        out: list[Element] = []
        if t > self.tau:
            last = self.pos[-1]
            out = self._shorten_open(t, INF)
            self._move(t)
            if self.policy == "ended" and +self.pos[-1].state and self.pos[-1].ts < t:
                # slip: the paper forwards the CTI and says the piece that is open there later
                self.pos.append(Entry(t, self.pos[-1].state.copy(), cut=True))
                self.cuts.add(t)
            behind = [entry for entry in self.pos if entry.ts >= last.ts]
            self.tau = t
            out += self._said(behind if self.policy == "ended" else behind[1:])
        self.cti = t
        while len(self.pos) > 1 and self.pos[1].ts < t:
            del self.pos[0]
        return [*out, Cti(t)]

    # -- POS -----------------------------------------------------------------------------------------------------

    def _index(self, t: int) -> int:
        """SearchLE."""
        return bisect_right([entry.ts for entry in self.pos], t) - 1

    def _entry(self, t: int) -> Entry | None:
        """SearchEQ."""
        entry = self.pos[self._index(t)]
        return entry if entry.ts == t else None

    def _search(self, lo: int, hi: int) -> list[Entry]:
        """The entries whose pieces overlap [lo, hi)."""
        return [entry for entry in self.pos[self._index(lo) :] if entry.ts < hi]

    def _end_point(self, t: int) -> None:
        """An end point more at t."""
        entry = self._entry(t)
        if entry is None:
            at = self._index(t)
            entry = Entry(t, self.pos[at].state.copy())
            self.pos.insert(at + 1, entry)
        entry.refs += 1

    # -- what is said --------------------------------------------------------------------------------------------

    def _piece(self, entry: Entry) -> tuple[int, int, Row] | None:
        """What is said of an entry: the last one is open, and `ended` does not say it."""
        at = self.pos.index(entry)
        last = at == len(self.pos) - 1
        if not +entry.state or (last and self.policy == "ended"):
            return None
        return entry.ts, INF if last else self.pos[at + 1].ts, self.row_of(+entry.state)

    def _taken_back(self, entries: Iterable[Entry], start: int) -> list[Element]:
        pieces = [piece for entry in entries if (piece := self._piece(entry))]
        return [Adjust(vs, ve, max(start, vs), row) for vs, ve, row in pieces]

    def _said(self, entries: Iterable[Entry]) -> list[Element]:
        return [Insert(*piece) for entry in entries if (piece := self._piece(entry))]

    def _shorten_open(self, t: int, start: int) -> list[Element]:
        """`current`: the open piece ends where the next entry will be: the first end by t, or a new start."""
        end = min([old[1] for old in self.ecq if old[1] <= t], default=start)
        piece = self._piece(self.pos[-1])
        if piece is None or self.policy != "current" or end == INF:
            return []
        return [Adjust(piece[0], INF, end, piece[2])]
