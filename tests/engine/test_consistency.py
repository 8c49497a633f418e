"""Levels of consistency in process: the triangle of B and M against the oracle, and changes while a query runs."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from engine.disordered_epochs import SCHEMA, S, T, epochs_of, lag, pushed, said_of
from everwhen.core.emit import Emit
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError, QueryError
from everwhen.operators.ingress.finalize import DroppedElements, Reason
from everwhen.operators.ingress.pipeline import SourcePipeline
from everwhen.reference import history as oracle
from everwhen.reference.admission import finalized
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid, batches, reorder
from everwhen.testing.strategies import histories
from state_files import through_file

A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}


def intakes(runtime: LocalRuntime) -> dict[str, SourcePipeline]:
    return {name: each.intake for name, each in runtime._ingress.inputs.items()}


QUERIES = {
    "count": S.group_by("k").agg(n=ew.count(), t=ew.sum("x")),
    "window": S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x")),
    "distinct": S.distinct(),
    "join": S.join(T, on="k"),
    "difference": S.difference(T),
}
GRID = [(0, 0), (0, 2), (2, 2), (0, 6), (3, 6), (6, 6), (0, INF), (2, INF), (9, INF), (INF, INF)]
EMITS = (None, "ended")


def names(query: ew.Stream) -> list[str]:
    return [name for name in ("S", "T") if name in str(query)]


@settings(max_examples=60)
@given(st.data())
@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_to_what_is_admitted(name: str, data: st.DataObject) -> None:
    """Every point of the triangle gives the oracle's answer to the elements that its M admits."""
    query, rng = QUERIES[name], data.draw(st.randoms(use_true_random=False))
    block, remember = data.draw(st.sampled_from(GRID))
    inputs = {
        source: reorder(
            data.draw(histories(SCHEMA, max_events=7)),
            rng,
            disorder=rng.choice([0, 3, None]),
            ctis=rng.choice([0, 0.3]),
        )
        for source in names(query)
    }
    level = ew.consistency(block, remember, emit=data.draw(st.sampled_from(EMITS)))
    runtime = LocalRuntime(query, consistency=level)
    out = pushed(runtime, epochs_of(inputs, rng))
    admitted = {source: finalized(elements, remember) for source, elements in inputs.items()}
    assert_valid(out)
    assert_same_history(out, oracle(query.node, {source: said_of(a.elements) for source, a in admitted.items()}))
    lost = {source: len(a.dropped) for source, a in admitted.items() if a.dropped}
    assert {source: sum(counts.values()) for source, counts in runtime.dropped.items()} == lost
    if remember == INF:
        assert not lost


@settings(max_examples=60)
@given(st.data())
@pytest.mark.parametrize("name", ["count", "window", "distinct", "difference"])
def test_to_block_for_the_disorder_is_never_to_correct(name: str, data: st.DataObject) -> None:
    query, rng = QUERIES[name], data.draw(st.randoms(use_true_random=False))
    inputs = {
        source: reorder(
            data.draw(histories(SCHEMA, max_events=7)),
            rng,
            disorder=rng.choice([0, 3, None]),
            ctis=rng.choice([0, 0.3]),
        )
        for source in names(query)
    }
    epochs = epochs_of(inputs, rng)
    out = pushed(LocalRuntime(query, consistency=ew.consistency(lag(epochs), emit="ended")), epochs)
    assert not [element for element in out if isinstance(element, Adjust)]
    assert_same_history(out, oracle(query.node, {s: said_of(elements) for s, elements in inputs.items()}))


@settings(max_examples=80)
@given(histories(SCHEMA, max_events=14), st.randoms(use_true_random=False))
def test_ten_changes_in_a_run(history: History, rng: random.Random) -> None:
    """What was promised stands, and the answer is the oracle's to what each M admitted in its time."""
    query = QUERIES["window"]
    elements = reorder(history, rng, disorder=rng.choice([2, 6]), ctis=rng.choice([0, 0.3]))
    turns = rng.sample(range(len(elements)), min(10, len(elements)))
    level = rng.choice([ew.MIDDLE, ew.WEAK, ew.consistency(3, 5)])
    runtime = LocalRuntime(query, consistency=level)
    out = list[Element]()
    changes: dict[int, int] = {}
    for at in range(len(elements)):
        if at in turns:
            block, changes[at] = rng.choice(GRID)
            out += runtime.change(block, changes[at])["out"].elements()
            assert (runtime.consistency.block, runtime.consistency.remember) == (block, changes[at])
        out += runtime.push({"S": batch_of(elements[at : at + 1], SCHEMA)})["out"].elements()
    out += runtime.close()["out"].elements()
    assert_valid(out)
    admitted = finalized(elements, level.remember, changes)
    assert_same_history(out, oracle(query.node, {"S": said_of(admitted.elements)}))


