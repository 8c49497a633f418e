"""Groups alone: what a group says when rows come and go, when it is gone, and what a promise about its key does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from everwhen.algebra.aggregates.calls import Aggregation
from everwhen.core.emit import Emit
from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import EvaluationError
from everwhen.operators.contract import Policy
from everwhen.operators.sweep.aggregate import AggregateOperator
from everwhen.rows.codec import RowCodec
from operators.stepping import Stepped, codec_of


def grouped(*aggregations: Aggregation, keys: tuple[str, ...] = ("k",), emit: Emit = Emit.ALL) -> Stepped:
    source = codec_of({"k": pa.string(), "x": pa.int64()})
    fields = [(name, source.schema.field(name).type) for name in keys]
    fields += [(each.name, each.result_type(source.schema)) for each in aggregations]
    codec = RowCodec(Schema.of(fields), source.pool)
    return Stepped(lambda: AggregateOperator(keys, aggregations, source, codec, Policy(emit)), source)


COUNT = Aggregation("n", "count", ())
SUM = Aggregation("t", "sum", ("x",))


@pytest.mark.parametrize(
    ("aggregation", "one", "both"),
    [
        (SUM, 3, 7),
        (Aggregation("c", "count", ("x",)), 1, 2),
        (Aggregation("a", "avg", ("x",)), 3.0, 3.5),
        (Aggregation("m", "min", ("x",)), 3, 3),
        (Aggregation("m", "max", ("x",)), 3, 4),
        (Aggregation("v", "variance_pop", ("x",)), 0.0, 0.25),
        (Aggregation("d", "count_distinct", ("x",)), 1, 2),
        (Aggregation("q", "median", ("x",)), 3.0, 3.5),
    ],
    ids=lambda value: value.function if isinstance(value, Aggregation) else "",
)
def test_a_row_that_comes_and_goes_changes_only_where_it_lives(aggregation: Aggregation, one: Any, both: Any) -> None:
    trial = grouped(COUNT, aggregation)
    assert trial.step([(0, 10, 1, "a", 3)]) == {(0, 10, "a", 1, one): 1}
    assert trial.step([(4, 6, 1, "a", 4)]) == {(4, 6, "a", 1, one): -1, (4, 6, "a", 2, both): 1}
    trial.restart()
    back = {(0, 4, "a", 1, one): -1, (4, 6, "a", 2, both): -1, (6, 10, "a", 1, one): -1}
    assert trial.step([(4, 6, -1, "a", 4), (0, 10, -1, "a", 3)]) == back
    assert trial.step([(0, 10, 1, "a", 3)]) == {(0, 10, "a", 1, one): 1}, "as if nothing had been"


def test_a_group_is_there_as_long_as_it_has_rows_whatever_they_add_up_to() -> None:
    trial = grouped(COUNT, SUM)
    assert trial.step([(0, 5, 1, "a", None), (0, 5, 1, None, 0)]) == {(0, 5, "a", 1, None): 1, (0, 5, None, 1, 0): 1}
    assert trial.step([(0, 5, 1, "a", 2), (0, 5, 1, "a", -2)]) == {(0, 5, "a", 1, None): -1, (0, 5, "a", 3, 0): 1}


def test_without_keys_there_is_one_group_and_over_nothing_no_row() -> None:
    trial = grouped(COUNT, keys=())
    assert trial.step([]) == {}
    assert trial.step([(0, 5, 1, "a", 1), (3, 9, 2, "b", 1)]) == {(0, 3, 1): 1, (3, 5, 3): 1, (5, 9, 2): 1}


def test_state_goes_with_the_cti_and_with_promises_about_keys() -> None:
    trial = grouped(COUNT, Aggregation("m", "max", ("x",)))
    trial.step([(0, 10, 1, "a", 1), (0, 20, 1, "b", 1)])
    full = trial.rows
    trial.step(ctis=[10])
    assert trial.rows < full
    trial.step(ctis=[10], promises=[[Punctuation.constants({"k": "b"}, 20)]])
    assert trial.rows == 0
    assert [set(each.match) for each in trial.frontier.promises] == [{"k"}], "and it goes on"
    trial.step(ctis=[INF])
    assert trial.rows == 0


def test_a_final_answer_comes_with_its_promise() -> None:
    trial = grouped(COUNT, emit=Emit.FINAL)
    assert trial.step([(0, 10, 1, "a", 1), (5, 10, 1, "a", 1)], ctis=[3], tau=9) == {(0, 3, "a", 1): 1}
    assert trial.step(ctis=[3], promises=[[Punctuation.constants({"k": "a"})]], tau=9) == {
        (3, 5, "a", 1): 1,
        (5, 10, "a", 2): 1,
    }


def test_a_sum_that_may_not_fit_is_refused() -> None:
    trial = grouped(SUM)
    with pytest.raises(EvaluationError, match="may not fit 64 bits; cast the column to decimal"):
        trial.step([(0, 5, 1, "a", 2**62), (0, 5, 1, "a", 2**62)])
