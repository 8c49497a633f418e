"""Copies merged in partitions: after every epoch what the merge in process has said, whatever their number."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_valid, reorder
from parity.stage_runner import Partitions

COLUMNS = {"k": "string", "x": "int64"}
COPIES = [ew.source(name, COLUMNS) for name in "abc"]
SCHEMA = COPIES[0].schema
Since = dict[int, int]
TIMES = range(-4, 45)


def _merged(build: Callable[[ew.Stream], ew.Stream]) -> Callable[[Since, ew.MergePolicy | None], ew.Stream]:
    return lambda since, policy: ew.lmerge(*map(build, COPIES), since=since, policy=policy)


PLANS: dict[str, Callable[[Since, ew.MergePolicy | None], ew.Stream]] = {
    "events": _merged(lambda s: s),
    "filtered": _merged(lambda s: s.where(ew.col("x") > 0).select("k", y=ew.col("x") + 1)),
    "windows": _merged(lambda s: s.range(3)),
    "groups": _merged(lambda s: s.group_by("k").agg(n=ew.count(), t=ew.sum("x"))),
    "computed in a stage before": _merged(lambda s: s.distinct().group_by("k").agg(n=ew.count()).select("n")),
    "read by groups": lambda since, policy: (
        ew.lmerge(*COPIES, since=since, policy=policy).group_by("k").agg(n=ew.count(), hi=ew.max("x"))
    ),
    "counted": lambda since, policy: ew.lmerge(*COPIES, since=since, policy=policy).aggregate(n=ew.count()),
    "coalesced": _merged(lambda s: s.coalesce()),
}
POLICIES = [None, ew.MergePolicy(leader=True), ew.MergePolicy(quorum=2), ew.MergePolicy(lazy=True)]


def test_stages_say_where_copies_are_merged() -> None:
    runner = Partitions(PLANS["computed in a stage before"]({}, None).node, 2, "current")
    assert runner.plan.copies.merged == {"a", "b", "c"}
    last = runner.plan.stages[-1]
    assert [sorted(stream.sources) for stream in last.inputs] == [["a"], ["b"], ["c"]], "each copy comes by itself"
    assert len({stream.by for stream in last.inputs}) == 1, "and all of them are hashed alike"


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_partitions_say_after_every_epoch_what_one_process_says(name: str, seed: int) -> None:
    check(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_many_copies(name: str, seed: int) -> None:
    check(name, seed)


def check(name: str, seed: int) -> None:
    """Copies that differ, join late and end early: who decides must not depend on what a partition has seen."""
    rng = random.Random(seed)
    found = [
        ew.Insert(vs, rng.choice([INF, vs + 1 + rng.randrange(12)]), {"k": rng.choice("pq"), "x": rng.randrange(3)})
        for vs in (rng.randrange(20) for _ in range(rng.randrange(2, 10)))
    ]
    gaps = rng.random() < 0.6
    held = [[e for e in found if not gaps or rng.random() < 0.8] for _ in COPIES]
    streams = [reorder(History.of(each, SCHEMA), rng, infinite=True) for each in held]
    streams = [s[: rng.choice([len(s), len(s), rng.randrange(len(s) + 1)])] for s in streams]
    since = {at: rng.randrange(15) for at in (1, 2) if rng.random() < 0.4}
    query = PLANS[name](since, rng.choice(POLICIES))
    emit = rng.choice(["current", "ended", "final", "all"])
    local = ew.LocalRuntime(query, emit)
    parted = [Partitions(query.node, n, emit, seed) for n in (1, rng.choice([2, 8]))]
    said: list[list[ew.Element]] = [[] for _ in range(3)]
    places, left = [0] * 3, set()
    while len(left) < 3:
        ends = {at for at in range(3) if at not in left and places[at] >= len(streams[at]) and rng.random() < 0.6}
        batches = {}
        for at, each in enumerate("abc"):
            step = rng.choice([0, 1, 3])
            if at not in left | ends and streams[at][places[at] : places[at] + step]:
                batches[each] = batch_of(streams[at][places[at] : places[at] + step], SCHEMA)
                places[at] += step
        if not ends and not batches:
            continue
        left |= ends
        if ends:
            local._end(["abc"[at] for at in ends])  # with the batches, as on Spark: no epoch of its own
        said[0] += local.push(batches)["out"].elements()
        over = {"abc"[at]: batch_of([ew.Cti(INF)], SCHEMA) for at in ends}
        for at, runner in enumerate(parted, 1):
            runner.end(over)
            said[at] += runner.push({**batches, **over})
            if rng.random() < 0.2:
                runner.restart()
        histories = [History.of(each, query.schema) for each in said]
        for t in TIMES:
            shown = [sorted(map(repr, history.snapshot(t).items())) for history in histories]
            assert shown[1:] == shown[:1] * 2, (t, seed)
        promises = [max([e.t for e in each if isinstance(e, ew.Cti)], default=NEVER) for each in said]
        assert promises[1:] == promises[:1] * 2
    for each in said:
        assert_valid(each)


# -- copies that come and go -------------------------------------------------------------------------------------------

PLAIN = ("events", "filtered", "windows", "read by groups")


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_a_copy_leaves_and_another_one_takes_its_place(name: str, seed: int) -> None:
    check_places(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_many_copies_come_and_go(name: str, seed: int) -> None:
    check_places(name, seed)


def check_places(name: str, seed: int) -> None:
    """Copies of one history, of which one is there at any time: no instant is missing or doubled."""
    rng = random.Random(seed)
    found = [
        ew.Insert(vs, rng.choice([INF, vs + 1 + rng.randrange(12)]), {"k": rng.choice("pq"), "x": rng.randrange(3)})
        for vs in (rng.randrange(30) for _ in range(rng.randrange(5, 15)))
    ]

    def stream(since: int) -> list[ew.Element]:
        """A copy that is right from an instant on: what began before begins there."""
        known = [ew.Insert(max(e.vs, since), e.ve, e.row) for e in found if e.ve > since]
        return reorder(History.of(known, SCHEMA), rng, infinite=True, close=True)

    query = PLANS[name]({}, rng.choice(POLICIES))
    emit = rng.choice(["current", "ended", "final", "all"])
    parted = [Partitions(query.node, n, emit, seed) for n in (1, rng.choice([2, 8]))]
    said: list[list[ew.Element]] = [[], []]
    streams = {each: stream(NEVER) for each in "abc"}
    gone: set[str] = set()
    changes = rng.randrange(1, 4)
    while any(streams[each] for each in "abc" if each not in gone) or changes:
        batches = {}
        if changes and rng.random() < 0.3:
            changes -= 1
            one = rng.choice("bc")  # the first one stays
            if one in gone or rng.random() < 0.3:
                reached = max([NEVER, *(e.t for e in said[0] if isinstance(e, ew.Cti))])
                since = rng.choice([NEVER, reached - 2, reached + 3]) if -50 < reached < 50 else NEVER
                since = NEVER if name == "windows" else since
                streams[one] = stream(since)
                gone -= {one}
                for runner in parted:
                    runner.begin_anew(one, since)
            else:
                gone.add(one)
                for runner in parted:
                    runner.end([one])
        for each in "abc":
            step = rng.choice([0, 1, 3])
            if each not in gone and streams[each][:step]:
                batches[each], streams[each] = batch_of(streams[each][:step], SCHEMA), streams[each][step:]
        for at, runner in enumerate(parted):
            said[at] += runner.push(batches)
            if rng.random() < 0.2:
                runner.restart()
        histories = [History.of(each, query.schema) for each in said]
        for t in TIMES:
            assert histories[0].snapshot(t) == histories[1].snapshot(t), (t, seed)
    whole = ew.LocalRuntime(query, "final")
    wanted = [*whole.push({"a": batch_of(found, SCHEMA)})["out"].elements(), *whole.close()["out"].elements()]
    assert_valid(said[0])
    assert said[0][-1] == ew.Cti(INF)
    ours, right = History.of(said[0], query.schema), History.of(wanted, query.schema)
    for t in TIMES:
        assert ours.snapshot(t) == right.snapshot(t), (t, seed)


@pytest.mark.parametrize("name", ["events", "windows", "read by groups"])
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_one_version_goes_over_to_another_at_an_instant(name: str, seed: int) -> None:
    check_cutovers(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events", "windows", "read by groups"])
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_many_cutovers(name: str, seed: int) -> None:
    check_cutovers(name, seed)


def check_cutovers(name: str, seed: int) -> None:
    """Versions that differ in meaning, one after the other: old before, new from there, in every partitioning."""
    rng = random.Random(seed)

    def version(number: int) -> list[ew.Insert]:
        starts = [rng.randrange(40) for _ in range(12)]
        return [ew.Insert(t, t + 1 + rng.randrange(6), {"k": rng.choice("pq"), "x": number}) for t in starts]

    versions = [version(0)]
    streams = {"a": reorder(History.of(versions[0], SCHEMA), rng, disorder=4, close=True, infinite=False)}
    streams["b"] = []
    query = PLANS[name]({}, ew.MergePolicy(leader=True))
    emit = rng.choice(["current", "final"])
    parted = [Partitions(query.node, n, emit, seed) for n in (1, rng.choice([2, 8]))]
    for runner in parted:
        runner.end("bc")
    said: list[list[ew.Element]] = [[], []]
    borders: list[int] = []
    present, other = "a", "b"
    while any(streams.values()):
        final = max([-10, *(e.t for e in said[0] if isinstance(e, ew.Cti))])
        if len(borders) < 3 and final < 25 and rng.random() < 0.3 and (not borders or final >= borders[-1]):
            at = final + rng.randrange(1, 9)
            borders.append(at)
            versions.append(version(len(versions)))
            present, other = other, present
            streams[present] = reorder(History.of(versions[-1], SCHEMA), rng, disorder=4, close=True, infinite=False)
            for runner in parted:
                runner.begin_anew(present, at)
                runner.until[other] = at
        batches = {}
        for each in "ab":
            step = rng.choice([0, 1, 3])
            if streams[each][:step]:
                batches[each], streams[each] = batch_of(streams[each][:step], SCHEMA), streams[each][step:]
        for at, runner in enumerate(parted):
            said[at] += runner.push(batches)
            if rng.random() < 0.2:
                runner.restart()
    ours = [History.of(each, query.schema) for each in said]
    assert_valid(said[0])
    right = []
    for each in versions:
        whole = ew.LocalRuntime(query, "final")
        elements = [*whole.push({"a": batch_of(each, SCHEMA)})["out"].elements(), *whole.close()["out"].elements()]
        right.append(History.of(elements, query.schema))
    for t in TIMES:
        now = sum(t >= border for border in borders)
        assert ours[0].snapshot(t) == ours[1].snapshot(t) == right[now].snapshot(t), (t, borders, seed)


def test_kernels_that_need_an_order_are_refused_in_stages() -> None:
    """An exchange keeps no order.  Asked for by nobody, the general operator runs."""
    given = {"insert_only": True, "chronons": True, "arrives": "in order"}
    copies = [ew.source(name, COLUMNS, **given) for name in "ab"]  # type: ignore[arg-type]
    asked = ew.lmerge(*copies, policy=ew.MergePolicy(kernel="R2"))
    with pytest.raises(ew.QueryError, match="R2 takes the order in which rows arrive"):
        Partitions(asked.node, 2, "current")
    Partitions(ew.lmerge(*copies).node, 2, "current")