# --- memory -----------------------------------------------------------------------------------------------------------


def test_weak_keeps_what_is_alive_now() -> None:
    """Disorder without bound and not one CTI: what is kept is what has not ended at the largest start seen."""
    rng = random.Random(7)
    runtime = LocalRuntime(
        {"out": S.range(5).group_by("k").agg(n=ew.count()), "j": S.join(T, on="k")}, consistency=ew.WEAK
    )
    ends: dict[str, list[int]] = {"S": [], "T": []}
    for i in range(120):
        epoch = {}
        for name in ("S", "T"):
            starts = [rng.randint(0, 20 * i + 20) for _ in range(40)] + [20 * i + 20]
            elements = [Insert(vs, vs + rng.randint(1, 30), {"k": rng.choice("abc"), "x": i}) for vs in starts]
            ends[name] += [e.ve for e in elements]
            epoch[name] = batch_of(elements, SCHEMA)
        runtime.push(epoch)
        tau = runtime.tau
        alive = {name: sum(ve >= tau for ve in found) for name, found in ends.items()}
        for name, intake in intakes(runtime).items():
            assert intake.state_size().rows <= alive[name]
        assert runtime.progress == {"S": tau, "T": tau}
        # the join keeps both sides, the sum up to two edges for each, the chains what they said
        assert runtime.state_size().rows <= 20 * (sum(alive.values()) + 3)
    assert sum(runtime.dropped["S"].values()) > 1000


@pytest.mark.parametrize("block", [0, 60])
def test_memory_is_bounded_by_what_is_remembered(block: int) -> None:
    rng = random.Random(7)
    runtime = LocalRuntime(QUERIES["count"], consistency=ew.consistency(block, 100))
    rows, size = [], []
    for i in range(200):
        starts = [50 * i + rng.randint(-80, 50) for _ in range(100)]
        runtime.push({"S": batch_of([Insert(vs, vs + 20, {"k": rng.choice("abc"), "x": 1}) for vs in starts], SCHEMA)})
        found = runtime.state_size()
        rows.append(found.rows)
        size.append(found.bytes)
    assert max(rows[100:]) <= 1.3 * max(rows[20:100]) and max(size) <= 1.3 * size[60]
    assert max(rows) < 2_500


# --- where Finalize and Align stand -----------------------------------------------------------------------------------


def test_a_plan_without_state_has_neither() -> None:
    late = [Insert(10, 12, A), Insert(1, 5, B), Adjust(1, 5, 3, B)]
    query = S.where(ew.col("x") > 0).select("k")
    assert [str(e) for e in ew.run(query, {"S": late}, ew.WEAK, batch=1)] == [
        "insert [10, 12) k='a'", "insert [1, 5) k='b'", "adjust [1, 5 -> 3) k='b'", "cti ∞",
    ]  # fmt: skip
    runtime = LocalRuntime({"a": query, "b": T.distinct()}, consistency=ew.consistency(2, 5))
    assert {name: intake.finalize is not None for name, intake in intakes(runtime).items()} == {"S": False, "T": True}
    assert {name: intake.align is not None for name, intake in intakes(runtime).items()} == {"S": False, "T": True}
    runtime.change(1, 1)
    assert runtime._ingress.inputs["S"].intake.finalize is None


def test_relations_are_never_late() -> None:
    names_ = ew.source("N", {"k": "string", "y": "int64"}, kind="constant")
    rows = [Insert(0, INF, {"k": "a", "y": 1}), Insert(-5, INF, {"k": "b", "y": 2})]
    bids = [Insert(3, 4, A), Insert(5, 6, B), Insert(1, 2, A)]
    out = list(ew.run(S.join(names_, on="k"), {"S": bids, "N": rows}, ew.consistency(0, 1), batch=1))
    found = sorted((e.vs, e.row["y"]) for e in out if isinstance(e, Insert))
    assert found == [(3, 1), (5, 2)]


def test_strong_and_middle_have_neither() -> None:
    for level in (ew.STRONG, ew.MIDDLE):
        intake = LocalRuntime(QUERIES["count"], consistency=level)._ingress.inputs["S"].intake
        assert intake.finalize is None and intake.align is None


# --- what is given up -------------------------------------------------------------------------------------------------


