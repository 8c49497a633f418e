"""MATCH_RECOGNIZE against its definition, after every epoch, whatever comes late, is corrected, or goes."""

from __future__ import annotations

import random
from collections import Counter
from types import MappingProxyType

import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import evaluate
from everwhen.stream.element import Cti, Element
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import reorder
from operators.differential import Said, Trial, assert_snapshots
from operators.pattern.random_patterns import SCHEMA, R, random_query, random_row
from state_files import through_file

p, col = ew.patterns, ew.col
INSTANTS = range(-4, 20)


def random_history(rng: random.Random, events: int) -> History:
    found: Counter[tuple[int, int, tuple[object, ...]]] = Counter()
    for _ in range(events):
        vs = rng.randrange(-3, 12)
        ve = INF if rng.random() < 0.1 else vs + rng.randrange(1, 9)
        found[vs, ve, tuple(random_row(rng).values())] += 1
    return History(SCHEMA, MappingProxyType(dict(found)))


def random_stream(rng: random.Random, events: int) -> list[Element]:
    return reorder(
        random_history(rng, events),
        rng,
        disorder=rng.choice((0, 2, None)),
        corrections=rng.choice((0.0, 0.4, 0.8)),
        wrong=rng.choice((0.0, 0.5)),
        ctis=rng.choice((0.0, 0.2, 0.6)),
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_answer_is_right_after_every_epoch(seed: int) -> None:
    """As said so far over what has come so far: nothing is only right at the end."""
    rng = random.Random(seed)
    query = random_query(rng)
    elements = random_stream(rng, rng.choice((3, 6, 9)))
    runtime, said, came = LocalRuntime(query, emit="all"), Said(query.schema), 0
    while came < len(elements):
        size = rng.choice((1, 2, 3, 5, 20))
        batch = ElementBatch.of(elements[came : came + size], SCHEMA)
        came = min(came + size, len(elements))
        said.take(runtime.push({"R": batch})["out"])
        so_far = History.of([e for e in elements[:came] if not isinstance(e, Cti)], SCHEMA)
        expected = evaluate(query.node, {"R": so_far})
        assert_snapshots(said, expected, INSTANTS, f"after {came} elements of {query}")
        if rng.random() < 0.2:
            state = through_file(runtime.snapshot())
            runtime = LocalRuntime(query, emit="all")
            runtime.restore(state)
        if rng.random() < 0.2:
            runtime.plan.pool.collect(force=True)


@pytest.mark.parametrize("emit", ["final", "ended", "current"])
@pytest.mark.parametrize("seed", range(12))
def test_every_policy_says_in_the_end_what_is_so(seed: int, emit: str) -> None:
    rng = random.Random(1000 + seed)
    query, history = random_query(rng), random_history(rng, 7)
    trial = Trial(query, emit, {"R": history})
    elements = reorder(history, rng, disorder=rng.choice((0, 3)), corrections=0.4, wrong=0.3, ctis=0.4)
    while elements:
        size = rng.choice((1, 2, 4, 9))
        trial.push({"R": ElementBatch.of(elements[:size], SCHEMA)})
        del elements[:size]
        if rng.random() < 0.3:
            trial.restart(through_file)
    trial.close()


def rows_kept(runtime: LocalRuntime) -> int:
    return sum(each.operator.state_size().rows for each in runtime.plan.operators if each.name == "match")


T = ew.source("T", {"k": "string", "t": "int64", "side": "string"})


def tosses(text: str, k: str = "a", lifetime: int = 1) -> list[Element]:
    return [ew.Insert(t, t + lifetime, {"k": k, "t": t, "side": side}) for t, side in enumerate(text)]


def test_rows_go_when_they_have_ended() -> None:
    query = T.match_recognize("A B", "t", "k", within=5, measures={"t": col("t")})
    runtime = LocalRuntime(query)
    runtime.push({"T": ElementBatch.of(tosses("UDUDUDUDUD"), T.schema)})
    assert rows_kept(runtime) == 10
    runtime.push({"T": ElementBatch.of([ew.Cti(9)], T.schema)})
    assert rows_kept(runtime) == 5  # those of 5 and later end after 9
    runtime.push({"T": ElementBatch.of([ew.Cti(INF)], T.schema)})
    assert rows_kept(runtime) == 0


def test_what_is_promised_of_a_partition_frees_it() -> None:
    query = T.match_recognize("A B", "t", "k", measures={"t": col("t")})
    runtime = LocalRuntime(query)
    over = ew.punctuation.Punctuation({"k": ew.punctuation.OneOf(("b",))})
    alive = [*tosses("UD", "a", 100), *tosses("UDU", "b", 100)]
    runtime.push({"T": ElementBatch.of(alive, T.schema)})
    assert rows_kept(runtime) == 5
    runtime.push({"T": ElementBatch.of([ew.Punct(over)], T.schema)})
    assert rows_kept(runtime) == 2


def test_a_row_between_two_others_takes_their_match_back_and_gives_it_again_when_it_goes() -> None:
    query = T.match_recognize(
        "U D", "t", define={"U": col("side") == "U", "D": col("side") == "D"}, measures={"b": p.first("t")}
    )
    stream = [
        ew.Insert(0, 20, {"k": None, "t": 1, "side": "U"}),
        ew.Insert(0, 20, {"k": None, "t": 3, "side": "D"}),
        ew.Insert(5, 9, {"k": None, "t": 2, "side": "X"}),
        ew.Adjust(5, 9, 5, {"k": None, "t": 2, "side": "X"}),
    ]
    said = [str(e) for e in ew.run(query, {"T": stream}, batch=1)]
    assert said == ["insert [0, 20) b=1", "adjust [0, 20 -> 5) b=1", "insert [9, 20) b=1", "insert [5, 9) b=1", "cti ∞"]


def test_ties_are_broken_by_the_values_that_are_read() -> None:
    """Also where that needs the order of texts, which codes do not have."""
    query = T.match_recognize("A B", "t", measures={"a": p.first("A.side"), "b": p.first("B.side")})
    stream = [ew.Insert(0, 5, {"k": k, "t": 1, "side": side}) for k, side in (("z", "b"), ("y", "a"), ("x", None))]
    said = {str(e) for e in ew.run(query, {"T": stream}, batch=1, emit="final")}
    assert said == {"insert [0, 5) a=null b='a'", "insert [0, 5) a='a' b='b'", "cti ∞"}


def test_a_sum_that_exceeds_64_bits_is_an_error() -> None:
    query = T.match_recognize("A+", "t", measures={"s": p.sum("t")})
    stream = [ew.Insert(0, 5, {"k": None, "t": 2**62 + i, "side": None}) for i in range(3)]
    with pytest.raises(ew.EvaluationError, match="exceeds 64 bits"):
        list(ew.run(query, {"T": stream}))


def test_more_mappings_than_can_be_followed_are_an_error_that_says_what_to_do() -> None:
    query = T.match_recognize("(A | B)* C", "t", define={"C": p.sum("A.t") < 0}, measures={"n": p.count()})
    stream = [ew.Insert(0, 5, {"k": None, "t": 2**i, "side": None}) for i in range(20)]
    with pytest.raises(ew.EvaluationError, match="exclude each other"):
        list(ew.run(query, {"T": stream}))


def test_a_pattern_without_registers_has_no_more_configurations_than_places() -> None:
    """However ambiguous it is: 200 rows, each of which may be an A or a B."""
    query = T.match_recognize("(A | B)* (A B | B A)+ C?", "t", measures={"n": p.count(), "a": p.count("A")})
    stream = [ew.Insert(0, 5, {"k": None, "t": t, "side": None}) for t in range(200)]
    said = list(ew.run(query, {"T": stream}, emit="final"))
    assert len(said) == 200  # all but the last row begin one, and a CTI
    assert {e.row["n"] for e in said if isinstance(e, ew.Insert)} == set(range(2, 201))


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_any_batching_says_the_same(batch: int) -> None:
    rng = random.Random(5)
    query = R.match_recognize(
        "A B* C", "x", "k", define={"B": col("x") > p.prev("x"), "C": p.count("B") % 2 == 0}, measures={"n": p.count()}
    )
    elements = random_stream(rng, 25)
    histories = [
        History.of([e for e in ew.run(query, {"R": elements}, batch=size) if not isinstance(e, Cti)], query.schema)
        for size in (batch, len(elements))
    ]
    ew.testing.assert_same_history(*histories)
