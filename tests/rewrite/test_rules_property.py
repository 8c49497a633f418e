"""Rules change no answer: each rule alone and all together on its cases, over random histories, at every instant."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everwhen.rewrite.driver import rewrite
from rewrite.golden_files import BY_NAME
from rewrite.rewriting import assert_same_answers, histories_for
from rewrite.rule_cases import CASES

FAILING = {("fold_constants", "none of it: it fails")}
"""Plans that fail on purpose."""


@pytest.mark.parametrize(
    ("rule", "case"), [(rule, name) for rule in CASES for name in CASES[rule] if (rule, name) not in FAILING]
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_answers_stay_the_same(rule: str, case: str, data: st.DataObject) -> None:
    before = CASES[rule][case]()
    given_histories = data.draw(histories_for(before))
    alone = rewrite(before, [BY_NAME[rule]], strict=True).node
    assert_same_answers(before, alone, given_histories)
    assert_same_answers(before, rewrite(before, strict=True).node, given_histories)