def test_what_is_given_up_can_be_read() -> None:
    side: list[tuple[str, DroppedElements]] = []
    runtime = LocalRuntime(QUERIES["count"], consistency=ew.WEAK, dropped=lambda name, lost: side.append((name, lost)))
    runtime.push(
        {"S": batch_of([Insert(5, 9, A), Insert(1, 2, B), Adjust(5, 9, 8, A), Insert(7, 9, A)], SCHEMA, "s.jsonl")}
    )
    runtime.push({"S": batch_of([Adjust(5, 8, 5, A), Insert(2, 3, B)], SCHEMA)})
    assert runtime.dropped == {"S": {Reason.LATE: 2, Reason.CUT: 1}}
    assert [(name, str(e), reason) for name, e, reason in runtime.latest_dropped()] == [
        ("S", "insert [1, 2) k='b' x=2", Reason.LATE),
        ("S", "adjust [5, 8 -> 5) k='a' x=1", Reason.CUT),
        ("S", "insert [2, 3) k='b' x=2", Reason.LATE),
    ]
    assert [(name, len(lost), lost.elements.line(0)) for name, lost in side] == [("S", 1, 2), ("S", 2, 1)]
    for _ in range(50):
        runtime.push({"S": batch_of([Insert(0, 1, A)] * 100, SCHEMA)})
    assert runtime.dropped["S"][Reason.LATE] == 5002
    assert 1000 <= len(list(runtime.latest_dropped())) < 1200


def test_a_wrong_batch_leaves_everything_as_it_was() -> None:
    runtime = LocalRuntime(S.join(T, on="k"), consistency=ew.consistency(2, 5))
    good = batch_of([Insert(3, 9, A), Insert(1, 4, B)], SCHEMA)
    runtime.push({"S": good, "T": good})
    before, progress = runtime.state_size().rows, runtime.progress
    with pytest.raises(InputError, match="empty"):
        runtime.push({"S": batch_of([Insert(20, 30, A), Cti(10)], SCHEMA), "T": batch_of([Insert(5, 5, A)], SCHEMA)})
    assert (runtime.state_size().rows, runtime.progress) == (before, progress)
    with pytest.raises(InputError, match="the interval"):
        runtime.push({"S": good, "T": batch_of([ExternalCti(-1, 2, 0)], SCHEMA)})
    assert (runtime.state_size().rows, runtime.progress) == (before, progress)


def test_adjusts_without_inserts_at_the_end() -> None:
    lost = [Insert(1, 2, A), Adjust(3, 5, 4, B)]
    with pytest.raises(InputError, match=r"never came: \[3, 5\)"):
        list(ew.run(QUERIES["count"], {"S": lost}, ew.consistency(remember=9)))
    assert list(ew.run(QUERIES["count"], {"S": lost}, ew.consistency(remember=9), open=True))


def test_external_ctis_need_finalize() -> None:
    stream = [Adjust(0, 9, 4, A), ExternalCti(0, 8, 3), Insert(0, 9, A), Insert(1, 5, B)]
    query = QUERIES["count"]
    with pytest.raises(InputError, match="REMEMBER"):
        list(ew.run(query, {"S": stream[1:]}))
    out = list(ew.run(query, {"S": stream}, ew.consistency(remember="inf"), open=True, batch=1))
    assert out[-1] == Cti(8)
    assert_same_history(out, oracle(query.node, {"S": said_of([Insert(0, 4, A), Insert(1, 5, B)])}))


# --- state ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(histories(SCHEMA, max_events=10), st.randoms(use_true_random=False), st.sampled_from(GRID))
def test_a_restored_runtime_goes_on(history: History, rng: random.Random, at: tuple[int, int]) -> None:
    query, level = QUERIES["window"], ew.consistency(*at)
    elements = reorder(history, rng, disorder=rng.choice([3, None]))
    cut = batches(elements, SCHEMA, rng)
    whole = pushed(LocalRuntime(query, consistency=level), [{"S": batch} for batch in cut])
    runtime, out = LocalRuntime(query, consistency=level), list[Element]()
    for batch in cut:
        out += runtime.push({"S": batch})["out"].elements()
        fresh = LocalRuntime(query, consistency=rng.choice([level, ew.consistency(0, 3, emit=level.emit)]))
        fresh.restore(through_file(runtime.snapshot()))
        assert (fresh.dropped, fresh.progress) == (runtime.dropped, runtime.progress)
        runtime = fresh
    out += runtime.close()["out"].elements()
    assert list(map(str, out)) == list(map(str, whole))


# --- levels by name, in Python and SQL --------------------------------------------------------------------------------


