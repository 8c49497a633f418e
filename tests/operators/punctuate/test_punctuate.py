"""PUNCTUATE inside a plan: the identity, with promises beside it; of a step with a bad row nothing goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.errors import InputError
from everwhen.operators.punctuate.punctuate import PunctuateOperator
from everwhen.punctuation.schemes import SortedBy
from operators.stepping import Stepped, codec_of

CODEC = codec_of({"x": pa.int64(), "s": pa.string()})


def punctuate() -> Stepped:
    return Stepped(lambda: PunctuateOperator([SortedBy("x")], CODEC), CODEC)


def test_rows_go_on_as_they_are_with_what_follows_from_them() -> None:
    trial = punctuate()
    given = Punctuation.constants({"s": "z"}, 4)
    assert trial.step([(0, 5, 1, 3, "a"), (1, 2, -1, 4, None)], ctis=[2], promises=[[given]]) == {
        (0, 5, 3, "a"): 1,
        (1, 2, 4, None): -1,
    }
    assert trial.frontier.time == 2 and trial.frontier.promises[0] == given
    (derived,) = trial.frontier.promises[1:]
    assert derived.matches({"x": 3}) and not derived.matches({"x": 4})


def test_a_row_below_what_was_promised_ends_the_query_and_the_state_stays() -> None:
    trial = punctuate()
    trial.step([(0, 5, 1, 3, "a")])
    trial.restart()
    with pytest.raises(InputError, match=r"SORTED BY .*inside the plan"):
        trial.step([(0, 5, 1, 9, "a"), (0, 5, 1, 2, "b")])
    assert trial.step([(0, 5, 1, 4, "a")]) == {(0, 5, 4, "a"): 1}, "9 was not taken"
    trial.step([])
    assert trial.frontier.promises == () and trial.rows == 0
