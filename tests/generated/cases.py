"""Cases from a seed: a world with its queries, run in one of the ways and judged.

A seed and a way fix everything.  A case that takes longer than its limit of CPU time has failed, too.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from generated.grammar import Grammar
from generated.judge import Judge, Unanswered
from generated.streams import world
from generated.tree import constructs
from generated.ways import EMITS, Asked, Case, Outcome, difference, run

QUERIES_PER_WORLD = 8
RECURSIVE: Mapping[str, float] = {"reference": 0.3, "run": 0.12, "sessions": 0.12, "restore": 0.12, "spark": 0.12}
"""How many of the queries of each way are recursive."""
RANKED = 0.15
"""How many have a LIMIT, DISTINCT ON or OVER where new cases are looked for."""
LIMIT = 20.0
"""Seconds of CPU time for one query over its tiny streams."""


class TooLong(BaseException):
    """The time limit of a case."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong after so many seconds of this process's own time."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong(f"more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True)
class Failure:
    """One query that is wrong, as a case of its own with what was seen."""

    case: Case
    at: int
    what: str
    seed: str


@dataclass
class Tally:
    """What has been run."""

    queries: Counter[str] = field(default_factory=Counter)
    ran: Counter[str] = field(default_factory=Counter)
    """By construct."""
    refused: Counter[str] = field(default_factory=Counter)
    """By construct."""
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("queries", "ran", "refused", "reasons"):
            getattr(self, name).update(getattr(other, name))
        self.failures += other.failures


def drawn(
    way: str, seed: str, queries: int = QUERIES_PER_WORLD, ranked: float = 0.0, grammar: type[Grammar] = Grammar
) -> Case:
    """The case of a seed."""
    rng = random.Random(f"{way} {seed}")
    infinite = rng.random() < 0.2
    given = world(rng, infinite=infinite)
    last = len(given.epochs)
    asked = []
    late = way in ("sessions", "restore", "migrate") and rng.random() < 0.6
    for _ in range(queries):
        joins = rng.randint(0, last) if late and rng.random() < 0.7 else 0
        asked.append(
            Asked(grammar(rng, rng.choice((1, 1, 2, 2, 2, 3)), infinite, RECURSIVE.get(way, 0.0), ranked).draw(), joins)
        )
    restores = (
        tuple(sorted(rng.sample(range(last), min(rng.randint(1, 4), last)))) if way in ("restore", "migrate") else ()
    )
    case = Case(way, given, tuple(asked), rng.choice(EMITS), rng.random() < 0.6, rng.choice((1, 3, 1000)), restores)
    return case


def judged(case: Case, seed: str, tally: Tally, limit: float = LIMIT) -> None:
    """Run a case and compare; a `run` case takes each query by itself, with a policy of its own."""
    judge = Judge(case.world)
    try:
        for part in _parts(case, seed):
            outcomes = _outcomes(part, limit) or _outcomes(part, limit) or []
            outcomes = outcomes or [Outcome("failed", f"more than {limit:g} s of CPU time, twice")] * len(part.asked)
            for at, outcome in enumerate(outcomes):
                _count(part, at, outcome, judge, seed, tally)
    finally:
        judge.close()


def _outcomes(part: Case, limit: float) -> list[Outcome] | None:
    """What a part answers; None if it takes too long.  The first time may have compiled loops, so it is asked twice."""
    try:
        with limited(limit * len(part.asked)):
            return list(run(part))
    except TooLong:
        return None


def _parts(case: Case, seed: str) -> Iterator[Case]:
    rng = random.Random(f"parts {seed}")
    if case.way == "run":
        for at in range(len(case.asked)):
            optimize, batch = rng.random() < 0.6, rng.choice((1, 3, 1000))
            yield replace(case.alone(at), emit=rng.choice(EMITS), optimize=optimize, batch=batch)
    elif case.way in ("restore", "migrate"):
        # half of them in one session, half each in a runtime of its own
        half = len(case.asked) // 2
        yield replace(case, asked=case.asked[:half], batch=1000)
        for at in range(half, len(case.asked)):
            yield replace(case.alone(at), asked=(replace(case.asked[at], joins=0),), batch=1)
    else:
        yield case


def verdict(case: Case, at: int, outcome: Outcome, judge: Judge) -> tuple[str, str]:
    """(ran | refused | unanswered | failed, what is to be said of it)."""
    if outcome.what != "ran":
        return outcome.what, outcome.text
    query = case.asked[at].query
    try:
        wrong = difference(outcome, judge.answers(query))
        if wrong is not None:
            wrong = difference(outcome, judge.each_instant(query))
    except Unanswered as error:
        return "unanswered", str(error)
    return ("ran", "") if wrong is None else ("failed", wrong)


def _count(case: Case, at: int, outcome: Outcome, judge: Judge, seed: str, tally: Tally) -> None:
    what, why = verdict(case, at, outcome, judge)
    tally.queries[f"{case.way}: {what}"] += 1
    names = constructs(case.asked[at].query)
    if what == "failed":
        tally.failures.append(Failure(case, at, why, seed))
    elif what == "ran":
        tally.ran.update(names)
        tally.ran[f"emit {case.emit}"] += 1
        tally.ran["optimised" if case.optimize else "as written"] += 1
        tally.ran["with promises about data"] += case.world.promises() > 0
        tally.ran["joined late"] += case.asked[at].joins > 0
    else:
        tally.refused.update(names)
        tally.reasons[f"{what}: {why[:110]}"] += 1
