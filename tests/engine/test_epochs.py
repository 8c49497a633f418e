"""The order of arrival: round-robin, by arrival numbers, relations first; the same epochs whoever reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.engine.epochs import Epoch, EpochReader, joined
from everwhen.engine.files.run import run_files
from everwhen.errors import InputError
from everwhen.stream.element import Cti, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of

SCHEMA = ew.source("S", {"x": "int64"}).schema


def batch(xs: Iterable[int], at: Iterable[int] | None = None, source: str = "s.jsonl", first: int = 1) -> ElementBatch:
    found = batch_of([Insert(x, x + 1, {"x": x}) for x in xs], SCHEMA, source)
    numbers = None if at is None else np.array(list(at), np.int64)
    return ElementBatch(
        SCHEMA, found.op, found.vs, found.ve, found.vnew, found.columns, {}, source, first, None, numbers
    )


def rows(epoch: Epoch) -> dict[str, list[int]]:
    return {name: found.vs.tolist() for name, found in epoch.batches.items()}


def test_inputs_take_turns_and_close_one_by_one() -> None:
    inputs = {"A": [batch([1, 2, 3]), batch([4, 5])], "B": [batch([10])]}
    found = list(EpochReader(inputs, 2))
    assert [rows(epoch) for epoch in found] == [{"A": [1, 2], "B": [10]}, {"A": [3, 4]}, {"A": [5]}, {}]
    assert [epoch.closes for epoch in found] == [(), ("B",), (), ("A",)]
    assert [epoch.last for epoch in found] == [False, False, False, True]


def test_open_inputs_are_not_closed() -> None:
    found = list(EpochReader({"A": [batch([1])], "B": []}, 2, open=True))
    assert [(rows(epoch), epoch.closes, epoch.last) for epoch in found] == [({"A": [1]}, (), False)]


def test_a_batch_comes_at_once_where_small_ones_are_not_put_together() -> None:
    inputs = {"A": [batch([1]), batch([2, 3, 4])]}
    found = EpochReader(inputs, 2, fill_up=False)
    assert [rows(epoch).get("A") for epoch in found] == [[1], [2, 3], [4], None]


def test_relations_come_first_and_are_closed_even_if_the_rest_is_open() -> None:
    inputs = {"S": [batch([1])], "R": [batch([7]), batch([8])], "Q": []}
    found = list(EpochReader(inputs, 1, open=True, relations=["R", "Q"]))
    assert [(rows(epoch), epoch.closes) for epoch in found] == [({"R": [7, 8]}, ()), ({"S": [1]}, ("R", "Q"))]
    found = list(EpochReader({"R": [batch([7])]}, 1, relations=["R"]))
    assert [(rows(epoch), epoch.closes, epoch.last) for epoch in found] == [({"R": [7]}, (), False), ({}, ("R",), True)]


def test_arrival_numbers_decide_and_ties_go_by_the_order_of_inputs() -> None:
    inputs = {"A": [batch([1, 2, 3], [0, 5, 5])], "B": [batch([10, 11], [5, 6])], "C": []}
    found = list(EpochReader(inputs, 2))
    assert [rows(epoch) for epoch in found] == [{"A": [1, 2]}, {"A": [3], "B": [10]}, {"B": [11]}, {}]
    assert [epoch.closes for epoch in found] == [("C",), (), ("A",), ("B",)]


def test_arrival_numbers_on_some_inputs_only() -> None:
    inputs = {"A": [batch([1], [0], "a.jsonl")], "B": [batch([2], None, "b.jsonl", first=3)]}
    with pytest.raises(InputError, match=r'b\.jsonl:3: there is no "at" here, and a\.jsonl has it'):
        list(EpochReader(inputs, 2))
    with pytest.raises(InputError, match=r's\.jsonl:3: some elements of this input have "at"'):
        list(EpochReader({"A": [batch([1, 2], [0, 0]), batch([3], None, first=3)]}, 1))


def test_arrival_numbers_do_not_go_back() -> None:
    with pytest.raises(InputError, match=r's\.jsonl:2: "at" goes back from 4 to 3'):
        list(EpochReader({"A": [batch([1, 2], [4, 3])]}, 1))
    with pytest.raises(InputError, match=r's\.jsonl:9: "at" goes back from 4 to 3'):
        list(EpochReader({"A": [batch([1], [4]), batch([2], [3], first=9)]}, 1))


def test_only_as_much_is_read_as_is_needed() -> None:
    read: list[int] = []

    def slowly(first: int) -> Iterator[ElementBatch]:
        for x in range(first, first + 100):
            read.append(x)
            yield batch([x], [x])

    arrival = iter(EpochReader({"A": slowly(0), "B": slowly(1000)}, 5))
    next(arrival)
    assert len(read) <= 10


Cut = st.lists(st.integers(1, 4), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=12).map(sorted), min_size=1, max_size=3),
    Cut, st.integers(1, 7), st.booleans(), st.integers(0, 20),
)  # fmt: skip
def test_epochs_do_not_depend_on_how_inputs_were_cut_and_can_be_taken_up(
    numbers: list[list[int]], cut: list[int], size: int, numbered: bool, stop: int
) -> None:
    def inputs(skip: dict[str, int], pieces: list[int]) -> dict[str, list[ElementBatch]]:
        found = {}
        for i, at in enumerate(numbers):
            xs = range(100 * i, 100 * i + len(at))
            whole = batch(xs, at if numbered else None)
            left = whole.slice(skip.get(f"I{i}", 0), len(at))
            found[f"I{i}"] = []
            for piece in [*pieces, 100]:
                found[f"I{i}"].append(left.slice(0, piece))
                left = left.slice(min(piece, len(left)), len(left))
        return found

    whole = EpochReader(inputs({}, []), size)
    expected = []
    positions = []
    for epoch in whole:
        expected.append(rows(epoch))
        positions.append(dict(whole.taken))
    assert [rows(epoch) for epoch in EpochReader(inputs({}, cut), size)] == expected
    if numbered:
        order = sorted((a, i, k) for i, at in enumerate(numbers) for k, a in enumerate(at))
        seen = [sorted(x for found in epoch.values() for x in found) for epoch in expected if epoch]
        wanted = [sorted(100 * i + k for _, i, k in order[n : n + size]) for n in range(0, len(order), size)]
        assert seen == wanted
    stop %= len(expected)
    again = EpochReader(inputs(positions[stop], cut), size, taken=positions[stop])
    assert [found for epoch in again if (found := rows(epoch))] == [found for found in expected[stop + 1 :] if found]
    assert sum(again.taken.values()) == sum(map(len, numbers))


def test_joined_batches_know_their_lines() -> None:
    one = joined([batch([1, 2], first=4), batch([3], first=9)])
    assert [one.line(i) for i in range(3)] == [4, 5, 9] and one.vs.tolist() == [1, 2, 3]


def test_run_reads_by_arrival_numbers() -> None:
    a, b = ew.source("A", {"x": "int64"}), ew.source("B", {"x": "int64"})
    inputs = {"A": [batch([5, 1], [0, 2])], "B": [batch([3], [1])]}
    found = [e.vs for e in ew.run(a.union(b), inputs, batch=1) if isinstance(e, Insert)]
    assert found == [5, 3, 1]
    with pytest.raises(InputError, match="behind the CTI"):
        late = {"A": [batch_of([Cti(3), Insert(1, 2, {"x": 1})], SCHEMA)], "B": []}
        list(ew.run(a.union(b), late))


@pytest.mark.parametrize("size", [0, -1, "x", None, 2.5])
def test_a_batch_is_a_number_of_elements(size: Any, tmp_path: Path) -> None:
    s, said = ew.source("S", {"x": "int64"}), "a batch holds at least one element: a whole number such as 10000, not "
    for run in (
        lambda: list(ew.run(s, {"S": []}, batch=size)),
        lambda: run_files(s, {"S": "s.jsonl"}, batch=size),
        lambda: ew.follow(s, {"S": "s.jsonl"}, f"{tmp_path}/out", batch=size),
    ):
        with pytest.raises(ew.QueryError, match=re.escape(f"{said}{size!r}")):
            run()
    assert list(ew.run(s, {"S": [ew.Cti(1)]}, batch=np.int64(3), open=True)) == [ew.Cti(1)]
