"""Each rule alone, on its cases: the plan before and after as text, in `golden/<rule>.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from everwhen.rewrite.rule_order import RULES, SHARING_RULES
from rewrite.golden_files import render
from rewrite.rule_cases import CASES

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("rule", CASES)
def test_before_and_after(rule: str) -> None:
    assert render(rule) == (GOLDEN / f"{rule}.txt").read_text()


def test_every_rule_has_cases_in_which_it_fires_and_a_reason() -> None:
    assert {rule.name for rule in RULES} == CASES.keys() == {path.stem for path in GOLDEN.glob("*.txt")}
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.reason and "\n" not in rule.reason


@pytest.mark.parametrize(("rule", "case"), [(rule, name) for rule in CASES for name in CASES[rule]])
def test_where_a_rule_must_not_fire(rule: str, case: str) -> None:
    text = (GOLDEN / f"{rule}.txt").read_text()
    section = next(part for part in text.split("# ") if part.startswith(f"{case}\n"))
    assert section.rstrip().endswith("(as it was)") == case.startswith("none of it:")


def test_rules_for_shared_plans_leave_groupings_whole() -> None:
    left_out = {rule.name for rule in RULES} - {rule.name for rule in SHARING_RULES}
    assert left_out == {"push_filter_aggregate", "push_filter_fixpoint", "push_filter_sets"}
