"""What the documents say in SQL is so: every query has the answer printed under it, every expression its value.

The language reference also leaves nothing out: every construct of the grammar, every operator, type, aggregate and
scalar function occurs in a text on the page that has been run.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import everwhen as ew
from doc_examples import DOCUMENTS, ROOT, Block, blocks, commands
from docs.sql_page import TICK, Claim, Example, Page, as_table
from everwhen import reference
from everwhen.algebra.explain import WIDTH
from everwhen.algebra.expressions.functions import FUNCTIONS, OPERATORS
from everwhen.algebra.nodes import Sort
from everwhen.core.emit import Emit
from everwhen.errors import QueryError
from everwhen.language import syntax
from everwhen.language.binding.aggregates import AGGREGATES
from everwhen.language.binding.types import TYPES
from everwhen.language.grammar import call as grammar_call
from everwhen.language.parse import parse
from everwhen.plan.explain import explain_text
from everwhen.testing import assert_same_history, assert_valid

REFERENCE = ROOT / "docs" / "sql.md"
JOBS = ROOT / "docs" / "jobs.md"
WITH_SQL = [path for path in DOCUMENTS if any(block.language == "sql" for block in blocks(path))]


@cache
def page(document: Path) -> Page:
    return Page.read(document)


def examples() -> list[Any]:
    found = [(path, example) for path in WITH_SQL for example in page(path).examples]
    return [pytest.param(example, id=f"{path.name}:{example.line}") for path, example in found]


def claims(refused: bool) -> list[Any]:
    found = [(path, claim) for path in WITH_SQL for claim in page(path).claims if (claim.relation is None) == refused]
    return [pytest.param(path, claim, id=f"{path.name}:{claim.line}") for path, claim in found]


# -- what is printed is so ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", examples())
def test_a_query_has_the_answer_below_it(example: Example) -> None:
    assert example.shown() == example.expected


@pytest.mark.parametrize("example", examples())
def test_a_query_can_be_explained(example: Example) -> None:
    try:
        query = ew.sql(example.text, example.world.catalog, tick=TICK)
    except QueryError:
        return
    text = explain_text("q", query.node, query.node, emit=Emit.FINAL)
    assert "What runs, and what it keeps" in text and max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("example", examples())
def test_the_answer_does_not_depend_on_the_plan_nor_on_when_it_is_said(example: Example) -> None:
    """As written instead of rewritten, element by element, at once and corrected later; and by definition."""
    try:
        schema, history = example.world.answer(example.text)
    except QueryError:
        return
    query = ew.sql(example.text, example.world.catalog, tick=TICK, optimize=False)
    assert query.schema == schema
    level = ew.STRONG if isinstance(query.node, Sort) else ew.MIDDLE  # what is sorted is final
    said = list(ew.run(query, example.world.read_by(query), level, batch=1))
    assert_valid(said)
    assert_same_history(said, history, tolerance=1e-9)
    inputs = {name: stream.history() for name, stream in example.world.read_by(query).items()}
    assert_same_history(reference.history(query.node, inputs), history, tolerance=1e-9)


@cache
def values(document: Path, relation: str) -> dict[Claim, str]:
    return page(document).values(relation)


@pytest.mark.parametrize(("document", "claim"), claims(refused=False))
def test_an_expression_has_the_value_beside_it(document: Path, claim: Claim) -> None:
    assert claim.relation is not None
    assert values(document, claim.relation)[claim] == claim.right


@pytest.mark.parametrize(("document", "claim"), claims(refused=True))
def test_a_query_is_refused_with_the_message_beside_it(document: Path, claim: Claim) -> None:
    assert page(document).message(claim) == claim.right


def test_the_answers_are_printed_as_tables() -> None:
    """The comparison above compares something: headers, infinite ends, nulls."""
    world = page(REFERENCE).world
    assert as_table(*world.answer("SELECT name, city FROM Person WHERE city IS NULL")) == (
        "vs | ve | name | city\n0  | ∞  | cid  | NULL"
    )
    assert as_table(*world.answer("SELECT item FROM Bid WHERE item = 0")) == "vs | ve | item"


def test_a_page_without_an_answer_is_an_error(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("```sql\nCREATE STREAM S (x INT);\nSELECT x FROM S\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="line 2: a query without an answer"):
        Page.read(document)


# -- nothing is left out -----------------------------------------------------------------------------------------------


def nodes(node: Any) -> Iterator[Any]:
    """Every node of a syntax tree."""
    if isinstance(node, tuple):
        for each in node:
            yield from nodes(each)
    elif dataclasses.is_dataclass(node):
        yield node
        for field in dataclasses.fields(node):
            yield from nodes(getattr(node, field.name))


@cache
def written() -> tuple[Any, ...]:
    """Every node of every text on the reference page, and of the jobs on theirs."""
    jobs = [shown for block in blocks(JOBS) for command, shown in _session(block) if command.endswith(".sql")]
    assert jobs
    return tuple(node for text in (*page(REFERENCE).texts(), *jobs) for node in nodes(parse(text)))


def _session(block: Block) -> list[tuple[str, str]]:
    found = commands(block) if block.language == "console" else ()
    return [(command, shown) for command, shown in found if command.startswith("cat ")]


def test_every_construct_of_the_grammar_is_there() -> None:
    kinds = {kind for _, kind in inspect.getmembers(syntax, dataclasses.is_dataclass)}
    kinds -= {syntax.AlterQuery}  # refused where no query runs; session.md runs one
    assert kinds - {type(node) for node in written()} == set()


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (syntax.Operator, "symbol"),
        (syntax.Converted, "kind"),
        (syntax.Cql, "kind"),
        (syntax.JoinItem, "kind"),
        (syntax.CreateSource, "kind"),
        (syntax.SetQuery, "kind"),
        (syntax.Quantified, "quantifier"),
    ],
)
def test_every_kind_of_a_construct_is_there(kind: type, field: str) -> None:
    names = get_args(get_type_hints(kind)[field])
    assert names
    assert set(names) - {getattr(node, field) for node in written() if isinstance(node, kind)} == set()


def test_every_option_of_a_construct_is_there() -> None:
    """What a construct may have is used by at least one that has it, and left out by at least one that has not."""
    optional = {
        syntax.Function: ("star", "distinct", "where", "order"),
        syntax.Case: ("operand", "otherwise"),
        syntax.RangeWindow: ("size", "slide"),
        syntax.RowsWindow: ("slide", "partition"),
        syntax.Lifetime: ("hop", "shift", "length", "unbounded"),
        syntax.StreamRef: ("alias", "modifiers"),
        syntax.Derived: ("alias", "columns"),
        syntax.JoinItem: ("on", "using", "natural"),
        syntax.Windowed: ("time", "partition", "alias"),
        syntax.Select: ("distinct", "where", "group_by", "having", "sets"),
        syntax.SetQuery: ("all",),
        syntax.ColumnDef: ("key",),
        syntax.CreateSource: ("keys", "source", "ordered_by", "period", "insert_only", "or_replace"),
        syntax.CreateDerived: ("columns",),
        syntax.Drop: ("if_exists",),
        syntax.Ask: ("consistency",),
    }
    missing = [
        (kind.__name__, field, given)
        for kind, fields in optional.items()
        for field in fields
        for given in (True, False)
        if not any(bool(getattr(node, field)) is given for node in written() if isinstance(node, kind))
    ]
    assert missing == []


def test_every_aggregate_is_there() -> None:
    called = {node.name for node in written() if isinstance(node, syntax.Function)}
    assert set(AGGREGATES) - called == set()


def test_every_scalar_function_is_there() -> None:
    called = {node.name for node in written() if isinstance(node, syntax.Function)}
    named = {name for name in FUNCTIONS if not name.startswith("_")} - {operator.name for operator in OPERATORS}
    assert named - called == set()


@pytest.mark.parametrize("spellings", [grammar_call._SPELLINGS], ids=["grammar"])
def test_every_other_spelling_is_there(spellings: dict[str, str]) -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    missing = [
        (other, name)
        for other, name in spellings.items()
        if not any(f"`{other}`" in row and row.startswith(f"| `{name}(") for row in rows)
    ]
    assert missing == []


def test_every_type_is_there() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    listed = re.search(r"^\| type \| names .*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert listed
    named = set(re.findall(r"`([A-Z0-9_ ]+)(?:\(.*?\))?`", listed[0]))
    assert {name.upper() for name in TYPES} - named == set()
