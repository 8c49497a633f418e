"""The join alone: its three areas, corrections, what each side keeps until when, and a restart in mid-run."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF, NEVER
from everwhen.operators.join.join import JoinOperator
from everwhen.rows.interner import Interner
from operators.stepping import Stepped, codec_of

col = ew.col


def join(keyed: bool = True, residual: ew.Expr | None = None, null_safe: bool = False) -> Stepped:
    pool = Interner()
    left = codec_of({"k": pa.int64(), "a": pa.int64()}, pool)
    right = codec_of({"j": pa.int64(), "b": pa.int64()}, pool)
    pair = codec_of({"k": pa.int64(), "a": pa.int64(), "j": pa.int64(), "b": pa.int64()}, pool)
    keys = (["k"], ["j"]) if keyed else ((), ())
    return Stepped(lambda: JoinOperator(left, right, pair, *keys, residual, null_safe), left, right)


@pytest.mark.parametrize(
    ("keyed", "residual", "area"),
    [
        (True, None, "keyed"),
        (False, col("k") == col("j"), "sorted"),
        (False, (col("k") == col("j")) | (col("k") > col("j") + 1000), "list"),
    ],
)
def test_pairs_live_as_long_as_both_in_any_area(keyed: bool, residual: ew.Expr | None, area: str) -> None:
    """One condition, said in three ways: whichever area looks for partners, the pairs are the same."""
    trial = join(keyed, residual)
    assert trial.operator.area == area  # type: ignore[attr-defined]
    assert trial.step([(0, 10, 1, 1, 7), (0, 10, 1, 2, 8)], [(5, 20, 2, 1, 9)]) == {(5, 10, 1, 7, 1, 9): 2}
    assert trial.step([(12, 14, 1, 1, 6), (20, 30, 1, 1, 5)]) == {(12, 14, 1, 6, 1, 9): 2}
    # the right row ends at 8: what lies behind is taken back from both pairs
    assert trial.step((), [(8, 20, -2, 1, 9)]) == {(8, 10, 1, 7, 1, 9): -2, (12, 14, 1, 6, 1, 9): -2}


def test_a_null_has_no_partner_unless_nulls_are_equal() -> None:
    rows = [(0, 5, 1, None, 1)], [(0, 5, 1, None, 2)]
    assert join().step(*rows) == {}
    assert join(null_safe=True).step(*rows) == {(0, 5, None, 1, None, 2): 1}


def test_what_a_condition_cannot_decide_is_no_pair() -> None:
    trial = join(residual=col("a") < col("b"))
    given = [(0, 5, 1, 1, None), (0, 5, 1, 1, 3)], [(0, 5, 1, 1, 4), (0, 5, 1, 1, 3)]
    assert trial.step(*given) == {(0, 5, 1, 3, 1, 4): 1}


def test_a_side_keeps_rows_until_the_other_has_passed_their_ends() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 1), (0, 20, 1, 2, 1)], [(0, 30, 1, 9, 1)])
    assert trial.rows == 3
    trial.step(ctis=[NEVER, 10])
    assert trial.rows == 2, "the left row that ended at 10 meets nobody any more"
    trial.step(ctis=[INF, 10])
    assert trial.rows == 1, "no left row will come: no right row is kept"
    assert trial.frontier.time == 10, "the side that is behind"
    trial.step(ctis=[INF, INF])
    assert trial.rows == 0 and trial.frontier.time == INF


def test_a_promise_about_a_key_frees_the_other_side_s_rows_and_goes_on() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 1), (0, 10, 1, 2, 1)])
    trial.step(promises=[(), [Punctuation.constants({"j": 1}, 20)]])
    assert trial.rows == 1, "of key 1 nothing can come from the right before 20"
    assert trial.step((), [(0, 10, 1, 2, 5)]) == {(0, 10, 2, 1, 2, 5): 1}
    trial.step(promises=[[Punctuation.constants({"k": 1}, 20)]])
    matched = [{name: str(pattern) for name, pattern in p.match.items()} for p in trial.frontier.promises]
    assert matched and all(set(each) <= {"k", "j"} for each in matched), "the answer has neither k = 1 nor j = 1"


def test_a_restart_is_invisible() -> None:
    trial = join()
    trial.step([(0, 10, 1, 1, 1), (0, 20, 3, 2, None)], [(5, 9, 1, 1, 4)], ctis=[0, 2])
    trial.restart()
    assert trial.rows == 3
    assert trial.step((), [(1, 15, 1, 2, 8)]) == {(1, 15, 2, None, 2, 8): 3}
    since, standing = trial.operator.standing([trial.frontier, trial.frontier])  # type: ignore[misc]
    assert since == 2 and standing.weight.sum() == 4


@pytest.mark.parametrize("seed", range(6))
def test_one_key_with_many_rows_that_come_and_go(seed: int) -> None:
    """Taking rows back from a crowd notes where each stands; what is met is the same, whole or in parts."""
    rng, trial = random.Random(seed), join()
    alive: Counter[tuple[int, int, int]] = Counter()
    cti = 0
    for _ in range(60):
        batch: list[tuple[int, int, int, int, int]] = []
        for _ in range(rng.randrange(12)):
            mine = [each for each, count in alive.items() if count and each[1] > cti]
            if mine and rng.random() < 0.55:
                lo, hi, a = rng.choice(mine)
                alive[lo, hi, a] -= 1
                since = max(lo, cti)
                if rng.random() < 0.3 and hi - since > 1:  # only the end goes
                    cut = rng.randrange(since + 1, hi)
                    alive[lo, cut, a] += 1
                    since = cut
                batch.append((since, hi, -1, 1, a))
            else:
                lo, a = cti + rng.randrange(6), rng.randrange(40)
                hi, count = lo + rng.randrange(1, 9), rng.choice((1, 1, 2))
                alive[lo, hi, a] += count
                batch.append((lo, hi, count, 1, a))
        trial.step(batch, ctis=[cti, cti])
        if rng.random() < 0.1:
            trial.restart()
        cti += rng.random() < 0.15
        probe = trial.step((), [(cti, cti + 20, 1, 1, 7)], ctis=[cti, cti])
        trial.step((), [(cti, cti + 20, -1, 1, 7)], ctis=[cti, cti])
        for t in range(cti, cti + 16):
            met: Counter[int] = Counter()
            for (lo, hi, _, a, _, _), weight in probe.items():
                met[a] += weight if lo <= t < hi else 0
            wanted: Counter[int] = Counter()
            for (lo, hi, a), count in alive.items():
                wanted[a] += count if lo <= t < hi else 0
            assert +met == +wanted, t


def test_the_places_of_rows_are_noted_when_a_crowd_is_searched() -> None:
    trial = join()
    crowd = [(0, 50, 1, 1, a) for a in range(300)]
    trial.step(crowd)
    for first in range(0, 200, 50):
        trial.step([(0, 50, -1, 1, a) for a in range(first, first + 50)])
    side = trial.operator._kept[0]  # type: ignore[attr-defined]
    assert len(side._slots), "64 rows were searched for among hundreds"
    looked = int(side.touched[0])
    trial.step([(0, 50, -1, 1, a) for a in range(200, 290)])
    assert int(side.touched[0]) == looked, "each is found at once"
    assert trial.rows == 10 and len(trial.step((), [(0, 9, 1, 1, 5)])) == 10


def test_keys_that_nobody_holds_go_some_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step brings new keys, and what they say is right although ids are given to others."""
    monkeypatch.setattr("everwhen.operators.join.join._FEW_KEYS", 16)
    trial, most, before, sliced = join(), 0, 0, 0  # steps that let some go
    for t in range(400):
        keys = range(20 * t, 20 * t + 20)
        found = trial.step([(t, t + 3, 1, k, t) for k in keys], [(t, t + 2, 1, k, -t) for k in keys], ctis=(t, t))
        assert found == {(t, t + 2, k, t, k, -t): 1 for k in keys}
        count = trial.operator.key_count()
        assert count is not None
        assert count > before - 200, "a few at a time"
        most, sliced, before = max(most, count), sliced + (count < before + 20), count
    assert most < 1200 and sliced > 50, "of 8,000"


