"""A large switch goes in slices, so that no epoch stands still.

Where much of the past is alive, giving it to a new plan at once, and netting all that both plans have said, would take
as long as there are live rows.  So both are cut into slices, as many for each epoch as make a multiple of its usual
work (`pace.py`):

* **Loading** (`loading.py`).  The new operators are given the past some rows at a time, and behind it the epochs that
  came meanwhile, in their order.  To an operator that is one of many ways to cut its input into steps.  It says nothing
  to anybody.
* **Switching.**  Rows are independent at the output.  When the new plan has caught up, one part of the rows after the
  other is netted and goes over (`row_parts.py`).  Rows that have not gone over are the old plan's.

**Where both mean the same** (migration) each part goes over at an instant of its own: what is promised when it does, p.
Before p nothing can change, and the old plan has said it; from p on the new one is exact.  So the output promises on as
the old plan does, and, once a part has gone over, as far as both plans do.  Nobody keeps more than always.

**Where they do not**, T stands from the beginning.  Until all rows have gone over the output promises nothing beyond T,
so that what the old plan has said there may be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from everwhen.core.punctuation import Frontier
from everwhen.core.time import NEVER
from everwhen.engine.session.joining.loading import Loading
from everwhen.engine.session.joining.pace import SWITCHING, Rate
from everwhen.engine.session.joining.row_parts import RowParts
from everwhen.engine.session.output_port import Cutover, OutputKey, SharedOutput
from everwhen.operators.contract import Output, StateSize
from everwhen.operators.net import netted
from everwhen.operators.output.changelog import ChangelogEncoder
from everwhen.operators.signed_bag import SignedBag, after, before
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, concat_all, no_changes

SLICE_ROWS = 1 << 15
"""A plan that takes over is given so many rows of the past of a port in an epoch, or fewer, where there are more."""


_NETTED: Final = 2
"""To find a row that goes over and net it is so many times the work of a row in an operator."""


@dataclass(eq=False)
class _Course:
    """How far it has come."""

    loading: bool = True
    """The new plan has not caught up yet."""
    first: int = NEVER
    """What was promised when the first part went over."""
    promised: int = NEVER
    rate: Rate = field(default_factory=Rate)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GradualCutover(Cutover):
    """A cutover whose new plan is being loaded, or whose rows go over in parts."""

    loading: Loading
    outlet: SharedOutput
    silently: bool
    """Both plans mean the same."""
    course: _Course = field(default_factory=_Course)

    @property
    def parts(self) -> RowParts:
        """What the new plan has said of rows that have not gone over."""
        return self.loading.said

    @property
    def is_loading(self) -> bool:
        """Whether the new plan has not caught up yet."""
        return self.course.loading

    @property
    def ends(self) -> bool:
        return not self.course.loading and self.parts.gone == self.parts.count

    def counts_from(self, promise: int) -> int:
        return promise if self.silently else self.at

    def epoch(self, given: Mapping[Port, tuple[Output, int]]) -> None:
        """What came in an epoch, for the new plan; its rows go over from the next epoch on, if it has caught up."""
        self.loading.pace.usual()
        if self.loading.epoch(given, self.course.promised if self.silently else self.at):
            self._caught_up()

    def _caught_up(self) -> None:
        """The new plan is stepped with the others from now on."""
        for node in self.loading.nodes:
            node.loading = False
        self.course.loading = False

    def combined(self, old: Output, new: Output) -> Output:
        """What both plans say in an epoch, some parts more from the new one."""
        codec, p, course = new.changes.codec, old.frontier.time, self.course
        said = self.passed(old, codec)
        if course.loading:
            course.promised = p if self.silently else min(p, self.at)
            return Output(said, Frontier(course.promised))
        parts = self.parts
        if self.silently and parts.gone == 0 and p < self.at:
            course.promised = p
            parts.add(new.changes)
            parts.tidy(p)
            return Output(said, Frontier(p))
        over_old, over_new = parts.of(said.rows) < parts.gone, parts.of(new.changes.rows)
        unsaid, gone = said.take(~over_old), new.changes.take(over_new < parts.gone)
        parts.add(new.changes.take(over_new >= parts.gone))
        found = [unsaid, after(gone, parts.limits[parts.of(gone.rows)])]
        if self.silently:
            course.first = p if parts.gone == 0 else course.first
            course.promised = max(course.first, min(p, new.frontier.time)) if parts.gone else p
        else:
            course.promised = min(p, self.at)
            found.append(before(said.take(over_old), self.at))
        found.append(self._next(unsaid))
        parts.tidy(self._limit)
        if parts.gone == parts.count:
            if self.silently:
                course.promised = max(course.promised, new.frontier.time)
            else:
                self.outlet.cutover = Cutover(self.port, self.through, self.at)
                course.promised = max(self.at, new.frontier.time) if p >= self.at else p
        return Output(concat_all(codec, found), Frontier(course.promised))

    @property
    def _limit(self) -> int:
        """The instant at which rows go over now."""
        return self.course.promised if self.silently else self.at

    def _next(self, unsaid: Changes) -> Changes:
        """Let some parts go over: as many as an epoch can do."""
        parts, pace, course = self.parts, self.loading.pace, self.course
        left = pace.left(SWITCHING)
        rows = parts.size // max(parts.count - parts.gone, 1)
        most = max(1, min(parts.count - parts.gone, 2 * self.loading.rows // max(rows, 1)))
        count, began = course.rate.fits(left, 1, most), pace.done()
        found = self._go_over(parts.gone + count, unsaid)
        course.rate.took(pace.done() - began, count)
        return found

    def _go_over(self, last: int, unsaid: Changes) -> Changes:
        """Let the parts before one go over: what the old plan has said of them from the limit on is taken back,
        `unsaid` is about to be said; what the new one has said there is said."""
        parts, first, limit, codec = self.parts, self.parts.gone, self._limit, self.outlet.encoder.codec
        encoder = self.outlet.encoder
        assert isinstance(encoder, ChangelogEncoder), "it counts in rows"
        old = [encoder.standing_of(first, last, parts.count)]
        old += [each.take(parts.within(each.rows, first, last)) for each in [unsaid, *self._held()]]
        found = [after(each, limit).negated() for each in old] + [after(parts.take(first, last), limit)]
        parts.limits[first:last] = limit
        parts.gone = last
        self.loading.pace.looked_at(_NETTED * sum(map(len, found)))
        return netted(concat_all(codec, [Changes(codec, each.lo, each.hi, each.weight, each.rows) for each in found]))

    def _held(self) -> list[Changes]:
        """What the old plan has said and the policy holds back."""
        return [] if self.outlet.filter is None else [self.outlet.filter.waiting]

    def finish(self) -> Changes:
        """Let all rows go over that have not yet: what is to be said because of it.  Where both plans mean the same and
        no row has gone over, the switch comes when the promise has come so far."""
        if self.course.loading:
            self.loading.finish()
            self._caught_up()
        outlet, parts, codec = self.outlet, self.parts, self.outlet.encoder.codec
        if self.silently and parts.gone == 0:
            new = SignedBag(codec)
            new.add(after(parts.take(0, parts.count), self.at))
            outlet.cutover = Cutover(self.port, self.through, self.at, new)
            return no_changes(codec)
        found = self._go_over(parts.count, no_changes(codec))
        outlet.cutover = None if self.silently else Cutover(self.port, self.through, self.at)
        if self.silently:
            outlet.since = max(outlet.since, self.course.promised)
        return found

    def state_size(self) -> StateSize:
        return self.loading.state_size() + self.parts.state_size()


def load(
    outlets: Mapping[OutputKey, SharedOutput], given: Callable[[Port], tuple[Output, int]]
) -> dict[OutputKey, Exception]:
    """Let plans that are being loaded take an epoch, and some of the past; those that failed."""
    failed: dict[OutputKey, Exception] = {}
    for exit, outlet in outlets.items():
        gradual = outlet.cutover
        if isinstance(gradual, GradualCutover) and gradual.is_loading:
            try:
                gradual.epoch({port: given(port) for port in gradual.loading.ports})
            except Exception as error:  # whatever it is: the others must go on
                failed[exit] = error
    return failed
