"""Elements: from which instant on each changes something, and how people read them."""

from __future__ import annotations

import pytest

from everwhen.core.punctuation import Punctuation
from everwhen.core.time import INF
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct

ROW = {"k": 1, "s": "a"}


@pytest.mark.parametrize(
    ("element", "sync", "text"),
    [
        (Insert(3, INF, ROW), 3, "insert [3, ∞) k=1 s='a'"),
        (Adjust(3, 9, 5, ROW), 5, "adjust [3, 9 -> 5) k=1 s='a'"),
        (Adjust(3, 9, 12, ROW), 9, "adjust [3, 9 -> 12) k=1 s='a'"),
        (Adjust(3, INF, 3, {}), 3, "adjust [3, ∞ -> 3) "),
        (Cti(INF), INF, "cti ∞"),
    ],
)
def test_when_and_what(element: Insert | Adjust | Cti, sync: int, text: str) -> None:
    """An adjust changes what lies between its two ends; nothing earlier."""
    assert element.sync == sync and str(element) == text


def test_promises_are_read_by_people_too() -> None:
    assert str(Punct(Punctuation.constants({"k": 1}, 9))) == "punct k = 1 before 9"
    assert str(ExternalCti(0, 5, 2)) == "external_cti [0, 5) 2"


def test_elements_are_values() -> None:
    elements: list[Element] = [Insert(1, 2, ROW), Cti(2)]
    assert elements == [Insert(1, 2, {"s": "a", "k": 1}), Cti(2)] and Insert(1, 2, ROW) != Insert(1, 3, ROW)
