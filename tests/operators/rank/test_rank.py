"""Ranks and limits against their definition, after every epoch, whatever comes late, is corrected, or goes."""

from __future__ import annotations

import random

import pytest

import everwhen as ew
from everwhen.algebra.nodes import Ordering, Rank
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.rank.rank import RankOperator
from everwhen.stream.element_batch import ElementBatch
from operators.differential import Trial
from operators.rank.random_rows import SCHEMA, R, assert_right_after_every_epoch, in_epochs, random_history
from state_files import through_file


def random_query(rng: random.Random) -> ew.Stream:
    columns = rng.sample(SCHEMA.names, rng.randrange(0, 4))
    order = tuple(Ordering(name, rng.random() < 0.5, rng.random() < 0.5) for name in columns)
    partition = tuple(rng.sample(SCHEMA.names, rng.choice((0, 0, 1, 2))))
    name = rng.choice(("n", "n", None))
    limit = rng.choice((None, 1, 2, 3, 5)) if name else rng.choice((0, 1, 2, 3))
    kind = rng.choice(("row_number", "rank", "dense_rank"))
    return ew.Stream(Rank(R.node, partition, order, kind, limit, rng.choice((0, 0, 1)), name))


@pytest.mark.parametrize("seed", range(40))
def test_the_answer_is_right_after_every_epoch(seed: int) -> None:
    """As said so far over what has come so far: nothing is only right at the end."""
    rng = random.Random(seed)
    assert_right_after_every_epoch(random_query(rng), rng, rng.choice((3, 6, 9)))


@pytest.mark.parametrize("seed", range(4))
def test_more_rows_than_are_looked_at_at_first(seed: int) -> None:
    rng = random.Random(500 + seed)
    assert_right_after_every_epoch(random_query(rng), rng, 60)


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_stay_and_are_corrected(seed: int) -> None:
    """Where most rows stay, most of them come behind others that outlive them, and are idle until one is taken back."""
    rng = random.Random(700 + seed)
    kind, limit = rng.choice(("row_number", "rank", "dense_rank")), rng.choice((1, 1, 2, 3))
    order = (Ordering("x", rng.random() < 0.5, True),)
    query = ew.Stream(Rank(R.node, ("k",) if seed % 2 else (), order, kind, limit, 0, rng.choice(("n", None))))
    assert_right_after_every_epoch(query, rng, 24, forever=0.9)


def test_rows_behind_others_that_outlive_them_are_idle() -> None:
    runtime = LocalRuntime(T.limit(1, "x", descending="x"))
    (rank,) = (each.operator for each in runtime.plan.operators if isinstance(each.operator, RankOperator))
    runtime.push({"T": ElementBatch.of([ew.Insert(0, INF, {"k": "a", "x": 100})], T.schema)})
    later = [ew.Insert(t, INF, {"k": "b", "x": t}) for t in range(1, 50)]
    assert len(runtime.push({"T": ElementBatch.of(later, T.schema)})["out"]) == 0
    assert rank._kept._idle[0, 0] >= 0 and rank.state_size().rows == 50
    gone = ElementBatch.of([ew.Adjust(0, INF, 20, {"k": "a", "x": 100})], T.schema)
    said = runtime.push({"T": gone})
    assert rank._kept._idle[0, 0] == -1
    inserted = {e.row["x"] for e in said["out"].elements() if isinstance(e, ew.Insert)}
    assert inserted == set(range(20, 50)), "from then on each is the largest until the next one comes"


@pytest.mark.parametrize("emit", ["final", "ended", "current"])
@pytest.mark.parametrize("seed", range(12))
def test_every_policy_says_in_the_end_what_is_so(seed: int, emit: str) -> None:
    rng = random.Random(1000 + seed)
    query, history = random_query(rng), random_history(rng, 8)
    trial = Trial(query, emit, {"R": history})
    for batch in in_epochs(history, rng):
        trial.push({"R": batch})
        if rng.random() < 0.3:
            trial.restart(through_file)
    trial.close()


