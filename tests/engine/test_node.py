"""Operators' state by name: it is found wherever the same thing is computed, and refused where it is not."""

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.errors import StateError

S = ew.source("S", {"x": "int64"})
TOTAL = S.range(10).aggregate(total=ew.sum("x"))
LARGE = S.where(ew.col("x") > 3).range(4).distinct()


def batch(*starts):
    return ew.ElementBatch.of([*(ew.Insert(t, t + 1, {"x": t}) for t in starts), ew.Cti(max(starts))], S.schema)


def test_state_does_not_depend_on_how_operators_are_numbered():
    one = LocalRuntime({"total": TOTAL, "large": LARGE})
    other = LocalRuntime({"large": LARGE, "total": TOTAL})
    one.push({"S": batch(1, 5, 7)})
    other.restore(one.snapshot())
    told, again = one.push({"S": batch(9, 12)}), other.push({"S": batch(9, 12)})
    assert {name: list(each.elements()) for name, each in told.items()} == {
        name: list(each.elements()) for name, each in again.items()
    }


def test_state_of_another_plan_is_refused():
    one, other = LocalRuntime(TOTAL), LocalRuntime(S.range(11).aggregate(total=ew.sum("x")))
    one.push({"S": batch(1, 5, 7)})
    with pytest.raises(StateError, match="its operators compute something else"):
        other.restore(one.snapshot())


def test_state_that_tells_positions_is_read():
    """As Everwhen 0.5 wrote it: by root and position below it."""
    one, other = LocalRuntime(TOTAL), LocalRuntime(TOTAL)
    one.push({"S": batch(1, 5, 7)})
    state = one.snapshot()
    aggregate, window = state["dataflow"]["operators"]
    assert aggregate.pop("name").startswith("aggregate ") and window.pop("name").startswith("window ")
    for position, part in enumerate((aggregate, window)):
        part |= {"root": "sink out", "position": position}
    other.restore(state)
    assert list(other.push({"S": batch(9, 12)})["out"].elements()) == list(
        one.push({"S": batch(9, 12)})["out"].elements()
    )
