"""What users may rely on: every exported name has a documented, tested example, and documents use nothing else."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import everwhen as ew
from doc_examples import ROOT, blocks

MODULES = ["everwhen", "everwhen.punctuation", "everwhen.spark", "everwhen.testing"]
"""The namespaces whose names are all documented in the API reference."""

IMPORTABLE = {*MODULES, "everwhen.reference", "everwhen.errors", "everwhen.testing.strategies"}

GONE = ("given", "complete", "bounds", "unique", "selection", "sorted_by", "clustered_by", "Nothing", "Range", "OneOf")

NOT_YET: set[str] = set()
"""What examples import although it is not public.  An entry that nobody needs any more has to go."""


def exported() -> list[tuple[str, str]]:
    return [(module, name) for module in MODULES for name in importlib.import_module(module).__all__]


def documented(value: object) -> bool:
    """Whether a name has a docstring of its own; a constant has that of its type."""
    return inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType)


@pytest.mark.parametrize(("module", "name"), exported())
def test_every_exported_name_has_an_example(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, ModuleType):
        assert inspect.getdoc(value), name
        return
    if not documented(value):  # a constant, or a type alias: at work in the example of something else
        own = {
            text
            for other, each in exported()
            if (text := inspect.getdoc(getattr(importlib.import_module(other), each)))
        }
        assert any(name in text for text in own), name
        return
    assert doctest.DocTestParser().get_examples(inspect.getdoc(value) or ""), f"{module}.{name} has no example"


@pytest.mark.parametrize("module", MODULES)
def test_exports_are_listed_once_and_are_there(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert len(set(names)) == len(names)
    assert set(names) <= set(dir(importlib.import_module(module)))


def test_names_that_are_too_general_live_in_a_namespace() -> None:
    assert not [name for name in GONE if hasattr(ew, name)]
    assert all(hasattr(ew.punctuation, name) for name in GONE)


# -- documents ---------------------------------------------------------------------------------------------------------


def documents() -> Iterator[tuple[str, str]]:
    """The Python of every page for users, and of every example: where it stands, and its text."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in blocks(page):
            if block.language == "python":
                examples = doctest.DocTestParser().get_examples(block.text)
                text = "".join(example.source for example in examples) if examples else block.text
                yield f"{page.name}:{block.line}", text
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")


def imports(text: str) -> Iterator[tuple[str, str | None]]:
    """Every import of ours: the module and the name, None for the module itself."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((each.name, None) for each in node.names if each.name.partition(".")[0] == "everwhen")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "everwhen":
            yield from ((node.module or "", each.name) for each in node.names)


def is_public(module: str, name: str | None) -> bool:
    if module not in IMPORTABLE:
        return False
    return name is None or name in getattr(importlib.import_module(module), "__all__", (name,))


def not_public() -> dict[str, str]:
    return {
        f"{place}: {module}.{name or ''}": module
        for place, text in documents()
        for module, name in imports(text)
        if not is_public(module, name)
    }


def excused(module: str) -> str | None:
    return next((entry for entry in NOT_YET if module == entry or module.startswith(f"{entry}.")), None)


def test_documents_and_examples_import_public_names_only() -> None:
    found = not_public()
    assert [place for place, module in found.items() if excused(module) is None] == []
    assert {excused(module) for module in found.values()} == NOT_YET


def test_what_is_not_public_is_seen() -> None:
    assert list(imports("from everwhen.stream.history import History\nimport everwhen as ew")) == [
        ("everwhen.stream.history", "History"),
        ("everwhen", None),
    ]
    assert not is_public("everwhen.stream.history", "History") and not is_public("everwhen", "lower")
    assert is_public("everwhen", "History") and is_public("everwhen.testing", "reorder")
    assert Path(ROOT / "examples").is_dir()