def test_levels() -> None:
    assert (ew.STRONG.block, ew.STRONG.remember, ew.STRONG.emit) == (INF, INF, Emit.FINAL)
    assert (ew.MIDDLE.block, ew.MIDDLE.remember, ew.MIDDLE.emit) == (0, INF, Emit.CURRENT)
    assert (ew.WEAK.block, ew.WEAK.remember, ew.WEAK.emit) == (0, 0, Emit.CURRENT)
    level = ew.consistency(block="5 s", remember="1 min", tick="1s")
    assert (level.block, level.remember, level.emit) == (5, 60, Emit.CURRENT)
    assert ew.consistency(block="forever").emit is Emit.FINAL
    assert ew.consistency(block=INF, emit="current").aligns


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: ew.consistency(5, 4), "to block for 5 ticks and remember 4"),
        (lambda: ew.consistency("inf", "1 min"), "to block for ∞ ticks and remember 60000"),
        (lambda: ew.consistency(-1), "to block for -1 ticks is impossible"),
        (lambda: ew.consistency(remember=2**62), "to remember for"),
        (lambda: ew.consistency("a while"), "block: cannot read the duration"),
        (lambda: ew.consistency(emit="never"), "unknown emission policy 'never'; there are final"),
        (lambda: LocalRuntime(QUERIES["count"], consistency=ew.WEAK).change(block=3), "to block for 3 ticks"),
    ],
)
def test_levels_that_are_none(build: object, problem: str) -> None:
    assert callable(build)
    with pytest.raises(QueryError, match=problem):
        build()


def test_a_refused_change_changes_nothing() -> None:
    runtime = LocalRuntime(QUERIES["count"], consistency=ew.consistency(2, 5))
    with pytest.raises(QueryError):
        runtime.change(remember=1)
    assert (runtime.consistency.block, runtime.consistency.remember) == (2, 5)
    runtime.close()
    with pytest.raises(QueryError, match="closed"):
        runtime.change(0, 0)


def test_the_text_asks() -> None:
    late = [Insert(10, 12, A), Insert(4, 5, B), Insert(1, 2, B)]

    def starts(text: str, level: ew.Consistency | None = None) -> list[int]:
        query = ew.sql(f"SELECT k, COUNT(*) AS n FROM S GROUP BY k {text}", S)
        return sorted(e.vs for e in ew.run(query, {"S": late}, level) if isinstance(e, Insert))

    assert starts("") == [1, 4, 10]
    assert starts("CONSISTENCY WEAK") == [10]
    assert starts("CONSISTENCY (BLOCK 2 MILLISECONDS, REMEMBER 6 MILLISECONDS)") == [4, 10]
    assert starts("CONSISTENCY WEAK", ew.MIDDLE) == [1, 4, 10]
    with pytest.raises(QueryError, match="to block for 60000 ticks"):
        starts("CONSISTENCY (BLOCK 1 MINUTE, REMEMBER 6 MILLISECONDS)")


def test_forced_progress_is_in_the_output() -> None:
    elements = [Insert(t, t + 2, A) for t in range(0, 50, 5)]
    ctis = [e.t for e in ew.run(QUERIES["count"], {"S": elements}, ew.consistency(0, 7), batch=1) if isinstance(e, Cti)]
    assert ctis == [*range(-7, 39, 5), INF]
    assert all(before < after for before, after in pairwise(ctis))


def test_an_input_that_rests_blocks_nobody_for_ever() -> None:
    """By the clock, an element waits no longer than it may, whatever application time does."""
    now = [0.0]
    level = ew.consistency(within=5.0)
    runtime = LocalRuntime(QUERIES["join"], clock=lambda: now[0], consistency=level)

    def said(seconds: float, **epoch: list[Element]) -> list[str]:
        now[0] += seconds
        found = runtime.push({name: batch_of(elements, SCHEMA) for name, elements in epoch.items()})
        return [str(element) for element in found["out"].elements()]

    assert said(0, S=[Insert(3, 9, A)]) == []
    assert said(1, T=[Insert(5, 8, A)]) == []
    assert said(2, S=[Insert(1, 2, B)]) == []
    assert said(1) == []
    assert said(1) == []  # [3, 9) has waited 5 seconds; its partner has not
    assert runtime.tau == 3
    assert said(1) == ["insert [5, 8) k='a' x=1 x_right=1"]
    assert said(0, T=[Insert(2, 7, A)]) == ["insert [3, 7) k='a' x=1 x_right=1"]  # late by the clock: at once
    assert said(0, T=[Insert(20, 21, A)]) == []
    assert [str(element) for element in runtime.close()["out"].elements()] == ["cti ∞"]
    with pytest.raises(QueryError, match="to wait for -1 seconds"):
        ew.consistency(within=-1)
