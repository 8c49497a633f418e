"""Other starts of events that began before the promise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from everwhen.errors import StateError
from everwhen.operators.merge.event_differences import EventDifferences
from everwhen.operators.merge.names import Names
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.merge.merging import SCHEMA


def rows(codec: RowCodec, *events: tuple[str, int]) -> np.ndarray:
    coded = codec.encode([pa.array([p for p, _ in events])], len(events))
    return np.concatenate([coded, np.array([[start] for _, start in events])], axis=1)


def test_a_name_may_be_given_another_one_and_is_forgotten_with_its_event() -> None:
    codec = RowCodec(SCHEMA, Interner())
    names = Names(codec)
    names.give(rows(codec, ("A", 3)), 10)
    names.give(rows(codec, ("A", 10)), 20)
    assert names.known(rows(codec, ("A", 3), ("B", 3), ("A", 10)))[:, -1].tolist() == [20, 3, 20]
    again = Names(codec)
    again.restore(names.snapshot())
    assert again.known(rows(codec, ("A", 3)))[:, -1].tolist() == [20]
    events = EventDifferences(codec)
    again.forget(events)
    assert again.state_size().rows == 0, "nobody says anything of it"
    one = np.array([20])
    events.add(0, Changes(codec, one, one + 5, np.array([1]), rows(codec, ("A", 20))), 0)
    names.forget(events)
    assert names.state_size().rows == 2
    with pytest.raises(StateError, match="before its own start"):
        Names(codec).restore({"rows": (pa.array(["A"]),), "start": np.array([5]), "name": np.array([4])})
