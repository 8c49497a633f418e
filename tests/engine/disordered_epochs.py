"""Two small streams that come late and side by side, for tests of levels of consistency."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import batches

S, T = ew.source("S", {"k": "string", "x": "int64"}), ew.source("T", {"k": "string", "x": "int64"})
SCHEMA = S.schema

Epochs = Sequence[Mapping[str, ElementBatch]]


def epochs_of(inputs: Mapping[str, Sequence[Element]], rng: random.Random) -> list[dict[str, ElementBatch]]:
    """The inputs side by side, cut at random, an input without a batch now and then."""
    parts = {name: batches(elements, SCHEMA, rng) for name, elements in inputs.items()}
    found: list[dict[str, ElementBatch]] = []
    while any(parts.values()):
        found.append({name: part.pop(0) for name, part in parts.items() if part and rng.random() < 0.8})
    return [epoch for epoch in found if epoch]


def pushed(runtime: LocalRuntime, epochs: Epochs) -> list[Element]:
    out = [element for epoch in epochs for element in runtime.push(epoch)["out"].elements()]
    return [*out, *runtime.close()["out"].elements()]


def said_of(elements: Iterable[Element]) -> History:
    return History.of([e for e in elements if not isinstance(e, Cti)], SCHEMA)


def lag(epochs: Epochs) -> int:
    """The true disorder: how late the latest element is, against all that came before or with it on any input."""
    latest, found = NEVER, 0
    for epoch in epochs:
        syncs = [e.sync for b in epoch.values() for e in b.elements() if isinstance(e, Insert | Adjust)]
        latest = max([latest, *syncs])
        found = max([found, *(latest - sync for sync in syncs)])
    return found
