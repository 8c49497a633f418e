"""Two rows, a query, and how to look at a session, for tests of sessions."""

from __future__ import annotations

import everwhen as ew
from everwhen.engine.session.session import Session
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch, batch_of
from operators.differential import SCHEMA
from plans import S

A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}


def one(*elements: Element, name: str = "S") -> dict[str, ElementBatch]:
    return {name: batch_of(elements, SCHEMA, name)}


def texts(batch: ElementBatch) -> list[str]:
    return [str(element) for element in batch.elements()]


def sums() -> ew.Stream:
    """Built anew each time: sharing is by structure."""
    return S.range(4).group_by("k").agg(t=ew.sum("x"))


def kinds(session: Session) -> list[str]:
    """The operators that run, without their numbers."""
    found = [name for name in session.metadata() if ": " not in name]
    return [name.split(" ", 1)[1] for name in found]
