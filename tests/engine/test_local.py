"""The local runtime: shared nodes, several inputs and outputs, metadata, snapshots, and errors of its own API."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError
from everwhen.plan.lower import lower
from everwhen.reference import history as reference_history
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, assert_valid
from everwhen.testing.strategies import histories
from operators.differential import EMITS, SCHEMA, Trial, epochs, in_turn, sources, streams_of
from plans import COMPOSED, Plan, S, T, col
from state_files import loaded, stored, through_file

A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}


# --- several queries --------------------------------------------------------------------------------------------------


def several() -> dict[str, ew.Stream]:
    window = S.range(4)
    sums = window.group_by("k").agg(t=ew.sum("x"))
    return {
        "sums": sums,
        "highest": sums.aggregate(m=ew.max("t")),
        "joined": window.join(T, on="k"),
        "both": S.union(T),
        "as it is": S,
    }


@pytest.mark.parametrize("emit", EMITS)
@settings(max_examples=15)
@given(s=histories(SCHEMA, max_events=6), t=histories(SCHEMA, max_events=6), seed=st.integers(0, 2**32))
def test_several_queries_at_once(emit: str, s: History, t: History, seed: int) -> None:
    """Every output is what its query alone gives, and valid."""
    queries = several()
    given_ = {"S": s, "T": t}
    rng = random.Random(seed)
    runtime = LocalRuntime(queries, emit=emit)
    out: dict[str, list[Element]] = {name: [] for name in queries}
    for epoch in epochs(streams_of(given_, rng), rng):
        found = runtime.push(epoch)
        assert list(found) == list(queries)
        for name, elements in found.items():
            out[name] += elements.elements()
    for name, query in queries.items():
        assert_valid(out[name])
        expected = reference_history(query.node, given_, last=40)
        assert_same_history(clipped(History.of(out[name], query.schema), 40), expected)


def clipped(history: History, last: int) -> History:
    events = {}
    for (vs, ve, row), n in history.multiset.items():
        if vs < last:
            key = (vs, min(ve, last), row)
            events[key] = events.get(key, 0) + n
    return History(history.schema, events)


def test_shared_nodes_are_computed_once() -> None:
    names = [placed.name for placed in lower({n: q.node for n, q in several().items()}, Emit.CURRENT).operators]
    assert names.count("window") == 1
    assert sorted(names).count("aggregate") == 3  # facing the sink, below another operator, and of all groups


def test_two_sources_of_one_name_are_one_input() -> None:
    again = ew.source("S", SCHEMA)
    runtime = LocalRuntime(S.union(again))
    assert runtime.inputs == ("S",)
    out = runtime.push({"S": batch_of([Insert(0, 2, A), Cti(INF)], SCHEMA)})["out"]
    assert History.of(out).snapshot(1) == {("a", 1): 2}


def test_two_sources_of_one_name_must_agree() -> None:
    other = ew.source("S", {"k": "string"})
    with pytest.raises(QueryError, match="'S' is used with two schemas"):
        LocalRuntime({"a": S, "b": other})


def test_a_diamond_says_nothing_that_it_takes_back() -> None:
    """S - S, event by event: both sides of an epoch come together."""
    runtime = LocalRuntime(S.difference(S), emit="current")
    for epoch in in_turn([Insert(0, 5, A), Insert(1, 5, A), Insert(3, 4, B), Cti(INF)], 1):
        assert [e for e in runtime.push(epoch)["out"].elements() if not isinstance(e, Cti)] == []


# --- looking ----------------------------------------------------------------------------------------------------------


def test_metadata() -> None:
    now = [100.0]
    query = S.where(col("x") > 1).range(3).group_by("k").agg(n=ew.count())
    runtime = LocalRuntime(query, emit="current", clock=lambda: now[0])
    runtime.push({"S": batch_of([Insert(0, 1, A), Insert(0, 1, B), Insert(1, 2, B), Cti(1)], SCHEMA)})
    now[0] = 102.0
    found = {each.name.split(" ", 1)[1]: each for each in runtime.metadata()}
    assert list(found) == ["filter", "window", "aggregate"]
    assert (found["filter"].rows_in, found["filter"].rows_out, found["filter"].selectivity) == (3, 2, 2 / 3)
    assert (found["filter"].input_rate, found["filter"].output_rate) == (1.5, 1.0)
    assert [each.progress for each in found.values()] == [1, 1, 1]
    assert (found["filter"].state_rows, found["window"].state_rows) == (0, 0)
    assert found["aggregate"].state_rows > 0 and found["aggregate"].state_bytes > 0
    assert found["aggregate"].keeps
    size = runtime.state_size()
    assert size.rows >= found["aggregate"].state_rows and size.bytes > 0
    assert (runtime.tau, runtime.progress) == (1, {"S": 1})
    assert runtime.schema_of("S") == SCHEMA


def test_waits_for_names_the_quiet_input() -> None:
    runtime = LocalRuntime(S.join(T, on="k"), emit="final")
    assert {each.name.split(" ", 1)[1]: each.waits_for for each in runtime.metadata()}["join (keyed)"] == ("S", "T")
    runtime.push({"S": batch_of([Insert(0, 5, A), Cti(9)], SCHEMA), "T": batch_of([Insert(1, 3, A), Cti(2)], SCHEMA)})
    found = {each.name.split(" ", 1)[1]: each for each in runtime.metadata()}
    assert found["join (keyed)"].waits_for == ("T",)
    assert found["join (keyed)"].progress == 2
    assert found["final"].waits_for == (next(n for n in (e.name for e in runtime.metadata()) if "map" in n),)
    runtime.push({"T": batch_of([Cti(INF)], SCHEMA)})
    assert {each.name.split(" ", 1)[1]: each for each in runtime.metadata()}["join (keyed)"].waits_for == ("S",)
    runtime.close()
    assert {each.waits_for for each in runtime.metadata()} == {()}


def test_a_quiet_input_holds_only_its_own_outputs_back() -> None:
    runtime = LocalRuntime({"mine": S.distinct(), "both": S.union(T)}, emit="final")
    found = runtime.push({"S": batch_of([Insert(0, 2, A), Cti(5)], SCHEMA)})
    assert [str(e) for e in found["mine"].elements()] == ["insert [0, 2) k='a' x=1", "cti 5"]
    assert len(found["both"]) == 0
    found = runtime.close_input("T")
    assert [str(e) for e in found["both"].elements()] == ["insert [0, 2) k='a' x=1", "cti 5"]
    assert len(found["mine"]) == 0


# --- progress without data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emit", EMITS)
def test_empty_epochs_and_batches_say_nothing(emit: str) -> None:
    runtime = LocalRuntime(S.range(3).aggregate(n=ew.count()), emit=emit)
    assert len(runtime.push({})["out"]) == 0
    assert len(runtime.push({"S": batch_of([], SCHEMA)})["out"]) == 0
    runtime.push({"S": batch_of([Insert(0, 1, A), Cti(1)], SCHEMA)})
    assert len(runtime.push({})["out"]) == 0
    assert len(runtime.push({"S": batch_of([Cti(1)], SCHEMA)})["out"]) == 0


def test_a_cti_alone_settles_what_came_before() -> None:
    runtime = LocalRuntime(S.aggregate(n=ew.count()), emit="final")
    assert len(runtime.push({"S": batch_of([Insert(0, 9, A)], SCHEMA)})["out"]) == 0
    assert [str(e) for e in runtime.push({"S": batch_of([Cti(4)], SCHEMA)})["out"].elements()] == [
        "insert [0, 4) n=1",
        "cti 4",
    ]
    assert [str(e) for e in runtime.close()["out"].elements()] == ["insert [4, 9) n=1", "cti ∞"]


def test_a_run_without_any_input() -> None:
    runtime = LocalRuntime(S.join(T, on="k").aggregate(n=ew.count()), emit="final")
    assert [str(e) for e in runtime.close()["out"].elements()] == ["cti ∞"]


# --- snapshot and restore ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("plan", COMPOSED, ids=str)
@settings(max_examples=4)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_restart_after_every_epoch_is_invisible(plan: Plan, emit: str, data: st.DataObject, seed: int) -> None:
    """Element for element, not only as a history; the snapshot is plain data and can be used twice."""
    query = plan.build()
    some = histories(SCHEMA, max_events=6, allow_infinite=plan.infinite)
    given_ = {name: data.draw(some, label=name) for name in sources(query)}
    rng = random.Random(seed)
    pushes = epochs(streams_of(given_, rng, plan.infinite), rng)
    plain = LocalRuntime(query, emit=emit)
    trial = Trial(query, emit, given_)
    for epoch in pushes:
        expected = [*plain.push(epoch)["out"].elements()]
        state = through_file(trial.runtime.snapshot())
        frozen = stored(state)
        trial.restart(lambda _, state=state: state)
        trial.restart(lambda _, frozen=frozen: loaded(frozen))
        assert as_multiset(trial.push(epoch)) == as_multiset(expected)
        trial.collect()
    trial.close()


def as_multiset(elements: list[Element]) -> list[str]:
    """Within a step the order of elements with the same sync time is not fixed."""
    return sorted(map(str, elements))


def test_a_snapshot_is_not_changed_by_going_on() -> None:
    query = S.group_by("k").agg(t=ew.top_k("k", 2), m=ew.max("k"))
    runtime = LocalRuntime(query, emit="current")
    runtime.push({"S": batch_of([Insert(0, 9, A), Insert(1, 9, B)], SCHEMA)})
    state = through_file(runtime.snapshot())
    before = stored(state)
    runtime.push({"S": batch_of([Insert(3, 5, A), Cti(4)], SCHEMA)})
    again = LocalRuntime(query, emit="current")
    again.restore(state)
    again.push({"S": batch_of([Insert(3, 5, B), Cti(4)], SCHEMA)})
    third = LocalRuntime(query, emit="current")
    third.restore(state)
    assert stored(third.snapshot()) == before or third.snapshot()["tau"] == loaded(before)["tau"]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_unknown_inputs_are_named() -> None:
    runtime = LocalRuntime(S.union(T))
    with pytest.raises(QueryError, match="no running query reads 'Q', so it takes no batches; what is read: S, T"):
        runtime.push({"Q": batch_of([], SCHEMA)})
    with pytest.raises(QueryError, match="no running query reads 'Q', so it takes no batches; what is read: S, T"):
        runtime.close_input("Q")
    with pytest.raises(QueryError, match="no running query reads 'Q', so it takes no batches; what is read: S, T"):
        runtime.schema_of("Q")


@pytest.mark.parametrize("emit", ["everything", "", "FINAL"])
def test_unknown_emission_policies(emit: str) -> None:
    with pytest.raises(QueryError, match="there are final, ended, current, all"):
        LocalRuntime(S, emit=emit)


def test_no_query() -> None:
    with pytest.raises(QueryError, match="no query"):
        LocalRuntime({})


def test_push_after_close() -> None:
    runtime = LocalRuntime(S)
    runtime.close()
    with pytest.raises(QueryError, match="closed"):
        runtime.push({"S": batch_of([Insert(0, 1, A)], SCHEMA)})
    assert len(runtime.close()["out"]) == 0


def test_push_after_the_end_of_an_input() -> None:
    runtime = LocalRuntime(S.union(T))
    runtime.close_input("S")
    with pytest.raises(ew.InputError, match="behind the CTI ∞"):
        runtime.push({"S": batch_of([Insert(0, 1, A)], SCHEMA)})
    assert runtime.progress == {"S": INF, "T": NEVER}
    runtime.push({"T": batch_of([Insert(0, 1, A)], SCHEMA)})


def test_progress_of_a_fresh_runtime() -> None:
    runtime = LocalRuntime(S)
    assert (runtime.progress, runtime.tau) == ({"S": NEVER}, NEVER)
