"""Every query of the language reference while its plan changes before every element: the answer below it stays so."""

from __future__ import annotations

from typing import Any

import pytest

import everwhen as ew
from docs.sql_page import TICK, Example, Page, as_table
from docs.test_sql_reference import REFERENCE
from everwhen.algebra.nodes import Source, walk
from everwhen.engine.epochs import EpochReader
from everwhen.engine.files.query_forms import AS_WRITTEN, REWRITTEN, QueryForms
from everwhen.engine.files.replans import Replans
from everwhen.engine.local import LocalRuntime
from everwhen.errors import LoopError, QueryError
from everwhen.language.program import program
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.stream.history import History
from everwhen.tables.given import batches_of
from everwhen.testing import assert_valid

USUALLY = 5
"""One of so many examples is always tried, the others are slow."""


def examples() -> list[Any]:
    found = Page.read(REFERENCE).examples
    marks: list[Any] = [[] if at % USUALLY == 0 else [pytest.mark.slow] for at in range(len(found))]
    return [pytest.param(each, id=f"{each.line}", marks=mark) for each, mark in zip(found, marks, strict=True)]


def forms(example: Example) -> QueryForms:
    asked = program(example.text, example.world.catalog, TICK).query.node
    plans = {}
    for name, node in ((REWRITTEN, rewrite(asked).node), (AS_WRITTEN, asked)):
        try:
            plans[name] = legal_loops(node)
        except LoopError:
            continue
    return QueryForms(asked, plans)


@pytest.mark.parametrize("emit", ["final", "current"])
@pytest.mark.parametrize("example", examples())
def test_the_answer_stays_while_the_plan_changes(example: Example, emit: str) -> None:
    try:
        example.world.answer(example.text)
        replans = Replans(forms(example), every=1)
    except QueryError:
        pytest.skip("it is refused")
    try:
        runtime = LocalRuntime(replans.now, emit, keep_relations=True)
    except QueryError:
        pytest.skip("ORDER BY needs what is final")
    sources = {each.name: each for each in walk(replans.now) if isinstance(each, Source)}
    given = {name: batches_of(example.world.elements[name], source, 1) for name, source in sources.items()}
    whole = [name for name, source in sources.items() if source.is_finite]
    said: list[ew.Element] = []
    for epoch in EpochReader(given, 1, False, whole, fill_up=False):
        replans.look(runtime)
        said += [each for batch in runtime.answers([epoch]) for each in batch.elements()]
    assert_valid(said)
    schema = replans.forms.asked.schema
    assert as_table(schema, History.of(said, schema).coalesced()) == example.expected
