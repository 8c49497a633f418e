"""Elements in columns: there and back, parts of a batch, two as one, and values that do not fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import InputError
from everwhen.stream.batch_state import batch_of_state, batch_state
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import batch_of, empty_elements, joined
from state_files import through_file

SCHEMA = Schema.of([("k", pa.int64()), ("s", pa.string())])
ELEMENTS: list[Element] = [
    Insert(1, 5, {"k": 1, "s": "a"}),
    Punct(Punctuation.constants({"k": 7}, 9)),
    Adjust(1, 5, INF, {"k": 1, "s": None}),
    ExternalCti(0, 4, 2),
    Insert(-3, INF, {"k": None, "s": ""}),
    Cti(INF),
]


def test_elements_come_back_as_they_were() -> None:
    batch = batch_of(ELEMENTS, SCHEMA, "S")
    assert list(batch.elements()) == ELEMENTS and batch.source == "S"
    assert [batch.line(i) for i in (0, 5)] == [1, 6]
    assert len(empty_elements(SCHEMA)) == 0 and list(empty_elements(SCHEMA).elements()) == []


@pytest.mark.parametrize("cut", range(len(ELEMENTS) + 1))
def test_parts_together_are_the_whole(cut: int) -> None:
    batch = batch_of(ELEMENTS, SCHEMA)
    first, second = batch.slice(0, cut), batch.slice(cut, 100)
    assert list(first.elements()) == ELEMENTS[:cut] and list(second.elements()) == ELEMENTS[cut:]
    assert list(joined(first, second).elements()) == ELEMENTS
    assert not len(second) or second.line(0) == cut + 1, "lines are those of the whole"


def test_lines_of_a_file_stay_with_their_elements() -> None:
    batch = batch_of(ELEMENTS, SCHEMA)
    numbered = type(batch)(
        SCHEMA, batch.op, batch.vs, batch.ve, batch.vnew, batch.columns, batch.promises, lines=np.arange(10, 16)
    )
    assert numbered.slice(2, 2).line(1) == 13


def test_a_value_that_does_not_fit_is_named_with_its_place() -> None:
    wrong = [*ELEMENTS, Insert(1, 5, {"k": "seven", "s": "a"})]
    with pytest.raises(InputError, match=r"S.*7.*'seven' in column 'k' is not of type int64"):
        batch_of(wrong, SCHEMA, "S")
    with pytest.raises(InputError, match="is not of type int64"):
        batch_of([Insert(1, 5, {"k": 2**70, "s": "a"})], SCHEMA)


def test_a_batch_survives_as_plain_data() -> None:
    found = batch_of_state(through_file(batch_state(batch_of(ELEMENTS, SCHEMA))))
    assert list(found.elements()) == ELEMENTS and found.schema == SCHEMA
