"""Inputs of a merge that leave, come back and join while it runs: one exact, valid stream through all of it."""

from __future__ import annotations

import pickle
import random

import pytest

import everwhen as ew
from engine.physical_copies import copy_of, history
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import NEVER
from everwhen.engine.files.live.steps import LiveSteps
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid

COLUMNS = {"k": "int64", "v": "int64"}
POLICIES = [
    None, MergePolicy(lazy=True), MergePolicy(), MergePolicy(leader=True), MergePolicy(quorum=2),
    MergePolicy(final=True),
]  # fmt: skip


def sources(names: str) -> list[ew.Stream]:
    return [ew.source(name, COLUMNS) for name in names]


class Run:
    """A merge that runs, with what its inputs have still to say."""

    def __init__(self, query: ew.Stream, emit: str, rng: random.Random) -> None:
        self.query, self.emit, self.rng = query, emit, rng
        self.runtime = LocalRuntime(query, emit)
        self.rest: dict[str, list[Element]] = {}
        self.said: list[Element] = []

    def take(self, found: dict) -> None:
        self.said += found["out"].elements()

    def push(self) -> None:
        batches = {}
        for name, rest in self.rest.items():
            count = self.rng.randint(0, 4)
            batches[name] = batch_of(rest[:count], self.runtime.schema_of(name), name)
            del rest[:count]
        self.take(self.runtime.push(batches))

    def restore(self) -> None:
        state = pickle.dumps(self.runtime.snapshot())
        self.runtime = LocalRuntime(self.query, self.emit)
        self.runtime.restore(pickle.loads(state))

    @property
    def promise(self) -> int:
        return max((each.t for each in self.said if isinstance(each, Cti)), default=NEVER)


def queries(names: str, policy: MergePolicy | None) -> dict[str, ew.Stream]:
    plain = sources(names)
    grouped = [each.group_by("k").agg(n=ew.count()) for each in plain]
    merged = ew.lmerge(*plain, policy=policy)
    return {
        "events": merged,
        "counts": ew.lmerge(*grouped, policy=policy),
        "above": merged.range(5).group_by("k").agg(n=ew.count()),
    }


@pytest.mark.property
@pytest.mark.parametrize("shape", ["events", "counts", "above"])
@pytest.mark.parametrize("seed", range(25))
def test_inputs_come_and_go(shape: str, seed: int) -> None:
    """One copy stays; the others leave, begin anew from where the merge is, or join as new ones."""
    rng = random.Random(f"{shape} {seed}")
    events = history(rng)
    query = queries("abc", rng.choice(POLICIES))[shape]
    run = Run(query, rng.choice(("final", "current", "all", "ended")), rng)
    run.rest = {name: copy_of(events, rng) for name in "abc"}
    gone: set[str] = set()
    while any(run.rest.values()):
        run.push()
        what = rng.random()
        if what < 0.15:
            run.restore()
        elif what < 0.3 and len(run.rest) > 1:
            name = rng.choice([each for each in run.rest if each != "a"])
            del run.rest[name]
            run.take(run.runtime.detach(name))
            gone.add(name)
        elif what < 0.5:
            # the copy is right from an instant on; where rows are counted that is what lives there
            since = rng.choice((-100, run.promise if run.promise > -100 else -100, rng.randint(0, 30)))
            if gone and rng.random() < 0.6:
                name = gone.pop()
                run.take(run.runtime.attach(name, since))
            elif len(run.rest) < 5:
                name = f"new{len(run.runtime.inputs)}"
                run.take(run.runtime.attach(name, since, like="a"))
            else:
                continue
            run.rest[name] = copy_of(events, rng, since)
    run.take(run.runtime.close())
    assert_valid(run.said)
    expected = list(ew.run(_alone(shape), {"a": [*(Insert(*each) for each in events)]}, batch=10))
    assert run.promise == max(each.t for each in expected if isinstance(each, Cti))
    assert_same_history(run.said, expected)


def _alone(shape: str) -> ew.Stream:
    (a,) = sources("a")
    return {
        "events": a,
        "counts": a.group_by("k").agg(n=ew.count()),
        "above": a.range(5).group_by("k").agg(n=ew.count()),
    }[shape]


def pushed(runtime: LocalRuntime, **elements: list[Element]) -> list[str]:
    batches = {name: batch_of(part, runtime.schema_of(name), name) for name, part in elements.items()}
    return [str(each) for each in runtime.push(batches)["out"].elements()]


ROW = {"k": 1, "v": 1}


