"""Hypothesis profiles (`ci` is reproducible, `explore` looks for new counter-examples), markers, and JVM options.

`HYPOTHESIS_PROFILE` names the profile (default `ci`), `EVERWHEN_EXAMPLES` the number of examples per property.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Spark's JVMs live for minutes here: what the optimizing compiler costs does not come back, and two cores have no use
# for a collector with threads of its own.  Every JVM that a test starts, itself or through a program, reads this.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Tests are about compiled loops.  Workers of pytest share what they compile: while one compiles a loop, the other
# interprets it.  `tests/compiled/test_njit.py` compares both.
os.environ.setdefault("EVERWHEN_COMPILE", "eager")

EXAMPLES = int(os.environ.get("EVERWHEN_EXAMPLES", "30"))

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
FOLDERS = {"spark": "spark", "docs": "docs", "examples": "docs"}
"""Every test in the folder gets the mark."""


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by folder, by fixture and by what a test is; those that need a JVM elsewhere carry `spark` themselves."""
    for item in items:
        for folder, mark in FOLDERS.items():
            if HERE / folder in item.path.parents:
                item.add_marker(mark)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
