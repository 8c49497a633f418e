"""The data of a batch between its promises: places, rows and columns as if the gaps were not there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.operators.ingress.checked_batch import Arrived
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ADJUST, batch_of

SCHEMA = Schema.of([("k", pa.int64()), ("s", pa.string())])
ONE, TWO = {"k": 1, "s": "a"}, {"k": 2, "s": None}
PROMISE = Punct(Punctuation.constants({"k": 9}))
STREAMS: dict[str, list[Element]] = {
    "no gaps": [Insert(0, 5, ONE), Adjust(0, 5, 3, ONE), Insert(1, 4, TWO)],
    "a promise first": [PROMISE, Insert(0, 5, ONE), Insert(2, 5, TWO)],
    "between and behind": [Insert(0, 5, ONE), Cti(0), PROMISE, Adjust(0, 5, 9, ONE), Cti(1), Insert(2, 5, TWO), Cti(2)],
    "inserts only": [Insert(0, 5, ONE), Cti(0), Insert(2, 5, ONE)],
}


def arrived(elements: list[Element]) -> Arrived:
    batch = batch_of(elements, SCHEMA)
    data = np.flatnonzero(batch.op <= ADJUST)
    gaps = np.flatnonzero(batch.op[: data[-1] + 1] > ADJUST)
    n = int(data[-1]) + 1
    columns = tuple(column[:n] for column in batch.columns)
    times = batch.op[:n], batch.vs[:n], batch.ve[:n], batch.vnew[:n]
    return Arrived(*times, columns, int((batch.op == ADJUST).sum()), gaps)


@pytest.mark.parametrize("name", STREAMS)
def test_it_is_the_elements_that_are_data(name: str) -> None:
    found = arrived(STREAMS[name])
    data = [each for each in STREAMS[name] if isinstance(each, Insert | Adjust)]
    assert len(found) == len(data)
    assert [found.element(found.place(row), SCHEMA) for row in range(len(found))] == data
    op, vs, ve, vnew = found.head()
    assert vs.tolist() == [each.vs for each in data] and ve.tolist() == [each.ve for each in data]
    assert (op == ADJUST).tolist() == [isinstance(each, Adjust) for each in data]
    assert [new for new, each in zip(vnew.tolist(), data, strict=True) if isinstance(each, Adjust)] == [
        each.vnew for each in data if isinstance(each, Adjust)
    ]
    sync = found.sync[[found.place(row) for row in range(len(found))]]
    assert sync.tolist() == [each.sync for each in data]
    assert found.column(0).to_pylist() == [each.row["k"] for each in data]
    assert found.column(1).to_pylist() == [each.row["s"] for each in data]


def test_a_column_is_known_if_only_gaps_are_null() -> None:
    mixed, known = arrived(STREAMS["between and behind"]), arrived(STREAMS["inserts only"])
    assert mixed.known(0) and not mixed.known(1), "the text of one row is null"
    assert known.known(1) and known.complete(1).null_count == 0
    assert mixed.complete(1).null_count == mixed.columns[1].null_count
