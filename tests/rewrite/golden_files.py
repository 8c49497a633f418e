"""Golden texts: for each case of a rule the plan before and after, as EXPLAIN writes them."""

from __future__ import annotations

from everwhen.algebra.explain import explain
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.rule_order import RULES
from rewrite.rule_cases import CASES

BY_NAME = {rule.name: rule for rule in RULES}


def render(rule: str) -> str:
    """The text of the rule's golden file, from what the rule does now."""
    return "\n".join(case(rule, name) for name in CASES[rule])


def case(rule: str, name: str) -> str:
    before = CASES[rule][name]()
    found = rewrite(before, [BY_NAME[rule]], strict=True)
    after = explain(found.node) if found.applied else "(as it was)"
    return f"# {name}\n{explain(before)}\n=>\n{after}\n"
