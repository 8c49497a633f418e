"""Guards that keep their events in the index of a merge: it says, and they refuse, what they would with logs of their
own, whatever happens to them."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError
from everwhen.plan.physical import PhysicalPlan
from everwhen.stream.element import Cti, Element, Punct
from operators.merge.merging import SCHEMA, a, history, m, physical

POLICIES = [
    MergePolicy(leader=True), MergePolicy(), MergePolicy(lazy=True), MergePolicy(final=True), MergePolicy(quorum=2),
    MergePolicy(leader=True, lazy=True),
]  # fmt: skip
LEVELS = [{"block": 3}, {"remember": 9}, {"block": 2, "remember": 30}]


class Pair:
    """The same merge twice: guards in its index, and guards with logs of their own."""

    def __init__(self, query: ew.Stream) -> None:
        self.query = query
        self.both = [LocalRuntime(query), self._apart()]

    def _apart(self) -> LocalRuntime:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PhysicalPlan, "shared_logs", lambda plan: {})
            return LocalRuntime(self.query)

    def do(self, what: str, *given: Any, **options: Any) -> bool:
        """Whether it was done; both say the same, or refuse it for the same reason."""
        found, wrong = [], []
        for each in self.both:
            try:
                found.append(sorted(map(str, getattr(each, what)(*given, **options)["out"].elements())))
            except InputError as error:
                wrong.append(str(error))
        assert (len(found), len(wrong)) in ((2, 0), (0, 2)), wrong
        assert len(set(wrong)) < 2 and (wrong or found[0] == found[1])
        return not wrong

    def push(self, epoch: dict[str, list[Element]]) -> bool:
        return self.do("push", {name: ew.ElementBatch.of(each, SCHEMA) for name, each in epoch.items()})

    def restore(self, crossed: bool) -> None:
        """Go on in other runtimes; each from its own state, or from the other one's."""
        states = [pickle.dumps(each.snapshot()) for each in self.both]
        self.both = [LocalRuntime(self.query), self._apart()]
        for each, state in zip(self.both, reversed(states) if crossed else states, strict=True):
            each.restore(pickle.loads(state))


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_as_with_logs_of_their_own(seed: int) -> None:
    """Random copies, some of which lack events or come later, wrong elements, epochs that are refused, inputs that come
    and go, other levels, punctuation, restarts."""
    rng = random.Random(seed)
    names = "wxyz"[: rng.randrange(2, 5)]
    complete = history(rng, False) * rng.choice([1, 1, 3])
    lacks = rng.choice([0.0, 0.0, 0.2])
    rest: dict[str, list[Element]] = {}

    def begin(name: str) -> None:
        rest[name] = physical(rng, [each for each in complete if rng.random() >= lacks])

    for name in names:
        begin(name)
    since = {at: rng.randrange(10) for at in range(1, len(names)) if rng.random() < 0.2}
    copies = [ew.source(name, SCHEMA) for name in names]
    pair = Pair(ew.lmerge(*copies, policy=rng.choice(POLICIES), since=since))
    gone: set[str] = set()
    other = rng.random() < 0.5
    while any(rest[name] for name in names if name not in gone):
        epoch = {name: rest[name][: rng.choice([0, 1, 2, 5])] for name in names if name not in gone}
        tried = {name: list(each) for name, each in epoch.items()}
        if rng.random() < 0.1:
            tried[rng.choice(list(tried))].append(m(rng.choice("ABC"), rng.randrange(20), 21 + rng.randrange(12), 99))
        if rng.random() < 0.2 and other:
            name = rng.choice(list(epoch))
            to_come = {each.row["p"] for each in rest[name][len(epoch[name]) :] if not isinstance(each, Cti)}
            over = Punct(Punctuation({"p": OneOf(tuple(set("ABCD") - to_come))}))
            epoch[name], tried[name] = [*epoch[name], over], [*tried[name], over]
        if not pair.push(tried) and not pair.push(epoch):
            return
        for name, each in epoch.items():
            del rest[name][: sum(not isinstance(one, Punct) for one in each)]
        chance = rng.random()
        if chance < 0.1:
            pair.restore(crossed=rng.random() < 0.5)
        elif chance < 0.15:
            for each in pair.both:
                each.plan.pool.collect(force=True)
        elif chance < 0.2 and other:
            level = rng.choice(LEVELS)
            pair.do("change", **level)
        elif chance < 0.3 and len(gone) < len(names) - 1:
            name = rng.choice(sorted(set(names) - gone))
            gone |= {name} if pair.do("detach", name) else set()
        elif chance < 0.4 and gone:
            name = rng.choice(sorted(gone))
            start = rng.choice([None, rng.randrange(20)])
            pair.do("attach", name, start)
            gone.discard(name)
            begin(name)
        elif chance < 0.45:
            t = rng.randrange(25)
            pair.do("fast_forward", t)
        elif chance < 0.5 and rng.random() < 0.3:
            name = rng.choice(sorted(set(names) - gone))
            if len(gone) < len(names) - 1:
                gone |= {name} if pair.do("close_input", name) else set()
    pair.do("close")


def test_what_was_refused_is_heard_when_it_comes_again() -> None:
    pair = Pair(ew.lmerge(*(ew.source(name, SCHEMA) for name in "xy")))
    assert not pair.push({"x": [a("A", 0, 9)], "y": [m("A", 0, 9, 7)]})
    pair.do("change", block=1)
    assert pair.push({"x": [a("A", 0, 9), Cti(5)], "y": [Cti(5)]})
    pair.do("close")


def test_an_event_is_kept_once_for_guards_and_merge() -> None:
    pair = Pair(ew.lmerge(*(ew.source(name, SCHEMA) for name in "xyz")))
    events: list[Element] = [a("A", t, t + 500) for t in range(3000)]
    pair.push({name: [*events, Cti(2000)] for name in "xyz"})
    together, apart = (each.state_size() for each in pair.both)
    assert together.rows == apart.rows
    assert together.bytes < apart.bytes / 3
