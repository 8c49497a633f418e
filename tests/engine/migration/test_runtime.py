"""A local runtime goes over to another plan, or becomes another query: what it says, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import everwhen as ew
from engine.migration import replaced_runs
from engine.migration.migrated_runs import Counts, run_once
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session import network
from everwhen.errors import QueryError
from everwhen.stream.element import Adjust, Cti, Insert
from everwhen.stream.element_batch import ElementBatch
from everwhen.testing import assert_same_history, assert_valid
from state_files import through_file

S = ew.source("S", {"k": "int64", "v": "int64"})
R = ew.source("R", {"k": "int64", "w": "int64"})
k, v, w = (ew.col(name) for name in "kvw")
LATE = S.range(10).join(R.range(10), on="k").where(v > 0).select("k", "v", "w")
EARLY = S.where(v > 0).range(10).join(R.range(10), on="k").select("k", "v", "w")


def rows(source: ew.Stream, times: range, cti: int | None = None) -> ElementBatch:
    columns = source.schema.names
    found: list[ew.Element] = [Insert(t, t + 1, dict(zip(columns, (t % 3, t % 4), strict=True))) for t in times]
    return ElementBatch.of([*found, *([] if cti is None else [Cti(cti)])], source.schema)


def of_s(*elements: ew.Element) -> ElementBatch:
    return ElementBatch.of(list(elements), S.schema)


def said(batch: ElementBatch) -> list[str]:
    return [str(each) for each in batch.elements()]


# -- random runs -------------------------------------------------------------------------------------------------------


@pytest.mark.property
@pytest.mark.parametrize("part", range(4))
def test_random_migrations_are_exact(part: int) -> None:
    counts = Counts()
    for seed in range(part * 10, part * 10 + 10):
        run_once(seed, counts)
    assert counts.migrations > 5 and counts.restarts > 5


@pytest.mark.parametrize("part", range(3))
def test_random_replacements_are_exact(part: int) -> None:
    counts = Counter[str]()
    for seed in range(part * 8, part * 8 + 8):
        replaced_runs.run_once(seed, counts)
    assert min(counts["replaced"], counts["restarts"]) > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_five_thousand_random_replacements_are_exact(part: int) -> None:
    for seed in range(1000 + part * 100, 1100 + part * 100):
        replaced_runs.run_once(seed, Counter())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100))
def test_ten_thousand_random_migrations_are_exact(part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        run_once(seed, Counts())


# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
def test_a_switch_says_nothing_where_both_plans_say_the_same(emit: str) -> None:
    """A window, a join and groups in many epochs: not a single element more, or another one."""
    stays, goes = LocalRuntime(LATE, emit), LocalRuntime(LATE, emit)
    for t in range(0, 60, 3):
        epoch = {"S": rows(S, range(t, t + 3), t), "R": rows(R, range(t, t + 3), t)}
        if t in (15, 36):
            went = goes.migrate(EARLY if t == 15 else LATE)
            assert not went.done and went.at >= t - 3
        one, other = said(goes.push(epoch)["out"]), said(stays.push(epoch)["out"])
        assert sorted(one) == sorted(other), t
    assert goes.migrating is None
    one, other = said(goes.close()["out"]), said(stays.close()["out"])
    assert sorted(one) == sorted(other) and one[-1:] == other[-1:] == ["cti ∞"]


@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
def test_a_large_switch_goes_in_slices(emit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The past is given some rows at a time, rows go over in parts; a snapshot lets all of it go over at once."""
    monkeypatch.setattr(network, "SLICE_ROWS", 2)
    stays, goes = LocalRuntime(LATE, emit), LocalRuntime(LATE, emit)
    one: list[ew.Element] = []
    other: list[ew.Element] = []
    sliced = 0
    for t in range(0, 330, 3):
        epoch = {"S": rows(S, range(t, t + 3), t), "R": rows(R, range(t, t + 3), t)}
        if t in (15, 210):
            now, before = (EARLY, LATE) if t == 15 else (LATE, EARLY)
            assert not goes.migrate(now).done and goes._gradual is not None
        one += goes.push(epoch)["out"].elements()
        other += stays.push(epoch)["out"].elements()
        sliced += goes._gradual is not None
        if goes._gradual is not None:  # to ask why it is silent does not hurry it
            assert "takes over in slices" in str(goes.waiting()) and goes._gradual is not None
        if t == 216:
            state, goes = goes.snapshot(), LocalRuntime(now, emit)
            goes.restore(through_file(state), replaced=None if state["migrating"] is None else before)
    assert sliced > 20 and goes.migrating is None
    one += goes.close()["out"].elements()
    other += stays.close()["out"].elements()
    assert_valid(one)
    assert_same_history(one, other)
    assert emit != "final" or not any(isinstance(each, Adjust) for each in one)


