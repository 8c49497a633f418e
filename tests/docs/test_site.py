"""The documentation site: its navigation lists every page, its API reference every name.  `make docs` builds it."""

from __future__ import annotations

import importlib
import re

import pytest

from doc_examples import ROOT

CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
HOOKS = (ROOT / "tools" / "site.py").read_text(encoding="utf-8")


def listed() -> list[str]:
    """The pages of the navigation, in order."""
    _, _, nav = CONFIGURATION.partition("\nnav:\n")
    return re.findall(r"^ +- .*?: (\S+\.md)$", nav, re.MULTILINE)


def of_the_root() -> dict[str, str]:
    """The pages that the hooks add: the file and its name in the site."""
    return dict(re.findall(r'^    "(\w+\.md)": "(\w+\.md)",$', HOOKS, re.MULTILINE))


def test_the_navigation_lists_every_page_once() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} | set(of_the_root().values())
    assert sorted(listed()) == sorted(pages)


def test_every_page_of_the_root_is_a_page_of_the_site() -> None:
    assert set(of_the_root()) == {path.name for path in ROOT.glob("*.md")}


@pytest.mark.parametrize("module", ["everwhen", "everwhen.punctuation", "everwhen.spark", "everwhen.testing"])
def test_the_reference_has_every_name(module: str) -> None:
    page = ROOT / "docs" / "api" / f"{module.rpartition('.')[2]}.md"
    named = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    namespaces = (
        {"frames", "patterns", "punctuation", "reference", "spark", "testing"} if module == "everwhen" else set()
    )
    assert sorted({*named, *namespaces}) == sorted(importlib.import_module(module).__all__)
    assert len(set(named)) == len(named)


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert re.search(r"^  font: false\b", CONFIGURATION, re.MULTILINE)
    assert not re.search(r"https?://", CONFIGURATION)
