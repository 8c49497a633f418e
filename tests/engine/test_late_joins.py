"""Queries that join after promises about data: from `valid_from` on they are right, or they are refused.

What is promised is forgotten before the CTI has passed it: by guards, operators and chains.  So what they know of the
past begins where all that they have forgotten has ended.
"""

from __future__ import annotations

import random

import pytest

import everwhen as ew
from engine.punctuated_session import family, rehearse
from everwhen.core.time import INF, NEVER
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.stream.element import Cti, Element, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from example_counts import sampled_pairs
from operators.differential import EMITS, assert_snapshots
from operators.punctuated import PunctuatedOutput
from plans import PLANS, Plan

A = ew.source("A", {"k": "int64", "v": "int64"})
B = ew.source("B", {"k": "int64", "v": "int64"})


def row(k: int, v: int = 5) -> dict[str, int]:
    return {"k": k, "v": v}


def punct(t: int = INF, **match: int) -> Punct:
    return Punct(ew.punctuation.Punctuation({name: ew.punctuation.OneOf((value,)) for name, value in match.items()}, t))


def joined(first: ew.Stream, elements: list[Element], late: ew.Stream, emit: str = "all") -> int:
    """Let a query join behind elements of A; its `valid_from`, once it is seen that the answer is right from there."""
    session = Session(emit=emit)
    session.register("first", first)
    session.register("b", B)
    session.push({"B": batch_of([Insert(0, 30, row(0)), Insert(0, 30, row(1))], B.schema)})
    for element in elements:
        session.push({"A": batch_of([element], A.schema)})
    since = session.register("late", late).valid_from
    said = PunctuatedOutput(late.schema)
    more = [Insert(20, 22, row(1)), Cti(30)]
    said.take(session.push({"A": batch_of(more, A.schema)})["late"])
    said.take(session.close()["late"])
    given = {
        "A": History.of([*elements, *more], A.schema),
        "B": History.of([Insert(0, 30, row(0)), Insert(0, 30, row(1))], B.schema),
    }
    assert_snapshots(said, evaluate(late.node, given), range(max(since, -5), 40), f"valid from {since}")
    assert not any(said.at(t) for t in range(-5, min(since, 40)))
    return since


EVENT = [Insert(8, 9, row(0)), Insert(3, 5, row(1)), punct(13, k=0)]


def test_the_guard_has_forgotten_what_is_promised() -> None:
    """The source is known from the end of the event on; a window of 6 needs 5 instants more."""
    assert joined(A, EVENT, A.range(6)) == 14
    assert joined(A, EVENT, A.distinct()) == 9
    assert joined(A, EVENT[:2], A.range(6)) == NEVER  # without the promise all is known
    assert joined(A, [Insert(8, 20, row(0)), punct(13, k=0)], A.distinct()) == NEVER  # it lives on, so it is kept


SUMS = A.range(6).group_by("k").agg(n=ew.count())
OPERATORS = {
    "groups": (SUMS, SUMS.where(ew.col("n") > 0), 14),
    "below others": (SUMS.distinct(), SUMS.aggregate(m=ew.max("n")), 14),
    "rows": (A.distinct(), A.distinct().where(ew.col("v") > 0), 9),
    "set operation": (A.difference(B), A.difference(B).select("k"), 9),
    "join": (A.join(B, on="k"), A.join(B, on="k").select("k"), 9),
    "coalesce": (A.coalesce(), A.coalesce().select("k"), 9),
    "window at a chain": (A.range(6), A.range(6).where(ew.col("v") > 0), 14),
}


@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("plan", OPERATORS)
def test_operators_and_chains_have_forgotten_it_too(plan: str, for_ever: bool) -> None:
    first, late, latest = OPERATORS[plan]
    elements: list[Element] = [*EVENT[:2], punct(k=0) if for_ever else EVENT[2]]
    assert joined(first, elements, late) <= latest