def rows_kept(runtime: LocalRuntime) -> int:
    return sum(each.operator.state_size().rows for each in runtime.plan.operators if each.name == "rank")


T = ew.source("T", {"k": "string", "x": "int64"})


def rows(*values: tuple[str, int], lifetime: int = 5) -> ElementBatch:
    found = [ew.Insert(t, t + lifetime, {"k": k, "x": x}) for t, (k, x) in enumerate(values)]
    return ElementBatch.of(found, T.schema)


def test_rows_go_when_they_have_ended() -> None:
    """The bound: a row is kept until the promise has passed its end, whatever the limit is."""
    runtime = LocalRuntime(T.limit(1, "x"))
    runtime.push({"T": rows(*(("a", x) for x in range(10)))})
    assert rows_kept(runtime) == 10
    runtime.push({"T": ElementBatch.of([ew.Cti(9)], T.schema)})
    assert rows_kept(runtime) == 5  # those of 5 and later end after 9
    runtime.push({"T": ElementBatch.of([ew.Cti(INF)], T.schema)})
    assert rows_kept(runtime) == 0


def test_what_is_promised_of_a_partition_frees_it() -> None:
    runtime = LocalRuntime(T.limit(1, "x", "k"))
    over = ew.punctuation.Punctuation({"k": ew.punctuation.OneOf(("b",))})
    runtime.push({"T": rows(("a", 1), ("b", 1), ("b", 2), lifetime=100)})
    assert rows_kept(runtime) == 3
    runtime.push({"T": ElementBatch.of([ew.Punct(over)], T.schema)})
    assert rows_kept(runtime) == 1


def test_ties_are_broken_by_value_and_never_by_arrival() -> None:
    query = T.limit(1, "x")
    stream = [ew.Insert(0, 5, {"k": k, "x": 1}) for k in ("b", "a", "c")]
    for arrival in (stream, stream[::-1]):
        assert [str(e) for e in ew.run(query, {"T": arrival}, emit="final")] == ["insert [0, 5) k='a' x=1", "cti ∞"]


def test_a_better_row_takes_the_place_and_gives_it_back() -> None:
    query = T.limit(1, "x", descending="x")
    low, high = {"k": "a", "x": 1}, {"k": "b", "x": 2}
    stream = [ew.Insert(0, 20, low), ew.Insert(5, 9, high), ew.Adjust(5, 9, 5, high)]
    said = [str(e) for e in ew.run(query, {"T": stream}, batch=1)]
    assert said[0] == "insert [0, 20) k='a' x=1"
    assert set(said[1:4]) == {
        "adjust [0, 20 -> 5) k='a' x=1",
        "insert [5, 9) k='b' x=2",
        "insert [9, 20) k='a' x=1",
    }
    assert set(said[4:]) == {"adjust [5, 9 -> 5) k='b' x=2", "insert [5, 9) k='a' x=1", "cti ∞"}


def test_rows_behind_the_limit_change_nothing() -> None:
    query = T.limit(2, "x")
    runtime = LocalRuntime(query)
    runtime.push({"T": rows(("a", 1), ("a", 2), lifetime=100)})
    later = [ew.Insert(t, t + 50, {"k": "b", "x": 10 + t}) for t in range(2, 40)]
    assert not len(runtime.push({"T": ElementBatch.of(later, T.schema)})["out"])


@pytest.mark.parametrize("kind", ["row_number", "rank", "dense_rank"])
def test_what_has_no_meaning_is_refused(kind: str) -> None:
    with pytest.raises(ew.QueryError, match="needs a name, a limit"):
        Rank(T.node, (), (), kind)  # type: ignore[arg-type]
    with pytest.raises(ew.QueryError, match="there already"):
        T.rank("x", "k", kind=kind)  # type: ignore[arg-type]
    with pytest.raises(ew.QueryError, match="from 0 on"):
        T.rank("n", "k", kind=kind, limit=-1)  # type: ignore[arg-type]
