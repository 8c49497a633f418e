"""What the documents refer to is there: files, tests, modules, methods.  And they name no machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doc_examples import DOCUMENTS, ROOT
from everwhen.algebra import builder as api
from everwhen.algebra.aggregates.calls import AGGREGATE_FUNCTIONS

EVERY_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def anchors(document: Path) -> set[str]:
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.*)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EVERY_DOCUMENT
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text_of(document)):
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), target


@EVERY_DOCUMENT
def test_files_named_in_the_text_are_there(document: Path) -> None:
    """Paths such as `operators/sweep/sweep.py` are below the project, `src/everwhen` or `tests`."""
    bases = (ROOT, ROOT / "src" / "everwhen", ROOT / "tests", ROOT / "tests" / "papers")
    for name in set(re.findall(r"`([\w./]+\.(?:py|md|toml))(?:::\w+)?`", text_of(document))):
        assert any((base / name).exists() for base in bases), name


@EVERY_DOCUMENT
def test_tests_named_in_the_text_are_there(document: Path) -> None:
    """`test_file.py::test_name` or, after such a name in the same cell, `::test_name`."""
    for name, function in re.findall(r"`([\w/]+\.py)::(\w+)`", text_of(document)):
        found = [path for path in (ROOT / "tests").rglob(Path(name).name) if str(path).endswith(name)]
        assert len(found) == 1, name
        assert re.search(rf"^def {function}\(", text_of(found[0]), re.MULTILINE), f"{name}::{function}"


@EVERY_DOCUMENT
def test_no_machine_is_named(document: Path) -> None:
    assert not re.search(r"https?://|(?<![\w.`])/(work|tmp|home|root|usr|mnt)/|localhost", text_of(document))


def test_the_layout_names_every_package() -> None:
    """ARCHITECTURE.md names every package."""
    _, _, layout = text_of(ROOT / "ARCHITECTURE.md").partition("## Layout")
    layout, _, _ = layout.partition("\n## ")
    source = ROOT / "src" / "everwhen"
    packages = [path.parent for path in source.rglob("__init__.py") if path.parent != source]
    missing = [str(path.relative_to(source)) for path in packages if f"{path.name}/" not in layout]
    assert not missing


def test_the_operator_reference_names_every_method_and_aggregate() -> None:
    pages = [ROOT / "docs" / "operators.md", *(ROOT / "docs" / "operators").glob("*.md")]
    reference = "".join(map(text_of, pages))
    methods = [
        name
        for name in vars(api.Stream)
        if not name.startswith("_") and name not in ("node", "schema", "level", "axis", "asked")
    ]
    missing = [name for name in methods if f".{name}(" not in reference]
    missing += [name for name in AGGREGATE_FUNCTIONS if name != "user" and f"ew.{name}(" not in reference]
    assert not missing


def test_the_papers_page_names_every_table_of_the_thesis() -> None:
    page = text_of(ROOT / "docs" / "papers.md")
    tables = {8: 13, 11: 15, 17: 4, 20: 2}
    named = set(re.findall(r"^\| (\d+\.\d+)\b", page, re.MULTILINE))
    assert {f"{chapter}.{n}" for chapter, last in tables.items() for n in range(1, last + 1)} <= named


def test_the_performance_page_names_every_work_of_the_bench() -> None:
    listed = re.search(r"^WORKS.*?^}", text_of(ROOT / "bench" / "run.py"), re.MULTILINE | re.DOTALL)
    assert listed
    page = text_of(ROOT / "docs" / "performance.md")
    works = re.findall(r'^    "(\w+)":', listed[0], re.MULTILINE)
    assert works and not [work for work in works if f"`{work}`" not in page]
