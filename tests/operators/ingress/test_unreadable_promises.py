"""A promise that cannot be read is refused with its place, and nothing of its epoch has been taken."""

from __future__ import annotations

from typing import Any

import pytest

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError
from everwhen.stream.element import Element
from everwhen.stream.element_batch import batch_of

S = ew.source("S", {"k": "int64", "tags": "string"})
ROW = {"k": 1, "tags": "a"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a constant of another type": ({"k": ew.punctuation.OneOf(("x",))}, "'x' in a pattern of 'k' is not of type int64"),
    "a truth value is no number": ({"k": ew.punctuation.OneOf((True,))}, "true in a pattern of 'k'"),
    "a bound of another type": ({"k": ew.punctuation.Range(ge="x")}, "'x' in a pattern of 'k'"),
    "one of two columns": (
        {"k": ew.punctuation.OneOf((1,)), "tags": ew.punctuation.OneOf((5,))},
        "5 in a pattern of 'tags'",
    ),
    "a range without values": (
        {"k": ew.punctuation.Range(ge=5, lt=5)},
        r"the range \(ge=5, lt=5\) of 'k' holds no value",
    ),
    "no whole number": ({"k": ew.punctuation.Range(gt=5, lt=6)}, r"the range \(gt=5, lt=6\) of 'k' holds no value"),
    "one of two without values": (
        {"k": ew.punctuation.Range(gt=5, le=5), "tags": ew.punctuation.OneOf(("a",))},
        "of 'k' holds no value",
    ),
    "no pattern at all": ({"k": 1}, r"1 is no pattern for 'k' \(write OneOf"),
    "an unknown attribute": ({"kk": ew.punctuation.OneOf((1,))}, "unknown attribute 'kk'"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("last", [True, False], ids=["behind the data", "before data"])
def test_nothing_is_half_applied(bad: str, last: bool) -> None:
    """The insert of the refused batch is nowhere: not in the guard, and not in the answer."""
    match, message = BAD[bad]
    good, wrong = ew.Insert(0, 5, ROW), ew.Punct(ew.punctuation.Punctuation(match))
    runtime = LocalRuntime(S.group_by("k").agg(n=ew.count()), emit="final")
    elements: list[Element] = [good, wrong] if last else [good, wrong, ew.Insert(7, 8, ROW)]
    with pytest.raises(InputError, match=f"^S:2: .*{message}"):
        runtime.push({"S": batch_of(elements, S.schema, "S")})
    with pytest.raises(InputError, match="not there"):
        runtime.push({"S": batch_of([ew.Adjust(0, 5, 3, ROW)], S.schema, "S")})
    closing: list[Element] = [good, ew.Punct(ew.punctuation.Punctuation.constants({"k": 1}))]
    said = list(runtime.push({"S": batch_of(closing, S.schema, "S")})["out"].elements())
    assert said == [ew.Insert(0, 5, {"k": 1, "n": 1}), ew.Punct(ew.punctuation.Punctuation.constants({"k": 1}))]