@pytest.mark.parametrize("slice_rows", [1, 1 << 15])
@pytest.mark.parametrize("way", ["migrate", "replace"])
def test_what_a_closed_group_has_said_stays_said_in_final(
    way: str, slice_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output cannot promise it, because the key is dropped; the new plan does not know yet that it is final."""
    monkeypatch.setattr(network, "SLICE_ROWS", slice_rows)
    runtime = LocalRuntime(S.group_by("k").agg(n=ew.sum("v")).select("n"), "final")
    again = S.where(v.is_null() | ~v.is_null()).group_by("k").agg(n=ew.sum("v")).select("n")
    heard = said(runtime.push({"S": of_s(*(Insert(t, t + 2, {"k": t, "v": t}) for t in (7, 4, 5)))})["out"])
    closed = ew.Punct(ew.punctuation.Punctuation({"k": ew.punctuation.OneOf((7,))}, 8))
    heard += said(runtime.push({"S": of_s(closed, Cti(1))})["out"])
    assert heard == ["insert [7, 8) n=7", "cti 1"]
    assert getattr(runtime, way)(again).at == (8 if way == "replace" else 1)
    for _ in range(4):
        heard += said(runtime.push({})["out"])
    for t in (3, *range(100, 120)):
        heard += said(runtime.push({"S": of_s(Cti(t))})["out"])
    assert runtime.migrating is None
    assert sorted(each for each in heard if not each.startswith("cti")) == [
        "insert [4, 6) n=4", "insert [5, 7) n=5", "insert [7, 8) n=7", "insert [8, 9) n=7",
    ]  # fmt: skip


def test_groups_that_are_open_are_not_corrected() -> None:
    """In `current` an open piece has no end: at the switch neither plan may tell one."""
    late = S.range(20).where(v > 0).group_by("k").agg(n=ew.count())
    early = S.where(v > 0).range(20).group_by("k").agg(n=ew.count())
    stays, goes = LocalRuntime(late), LocalRuntime(late)
    for t in range(0, 100, 2):
        epoch = {"S": rows(S, range(t, t + 2), t)}
        if t == 50:
            goes.migrate(early)
        one, other = list(goes.push(epoch)["out"].elements()), list(stays.push(epoch)["out"].elements())
        assert sum(isinstance(each, Adjust) for each in one) == sum(isinstance(each, Adjust) for each in other), t
        assert_same_history(one, other) if not any(isinstance(each, Adjust) for each in one) else None
    assert goes.migrating is None


def test_the_old_plan_goes_and_what_both_share_stays() -> None:
    runtime = LocalRuntime(LATE)
    before = {node.placed.what: node for node in runtime.operators}
    runtime.push({"S": rows(S, range(9), 9), "R": rows(R, range(9), 9)})
    runtime.migrate(EARLY)
    assert len(runtime.operators) > len(before)
    runtime.push({"S": rows(S, range(30, 32), 40), "R": rows(R, range(30, 32), 40)})
    fresh = [placed.what for placed in LocalRuntime(EARLY).plan.operators]
    assert [node.placed.what for node in runtime.operators] == fresh, "as if it had always had the new plan"
    (window,) = (node for node in runtime.operators if before.get(node.placed.what) is node)
    assert window.placed.inputs[0].source == "R"


def test_a_query_becomes_another_one_at_an_instant() -> None:
    few, many = S.where(v > 2).select("k"), S.where(v > 0).select("k")
    runtime = LocalRuntime(few)
    told = list(runtime.push({"S": rows(S, range(8), 8)})["out"].elements())
    went = runtime.replace(many, at=20)
    assert (went.at, went.done, runtime.migrating) == (20, False, ("out", 20))
    told += runtime.push({"S": rows(S, range(8, 30), 30)})["out"].elements()
    assert runtime.migrating is None
    told += runtime.close()["out"].elements()
    assert_valid(told)
    inputs = [*rows(S, range(30)).elements()]
    one, other = (list(ew.run(query, {"S": inputs}, emit="final")) for query in (few, many))
    expected = [each for each in one if isinstance(each, Insert) and each.vs < 20]
    expected += [each for each in other if isinstance(each, Insert) and each.vs >= 20]
    assert_same_history(told, expected)


def test_one_of_several_queries_goes_over() -> None:
    runtime = LocalRuntime({"a": LATE, "b": S.range(10).distinct()})
    stays = LocalRuntime({"a": LATE, "b": S.range(10).distinct()})
    for t in range(0, 40, 4):
        epoch = {"S": rows(S, range(t, t + 4), t), "R": rows(R, range(t, t + 4), t)}
        if t == 8:
            runtime.migrate(EARLY, "a")
        one, other = runtime.push(epoch), stays.push(epoch)
        assert {name: said(each) for name, each in one.items()} == {name: said(each) for name, each in other.items()}
    assert runtime.migrating is None


def test_functions_of_one_name_are_not_taken_for_one() -> None:
    """Two lambdas of a module are called the same; a plan with the other one has operators of its own."""
    one, other = (S.select(k=ew.udf(f, v, type="int64")).distinct() for f in (lambda x: x + 1, lambda x: x + 2))
    runtime = LocalRuntime(one)
    runtime.push({"S": rows(S, range(4), 4)})
    assert runtime.replace(other).at == 4
    told = runtime.push({"S": ElementBatch.of([Insert(9, 10, {"k": 0, "v": 5}), Cti(20)], S.schema)})["out"]
    assert said(told) == ["insert [9, 10) k=7", "cti 20"]


def test_it_can_be_asked_why_it_waits_while_it_goes_over() -> None:
    runtime = LocalRuntime(LATE, "final")
    runtime.push({"S": rows(S, range(9), 9), "R": rows(R, range(9), 5)})
    runtime.migrate(EARLY)
    assert "R" in str(runtime.waiting())
    assert runtime.metadata()


# -- state -------------------------------------------------------------------------------------------------------------


def test_a_runtime_that_goes_over_is_restored_with_the_query_that_it_left() -> None:
    runtime = LocalRuntime(LATE)
    runtime.push({"S": rows(S, range(9), 9), "R": rows(R, range(9), 9)})
    runtime.migrate(EARLY)
    state = through_file(runtime.snapshot())
    with pytest.raises(QueryError, match=r"going over to another plan, at .*: give the query that it left"):
        LocalRuntime(EARLY).restore(state)
    again = LocalRuntime(EARLY)
    again.restore(state, replaced=LATE)
    assert again.migrating == runtime.migrating
    for t in range(9, 40, 4):
        epoch = {"S": rows(S, range(t, t + 4), t), "R": rows(R, range(t, t + 4), t)}
        assert said(again.push(epoch)["out"]) == said(runtime.push(epoch)["out"])
    assert again.migrating is None
    third = LocalRuntime(EARLY)
    third.restore(through_file(again.snapshot()))
    with pytest.raises(QueryError, match="nothing was replaced"):
        LocalRuntime(EARLY).restore(again.snapshot(), replaced=LATE)
    assert said(third.close()["out"]) == said(runtime.close()["out"])


def test_what_comes_for_instants_before_the_switch_is_not_said_after_a_restart() -> None:
    """The old plan had promised more than its source, whose rows may still change there."""
    old, new = S.range(6, 2).group_by("k").agg(v=ew.max("v")), S.select("k", "v")
    runtime = LocalRuntime(old, emit="all")
    heard = [*runtime.push({"S": of_s(Insert(0, 9, {"k": 1, "v": 1}), Cti(0))})["out"].elements()]
    assert runtime.replace(new).at == 1
    state, runtime = through_file(runtime.snapshot()), LocalRuntime(new, emit="all")
    runtime.restore(state)
    heard += runtime.push({"S": of_s(Adjust(0, 9, 5, {"k": 1, "v": 1}))})["out"].elements()
    heard += runtime.push({"S": of_s(Adjust(0, 5, 0, {"k": 1, "v": 1}))})["out"].elements()
    heard += runtime.close()["out"].elements()
    assert_valid(heard)
    assert [str(each) for each in heard[-2:]] == ["adjust [1, 5 -> 1) k=1 v=1", "cti ∞"]


def test_what_was_skipped_is_not_taken_for_known() -> None:
    """Nobody cares for the answer before an instant: a plan that joins knows nothing of it either."""
    stays, goes = LocalRuntime(LATE), LocalRuntime(LATE)
    for runtime in (stays, goes):
        runtime.push({"S": rows(S, range(9), 4), "R": rows(R, range(9), 4)})
        runtime.fast_forward(20)
    assert goes.migrate(EARLY).at >= 20
    one, other = [], []
    for t in range(9, 60, 5):
        epoch = {"S": rows(S, range(t, t + 5), t), "R": rows(R, range(t, t + 5), t)}
        one += said(goes.push(epoch)["out"])
        other += said(stays.push(epoch)["out"])
    assert goes.migrating is None and sorted(one) == sorted(other)


def test_inputs_that_no_query_reads_any_more_are_none_of_the_state() -> None:
    """While a query goes over to one that reads less, behind that, and on the way back; it tells why it waits."""
    both, one = LATE.select("k"), S.range(10).select("k")
    runtime, left, now = LocalRuntime(both), both, both
    for t, goes in ((0, one), (40, None), (80, both), (120, None), (160, one), (200, None)):
        left, now = now, goes or now
        for name, cti in (("S", t + 5), ("R", t + 5)):
            runtime.push({name: rows({"S": S, "R": R}[name], range(t, t + 9), cti)})
        if goes is not None:
            assert not runtime.replace(goes, at=t + 20).done
        under = runtime.migrating is not None
        assert under == (goes is not None)
        again = LocalRuntime(now)
        again.restore(through_file(runtime.snapshot()), left if under else None)
        assert set(again.inputs) == ({"S"} if now is one and not under else {"S", "R"})
        assert set(runtime.inputs) == {"S", "R"}, "it still takes them, and may read them again"
        runtime.waiting()
        epoch = {name: rows({"S": S, "R": R}[name], range(t + 9, t + 12), t + 10) for name in again.inputs}
        assert said(again.push(epoch)["out"]) == said(runtime.push(epoch)["out"])
    assert said(again.close()["out"]) == said(runtime.close()["out"])


@pytest.mark.parametrize("reads", ["a", "b"])
def test_a_merge_is_left_with_the_copies_that_have_joined_it(reads: str) -> None:
    copies = {name: ew.source(name, {"k": "int64"}) for name in "ab"}
    merged = ew.lmerge(*copies.values())
    batch = ElementBatch.of([Insert(0, 9, {"k": 1}), Cti(3)], copies["a"].schema)
    for at in (None, 100):
        runtime = LocalRuntime(merged)
        runtime.push({"a": batch, "b": batch})
        runtime.attach("c", since=0, like="a")
        went = runtime.replace(copies[reads], at)
        assert went.done == (at is None)
        again = LocalRuntime(copies[reads])
        again.restore(through_file(runtime.snapshot()), None if went.done else merged)
        runtime.waiting()
        later = ElementBatch.of([Insert(5, 9, {"k": 2}), Cti(200)], copies["a"].schema)
        epoch = {name: later for name in again.inputs}
        assert said(again.push(epoch)["out"]) == said(runtime.push(epoch)["out"])
        assert again.migrating == runtime.migrating
        assert said(again.close()["out"]) == said(runtime.close()["out"])


@pytest.mark.parametrize("old", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("new", ["final", "ended", "current", "all"])
def test_a_change_of_the_policy_before_is_known_to_the_state(old: str, new: str) -> None:
    """Whatever the level of the runtime that takes it up: both plans are built as they were."""
    query = S.range(5, slide=2).aggregate(t=ew.sum("v"))
    other = S.where(ew.lit(True)).range(5, slide=2).aggregate(t=ew.sum("v"))
    runtime = LocalRuntime(query, old)
    runtime.push({"S": of_s(Insert(1, 2, {"k": 1, "v": 2}), Cti(-1))})
    runtime.change(emit=new)
    runtime.push({"S": of_s(Insert(3, 6, {"k": 1, "v": 2}))})
    assert not runtime.migrate(other).done
    runtimes = [runtime]
    for level in (old, new):
        runtimes.append(LocalRuntime(other, level))
        runtimes[-1].restore(through_file(runtime.snapshot()), replaced=query)
        assert runtimes[-1].consistency.emit.value == new
    runtime.waiting()
    for t in (4, 30, 33):
        epoch = {"S": of_s(Insert(t, t + 3, {"k": 1, "v": t}), Cti(t))}
        one, *others = (said(each.push(epoch)["out"]) for each in runtimes)
        assert all(each == one for each in others), t
    assert runtime.migrating is None
    runtimes.append(LocalRuntime(other))
    runtimes[-1].restore(through_file(runtime.snapshot()))
    for emit in (old, "current"):
        one, *others = (said(each.change(emit=emit)["out"]) for each in runtimes)
        assert all(each == one for each in others), emit
    one, *others = (said(each.close()["out"]) for each in runtimes)
    assert all(each == one for each in others)


# -- refused, and nothing has changed ----------------------------------------------------------------------------------


def _running(query: ew.Stream) -> LocalRuntime:
    runtime = LocalRuntime(query)
    runtime.push({name: rows({"S": S, "R": R}[name], range(12), 10) for name in runtime.inputs})
    return runtime


def _unharmed(runtime: LocalRuntime, query: ew.Stream) -> None:
    """It goes on as one that was never asked."""
    other = _running(query)
    assert [node.placed.what for node in runtime.operators] == [node.placed.what for node in other.operators]
    epoch = {name: rows({"S": S, "R": R}[name], range(12, 40), 35) for name in runtime.inputs}
    assert said(runtime.push(epoch)["out"]) == said(other.push(epoch)["out"])
    assert said(runtime.close()["out"]) == said(other.close()["out"])


def test_other_columns_are_refused() -> None:
    runtime = _running(LATE)
    with pytest.raises(QueryError, match=r"has the columns \(k int64, v int64, w int64\); one with \(k int64\) cannot"):
        runtime.migrate(EARLY.select("k"))
    _unharmed(runtime, LATE)


def test_a_plan_whose_past_nobody_knows_is_refused_by_the_name_of_the_operator() -> None:
    query = S.range(10)
    runtime = _running(query)
    with pytest.raises(QueryError, match="the operator 'rows window' needs all of the past"):
        runtime.replace(S.rows(3))
    _unharmed(runtime, query)


def test_a_second_migration_meanwhile_is_refused() -> None:
    runtime = _running(LATE)
    runtime.migrate(EARLY)
    with pytest.raises(QueryError, match=r"'out' is going over to another plan, at \d+: it can go over to a third one"):
        runtime.migrate(LATE)
    with pytest.raises(QueryError, match="its consistency can change when that is done"):
        runtime.change(emit="final")
    runtime.push({"S": rows(S, range(50, 51), 60), "R": rows(R, range(50, 51), 60)})
    assert runtime.migrate(LATE).at >= 60


def test_a_name_that_is_not_running_is_refused() -> None:
    runtime = _running(LATE)
    with pytest.raises(QueryError, match="there is no query 'other' here; there is out"):
        runtime.migrate(EARLY, "other")
    _unharmed(runtime, LATE)


def test_other_sources_are_refused() -> None:
    query = S.range(10).select("k")
    runtime = _running(query)
    with pytest.raises(QueryError, match="reads R, which is no input of this runtime; it has S"):
        runtime.replace(R.range(10).select("k"))
    _unharmed(runtime, query)


def test_an_instant_that_is_too_early_is_refused() -> None:
    query = S.where(v > 1)
    runtime = _running(query)
    with pytest.raises(QueryError, match="cannot take over at 3: it can from 10 on, because everything before"):
        runtime.replace(S.where(v > 2), at=3)
    _unharmed(runtime, query)


def test_what_is_no_query_is_told() -> None:
    text: Any = "SELECT 1"
    session = ew.Session()
    session.register("q", S)
    for migrate in (LocalRuntime(S).migrate, partial(session.migrate, "q")):
        with pytest.raises(QueryError, match=r"and not 'SELECT 1'; a text becomes one with ew\.sql\(text, streams…\)"):
            migrate(text)


@pytest.mark.parametrize("t", ["9", True, 2**62, 0.5])
def test_what_is_no_instant_is_told(t: Any) -> None:
    runtime, session = LocalRuntime(S), ew.Session()
    session.register("q", S)
    asked: tuple[Callable[[], Any], ...] = (
        partial(runtime.needs, t), partial(session.needs, t, "q"), partial(runtime.replace, S, t),
        partial(session.replace_all, {"q": S}, t),
    )  # fmt: skip
    for ask in asked:
        with pytest.raises(QueryError, match="an instant is a whole number of ticks"):
            ask()


def test_an_order_that_is_said_is_not_given_up() -> None:
    query = ew.sql("SELECT k, v FROM S WINDOW(RANGE 5) ORDER BY v", S)
    runtime = LocalRuntime(query, "final")
    runtime.push({"S": rows(S, range(12), 10)})
    with pytest.raises(QueryError, match="ORDER BY cannot take over"):
        runtime.replace(S.range(5))
    assert runtime.migrating is None and len(runtime.operators) == len(LocalRuntime(query, "final").operators)


def test_a_closed_runtime_has_no_plan() -> None:
    runtime = _running(LATE)
    runtime.close()
    with pytest.raises(QueryError, match="closed"):
        runtime.migrate(EARLY)
