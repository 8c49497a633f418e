"""What all kernels share: who has joined, who has left, what is waited for."""

from __future__ import annotations

import pytest

from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import INF, NEVER
from everwhen.stream.element import Cti
from operators.merge.merging import Merge, a, texts

KERNELS = ["R0", "R1", "R2", "R4"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_joining_leaving_and_beginning_anew(kernel: str) -> None:
    merge = Merge([NEVER, 20], MergePolicy(), False, kernel, True)
    assert merge.take({1: [Cti(50)]}) == [], "it has not joined"
    assert merge.operator.waits_for(merge.frontiers) == (0, 1)
    assert texts(merge.take({0: [a("A", 3, 4), Cti(20)]})) == ["insert [3, 4) p='A'", "cti 50"]
    merge.take({}, (0,))
    assert merge.operator.waits_for(merge.frontiers) == (1,)
    merge.begin_anew(0, 60)
    assert merge.take({0: [a("B", 70, 71), Cti(90)]}) == [], "right from 60 on, and the merge is at 50"
    merge.restart()
    assert texts(merge.take({1: [a("C", 55, 56), Cti(60)]})) == [
        "insert [55, 56) p='C'", "insert [70, 71) p='B'", "cti 90",
    ]  # fmt: skip
    assert merge.operator.promise == 90
    assert texts(merge.take({1: [Cti(INF)]})) == ["cti ∞"]
    assert merge.operator.waits_for(merge.frontiers) == ()


@pytest.mark.parametrize("kernel", KERNELS)
def test_where_all_begin_late_the_merge_begins_at_the_earliest(kernel: str) -> None:
    merge = Merge([30, 20], MergePolicy(), False, kernel, True)
    assert texts(merge.take({0: [a("B", 31, 32)], 1: [a("A", 20, 21), Cti(25)]})) == ["insert [20, 21) p='A'", "cti 25"]
    assert texts(merge.take({1: [Cti(30)]})) == ["insert [31, 32) p='B'", "cti 30"]
