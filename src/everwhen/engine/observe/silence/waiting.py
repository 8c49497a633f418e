"""What is told of a query that says nothing: the reason, the source, what it has promised and what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, MAX_TIME, NEVER, show

Reason = Literal[
    "promise", "nothing came", "late", "nothing passes", "all is said", "catching up", "resting", "sink",
    "unknown span", "under way", "fails", "ended", "not tried",
]  # fmt: skip
"""promise          rows are known and wait until sources promise more
nothing came     no source that is named has brought a row yet
late             rows came, and every one of them too late
nothing passes   rows came, and an operator has let none through
all is said      whatever is known is out; more comes with more input
catching up      the answer is right from an instant on that is still ahead
resting          all sources that are open rest: nobody holds anybody back, and all that is known is said
sink             the answer is there, and its sink does not take it: it is tried again
unknown span     a merge waits, because no copy that is there knows some span of time
under way        the next epochs bring it by themselves: rows go round in a recursion, or the query has just changed
fails            nothing is said before the sources promise `first`, and there the query fails; without `first`, the
                 next epoch fails: `detail` says why
ended            everything is promised: the answer is whole
not tried        rows may wait; nothing was tried, and `detail` says why.  The answer is final before `first`, and the
                 promises in `needs` bring it further
"""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How far a source has come.  `heard`: seconds since its last element, if any came.  `resting`: it has been silent
    for so long that it holds nobody back.  `told`: whether its largest start is known.  `within`: the bound of its
    disorder, if its promises follow from its rows."""

    name: str
    promised: int
    largest_start: int
    heard: float | None = None
    ended: bool = False
    resting: bool = False
    told: bool = True
    within: int | None = None

    def __str__(self) -> str:
        said = "has promised nothing yet" if self.promised == NEVER else f"has promised {show(self.promised)}"
        if self.ended:
            return f"{self.name} has ended"
        if self.largest_start == NEVER:
            return f"{self.name} {said}{'; nothing has come from it' if self.told else ''}"
        ago = "" if self.heard is None or self.heard < 1 else f"; its last element came {self.heard:.0f} s ago"
        return f"{self.name} {said}; its largest start is {show(self.largest_start)}{ago}"


@dataclass(frozen=True, slots=True)
class Needed:
    """A promise that is waited for.  `pattern`: a promise about data that would do as well; `match`: it in JSON."""

    source: SourceStatus
    t: int
    pattern: Punctuation | None = None
    match: str = ""

    @property
    def punct(self) -> str | None:
        """The promise about data, as an element."""
        return None if self.pattern is None else f'{{"op":"punct","match":{self.match}}}'

    @property
    def remedy(self) -> str:
        """What to send, as an element."""
        shown = show(self.t)
        t = "null" if self.t == INF else shown if shown.lstrip("-").isdecimal() else f'"{shown.replace(" ", "T")}Z"'
        text = f'{{"op":"cti","t":{t}}} of {self.source.name}'
        if self.source.within is not None and self.t < MAX_TIME - self.source.within:
            text = f"a row of {self.source.name} that starts at {show(self.t + self.source.within)} or later, or {text}"
        return text if self.punct is None else f"{text}, or a promise about its data, {self.punct}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a query says nothing at the moment.

    `needs`: promises that are waited for; together they bring `rows` and `corrections`, of which `first` is the first
    instant; if the reason is `under way`, these come without a promise.  `operator` names the one that lets nothing
    through, or waits.  `given_up` counts the elements of each source that came too late to count.
    """

    query: str
    reason: Reason
    sources: tuple[SourceStatus, ...]
    needs: tuple[Needed, ...] = ()
    rows: int = 0
    corrections: int = 0
    first: int | None = None
    operator: str = ""
    detail: str = ""
    given_up: Mapping[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The answer to "why does nothing come out?", for people."""
        found = [f"{self.query}: {self._why()}"]
        named = {need.source.name for need in self.needs}
        for need in self.needs:
            holds = "all rest, and the answer waits for one" if need.source.resting else "it holds the answer back"
            found += [f"  {need.source}: {holds}", f"    -> {need.remedy}"]
        shown = [each for each in self.sources if each.name not in named]
        if self.reason not in ("ended",):
            waits = ": not waited for" * (self.reason == "promise")
            rests = "; it rests, and holds nobody back"
            found += [f"  {each}{rests * each.resting}{waits}" for each in shown]
        found += [
            f"  {count} element{'s' * (count != 1)} of {name} came too late and had to be given up"
            for name, count in sorted(self.given_up.items())
        ]
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _why(self) -> str:
        match self.reason:
            case "promise":
                wait = "waits" if self.rows + self.corrections == 1 else "wait"
                return f"{self._brings()} {wait} for {self._promises()}"
            case "under way":
                come = "comes" if self.rows + self.corrections == 1 else "come"
                return f"{self._brings()} {come} with the next epochs, whatever else comes"
            case "nothing came":
                return f"nothing has come in yet{self.detail}"
            case "late":
                return "rows came, and every one of them too late: what they change was promised not to change"
            case "catching up":
                return f"the answer begins {self.detail}, and nothing that is known reaches that instant"
            case "resting":
                return "all that is known is said, and all sources that are open rest"
            case "sink":
                return f"the answer is there, and its sink does not take it{self.detail}"
            case "nothing passes":
                return f"rows came, and the operator {self.operator!r} has let none through{self.detail}"
            case "all is said":
                return "nothing waits: all that is known is said; more comes with more input"
            case "unknown span":
                return f"the operator {self.operator!r} waits: no copy that is there knows {self.detail}"
            case "fails":
                when = "with the next epoch"
                if self.first is not None:
                    when = f"if its sources promise {show(self.first)} at once"
                return f"it fails {when}: {self.detail}"
            case "ended":
                return "everything is promised: the answer is whole"
        untried = f"what waits was not tried: {self.detail}"
        if not self.needs:
            return f"rows may wait for promises; {untried}"
        begun = self.first not in (None, NEVER)
        so_far = f"the answer is final before {show(self.first or 0)}" if begun else "nothing is final yet"
        return f"{so_far}, and goes on with {self._promises()}; {untried}"

    def _brings(self) -> str:
        """How many rows and corrections, in words."""
        counted = ((self.rows, "row"), (self.corrections, "correction"))
        found = " and ".join(f"{count} {what}{'s' * (count != 1)}" for count, what in counted if count)
        return f"{found} from {show(self.first or 0)} on"

    def _promises(self) -> str:
        """What is needed, in words."""
        known = len({need.t for need in self.needs}) == 1
        what = f"a promise of {show(self.needs[0].t)}" if known else "promises"
        return f"{what} of {' and '.join(need.source.name for need in self.needs)}"

    def to_plain(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {
            "query": self.query,
            "reason": self.reason,
            "text": str(self),
            "sources": [_source(each) for each in self.sources],
            "needs": [_need(each) for each in self.needs],
            "rows": self.rows,
            "corrections": self.corrections,
            "first": None if self.first is None else _plain(self.first),
            "operator": self.operator,
            "detail": self.detail,
            "given_up": dict(self.given_up),
        }


def _source(status: SourceStatus) -> dict[str, Any]:
    times = {"promised": _plain(status.promised), "largest_start": _plain(status.largest_start)}
    return {"name": status.name, **times, "heard": status.heard, "ended": status.ended, "resting": status.resting}


def _need(need: Needed) -> dict[str, Any]:
    return {"source": need.source.name, "t": _plain(need.t), "or": need.punct, "remedy": need.remedy}


def _plain(t: int) -> int | str | None:
    return None if t == NEVER else "∞" if t == INF else t
