"""Hypothesis profiles (`ci` is reproducible, `explore` looks for new counter-examples), markers, and JVM options.

`HYPOTHESIS_PROFILE` names the profile (default `ci`), `EVERWHEN_EXAMPLES` the number of examples per property.
"""

from __future__ import annotations

import gc
import os
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings

from seldom import mark_seldom

# Spark's JVMs live for minutes here: what the optimizing compiler costs does not come back, and two cores have no use
# for a collector with threads of its own.  With one compiler a JVM has 48 MB for compiled code; the tests fill it, and
# code is thrown away and compiled again.  Every JVM that a test starts, itself or through a program, reads this.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m")

# Tests are about compiled loops.  Workers of pytest share what they compile: while one compiles a loop, the other
# interprets it.  `tests/compiled/test_njit.py` compares both.
os.environ.setdefault("EVERWHEN_COMPILE", "eager")

EXAMPLES = int(os.environ.get("EVERWHEN_EXAMPLES", "6"))

gc.set_threshold(100_000, 50, 100)  # each look through all that 20,000 tests have made is long

# The first example may compile kernels, and two workers share two cores: time says nothing about correctness here.
common = {
    "max_examples": EXAMPLES,
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("ci", derandomize=True, **common)
settings.register_profile("explore", derandomize=False, **common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

HERE = Path(__file__).parent
COMPILING = ("test_operators_oracle.py", "test_punctuated_plans.py", "test_group_join.py", "test_unordered_guard.py")
LONGEST = ("test_exactly_once.py", "test_bad_input.py", "test_expressions.py", "test_nexmark_parity.py")
FOLDERS = {"spark": "spark", "docs": "docs", "examples": "docs"}
"""Every test in the folder gets the mark."""
SPLIT = ("operators", "engine", "papers", "parity")
"""Here tests of a file share nothing that costs much, and some files are long."""


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by folder, by fixture and by what a test is; those that need a JVM elsewhere carry `spark` themselves."""
    for item in items:
        mark = FOLDERS.get(_folder(item))
        if mark is not None:
            item.add_marker(mark)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
    mark_seldom(items)
    items.sort(key=_turn)


@cache
def _folder_of(path: Path) -> str:
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""


def _folder(item: pytest.Item) -> str:
    """The name of the folder in `tests` that a test is in."""
    return _folder_of(item.path)


def _turn(item: pytest.Item) -> int:
    """The longest early, so that no worker is left alone with them in the end; but behind tests that compile loops,
    which Spark's workers would otherwise all do at once."""
    if item.path.name in COMPILING:
        return 0
    if _folder(item) != "spark":
        return 4 if _folder(item) in SPLIT else 3
    return 1 if item.path.name in LONGEST else 2


def _suits(scope: str, is_first: bool) -> bool:
    """Whether what is given at once is for this worker: Spark's for the first one, the rest for the others.  What
    compiles loops stands before all of that and is for everybody."""
    file = scope.partition("::")[0]
    return file.rpartition("/")[2] in COMPILING or (file.startswith("tests/") and "spark" in file) == is_first


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What is given to the worker that is free: a file, with what its tests share; in some folders the cases of a
    function; of tests that compile loops, one.

    One worker runs Spark's tests and the other the rest, as long as there are both: a second JVM would learn from the
    beginning what the first one knows already (a query takes it four times as long at first as later).

    Most cases take milliseconds.  One at a time, the workers would wait for pytest-xdist, which asks for each test
    how much of all that it has ever given to a worker is done, and looks for its place in the list of all; so what is
    done is forgotten, and places are looked up.

    `--dist loadgroup` and marks would say the same, but pytest-xdist 3.8 writes the marks where pytest 9 does not look.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByKind(LoadScopeScheduling):
        _places: ClassVar[dict[Any, dict[str, int]]] = {}

        def _split_scope(self, nodeid: str) -> str:
            file, _, name = nodeid.partition("::")
            if file.rpartition("/")[2] in COMPILING:
                return nodeid
            is_split = file.startswith(tuple(f"tests/{folder}/" for folder in SPLIT))
            return f"{file}::{name.partition('[')[0]}" if is_split else file

        def _assign_work_unit(self, node: Any) -> None:
            scope = next((each for each in self.workqueue if _suits(each, node is self.nodes[0])), None)
            scope = next(iter(self.workqueue)) if scope is None else scope
            unit = self.assigned_work[node][scope] = self.workqueue.pop(scope)
            if node not in self._places:
                self._places[node] = {test: at for at, test in enumerate(self.registered_collections[node])}
            node.send_runtest_some([self._places[node][test] for test, done in unit.items() if not done])

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    return ByKind(config, log)
