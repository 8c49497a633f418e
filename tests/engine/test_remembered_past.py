"""A plan that joins is told of the past by who reads the same ports: a join order changes within one promise."""

from __future__ import annotations

import pickle
import random

import pytest

import everwhen as ew
from engine.physical_copies import LAST, copy_of, history, snapshots
from everwhen.core.time import INF
from everwhen.engine.session.session import Session
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.testing import assert_valid, check

NAMES = "ABC"
SOURCES = {name: ew.source(name, {f"k{name}": "int64", f"v{name}": "int64"}) for name in NAMES}
WINDOW = 12
A, B, C = (SOURCES[name].range(WINDOW) for name in NAMES)
COLUMNS = ("kA", "vA", "kB", "vB", "kC", "vC")


def joined(left: ew.Stream, right: ew.Stream, one: str, two: str) -> ew.Stream:
    return left.join(right, on={f"k{one}": f"k{two}"})


FORMS: dict[str, list[ew.Stream]] = {
    "join of three": [
        joined(joined(A, B, "A", "B"), C, "B", "C").select(*COLUMNS),
        joined(A, joined(B, C, "B", "C"), "A", "B").select(*COLUMNS),
        joined(joined(A, C, "A", "C"), B, "C", "B").select(*COLUMNS),
    ],
    "distinct": [
        joined(A.select("kA"), B.select("kB"), "A", "B").select("kA", "kB").distinct(),
        joined(A.select("kA").distinct(), B.select("kB").distinct(), "A", "B").select("kA", "kB"),
    ],
    "count of a join": [
        joined(A, B, "A", "B").group_by("kA").agg(n=ew.count()),
        joined(B, A, "B", "A").group_by("kA").agg(n=ew.count()),
    ],
}


def batch(name: str, *elements: Element) -> ElementBatch:
    return batch_of(list(elements), SOURCES[name].schema, name)


def rows_of(name: str, t: int) -> Insert:
    return Insert(t, t + 1, {f"k{name}": t % 3, f"v{name}": t})


@pytest.mark.parametrize("emit", ["final", "current"])
def test_a_join_order_changes_within_one_promise(emit: str) -> None:
    """The windows are 12 long: by its source alone a window is known from 11 behind the promise on."""
    left, right, _ = FORMS["join of three"]
    session = Session(emit=emit)
    handle = session.register("q", left)
    for t in range(40):
        session.push({name: batch(name, rows_of(name, t), Cti(t - lag)) for lag, name in enumerate(NAMES)})
    before = session.state_size().rows
    assert handle.replace(right) == 39, "the largest promise"
    assert session.state_size().rows <= 3 * before
    assert list(session.push({})["q"].elements()) == [], "both tell the same ends"
    assert session.is_replaced("q")
    session.push({name: batch(name, rows_of(name, 40), Cti(40)) for name in NAMES})
    assert not session.is_replaced("q"), "the output has promised 39"


def test_without_a_reader_the_source_alone_tells() -> None:
    session = Session()
    session.register("q", A.select("kA").group_by("kA").agg(n=ew.count()))
    for t in range(40):
        session.push({"A": batch("A", rows_of("A", t), Cti(t))})
    assert (
        session.replace("q", A.select("kA").where(ew.col("kA") > 0).group_by("kA").agg(n=ew.count())) == 39 + WINDOW - 1
    )


def test_a_distinct_tells_its_input() -> None:
    session = Session()
    window = A.select("kA")
    session.register("d", window.distinct())
    session.register("q", window.group_by("kA").agg(n=ew.count()))
    for t in range(40):
        session.push({"A": batch("A", rows_of("A", t), Cti(t))})
    assert session.replace("q", window.where(ew.col("kA") > 0).group_by("kA").agg(n=ew.count())) == 39


def inputs_of(rng: random.Random) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for name in NAMES:
        said: list[Element] = []
        for each in copy_of(history(rng), rng):
            if isinstance(each, Insert | Adjust):
                row = {f"k{name}": each.row["k"], f"v{name}": each.row["v"]}
                if isinstance(each, Insert):
                    said.append(Insert(each.vs, each.ve, row))
                else:
                    said.append(Adjust(each.vs, each.ve, each.vnew, row))
            else:
                said.append(each)
        found[name] = said
    return found


@pytest.mark.property
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("seed", range(2))
def test_equal_plans_take_over_from_each_other(kind: str, emit: str, seed: int) -> None:
    """Late rows, corrections, several migrations, snapshots in between: the answer is that of one who never moved."""
    rng = random.Random(f"{kind} {emit} {seed}")
    forms = FORMS[kind]
    inputs = inputs_of(rng)
    rest = {name: list(elements) for name, elements in inputs.items()}
    session = Session(emit=emit)
    for name in NAMES:
        session.register(f"anchor {name}", SOURCES[name])
    at = 0
    session.register("q", forms[at])
    was = at
    said: list[Element] = []
    while any(rest.values()):
        batches = {}
        for name, part in rest.items():
            count = rng.randint(0, 6)
            batches[name] = batch(name, *part[:count])
            del part[:count]
        heard = session.push(batches)
        assert "q" in heard, session.query("q").error
        said += heard["q"].elements()
        if rng.random() < 0.4 and not session.is_replaced("q"):
            was, at = at, rng.randrange(len(forms))
            session.replace("q", forms[at])
        if rng.random() < 0.2:
            queries: dict = {f"anchor {name}": SOURCES[name] for name in NAMES}
            queries["q"] = (forms[was], forms[at]) if session.is_replaced("q") else forms[at]
            state = pickle.loads(pickle.dumps(session.snapshot()))
            session = Session(emit=emit)
            session.restore(state, queries)
    said += session.close()["q"].elements()
    report = assert_valid(said)
    assert check(said).closed_up_to == INF
    assert emit != "final" or not report.adjusts
    read = {each for each in NAMES if kind == "join of three" or each != "C"}
    expected = list(ew.run(forms[0], {name: inputs[name] for name in read}, emit="final"))
    assert snapshots(said)[:LAST] == snapshots(expected)[:LAST]
