"""After a cutover a query runs as a new one of its plan would: the same encoder, no filter too many, shared again."""

from __future__ import annotations

import pickle

import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.session.output_port import SharedOutput
from everwhen.engine.session.session import Session
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.testing import assert_valid

S = ew.source("S", {"k": "int64", "v": "int64"})
k, v = ew.col("k"), ew.col("v")
PAIRS = {
    "groups": (
        S.range(5).group_by("k").agg(n=ew.count()),
        S.range(5).where(k >= 0).group_by("k").agg(n=ew.count()),
    ),
    "one group": (S.range(5).aggregate(n=ew.count()), S.where(k >= 0).range(5).aggregate(n=ew.count())),
    "rows": (S.range(5).select("k").distinct(), S.where(v >= -1).range(5).select("k").distinct()),
    "events": (S.where(k >= 0), S.where(k > -1)),
    "join": (S.range(5).join(S.range(4), on="k"), S.where(k >= 0).range(5).join(S.range(4), on="k")),
}


def batch(*elements: Element) -> ElementBatch:
    return batch_of(list(elements), S.schema, "S")


def row(t: int) -> dict[str, int]:
    return {"k": t % 3, "v": t}


def epoch(t: int) -> ElementBatch:
    """Times of one epoch do not end at the promise of another."""
    at = 4 * t
    late = Insert(at - 2, at + 10, {"k": t % 3, "v": 1000 + t})
    shorter = [Adjust(at - 6, at + 6, at + 3, {"k": (t - 1) % 3, "v": 999 + t})] if t > 2 else []
    return batch(Insert(at, at + 6, row(t)), late, *shorter, Cti(at - 3))


def output(session: Session, name: str = "q") -> SharedOutput:
    exit = session._catalogue[name].exit
    assert exit is not None
    return session._network.outlets[exit]


@pytest.mark.parametrize("emit", ["final", "ended", "current", "all"])
@pytest.mark.parametrize("kind", PAIRS)
def test_the_output_is_that_of_a_new_query(kind: str, emit: str) -> None:
    """Within some epochs; meanwhile and afterwards the answer is that of one who never moved, as a valid stream."""
    old, new = PAIRS[kind]
    session, fresh = Session(emit=emit), Session(emit=emit)
    session.register("q", old)
    fresh.register("q", new)
    said: list[Element] = []
    other: list[Element] = []
    for t in range(40):
        said += session.push({"S": epoch(t)})["q"].elements()
        other += fresh.push({"S": epoch(t)})["q"].elements()
        if t == 12:
            session.replace("q", new)
        if t == 30:
            state = pickle.loads(pickle.dumps(session.snapshot()))
            session = Session(emit=emit)
            session.restore(state, {"q": new})
    got, expected = output(session), output(fresh)
    if (kind, emit) != ("events", "ended"):  # where events that have not ended are held back now
        assert session.state_size().rows == fresh.state_size().rows
        assert type(got.encoder) is type(expected.encoder)
        assert (got.rows, got.nets, got.filter is None) == (False, False, expected.filter is None)
    if kind != "events":  # its filter has become an operator
        assert not session._catalogue["q"].whole
        assert len(session.metadata()) == len(fresh.metadata())
    said += session.close()["q"].elements()
    other += fresh.close()["q"].elements()
    assert_valid(said)
    ew.testing.assert_same_history(ew.History.of(said, new.schema), ew.History.of(other, new.schema))


def test_each_kind_has_its_encoder() -> None:
    found = {}
    for kind, (_, new) in PAIRS.items():
        session = Session()
        session.register("q", new)
        found[kind] = type(output(session).encoder)
    assert found["groups"] is GroupChangelogEncoder
    assert found["rows"] is found["join"] is ChangelogEncoder
    assert found["events"] is EventChangelogEncoder


def test_it_is_shared_again() -> None:
    """Whoever asks for the same later uses the same operators and the same output."""
    old, new = PAIRS["groups"]
    session = Session()
    session.register("q", old)
    for t in range(20):
        session.push({"S": epoch(t)})
        if t == 5:
            session.replace("q", new)
    before = len(session.metadata())
    session.register("beside", new)
    assert len(session.metadata()) == before
    session.remove("q")
    assert session.push({"S": epoch(20)})["beside"] is not None


def test_a_query_that_runs_already_keeps_its_output() -> None:
    """Two outputs of one plan stay two: what they have said has other names."""
    old, new = PAIRS["groups"]
    session = Session()
    session.register("q", old)
    session.register("beside", new)
    said: dict[str, list[Element]] = {"q": [], "beside": []}
    for t in range(20):
        for name, found in session.push({"S": epoch(t)}).items():
            said[name] += found.elements()
        if t == 5:
            session.replace("q", new)
    for name, found in session.close().items():
        said[name] += found.elements()
        assert_valid(said[name])
    ew.testing.assert_same_history(*(ew.History.of(each, new.schema) for each in said.values()))


def test_events_that_were_cut_must_end_first() -> None:
    """An event that is known downstream by the cutover's start cannot be the source's own."""
    session = Session()
    handle = session.register("q", S.where(k > 0))
    session.push({"S": batch(Insert(0, 50, {"k": 1, "v": 0}), Insert(0, INF, {"k": 0, "v": 0}), Cti(5))})
    handle.replace(S.where(k == 0))
    for t in range(6, 20):
        session.push({"S": batch(Cti(t))})
    assert isinstance(output(session).encoder, ChangelogEncoder), "[5, ∞) is not [0, ∞)"
    session.push({"S": batch(Adjust(0, INF, 30, {"k": 0, "v": 0}))})
    for t in range(33, 240, 3):
        session.push({"S": batch(Insert(t, t + 4, {"k": 0, "v": t}), Cti(t))})
    assert isinstance(output(session).encoder, EventChangelogEncoder)
