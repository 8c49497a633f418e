"""Two plans in one: what they share is found, whatever it is called and wherever it stands."""

import everwhen as ew
from everwhen.core.emit import Emit
from everwhen.engine.migration.joining import both_plans
from everwhen.plan.lower import lower

S = ew.source("S", {"x": "int64", "y": "int64"})


def both(old: ew.Stream, new: ew.Stream):
    return both_plans(*(lower({"out": query.node}, Emit.CURRENT) for query in (old, new)))


def test_what_is_equal_runs_once() -> None:
    plans = both(S.range(5).distinct(), S.range(5).where(ew.col("x") > 1))
    assert [placed.name for placed in plans.joining.values()] == ["filter"]
    assert plans.numbers == {0: 0, 1: 2}
    assert plans.plan.sinks[0].port.operator == 2
    assert [placed.name for placed in plans.new.operators] == ["window", "filter"]


def test_an_operator_stands_for_one_only() -> None:
    """Equal operators over one input: two of the new plan are two, as they would be had it always run."""
    one, two = S.range(5), S.range(5)
    plans = both(one.distinct(), one.distinct().union(two.distinct()))
    assert [placed.name for placed in plans.joining.values()] == ["window", "distinct", "union"]


def test_nothing_is_new_where_the_plans_are_equal() -> None:
    plans = both(S.range(5).join(S.range(3), on="x"), S.range(5).join(S.range(3), on="x"))
    assert not plans.joining and plans.numbers == {at: at for at in range(len(plans.new.operators))}