def test_the_merge_waits_when_all_have_left() -> None:
    runtime = LocalRuntime(ew.lmerge(*sources("ab")))
    pushed(runtime, a=[Insert(0, 9, ROW), Cti(4)], b=[Insert(0, 9, ROW)])
    runtime.detach("a")
    assert [str(e) for e in runtime.detach("b")["out"].elements()] == []
    runtime.attach("b", since=0)
    assert pushed(runtime, b=[Insert(0, 9, ROW), Cti(20)]) == ["cti 20"]
    assert [str(e) for e in runtime.close()["out"].elements()] == ["cti ∞"]


def test_who_ends_is_believed_up_to_where_another_knows_more() -> None:
    """Backfill: history without a single promise, then the live feed."""
    history, live = sources("hl")
    runtime = LocalRuntime(ew.lmerge(history, live, since={1: 40}))
    assert pushed(runtime, h=[Insert(0, 9, ROW), Insert(30, 45, ROW)], l=[Insert(40, 45, ROW), Cti(50)]) == [
        "insert [0, 9) k=1 v=1",
        "insert [30, 45) k=1 v=1",
    ]
    assert [str(e) for e in runtime.close_input("h")["out"].elements()] == [
        "adjust [30, 45 -> 40) k=1 v=1",  # the live feed does not know when it began
        "insert [40, 45) k=1 v=1",
        "cti 50",
    ]
    assert pushed(runtime, l=[Insert(60, 61, ROW), Cti(70)]) == ["insert [60, 61) k=1 v=1", "cti 70"]


def test_who_begins_anew_is_waited_for_although_the_others_have_ended() -> None:
    """History has ended, and the live feed is started again."""
    history, live = sources("hl")
    runtime = LocalRuntime(ew.lmerge(history, live, since={1: 40}))
    pushed(runtime, h=[Insert(0, 9, ROW)], l=[Insert(40, 45, ROW), Cti(50)])
    runtime.close_input("h")
    assert [str(e) for e in runtime.detach("l")["out"].elements()] == []
    runtime.attach("l", since=50)
    assert pushed(runtime, l=[Insert(60, 61, ROW), Cti(70)]) == ["insert [60, 61) k=1 v=1", "cti 70"]


def test_a_span_that_nobody_knows_is_waited_for() -> None:
    runtime = LocalRuntime(ew.lmerge(*sources("ab")))
    pushed(runtime, a=[Insert(0, 9, ROW), Cti(4)])
    runtime.detach("b")
    runtime.attach("b", since=30)
    runtime.detach("a")
    assert pushed(runtime, b=[Insert(30, 31, ROW), Cti(50)]) == []
    assert runtime.unknown_spans() == {"lmerge of a, b": (4, 30)}
    runtime.attach("a", since=0)
    assert runtime.unknown_spans() == {}
    assert pushed(runtime, a=[Insert(0, 9, ROW), Cti(32)])[-1] == "cti 50"


def test_a_run_that_goes_on_tells_what_nobody_knows() -> None:
    runtime = LocalRuntime(ew.lmerge(*sources("ab")))
    steps = LiveSteps(runtime, {}, sources("a")[0].schema)
    runtime.detach("b")
    runtime.attach("b", since=30)
    pushed(runtime, a=[Insert(0, 9, ROW), Cti(4)])
    told: list[str] = []
    steps.tell_unknown(told.append, 0.0)
    assert told == [], "a knows everything"
    runtime.detach("a")
    for _ in range(3):
        steps.tell_unknown(told.append, 0.0)
    assert told == [
        "lmerge of a, b waits: no copy that is there knows the instants from 4 to 30; let one begin that does"
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.detach("x"), "there is no input 'x'; the query reads a, b, c"),
        (lambda r: r.detach("c"), "'c' is read in no merge"),
        (lambda r: r.attach("a"), "'a' is there: it can begin anew once it has ended"),
        (lambda r: r.attach("b", like="a"), "there is an input 'b' already"),
        (lambda r: r.attach("d", like="c"), "'c' is read in no merge"),
        (lambda r: (r.detach("a"), r.detach("a")), "'a' has gone already"),
        (lambda r: (r.close(), r.attach("a")), "the runtime is closed"),
    ],
)
def test_what_cannot_come_or_go(call: object, message: str) -> None:
    a, b, c = sources("abc")
    runtime = LocalRuntime({"out": ew.lmerge(a, b), "other": c})
    with pytest.raises(QueryError, match=message):
        call(runtime)  # type: ignore[operator]


def test_an_input_that_is_read_elsewhere_stays() -> None:
    a, b = sources("ab")
    runtime = LocalRuntime({"out": ew.lmerge(a, b), "other": b})
    with pytest.raises(QueryError, match="'b' is read beside the merge, too"):
        runtime.detach("b")


def test_history_equals() -> None:
    """The oracle of this file: the events themselves."""
    rng = random.Random(1)
    events = history(rng)
    said = copy_of(events, rng)
    assert_valid(said)
    assert_same_history(said, History.of([Insert(*each) for each in events], sources("a")[0].schema))
