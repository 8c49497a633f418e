"""The head of a MIN or MAX loop alone: candidates, what is said, and values of all kinds in their order."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.time import INF
from everwhen.errors import EvaluationError, EverwhenError, QueryError
from everwhen.operators.loop.best import Ranks
from everwhen.rows.codec import encode_plain
from operators.loop.heads import best_head


def test_the_best_candidate_is_said() -> None:
    trial = best_head()
    assert trial.insert((0, 10, 1, "A", 7, 0), (0, 10, 1, "A", 5, 0)) == {(0, 10, "A", 5, 1): 1}
    assert trial.insert((4, 12, 1, "A", 3, 1)) == {(4, 10, "A", 5, 1): -1, (4, 12, "A", 3, 2): 1}
    assert trial.insert((0, 12, 1, "A", 9, 2)) == {}, "worse than what is said"
    assert trial.standing() == {(0, 4, "A", 5): 1, (4, 12, "A", 3): 1}


def test_the_largest_is_best_of_max() -> None:
    trial = best_head(largest=True)
    assert trial.insert((0, 10, 1, "A", 7, 0), (0, 10, 1, "A", 5, 0)) == {(0, 10, "A", 7, 1): 1}
    assert trial.insert((0, 10, 1, "A", 8, 1)) == {(0, 10, "A", 7, 1): -1, (0, 10, "A", 8, 2): 1}


def test_a_value_goes_with_its_last_older_candidate() -> None:
    """Two of value 5, one of them from a younger premise: it does not hold the value, and the rest comes then."""
    trial = best_head()
    trial.insert((0, 10, 1, "A", 5, 0))
    trial.insert((0, 10, 1, "A", 5, 1), (0, 10, 1, "A", 8, 1))
    assert trial.retract((6, 10, -1, "A", 5, 0)) == {(6, 10, "A", 5, 1): -1}
    assert trial.head.due
    assert trial.retract((6, 10, -1, "A", 5, 1)) == {}
    assert trial.insert() == {(6, 10, "A", 8, 3): 1}
    assert trial.standing() == {(0, 6, "A", 5): 1, (6, 10, "A", 8): 1}


def test_as_long_as_an_older_one_stands_nothing_is_said() -> None:
    trial = best_head()
    trial.insert((0, 10, 2, "A", 5, 0))
    assert trial.retract((0, 10, -1, "A", 5, 0)) == {}
    assert not trial.head.due


def test_held_back_it_waits() -> None:
    trial = best_head()
    trial.insert((0, 10, 1, "A", 5, 0))
    trial.hold((0, 10, 1, "A", 2, 1), (0, 10, 1, "B", 9, 1))
    assert trial.head.due and trial.standing() == {(0, 10, "A", 5): 1}
    trial.restart()
    assert trial.head.due
    assert trial.insert() == {(0, 10, "A", 5, 1): -1, (0, 10, "A", 2, 2): 1, (0, 10, "B", 9, 2): 1}


def test_nulls_are_the_worst() -> None:
    for largest in (False, True):
        trial = best_head(largest)
        assert trial.insert((0, 10, 1, "A", None, 0)) == {(0, 10, "A", None, 1): 1}
        assert trial.insert((0, 10, 1, "A", 4, 1)) == {(0, 10, "A", None, 1): -1, (0, 10, "A", 4, 2): 1}


def test_a_promise_frees_what_has_ended() -> None:
    trial = best_head()
    trial.insert((0, 10, 1, "A", 5, 0), (0, 20, 1, "B", 5, 0))
    assert trial.rows == 4  # a candidate and what is said, of each
    trial.head.expire(10)
    assert trial.rows == 2 and trial.standing() == {(0, 20, "B", 5): 1}
    trial.head.expire(INF)
    assert trial.rows == 0


def test_a_candidate_that_is_not_there_cannot_go() -> None:
    trial = best_head()
    trial.insert((0, 10, 1, "A", 5, 0))
    with pytest.raises(EverwhenError, match="takes back a derivation that is not there"):
        trial.retract((0, 10, -1, "A", 6, 0))


def test_a_step_that_makes_better_worse_is_refused() -> None:
    """In the phase in which rows only come, a value may only get better."""
    trial = best_head()
    trial.insert((0, 10, 1, "A", 5, 0), (0, 10, 1, "A", 8, 0))
    with pytest.raises(EvaluationError, match="monotone in the value"):
        trial.insert((0, 10, -1, "A", 5, 0))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [-(2**62), -5, -1, 0, 1, 2**62]),
        (pa.int8(), [-128, -1, 0, 127]),
        (pa.uint64(), [1, 2, 2**63 - 1, 2**63, 2**64 - 2]),
        (pa.float64(), [-math.inf, -2.5, -1e-300, 0.0, 1e-300, 3.0, math.inf]),
        (pa.timestamp("us"), [datetime(1969, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 1)]),
    ],
)
def test_ranks_keep_the_order_and_lead_back(type_: pa.DataType, values: list[object], largest: bool) -> None:
    codes = encode_plain(pa.array(values, type_), type_)
    ranks = Ranks(type_, largest)
    found = ranks.of(codes)
    assert found.tolist() == sorted(found.tolist(), reverse=largest) and len(set(found.tolist())) == len(values)
    assert (ranks.codes(found) == codes).all()


def test_texts_have_no_ranks_and_one_value_is_not_there() -> None:
    with pytest.raises(QueryError, match="cast it to a number"):
        Ranks(pa.string(), False)
    with pytest.raises(EvaluationError, match="worst value"):
        Ranks(pa.int64(), False).of(np.array([2**63 - 1]))
    with pytest.raises(EvaluationError, match="worst value"):
        Ranks(pa.int64(), True).of(np.array([-(2**63)]))


def test_columns_in_any_order() -> None:
    """The value need not stand last; keys may be null."""
    from everwhen.operators.loop.best import BestHead
    from everwhen.operators.loop.head import with_birth
    from everwhen.rows.codec import RowCodec
    from everwhen.rows.interner import Interner
    from operators.loop.heads import Headed
    from operators.stepping import codec_of

    pool = Interner()
    codec = codec_of({"d": pa.float64(), "a": pa.string(), "b": pa.int64()}, pool)
    sent, keys = RowCodec(with_birth(codec.schema), pool), codec_of({"a": pa.string(), "b": pa.int64()}, pool)
    trial = Headed(lambda: BestHead(codec, sent, keys, "d", False))
    assert trial.insert((0, 9, 1, 2.5, None, 1, 0), (0, 9, 1, -1.0, "x", None, 0), (0, 9, 1, 1.5, None, 1, 0)) == {
        (0, 9, 1.5, None, 1, 1): 1, (0, 9, -1.0, "x", None, 1): 1,
    }  # fmt: skip
    trial.restart()
    assert trial.standing() == {(0, 9, 1.5, None, 1): 1, (0, 9, -1.0, "x", None): 1}
