"""The elements that were given up last, so that one can look at them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from everwhen.engine.ingress import OnDropped
from everwhen.operators.ingress.finalize import DroppedElements, Reason
from everwhen.stream.element import Element

_LATEST: Final = 1_000
"""So many of them can be looked at."""


class LatestDropped:
    """Notes what is given up, and tells somebody."""

    def __init__(self, tell: OnDropped | None = None) -> None:
        self._tell = tell
        self._latest: deque[tuple[str, DroppedElements]] = deque()

    def note(self, name: str, dropped: DroppedElements) -> None:
        """Elements of a source were given up."""
        if self._tell is not None:
            self._tell(name, dropped)
        self._latest.append((name, dropped))
        while len(self._latest) > 1 and sum(len(each) for _, each in self._latest) - len(self._latest[0][1]) >= _LATEST:
            self._latest.popleft()

    def elements(self) -> Iterator[tuple[str, Element, Reason]]:
        """With their sources and reasons: the last thousand and some."""
        for name, each in self._latest:
            for element, reason in zip(each.elements.elements(), each.reasons, strict=True):
                yield name, element, reason
