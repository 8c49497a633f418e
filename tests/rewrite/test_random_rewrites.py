"""All rules together: random plans, the plans of the parity suite and the thesis's pairs keep their answers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from everwhen.algebra.nodes import Fixpoint, walk
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.legal_loops import legal_loops
from everwhen.rewrite.rule_order import SHARING_RULES
from papers.thesis_rules import RULES as THESIS_RULES
from plans import STAGED
from rewrite.rewrite_plans import plans_to_rewrite
from rewrite.rewriting import assert_same_answers, histories_for

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_random_plans_keep_their_answers(data: st.DataObject) -> None:
    grown = data.draw(plans_to_rewrite())
    node = grown.stream.node
    given_histories = data.draw(histories_for(node, infinite=grown.sources, max_events=4))
    found = rewrite(node, strict=True)
    assert_same_answers(node, found.node, given_histories)
    again = rewrite(found.node, strict=True)
    assert not again.applied, f"not at its fixpoint: {[each.name for each in again.applied]}"


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_random_plans_keep_their_answers_under_the_rules_for_sharing(data: st.DataObject) -> None:
    grown = data.draw(plans_to_rewrite())
    node = grown.stream.node
    given_histories = data.draw(histories_for(node, infinite=grown.sources, max_events=4))
    assert_same_answers(node, rewrite(node, SHARING_RULES, strict=True).node, given_histories)


@pytest.mark.parametrize("name", STAGED)
@settings(max_examples=3, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_plans_of_the_parity_suite(name: str, data: st.DataObject) -> None:
    node = STAGED[name].build().node
    given_histories = data.draw(histories_for(node, infinite=STAGED[name].infinite))
    assert_same_answers(node, rewrite(node, strict=True).node, given_histories)


@pytest.mark.parametrize("rule", [each for each in THESIS_RULES if not each.single], ids=lambda each: each.name)
@settings(max_examples=3, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_both_sides_of_the_rules_of_the_thesis(rule: object, data: st.DataObject) -> None:
    left, right = rule.left(), rule.right()  # type: ignore[attr-defined]
    given_histories = data.draw(histories_for(left, right))
    assert_same_answers(left, rewrite(left, strict=True).node, given_histories)
    assert_same_answers(right, rewrite(right, strict=True).node, given_histories)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_random_loops_are_legal_and_keep_their_answers(data: st.DataObject) -> None:
    grown = data.draw(plans_to_rewrite())
    node = grown.stream.node
    assume(any(isinstance(each, Fixpoint) for each in walk(node)))
    given_histories = data.draw(histories_for(node, infinite=grown.sources, max_events=4))
    assert_same_answers(node, legal_loops(node), given_histories)
    assert_same_answers(node, legal_loops(rewrite(node, strict=True).node), given_histories)
