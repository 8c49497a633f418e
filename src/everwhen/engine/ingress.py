"""Ingress: the source side of every runtime.

    batches ──▶ check ──▶ finalize ──▶ align ──▶ what has arrived, with a frontier and the largest start, per source

An epoch has two halves.  `check` holds all batches against their sources; if one is wrong, none has been taken.
`advance` then takes them, forces the progress of idle sources, lets what has waited long enough go on, and cannot fail.
A source stands here once per level at which it is read (`source_levels.py`), each with a pipeline of its own
(`operators/ingress`).  Elements that wait do so together with those of other sources at the same bounds, because one
may be late for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everwhen.algebra.nodes import Source
from everwhen.core.late_count import LateCount
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.engine.idle_sources import IdleSources, linked
from everwhen.engine.release_horizon import ReleaseHorizon
from everwhen.engine.source_levels import PLAIN, Bounds
from everwhen.errors import InputError, QueryError, a_type
from everwhen.operators.contract import Output, StateSize
from everwhen.operators.ingress.event_log import EventStore
from everwhen.operators.ingress.finalize import DroppedElements, Reason
from everwhen.operators.ingress.guard import CheckedBatch, Guard
from everwhen.operators.ingress.late_rows import LateRows
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.operators.punctuate.punctuator import source_punctuators
from everwhen.plan.physical import Port
from everwhen.rows.changes import no_changes
from everwhen.rows.codec import RowCodec
from everwhen.stream.element_batch import ADJUST, ElementBatch

if TYPE_CHECKING:
    from everwhen.engine.observe.gauge import Gauge

OnDropped = Callable[[str, DroppedElements], None]
"""Called with the name of a source and the elements that were given up."""


@dataclass
class SourceInput:
    """A source at a level: its pipeline, from which instant on its history is known, the largest end that passed."""

    source: str
    bounds: Bounds
    intake: SourcePipeline
    exact: int = NEVER
    max_end: int = NEVER
    began: float = 0.0
    rows: int = 0
    """How many inserts and adjusts have passed, where queries may join later."""
    measured: Any = None
    """What a snapshot tells of what was measured, until somebody asks for it."""

    @property
    def idle(self) -> float | None:
        """Seconds after which it holds nobody back, if its declaration says so."""
        return None if self.intake.late is None else self.intake.late.policy.idle

    @property
    def largest_end(self) -> int:
        """The largest end of all that has come, what still waits included."""
        align = self.intake.align
        return self.max_end if align is None else max(self.max_end, _end(align.waiting()))


class Ingress:
    """Sources by the names that they have at their levels.

    `idle`: after so many seconds without an element a source no longer holds the others back (`idle_sources.py`).
    `shared`: queries may join later, so the largest end that has passed is noted.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        idle: float | None = None,
        dropped: OnDropped | None = None,
        shared: bool = False,
    ) -> None:
        self.inputs: dict[str, SourceInput] = {}
        self.ended: set[str] = set()
        """The sources that have come to their end."""
        self._shared = shared
        self._clock = clock
        self.idle = IdleSources(clock, idle)
        self.may_rest = idle is not None
        """Whether a source may come to hold nobody back, because it is idle."""
        self._horizons: dict[Bounds, ReleaseHorizon] = {}
        self._dropped = dropped
        self._heard: dict[str, float] = {}
        self.gauges: dict[str, Gauge] = {}
        """Who measures what inputs bring, by their names."""

    # -- sources ------------------------------------------------------------------------------------------------

    def open(
        self,
        declared: Source,
        codec: RowCodec,
        bounds: Bounds = PLAIN,
        *,
        source: str | None = None,
        keep_all: bool = False,
        ordered: bool = True,
        log: EventStore | None = None,
    ) -> SourceInput:
        """A new input for a source as it is declared; it counts once it is put into `inputs`.

        `source`: what the source is called from outside, if not as declared.  `keep_all`: its events are kept, so that
        whoever joins later knows all of it.  `ordered=False`: its schemes (PUNCTUATE) must not count on the order of
        rows within an epoch, nor is that order checked (ARRIVES IN ORDER).  `log`: where its events are kept.
        """
        name = source or declared.name
        guard = Guard(
            name,
            codec,
            declared.insert_only,
            declared.chronons,
            keep_all,
            punctuator=source_punctuators(declared, ordered),
            arrives=declared.arrives if ordered else "any",
            log=log,
        )
        late = LateRows(name, declared.policy) if declared.policy.says_something else None
        return SourceInput(name, bounds, SourcePipeline(guard, bounds.remember, bounds.finalizes, bounds.aligns, late))

    def add(self, name: str, source: SourceInput) -> None:
        self.inputs[name] = source
        source.began = self._clock()
        self.idle.read({each.source: each.idle for each in self.inputs.values()})
        self.may_rest = self.idle.may_rest

    def of(self, source: str) -> list[SourceInput]:
        """The inputs of a source, one per level at which it is read."""
        found = [each for each in self.inputs.values() if each.source == source]
        if not found:
            read = ", ".join(sorted({each.source for each in self.inputs.values()})) or "nothing"
            raise QueryError(f"no running query reads {source!r}, so it takes no batches; what is read: {read}")
        return found

    def change(self, name: str, bounds: Bounds) -> None:
        """Wait and remember for another time from now on."""
        entry = self.inputs[name]
        if entry.bounds in self._horizons:
            self._horizons.setdefault(bounds, self._horizons[entry.bounds])
        entry.bounds = bounds
        if bounds.aligns:
            entry.intake.block()
        if bounds.finalizes:
            self._note(name, entry.intake.remember(bounds.remember))

    def raise_floors(self, floors: Mapping[str, int]) -> None:
        """Of these inputs nothing before an instant is of interest any more."""
        for name, floor in floors.items():
            entry = self.inputs[name]
            entry.exact = max(entry.exact, floor)
            entry.intake.raise_floor(floor)

    # -- an epoch -----------------------------------------------------------------------------------------------

    def check(self, batches: Mapping[str, ElementBatch]) -> None:
        """Hold batches, by source, against their sources; on an error none of them has been taken."""
        for source, batch in batches.items():
            self.of(source)  # it is read
            if not isinstance(batch, ElementBatch):
                raise QueryError(
                    f"{source} is pushed an ElementBatch, not {a_type(batch)}: "
                    "ElementBatch.of(elements, schema) makes one (ew.run takes tables)"
                )
        intakes = [(each.intake, batch) for source, batch in batches.items() for each in self.of(source)]
        checked: list[SourcePipeline] = []
        try:
            for intake, batch in intakes:
                intake.check(batch)
                checked.append(intake)
        except InputError:
            for intake in reversed(checked):  # copies of a stream may share what they keep
                intake.undo()
            raise
        heard = {source for source, batch in batches.items() if len(batch)}
        self._heard |= dict.fromkeys(heard, self._clock())
        if self.may_rest:
            self.idle.heard(heard)

    def end(self, sources: Collection[str]) -> None:
        """These sources have ended: everything is promised."""
        intakes = [each.intake for source in sources for each in self.of(source)]
        for intake in intakes:
            intake.check_end()
        for intake in intakes:
            intake.close()
        self.ended |= set(sources)

    def advance(self, read_together: Iterable[Set[str]] = (), closes: Collection[str] = ()) -> dict[str, CheckedBatch]:
        """Take what was checked: what goes on, by input.  `read_together`: sources that queries read together, which
        are a measure of progress for each other.  `closes`: sources that end with this epoch."""
        arrived: dict[str, CheckedBatch] = {}
        waits = bool(self._horizons)
        for name, entry in self.inputs.items():
            taken, dropped = entry.intake.take()
            if taken is not None:
                arrived[name] = taken
            if dropped:
                self._note(name, dropped)
            waits = waits or entry.intake.align is not None
        if closes:
            self.end(closes)
        if self.may_rest:
            self._force_idle(read_together)
        if waits:
            self._release(arrived)
        if self._shared:
            for name, taken in arrived.items():
                entry = self.inputs[name]
                entry.max_end = max(entry.max_end, _end(taken))
                entry.rows += len(taken.op)
        for name, gauge in self.gauges.items():
            if name in arrived:
                gauge.take_elements(arrived[name], self.inputs[name].intake.tau)
        return arrived

    def _force_idle(self, read_together: Iterable[Set[str]]) -> None:
        """Let sources that are idle hold nobody back who is read together with them."""
        for group in linked(read_together):
            among = {name: each for name, each in self.inputs.items() if each.source in group}
            reached: dict[str, int] = {}
            for each in among.values():
                reached[each.source] = min(reached.get(each.source, INF), each.intake.cti)
            self.hurry(self.idle.forced(reached))

    def hurry(self, reached: Mapping[str, int]) -> None:
        """Take sources for as far as this, though they have not said so."""
        for name, each in self.inputs.items():
            may = each.bounds.finalizes or each.intake.late is not None
            if may and each.intake.cti < reached.get(each.source, NEVER):
                self._note(name, each.intake.hurry(reached[each.source]))

    def _release(self, arrived: dict[str, CheckedBatch]) -> None:
        """Let what has waited long enough go on."""
        waiting: dict[Bounds, list[str]] = {}
        for name, entry in self.inputs.items():
            if entry.intake.align is not None:
                waiting.setdefault(entry.bounds, []).append(name)
        self._horizons = {bounds: self._horizons.get(bounds) or ReleaseHorizon(self._clock) for bounds in waiting}
        for bounds, names in waiting.items():
            intakes = [self.inputs[name].intake for name in names]
            latest = max(intake.latest for intake in intakes)
            horizon = self._horizons[bounds].reached(latest, bounds.block, bounds.within)
            reached = min(intake.cti for intake in intakes)
            for name, intake in zip(names, intakes, strict=True):
                released = intake.release(horizon, reached)
                if released is not None:
                    arrived[name] = released

    def output(self, port: Port, arrived: Mapping[str, CheckedBatch]) -> Output:
        """What a port of the dataflow brings, in the form that it asks for."""
        assert port.source is not None
        intake = self.inputs[port.source].intake
        found = arrived.get(port.source)
        if found is None:
            changes = no_changes(intake.codec)
        else:
            changes = found.segments() if port.form == "segments" else found.events()
        return Output(changes, intake.frontier)

    # -- looking ------------------------------------------------------------------------------------------------

    def frontier(self, name: str) -> Frontier:
        return Frontier(self.inputs[name].intake.promise)

    @property
    def progress(self) -> dict[str, int]:
        """The CTI of each source, forced or its own, as those know it who remember longest."""
        found: dict[str, int] = {}
        for each in self.inputs.values():
            found[each.source] = min(found.get(each.source, INF), each.intake.cti)
        return found

    def silent_for(self, source: str) -> float | None:
        """Seconds since the last element of a source came to this process; None if none has come."""
        return None if source not in self._heard else self._clock() - self._heard[source]

    def rests(self, source: str) -> bool:
        """Whether a source has been silent for so long that it holds nobody back."""
        return self.idle.rests(source)

    def dropped(self, names: Iterable[str]) -> dict[str, dict[Reason, int]]:
        """How many elements were given up, by source and reason; sources that lost none are left out."""
        found: dict[str, dict[Reason, int]] = {}
        for name in names:
            finalize = self.inputs[name].intake.finalize
            if finalize is not None and finalize.counts:
                found[self.inputs[name].source] = dict(finalize.counts)
        return found

    @property
    def late(self) -> dict[str, LateCount]:
        """How many rows came behind what they had promised, of the sources that have a policy."""
        found: dict[str, LateCount] = {}
        for each in self.inputs.values():
            if each.intake.late is not None and each.intake.late.count.rows >= found.get(each.source, LateCount()).rows:
                found[each.source] = each.intake.late.count
        return found

    def _note(self, name: str, dropped: tuple[DroppedElements, ...]) -> None:
        """Elements were given up; of a source at several levels those of the first count."""
        if self._dropped is not None and dropped:
            source = self.inputs[name].source
            if self.of(source)[0] is self.inputs[name]:
                for each in dropped:
                    self._dropped(source, each)

    def state_size(self) -> StateSize:
        return sum((each.intake.state_size() for each in self.inputs.values()), StateSize())

    # -- state --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All inputs, as plain data."""
        return {
            name: {
                "intake": each.intake.snapshot(),
                "exact": each.exact,
                "max_end": each.max_end,
                "rows": each.rows,
                "spoke": self.idle.noted.get(each.source),
                "horizon": self._horizons[each.bounds].snapshot() if each.bounds in self._horizons else None,
                **self._measured(name),
            }
            for name, each in self.inputs.items()
        }

    def _measured(self, name: str) -> dict[str, Any]:
        found = self.gauges[name].snapshot() if name in self.gauges else self.inputs[name].measured
        return {} if found is None else {"measured": found}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of the same inputs."""
        for name, part in state.items():
            if name not in self.inputs:
                raise QueryError(
                    f"the snapshot is of other queries: it has a source {name!r}, and none of these reads it"
                )
            each = self.inputs[name]
            each.intake.restore(part["intake"])
            each.exact, each.max_end, each.measured = part["exact"], part["max_end"], part.get("measured")
            each.rows = part.get("rows", 0)
            if part.get("spoke") is not None:
                self.idle.restore({each.source: part["spoke"]})
            if part["horizon"] is not None:
                self._horizons.setdefault(each.bounds, ReleaseHorizon(self._clock)).restore(part["horizon"])


def _end(arrived: CheckedBatch) -> int:
    """The largest end that elements speak of."""
    found = int(arrived.ve.max()) if len(arrived.ve) else NEVER
    return max(found, int(arrived.vnew[arrived.op == ADJUST].max())) if arrived.adjusts else found