@pytest.mark.parametrize("emit", EMITS)
def test_promises_about_everything_are_progress(emit: str) -> None:
    """The source has not said a CTI, and still nothing is known before the time that its promises cover."""
    halves = [
        Punct(ew.punctuation.Punctuation({"v": half}, 4))
        for half in (ew.punctuation.Range(lt=1), ew.punctuation.Range(ge=1), ew.punctuation.OneOf((None,)))
    ]
    keys = A.select("k").distinct()
    elements = [Insert(0, 9, row(0)), *halves]
    assert joined(keys, elements, keys.where(ew.col("k") >= 0), emit) >= 4


def test_what_has_no_end_and_is_forgotten_is_refused() -> None:
    session = Session()
    session.register("first", A)
    session.push({"A": batch_of([Insert(8, INF, row(0)), punct(k=0)], A.schema)})
    with pytest.raises(QueryError, match=r"cannot join now.*some of what A said has no end, and is not kept"):
        session.register("late", A.distinct())
    with pytest.raises(QueryError, match="cannot join now"):
        session.register("rows", A.rows(2))
    assert [each.name for each in session.queries()] == ["first"]


def test_a_restart_forgets_nothing_of_what_is_forgotten() -> None:
    session, again = Session(emit="all"), Session(emit="all")
    queries = {"a": A, "sums": SUMS, "kept": A.distinct(), "pairs": A.join(B, on="k"), "levels": A.coalesce()}
    for name, query in queries.items():
        session.register(name, query)
    session.push({"B": batch_of([Insert(0, 12, row(0))], B.schema), "A": batch_of(EVENT, A.schema)})
    again.restore(session.snapshot(), queries)
    for name, query in {"range": A.range(6), **{name: query.select("k") for name, query in queries.items()}}.items():
        since = session.register(f"{name} late", query).valid_from
        assert since > NEVER or name == "pairs", name  # whose chain was promised nothing, and knows all that it said
        assert again.register(f"{name} late", query).valid_from == since


def test_lifetimes_cut_into_pieces_need_their_start() -> None:
    """Where an interval is cut depends on its start; one that began before the CTI is not known from there on."""
    session = Session(emit="all")
    session.register("first", A)
    session.push({"A": batch_of([Insert(0, 13, row(0)), Cti(6)], A.schema)})
    with pytest.raises(QueryError, match="'alter lifetime' needs all of the past"):
        session.register("late", A.coalesce(4).lifetime(length=3))
    assert session.register("pieces", A.coalesce(4)).valid_from == 6
    assert session.register("moved", A.coalesce(4).lifetime(shift=2)).valid_from == 8


def test_what_was_held_and_promised_is_brought_out_once() -> None:
    """A query that waits for what is final has said a row as far as it is promised; moved, it says the rest."""
    session = Session(emit="final")
    session.register("held", A.range(2))
    said = PunctuatedOutput(A.schema)
    said.take(session.push({"A": batch_of([Insert(3, 9, row(0)), punct(6, k=0)], A.schema)})["held"])
    session.change("held", emit="all")
    said.take(session.push({})["held"])
    found = [(each.vs, each.ve) for each in said.elements if isinstance(each, Insert)]
    assert sorted(found) == [(3, 6), (4, 6), (6, 9), (6, 10)]


# --- at random --------------------------------------------------------------------------------------------------------


@pytest.mark.property
@pytest.mark.parametrize(("plan", "moves"), sampled_pairs(PLANS, [0.0, 0.15]))
def test_joining_after_promises(plan: Plan, moves: float) -> None:
    """Without and with moves to other levels and restarts, by the plan's name."""
    rng = random.Random(f"{plan} {moves}")
    both = family(plan.build()), family(plan.build())
    base = [query for query in both[0] if rng.random() < 0.5]
    rehearse(rng.randrange(2**32), base, both[1], plan.infinite, moves)
