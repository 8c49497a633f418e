"""A large switch in slices: the past is loaded over epochs, rows go over a slice at a time, and the answer is right."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

import everwhen as ew
from engine.physical_copies import LAST, snapshots
from engine.test_cutover import test_old_before_and_new_from_there_on as old_before_and_new_from_there_on
from engine.test_remembered_past import FORMS, NAMES, SOURCES, batch, inputs_of, rows_of
from everwhen.core.time import INF
from everwhen.engine.session import network
from everwhen.engine.session.joining.gradual import GradualCutover
from everwhen.engine.session.joining.pace import Pace, Rate
from everwhen.engine.session.joining.row_parts import RowParts
from everwhen.engine.session.session import Session
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element
from everwhen.testing import assert_valid, check

TEXTS = {name: ew.source(f"{name}t", {f"t{name}": "string", f"v{name}": "int64"}) for name in "AB"}


def gradually(session: Session, name: str = "q") -> GradualCutover | None:
    exit = session._catalogue[name].exit
    assert exit is not None
    found = session._network.outlets[exit].cutover
    return found if isinstance(found, GradualCutover) else None


@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
def test_a_join_order_changes_in_slices(emit: str) -> None:
    left, right, _ = FORMS["join of three"]
    session, fresh = Session(emit=emit), Session(emit=emit)
    session._network.slice_rows = 6
    session.register("q", left)
    fresh.register("q", right)
    said: list[Element] = []
    other: list[Element] = []
    seen = 0
    for t in range(160 if emit == "ended" else 90):  # where every piece that ends is said by itself
        given = {name: batch(name, rows_of(name, t), Cti(t - lag)) for lag, name in enumerate(NAMES)}
        said += session.push(given)["q"].elements()
        other += fresh.push(given)["q"].elements()
        seen += gradually(session) is not None
        if t == 20:
            at = session.replace("q", right)
            assert at == 20
            assert gradually(session) is not None
    assert seen > 5, "it takes several epochs"
    assert not session.is_replaced("q")
    said += session.close()["q"].elements()
    other += fresh.close()["q"].elements()
    assert_valid(said)
    assert not any(isinstance(each, Adjust) for each in said), "both plans tell the same ends"
    ew.testing.assert_same_history(ew.History.of(said, right.schema), ew.History.of(other, right.schema))


def test_whoever_asks_why_it_is_silent_does_not_hurry_a_switch() -> None:
    """A copy would end it."""
    left, right, _ = FORMS["join of three"]
    session = Session(emit="final")
    session._network.slice_rows = 6
    session.register("q", left)
    for t in range(30):
        session.push({name: batch(name, rows_of(name, t), Cti(t - lag)) for lag, name in enumerate(NAMES)})
        if t == 20:
            session.replace("q", right)
    assert gradually(session) is not None
    found = session.waiting("q")
    assert gradually(session) is not None and found.reason == "not tried"
    assert "another plan takes over in slices" in str(found)
    while gradually(session) is not None:
        t += 1
        session.push({name: batch(name, rows_of(name, t), Cti(t - lag)) for lag, name in enumerate(NAMES)})
    assert session.waiting("q").reason != "not tried"


@pytest.mark.property
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("seed", range(1))
def test_random_switches_in_slices(kind: str, emit: str, seed: int) -> None:
    """Late rows, corrections, snapshots and other queries in between, slices of a few rows."""
    rng = random.Random(f"slices {kind} {emit} {seed}")
    forms, inputs = FORMS[kind], inputs_of(rng)
    rest = {name: list(elements) for name, elements in inputs.items()}
    session = Session(emit=emit)
    session._network.slice_rows = rng.choice([1, 1, 2])
    for name in NAMES:
        session.register(f"anchor {name}", SOURCES[name])
    was = at = 0
    session.register("q", forms[at])
    said: list[Element] = []
    while any(rest.values()):
        batches = {}
        for name, part in rest.items():
            count = rng.randint(0, 3)
            batches[name] = batch(name, *part[:count])
            del part[:count]
        heard = session.push(batches)
        assert "q" in heard, session.query("q").error
        said += heard["q"].elements()
        if rng.random() < 0.4 and not session.is_replaced("q"):
            was, at = at, rng.randrange(len(forms))
            (session.replace if rng.random() < 0.5 else session.migrate)("q", forms[at])
        if rng.random() < 0.1:
            queries: dict = {f"anchor {name}": SOURCES[name] for name in NAMES}
            queries["q"] = (forms[was], forms[at]) if session.is_replaced("q") else forms[at]
            state, rows = pickle.loads(pickle.dumps(session.snapshot())), session._network.slice_rows
            session = Session(emit=emit)
            session._network.slice_rows = rows
            session.restore(state, queries)
        if rng.random() < 0.1:
            session.register(None, forms[rng.randrange(len(forms))])
            session.remove(session.queries()[-1].name)
    said += session.close()["q"].elements()
    report = assert_valid(said)
    assert check(said).closed_up_to == INF
    assert emit != "final" or not report.adjusts
    read = {each for each in NAMES if kind == "join of three" or each != "C"}
    expected = list(ew.run(forms[0], {name: inputs[name] for name in read}, emit="final"))
    assert snapshots(said)[:LAST] == snapshots(expected)[:LAST]


@pytest.mark.property
@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("seed", range(2))
def test_random_plans_of_other_meanings(emit: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of cutovers, in slices of one row."""
    monkeypatch.setattr(network, "SLICE_ROWS", 1)
    old_before_and_new_from_there_on(emit, seed)


