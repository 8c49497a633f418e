"""For every run of pytest, also over `src` alone: examples in docstrings that need a Spark session run elsewhere."""

from __future__ import annotations

import ast

import pytest


def needs_session(item: pytest.Item) -> bool:
    """Whether an example in a docstring reads the variable `spark`: `tests/spark/test_spark_doctests.py` runs it."""
    if not isinstance(item, pytest.DoctestItem):
        return False
    sources = [example.source for example in item.dtest.examples] if item.dtest else []
    names = (node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    return any(node.id == "spark" for node in names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    elsewhere = [item for item in items if needs_session(item)]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if item not in elsewhere]
