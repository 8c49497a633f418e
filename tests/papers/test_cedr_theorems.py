"""Lemmas 1 to 6 and theorems 7, 8, 10 and 11 of the CEDR paper (Goldstein/Hong, sections 2 and 3) over random streams.

Theorem 9 is in `tests/operators/test_emission_all.py`.  Where a statement needs a premise that the paper does not name,
the test has it, and a second test shows a stream for which the statement fails without it.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError, QueryError
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import (
    closed_up_to,
    concatenated,
    consistent,
    is_closed,
    is_closed_at,
    is_ordered,
    is_perfect,
    is_prefix,
    is_shrink_only,
    is_valid,
    latency_no_greater,
    logical,
    output_watermark,
    physical,
    preserves_order,
    preserves_perfectness,
    progressive,
    strongly_consistent,
    ultra_consistent,
    up_to,
)
from example_counts import examples_per_case
from papers.cedr_streams import COUNT_AND_SUM, Lifetime, S, lifetimes, ordered, shrinking

SOME = settings(max_examples=examples_per_case(2))
QUERIES = {
    "count and sum": COUNT_AND_SUM,
    "greatest": S.aggregate(m=ew.max("x")),
    "select": S.where(ew.col("x") > 16),
    "alter lifetime": S.lifetime(length=4),
    "hop": S.lifetime(hop=4, length=8),
}
EMITS = ("final", "ended", "current", "all")
ONE = {"x": 1}

COMPOSED = {
    "count of a count": S.group_by("x").agg(n=ew.count()).aggregate(m=ew.max("n"), t=ew.count()),
    "window of a sum": S.aggregate(s=ew.sum("x")).range(3),
    "count of distinct": S.select(y=ew.col("x") % 3).distinct().aggregate(n=ew.count()),
    "changes of a count": S.aggregate(n=ew.count()).istream(),
    "sum over hops": S.lifetime(hop=4, length=3).aggregate(n=ew.count(), s=ew.sum("x")),
    "difference": S.where(ew.col("x") > 16).difference(S.where(ew.col("x") > 256)),
    "self-join": S.join(S.where(ew.col("x") > 16).rename(x="y"), where=ew.col("x") < ew.col("y")),
}
EVERY = {**QUERIES, **COMPOSED}
every_query = pytest.mark.parametrize("query", EVERY.values(), ids=EVERY)
any_stream = given(drawn=lifetimes(), seed=st.integers(0, 2**32))


# --- streams ----------------------------------------------------------------------------------------------------------


@settings(max_examples=5 * settings().max_examples)
@any_stream
def test_lemma_1(drawn: list[Lifetime], seed: int) -> None:
    """An ordered stream has one retraction per event at most, if retractions shorten."""
    stream = shrinking(drawn, random.Random(seed))
    assert is_shrink_only(stream) and is_valid(stream)
    retractions = Counter(element.row["x"] for element in stream if isinstance(element, Adjust))
    if any(times > 1 for times in retractions.values()):
        assert not is_ordered(stream)


def test_lemma_1_needs_retractions_that_shorten() -> None:
    stream = [Insert(0, 2, ONE), Adjust(0, 2, 5, ONE), Adjust(0, 5, 9, ONE)]
    assert is_ordered(stream) and not is_shrink_only(stream)


@SOME
@any_stream
def test_lemma_2(drawn: list[Lifetime], seed: int) -> None:
    """Prefixes of ordered streams are ordered, of perfect ones perfect."""
    rng = random.Random(seed)
    stream, perfect = ordered(drawn, rng, 0.5), ordered(drawn, rng, 0.0)
    assert is_ordered(stream) and is_perfect(perfect)
    for size in range(len(stream) + 1):
        assert is_prefix(stream[:size], stream) and is_ordered(stream[:size])
        assert is_perfect(perfect[:size])


@SOME
@any_stream
def test_lemma_3(drawn: list[Lifetime], seed: int) -> None:
    """Closed up to t is: the largest CTI is t.  A closed stream is closed up to its last CTI."""
    stream = shrinking(drawn, random.Random(seed), close=False)
    t = max((element.t for element in stream if isinstance(element, Cti)), default=NEVER)
    assert closed_up_to(stream) == t
    for at in range(-8, 16):
        assert (is_closed_at(stream, at) and not is_closed_at(stream, at + 1)) == (at == t)
    if is_closed(stream):
        assert isinstance(stream[-1], Cti) and stream[-1].t == t
    assert is_closed([*stream, Cti(INF)])


@SOME
@any_stream
def test_lemma_4(drawn: list[Lifetime], seed: int) -> None:
    """What a prefix has closed stays closed.  A stream closed up to t has a closed prefix closed up to t, if nothing
    before that CTI lies at t or later."""
    stream = shrinking(drawn, random.Random(seed), close=False)
    for size in range(len(stream) + 1):
        t = closed_up_to(stream[:size])
        assert t == NEVER or is_closed_at(stream, t)
    t = closed_up_to(stream)
    assume(t > NEVER)
    prefix = stream[: stream.index(Cti(t)) + 1]
    early = all(element.sync < t for element in prefix[:-1] if isinstance(element, Insert | Adjust))
    assert bool(is_closed(prefix)) == early
    assert closed_up_to(prefix) == t


def test_lemmas_3_and_4_need_a_cti_beyond_what_came_before() -> None:
    """Closed up to 5, by its last CTI, but neither it nor a prefix is closed: 9 lies beyond."""
    stream = [Insert(9, 10, ONE), Cti(5)]
    assert closed_up_to(stream) == 5
    assert not any(is_closed(stream[:size]) for size in range(3))


def test_definition_1_concatenation_must_be_valid() -> None:
    assert concatenated([Insert(3, 5, ONE)], [Cti(3)]) == [Insert(3, 5, ONE), Cti(3)]
    with pytest.raises(InputError, match=r"no concatenation: line 2: insert \[3, 5\)"):
        concatenated([Cti(4)], [Insert(3, 5, ONE)])


@SOME
@any_stream
def test_up_to_is_a_valid_stream_with_the_same_past(drawn: list[Lifetime], seed: int) -> None:
    """S ↑ t says the same before t, and is valid although adjusts in the middle of a chain are left out."""
    stream = shrinking(drawn, random.Random(seed))
    for t in range(-3, 14, 4):
        part = up_to(stream, t)
        assert is_valid(part)
        whole, past = History.of(stream, S.schema), History.of(part, S.schema)
        assert all(whole.snapshot(at) == past.snapshot(at) for at in range(-4, t))


# --- operators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emit", EMITS)
@every_query
@SOME
@any_stream
def test_lemma_5(query: ew.Stream, emit: str, drawn: list[Lifetime], seed: int) -> None:
    """Our operators are progressive (definition 8), and so consistent (definition 7), in every policy."""
    rng = random.Random(seed)
    stream = shrinking(drawn, rng, close=rng.random() < 0.5)
    operator, definition = physical(query, emit, batch=rng.choice((1, 1, 5))), logical(query)
    assert progressive(operator, definition, stream)
    assert consistent(operator, definition, stream)


def test_a_wrong_operator_is_neither_progressive_nor_consistent() -> None:
    right, definition = physical(COUNT_AND_SUM, "ended"), logical(COUNT_AND_SUM)

    def wrong(stream: list[Element]) -> list[Element]:
        return [element for element in right(stream) if not isinstance(element, Adjust)]

    stream = [Insert(0, 9, ONE), Insert(20, 21, ONE), Insert(4, 6, ONE), Cti(INF)]
    assert consistent(right, definition, stream)
    for verdict in (consistent(wrong, definition, stream), progressive(wrong, definition, stream)):
        assert not verdict and "first at instant 4" in verdict.why


@pytest.mark.parametrize("emit", EMITS)
@every_query
@SOME
@any_stream
def test_lemma_6(query: ew.Stream, emit: str, drawn: list[Lifetime], seed: int) -> None:
    """Ultra consistent: perfectness preserving and strongly consistent.  Strongly consistent: order preserving.
    `final` is ultra consistent."""
    rng = random.Random(seed)
    stream = rng.choice((shrinking(drawn, rng), ordered(drawn, rng, 0.5), ordered(drawn, rng, 0.0)))
    operator, definition = physical(query, emit), logical(query)
    ultra, strongly = ultra_consistent(operator, definition, stream), strongly_consistent(operator, definition, stream)
    assert ultra or emit != "final", ultra.why
    if ultra:
        assert strongly and preserves_perfectness(operator, stream)
    if strongly:
        assert preserves_order(operator, stream)


@every_query
@SOME
@any_stream
def test_theorem_7(query: ew.Stream, drawn: list[Lifetime], seed: int) -> None:
    """A strongly consistent operator says something on CTIs only."""
    stream = shrinking(drawn, random.Random(seed))
    operator = physical(query, "final")
    for size, element in enumerate(stream):
        if not isinstance(element, Cti):
            assert operator(stream[: size + 1]) == operator(stream[:size])


@pytest.mark.parametrize("emit", ["ended", "current", "all"])
def test_theorem_7_who_speaks_before_a_cti_is_not_strongly_consistent(emit: str) -> None:
    stream = [Insert(0, 9, ONE), Insert(20, 21, ONE), Insert(4, 6, ONE), Insert(1, 2, ONE), Cti(INF)]
    operator = physical(COUNT_AND_SUM, emit)
    assert operator(stream[:2])
    assert not strongly_consistent(operator, logical(COUNT_AND_SUM), stream)


@pytest.mark.parametrize("query", [QUERIES["count and sum"], QUERIES["greatest"]], ids=["count and sum", "greatest"])
@settings(max_examples=2 * settings().max_examples)
@any_stream
def test_theorem_8(query: ew.Stream, drawn: list[Lifetime], seed: int) -> None:
    """The output latency of order preserving ≤ perfectness preserving ≤ ultra consistent, which waits for the CTI."""
    stream = shrinking(drawn, random.Random(seed), close=False)
    final, ended, current = (physical(query, emit) for emit in ("final", "ended", "current"))
    assert latency_no_greater(current, ended, stream)
    assert latency_no_greater(ended, final, stream)
    assert output_watermark(final, stream) <= closed_up_to(stream)


@settings(max_examples=3 * settings().max_examples)
@any_stream
def test_theorem_10(drawn: list[Lifetime], seed: int) -> None:
    """`ended` has the lowest latency of perfectness preserving operators.

    It has said all pieces that ended by τ.  Whoever says more can be made to take it back: there is a perfect stream
    that goes on with another answer at every instant from τ on.
    """
    stream = ordered(drawn, random.Random(seed), 0.0)[:-1]
    tau = max((element.sync for element in stream), default=NEVER)
    assume(tau > NEVER)
    definition = logical(COUNT_AND_SUM)
    answer, said = definition(stream), History.of(physical(COUNT_AND_SUM, "ended")(stream), COUNT_AND_SUM.schema)
    end_points = [t for vs, ve, _ in answer.events() for t in (vs, ve)] + [closed_up_to(stream)]
    ended_by = max((t for t in end_points if t <= tau), default=NEVER)
    for t in range(-4, 30):
        assert said.snapshot(t) == (answer.snapshot(t) if t < ended_by else Counter())
    more = [*stream, Insert(tau, INF, {"x": 16**9})]
    assert is_perfect(more)
    other = definition(more)
    assert all(other.snapshot(t) != answer.snapshot(t) for t in range(tau, tau + 30))


@SOME
@any_stream
def test_theorem_11(drawn: list[Lifetime], seed: int) -> None:
    """The perfectness preserving operator is just that, and consistent; `current` preserves order."""
    rng = random.Random(seed)
    definition = logical(COUNT_AND_SUM)
    perfect, in_order = ordered(drawn, rng, 0.0), ordered(drawn, rng, 0.5)
    ended, current = physical(COUNT_AND_SUM, "ended"), physical(COUNT_AND_SUM, "current")
    assert preserves_perfectness(ended, perfect)
    assert preserves_order(current, in_order)
    assert consistent(ended, definition, in_order) and consistent(current, definition, perfect)


@pytest.mark.parametrize("query", COMPOSED.values(), ids=COMPOSED)
@SOME
@any_stream
def test_theorems_8_and_11_for_compositions(query: ew.Stream, drawn: list[Lifetime], seed: int) -> None:
    """A composition takes nothing back on perfect input in `ended`, and keeps the order if its last operator has one
    group; `current` is never behind it, nor it behind `final`."""
    perfect = ordered(drawn, random.Random(seed), 0.0)
    final, ended, current = (physical(query, emit) for emit in ("final", "ended", "current"))
    out = ended(perfect)
    assert is_valid(out) and not [str(element) for element in out if isinstance(element, Adjust)]
    if isinstance(query.node, n.Aggregate) and not query.node.keys:
        assert preserves_perfectness(ended, perfect)
    assert consistent(ended, logical(query), perfect)
    prefix = perfect[: random.Random(seed).randint(0, len(perfect))]
    assert latency_no_greater(ended, final, prefix)
    assert latency_no_greater(current, ended, prefix)


def test_definitions_of_operators_ask_for_one_input() -> None:
    with pytest.raises(QueryError, match="one input"):
        physical(S.union(ew.source("T", {"x": "int64"})), "final")