def test_another_meaning_takes_over_in_slices() -> None:
    """Before T the old answer, from there on the new one, also where all of it differs."""
    left, _, _ = FORMS["join of three"]
    other = left.where(ew.col("kA") > 0)
    session = Session()
    session._network.slice_rows = 2
    session.register("q", left)
    inputs: dict[str, list[Element]] = {name: [] for name in NAMES}
    said: list[Element] = []
    for t in range(40):
        for name in NAMES:
            inputs[name] += [rows_of(name, t), Cti(t)]
        said += session.push({name: batch(name, rows_of(name, t), Cti(t)) for name in NAMES})["q"].elements()
        if t == 15:
            at = session.replace("q", other.select(*left.schema.names))
    said += session.close()["q"].elements()
    assert_valid(said)
    got = snapshots(said)
    before, after = (snapshots(list(ew.run(each, inputs, emit="final"))) for each in (left, other))
    assert [got[t] for t in range(LAST)] == [(before if t < at else after)[t] for t in range(LAST)]


def test_rows_with_text_and_a_pool_that_is_collected() -> None:
    """Codes of texts change when the pool is tidied: what waits is recoded, and slices stay what they are."""
    a, b = (TEXTS[name].range(9) for name in "AB")
    old = a.join(b, on={"tA": "tB"})
    new = b.where(ew.col("vB") >= 0).join(a, on={"tB": "tA"}).select(*old.schema.names)
    session, fresh = Session(), Session()
    session._network.slice_rows = 2
    session.register("q", old)
    fresh.register("q", new)
    said: list[Element] = []
    other: list[Element] = []
    for t in range(40):
        given = {
            f"{name}t": ew.ElementBatch.of(
                [ew.Insert(t, t + 1, {f"t{name}": f"text {t % 4}", f"v{name}": t}), Cti(t)], TEXTS[name].schema
            )
            for name in "AB"
        }
        said += session.push(given)["q"].elements()
        other += fresh.push(given)["q"].elements()
        if t == 15:
            session.replace("q", new)
        found = gradually(session)
        if found is None or found.is_loading:
            session._network.pool.collect(force=True)
    said += session.close()["q"].elements()
    other += fresh.close()["q"].elements()
    assert_valid(said)
    ew.testing.assert_same_history(ew.History.of(said, new.schema), ew.History.of(other, new.schema))


def test_a_migration_goes_on_promising_and_keeps_no_more_than_both_plans() -> None:
    """The new plan is never given what is over by the time that it catches up, and forgets as it would."""
    a, b = SOURCES["A"].range(60), SOURCES["B"].range(60)
    old = a.join(b, on={"kA": "kB"})
    new = b.where(ew.col("kB") > -5).join(a, on={"kB": "kA"}).select(*old.schema.names)
    session, first, second = Session(), Session(), Session()
    session._network.slice_rows = 8
    for each, query in ((session, old), (first, old), (second, new)):
        each.register("q", query)
    said: list[Element] = []
    sliced = 0
    for t in range(180):
        given = {name: batch(name, ew.Insert(t, t + 1, {f"k{name}": t % 7, f"v{name}": t}), Cti(t)) for name in "AB"}
        if t == 70:
            session.migrate("q", new)
        (one, other) = (list(each.push(given)["q"].elements()) for each in (session, first))
        second.push(given)
        assert sorted(map(str, one)) == sorted(map(str, other)), "both say the same, and promise the same"
        said += one
        both = first.state_size().rows + second.state_size().rows
        assert session.state_size().rows <= both, f"at {t}"
        sliced += gradually(session) is not None
    assert sliced > 8 and not session.is_replaced("q")
    assert_valid(said)


def test_a_part_is_what_was_said_of_its_rows_and_what_is_over_goes() -> None:
    codec = RowCodec(ew.source("S", {"x": "int64"}).schema, Interner())
    rows = np.zeros((100, codec.width), np.int64)
    rows[:, -1] = np.arange(100)
    lo = np.arange(100, dtype=np.int64)
    parts = RowParts(codec, 7)
    for _ in range(2):
        parts.add(Changes(codec, lo, lo + 10, np.ones(100, np.int64), rows))
    of = parts.of(rows)
    assert parts.count == 4 and len(set(of.tolist())) == 4
    for part in range(4):
        found = parts.take(part, part + 1)
        assert sorted(found.rows[:, -1].tolist()) == sorted(2 * np.flatnonzero(of == part).tolist())
    parts.gone = 3
    for _ in range(4):
        parts.tidy(60)
    left = parts.take(3, 4)
    assert (left.hi > 60).sum() == 2 * ((of >= 3) & (lo + 10 > 60)).sum() == parts.state_size().rows
    assert parts.size < 2 * (of >= 3).sum()


def test_an_epoch_does_a_multiple_of_its_usual_work() -> None:
    rows = [0]
    pace = Pace(lambda: rows[0])
    assert pace.left(2.5) == 0, "nothing is known yet"
    for work in (10, 1000, 12):
        pace.begin()
        rows[0] += work
        pace.usual()
    pace.begin()
    rows[0] += 12
    pace.looked_at(3)
    assert pace.left(2.5) == 2.5 * 12 - 15
    rate = Rate()
    assert rate.fits(100, 4, 50) == 4, "how dear they are is not known"
    rate.took(20, 10)
    assert (rate.fits(30, 4, 50), rate.fits(0, 4, 50), rate.fits(1000, 4, 50)) == (15, 4, 50)
    rate.took(10, 10)
    assert rate.fits(30, 4, 50) == 20
