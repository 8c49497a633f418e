"""The elements that were given up last, so that one can look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from everwhen.engine.ingress import OnDropped
from everwhen.operators.ingress.finalize import DroppedElements, Reason
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch

_LATEST: Final = 1_000
"""So many of them can be looked at, unless told otherwise."""


class LatestDropped:
    """Notes what is given up, and tells somebody."""

    def __init__(self, tell: OnDropped | None = None, most: int = _LATEST) -> None:
        self._tell, self._most, self._rows = tell, most, 0
        self._latest: deque[tuple[str, DroppedElements]] = deque()

    def note(self, name: str, dropped: DroppedElements) -> None:
        """Elements of a source were given up."""
        if self._tell is not None:
            self._tell(name, dropped)
        self._latest.append((name, dropped))
        self._rows += len(dropped)
        while len(self._latest) > 1 and self._rows - len(self._latest[0][1]) >= self._most:
            self._rows -= len(self._latest.popleft()[1])

    def of(self, name: str) -> list[ElementBatch]:
        """Those of one source."""
        return [each.elements for source, each in list(self._latest) if source == name]

    def elements(self) -> Iterator[tuple[str, Element, Reason]]:
        """With their sources and reasons: the last thousand and some."""
        for name, each in self._latest:
            for element, reason in zip(each.elements.elements(), each.reasons, strict=True):
                yield name, element, reason