def test_one_join_after_the_other_clears_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the same size, in one runtime: never both in one epoch, and nothing is kept much longer."""
    for module in ("join", "join_state"):
        monkeypatch.setattr(f"everwhen.operators.join.{module}.AT_ONCE", 32)
    sources = {name: ew.source(name, {"k": "int64", name: "int64"}) for name in "ab"}
    a, b = (each.range(300) for each in sources.values())
    runtime = ew.LocalRuntime({"p": a.join(b, on="k"), "q": a.join(b.where(col("b") >= 0), on="k")})
    joins = [each.placed.operator for each in runtime._dataflow.flow.nodes.values()]
    joins = [each for each in joins if isinstance(each, JoinOperator)]
    assert len(joins) == 2
    times = [0, 0]
    for t in range(2000):
        row = {name: ew.Insert(t, t + 1, {"k": t % 7, name: t}) for name in sources}
        runtime.push({name: ew.ElementBatch.of([row[name], ew.Cti(t)], each.schema) for name, each in sources.items()})
        cleared = [each.cleared_up for each in joins]
        assert not all(cleared) or t < 300, "but where there is no room"
        times = [n + did for n, did in zip(times, cleared, strict=True)]
        assert all(len(side.log) < 2000 for each in joins for side in each._kept)
    assert min(times) >= 4
