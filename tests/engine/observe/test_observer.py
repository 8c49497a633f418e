"""Metadata by subscription: what is told, over which window, that nothing is computed that nobody asked for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.engine.observe.observer import Published
from everwhen.engine.observe.sample import ITEMS, Sample, together
from everwhen.engine.session.session import Session
from everwhen.operators.sweep.aggregate import AggregateOperator
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from operators.differential import SCHEMA
from plans import PLANS, S, T, col
from state_files import through_file

GROUPED = S.where(col("x") > 0).group_by("k").agg(n=ew.count())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def rows(*starts: int, length: int = 4, k: str = "a") -> list[Element]:
    return [Insert(t, t + length, {"k": k, "x": t % 3}) for t in starts]


def push(runtime: LocalRuntime | Session, *elements: Element, name: str = "S") -> Any:
    return runtime.push({name: batch_of(elements, SCHEMA, name)})


def test_operators_and_inputs_are_found_by_name() -> None:
    metadata = LocalRuntime(GROUPED).metadata("out")
    assert metadata.names == ("S", "0 filter", "1 aggregate") and set(metadata.items) == set(ITEMS)
    with pytest.raises(ew.QueryError, match="no operator or input '7 sort'; there is S, 0 filter, 1 aggregate"):
        metadata.subscribe("lag", of="7 sort")
    with pytest.raises(ew.QueryError, match="there is no metadata called 'colour'; there is distance, lifetime"):
        metadata.subscribe("colour")
    with pytest.raises(ew.QueryError, match="there is no query 'q'; there is out"):
        LocalRuntime(GROUPED).metadata("q")
    for wrong in ({"seconds": 0}, {"ticks": 0}, {"seconds": 1, "ticks": 5}):
        with pytest.raises(ew.QueryError, match="a window of metadata"):
            metadata.subscribe(**wrong)  # type: ignore[arg-type]


def test_all_items() -> None:
    clock = Clock()
    runtime = LocalRuntime(GROUPED, clock=clock, emit="all")
    wanted = runtime.metadata("out").subscribe()
    push(runtime, *rows(*range(0, 18, 2)))
    push(runtime, Adjust(4, 8, 6, {"k": "a", "x": 1}), Cti(6), *rows(19, 20, k="b"))
    clock.now += 2.0
    found = wanted.read()
    assert list(found) == ["S", "0 filter", "1 aggregate"]
    source, filtered, counted = found.values()
    assert (source["rate_in"], source["rate_out"], source["late"], source["lag"]) == (6.0, 6.0, 0.0, 14)
    assert (source["distance"], source["granule"]) == (2.0, 1)
    assert source["lifetime"] == pytest.approx((10 * 4 + 2) / 11)
    assert source["corrections"] == pytest.approx(1 / 12) and source["keys"] is None
    assert (filtered["rate_in"], filtered["rate_out"]) == (6.0, 4.5)
    assert filtered["selectivity"] == 9 / 12 and filtered["state_rows"] == 0 and filtered["keys"] is None
    assert counted["keys"] == 2 and (counted["state_rows"] or 0) > 0 and (counted["state_bytes"] or 0) > 0
    assert (counted["cpu"] or 0) > 0 and counted["lag"] == 14


def test_an_aggregate_that_is_said_without_an_end_has_a_lifetime() -> None:
    """In `current` every piece is said open and cut later; its mean length is that of the pieces."""
    runtime = LocalRuntime(S.range(10).aggregate(n=ew.sum("x")))
    wanted = runtime.metadata("out").subscribe("lifetime", "distance", "corrections", of="1 aggregate")
    for t in range(0, 400, 20):
        push(runtime, Insert(t, t + 1, {"k": "a", "x": t}))
    found = wanted.read()["1 aggregate"]
    assert found["lifetime"] == pytest.approx(10, rel=0.1) and found["distance"] == pytest.approx(20, rel=0.1)


def test_late_rows_are_a_share_of_what_came() -> None:
    runtime = LocalRuntime(S.distinct(), consistency=ew.consistency(0, 2))
    wanted = runtime.metadata("out").subscribe("late", "rate_in", of="S")
    push(runtime, *rows(10, 12, 13, length=2), *rows(1, length=2))
    assert wanted.read()["S"]["late"] == pytest.approx(1 / 4)


def test_a_window_of_the_clock_forgets() -> None:
    clock = Clock()
    runtime = LocalRuntime(S.where(col("x") > 0), clock=clock)
    wanted = runtime.metadata("out").subscribe("rate_in", "selectivity", of="0 filter", seconds=16)
    for second in range(64):
        clock.now = 100.0 + second
        push(runtime, *([Insert(second, second + 1, {"k": "a", "x": int(second >= 32)})] * (2 if second >= 32 else 1)))
    found = wanted.read()["0 filter"]
    assert found["selectivity"] == 1.0 and found["rate_in"] == pytest.approx(2.0, rel=0.1)
    clock.now += 8
    assert wanted.read()["0 filter"]["rate_in"] == pytest.approx(1.0, rel=0.2)
    clock.now += 60
    found = wanted.read()["0 filter"]
    assert found["rate_in"] == 0.0 and found["selectivity"] is None


def test_a_window_of_application_time_forgets_whatever_the_clock_does() -> None:
    clock = Clock()
    runtime = LocalRuntime(S.where(col("x") >= 0), clock=clock)
    wanted = runtime.metadata("out").subscribe("distance", "lifetime", of="0 filter", ticks=160)
    for t in range(0, 1000, 10):
        push(runtime, *rows(t, length=5))
    for t in range(1000, 2000, 20):
        clock.now += 50.0
        push(runtime, *rows(t, length=7))
    assert wanted.read() == {"0 filter": {"distance": 20.0, "lifetime": 7.0}}


def test_nothing_is_computed_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = LocalRuntime(GROUPED)
    assert all(node.gauge is None for node in runtime.operators)
    one = runtime.metadata("out").subscribe("selectivity", of="0 filter")
    monkeypatch.setattr(AggregateOperator, "state_size", lambda self: pytest.fail("nobody asked"))
    monkeypatch.setattr("everwhen.engine.observe.gauge.measure_changes", lambda *_: pytest.fail("nobody asked"))
    push(runtime, *rows(1, 2, 3))
    assert one.read() == {"0 filter": {"selectivity": 2 / 3}}
    assert [node.gauge is None for node in runtime.operators] == [False, True]
    other = runtime.metadata("out").subscribe("rate_in")
    one.cancel()
    assert [node.gauge is None for node in runtime.operators] == [False, False]
    other.cancel()
    assert all(node.gauge is None for node in runtime.operators) and not runtime._ingress.gauges


def test_equal_windows_are_measured_once() -> None:
    runtime = LocalRuntime(GROUPED)
    metadata = runtime.metadata("out")
    wanted = [metadata.subscribe("distance", seconds=s) for s in (5, 5, 9)]
    assert {len(node.gauge.recordings) for node in runtime.operators} == {2}  # type: ignore[union-attr]
    wanted[0].cancel()
    assert {len(node.gauge.recordings) for node in runtime.operators} == {2}  # type: ignore[union-attr]


def test_subscribers_are_told_every_so_often() -> None:
    clock, told = Clock(), list[Published]()
    runtime = LocalRuntime(GROUPED, clock=clock)
    with runtime.metadata("out").subscribe("rate_in", of="S", every=2.0, then=told.append):
        for _ in range(6):
            clock.now += 1.0
            push(runtime, *rows(1, 2))
    clock.now += 9.0
    push(runtime)
    assert [(each.at, each.values["S"]["rate_in"]) for each in told] == [(102.0, 2.0), (104.0, 2.0), (106.0, 2.0)]


def test_a_subscriber_that_fails_is_told_nothing_more_and_the_query_goes_on() -> None:
    runtime = LocalRuntime(S)

    def fails(_: Published) -> None:
        raise ValueError("no disk")

    wanted = runtime.metadata("out").subscribe("lag", every=0, then=fails)
    assert len(push(runtime, *rows(1))["out"]) == 1 and len(push(runtime, *rows(2))["out"]) == 1
    assert isinstance(wanted.error, ValueError) and not runtime._observer.subscriptions


def test_a_snapshot_has_what_was_measured() -> None:
    """A run that is broken off and goes on elsewhere measures what one does that is not."""
    rng = random.Random(5)
    for plan in [each for each in PLANS if not each.infinite][::6]:
        whole, broken = Clock(), Clock()
        runtimes = {clock: LocalRuntime(plan.build(), clock=clock) for clock in (whole, broken)}
        windows: list[dict[str, Any]] = [{}, {"seconds": 8}, {"ticks": 12}]
        wanted = {
            clock: [each.metadata("out").subscribe(**window) for window in windows] for clock, each in runtimes.items()
        }
        for step in range(12):
            batches = {
                name: batch_of([*rows(*(rng.randrange(step, step + 5) for _ in range(3))), Cti(step)], SCHEMA, name)
                for name in runtimes[whole].inputs
            }
            for clock, runtime in runtimes.items():
                clock.now += 1.0
                runtime.push(batches)
            if step == 6:
                state, broken = through_file(runtimes[broken].snapshot()), Clock()
                broken.now = 7000.0 + whole.now % 1
                again = LocalRuntime(plan.build(), clock=broken)
                again.restore(state)
                runtimes = {whole: runtimes[whole], broken: again}
                wanted = {whole: wanted[whole], broken: [again.metadata("out").subscribe(**w) for w in windows]}
        for one, other in zip(wanted[whole], wanted[broken], strict=True):
            assert _without_time(one.read()) == _without_time(other.read()), (plan.name, one.window)


def _without_time(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {i: v for i, v in items.items() if i not in ("cpu", "state_bytes")} for name, items in values.items()}


def test_without_subscriptions_a_snapshot_is_what_it_was() -> None:
    runtime = LocalRuntime(GROUPED)
    push(runtime, *rows(1, 2))
    assert "measured" not in str(runtime.snapshot())


def test_what_a_snapshot_has_is_kept_until_somebody_asks() -> None:
    runtime = LocalRuntime(GROUPED)
    runtime.metadata("out").subscribe("selectivity")
    push(runtime, *rows(1, 2, 3))
    for _ in range(2):
        state, runtime = runtime.snapshot(), LocalRuntime(GROUPED)
        runtime.restore(state)
    assert runtime.metadata("out").subscribe("selectivity", of="0 filter").read() == {
        "0 filter": {"selectivity": 2 / 3}
    }


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_in_a_session_a_query_has_its_own_operators_and_inputs() -> None:
    session = Session()
    session.register("mine", S.where(col("x") > 0).distinct())
    session.register("other", T.distinct())
    wanted = session.metadata("mine").subscribe("selectivity", "keys")
    push(session, *rows(1, 2, 3))
    push(session, *rows(1, 2, 3), name="T")
    assert wanted.read() == {
        "S": {"selectivity": 1.0, "keys": None},
        "0 filter": {"selectivity": 2 / 3, "keys": None},
        "1 distinct": {"selectivity": 1.0, "keys": 2},
    }
    session.stop("mine")
    assert wanted.read() == {}
    wanted.cancel()
    with pytest.raises(ew.QueryError, match="nobody"):
        session.metadata("nobody")


def test_operators_that_come_later_are_measured_from_then_on() -> None:
    session = Session()
    session.register("q", S.range(4).distinct())
    wanted = session.metadata("q").subscribe("rate_in")
    push(session, *rows(1, 2), Cti(1))
    before = set(wanted.read())
    session.replace("q", S.range(8).distinct())
    push(session, *rows(30), Cti(60))
    after = wanted.read()
    assert set(after) != before and all((each["rate_in"] or 0) >= 0 for each in after.values())


def test_a_session_keeps_what_was_measured_in_a_snapshot() -> None:
    session = Session()
    session.register("q", GROUPED)
    session.metadata("q").subscribe("selectivity", "distance")
    push(session, *rows(1, 2, 5))
    again = Session()
    again.restore(through_file(session.snapshot()), {"q": GROUPED})
    wanted = again.metadata("q").subscribe("selectivity", "distance")
    push(again, *rows(7, 9))
    assert wanted.read()["0 filter"] == {"selectivity": 4 / 5, "distance": 2.0}
    assert wanted.read()["S"]["distance"] == 2.0


def test_in_sql() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (k TEXT, x INT); SELECT k FROM S WHERE x > 1")
    with session.metadata("q1").subscribe("selectivity") as wanted:
        session.push({"S": batch_of(rows(1, 2), session.schema_of("S"), "S")})
        assert wanted.read()["S"]["selectivity"] == 1.0


def test_parts_of_a_stream_are_together_the_whole() -> None:
    whole = together([Sample(1.0, 4, 2, 2, 1, starts=2, first=0, last=6, granule=6, lived=10, ended=2, keys=3),
                      Sample(1.0, 4, 4, 4, 0, starts=3, first=2, last=8, granule=4, lived=5, ended=3)])  # fmt: skip
    found = {name: item.value(whole) for name, item in ITEMS.items()}
    assert found["distance"] == 2.0 and found["lifetime"] == 3.0 and found["granule"] == 2 and found["keys"] == 3
    assert found["selectivity"] == 0.75 and found["corrections"] == 1 / 6 and together([]) == Sample()
