"""Rewritten plans on the local runtime: what the rules build, the operators can run, with the plan's own answers."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col
from everwhen.core.time import INF
from everwhen.reference import evaluate
from everwhen.rewrite.driver import rewrite
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.history import History
from everwhen.testing import reorder
from operators.differential import EMITS, Trial, epochs
from rewrite.rewrite_plans import plans_to_rewrite
from rewrite.rewriting import assert_same_answers, histories_for
from rewrite.rule_cases import a, b, joined


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_rewritten_plans_run(data: st.DataObject) -> None:
    grown = data.draw(plans_to_rewrite(most=4))
    node = grown.stream.node
    given_histories = data.draw(histories_for(node, infinite=grown.sources, max_events=4))
    found = rewrite(node, strict=True).node
    rng = data.draw(st.randoms(use_true_random=False))
    sources = {each.name: each for each in n.walk(found) if isinstance(each, n.Source)}
    trial = Trial(Stream(found), rng.choice(EMITS), {name: given_histories[name] for name in sources})
    trial.oracle = evaluate(node, given_histories)
    streams = {name: _stream(source, given_histories[name], rng, grown.sources) for name, source in sources.items()}
    for epoch in epochs(streams, rng):
        trial.push(epoch)
    trial.close()


def _stream(source: n.Source, history: History, rng: random.Random, infinite: bool) -> list[Element]:
    """Late and corrected, unless every lifetime is declared to be one tick."""
    wrong = 0.0 if source.chronons else 0.3
    return reorder(history, rng, disorder=rng.choice((0, 2, None)), corrections=wrong, wrong=wrong, infinite=infinite)


def test_one_column_compared_with_two_others() -> None:
    most = b().group_by("k").agg(m=ew.max("v"))
    query = joined(a(), most).where(col("k") == col("m"))
    found = rewrite(query.node, strict=True).node
    join = next(each for each in n.walk(found) if isinstance(each, n.Join))
    assert (join.left_keys, join.right_keys) == (("k", "k"), ("k", "m"))
    rows = [Insert(0, 5, {"k": 1, "v": 1}), Insert(0, 5, {"k": 2, "v": 1}), Cti(INF)]
    given_histories = {name: History.of(rows, a().schema) for name in "AB"}
    assert_same_answers(query.node, found, given_histories)
    out = ew.run(Stream(found), {"A": rows, "B": rows})
    assert [each for each in out if isinstance(each, Insert)] == [Insert(0, 5, {"k": 1, "v": 1, "k_right": 1, "m": 1})]
