"""A failing case as text that can be run: SQL, elements as JSON lines, epochs, the way, expected and got."""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Iterator

from everwhen.formats.json.lines import jsonlines
from everwhen.stream.element_batch import batch_of
from generated.streams import SOURCES
from generated.tree import OURS
from generated.ways import Case


def shown(case: Case, what: str, seed: str) -> str:
    return "\n".join(_lines(case, what, seed))


def _lines(case: Case, what: str, seed: str) -> Iterator[str]:
    yield f"-- way {case.way}, emit {case.emit}, {'optimised' if case.optimize else 'as written'}, seed {seed}"
    if case.way == "run":
        yield f"-- batches of {case.batch}"
    if case.restores:
        yield f"-- snapshot and restore before the epochs {', '.join(map(str, case.restores))}"
    for asked in case.asked:
        joins = f"   -- joins before epoch {asked.joins}" if case.way in ("sessions", "restore", "migrate") else ""
        yield asked.query.sql(OURS) + ";" + joins
    for at, epoch in enumerate(case.world.epochs):
        for name, part in epoch:
            yield f"-- epoch {at}, {name}:"
            yield from (line.rstrip() for line in jsonlines(batch_of(part, SOURCES[name].schema, name)))
    yield f"-- {what}"
    yield f"-- again: make explore CASE={packed(case)}"


def packed(case: Case) -> str:
    return base64.urlsafe_b64encode(zlib.compress(pickle.dumps(case), 9)).decode()


def unpacked(text: str) -> Case:
    case = pickle.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
    assert isinstance(case, Case)
    return case
