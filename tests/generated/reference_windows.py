"""Snapshots of a stage by the reference evaluator, to compare the definitions of `lifetimes.py` with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from everwhen.language.catalog import Catalog
from everwhen.language.program import program
from everwhen.reference.evaluation import evaluate
from everwhen.stream.history import History
from generated.streams import SOURCES, World


def reference_snapshots(text: str, given: World, catalog: Catalog, instants: Iterable[int]) -> list[Counter]:
    histories = {name: History.of(given.elements(name), SOURCES[name].schema) for name in SOURCES}
    stream = evaluate(program(text, catalog).query.node, histories)
    return [Counter(stream.at(t)) for t in instants]
