"""A group's number may be another group's later: what was said of the first one must not be taken back for the second.

A promise about a group settles it before the CTI does.  Its operator forgets it then and gives its number away, so the
chain at the sink has to forget its events as well, though they end after the CTI.
"""

from __future__ import annotations

import random

import pytest

import everwhen as ew
from everwhen.core.punctuation import AttributePattern
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.reference import evaluate
from everwhen.stream.element import Adjust, Element, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import reorder
from operators.differential import EMITS, FIRST, LAST, SCHEMA, Said, assert_snapshots, in_turn
from operators.punctuated import PunctuatedTrial, limit
from plans import S, col

KEYS = ("a", "b", "c", "d", None)
GROUPS = {
    "counts": S.range(7).group_by("k").agg(n=ew.count()),
    "sums": S.group_by("k").agg(n=ew.count(), t=ew.sum("x")),
    "extremes": S.range(4).group_by("k").agg(lo=ew.min("x"), hi=ew.max("x")),
    "medians": S.range(4).group_by("k").agg(m=ew.median("x")),
    "filtered": S.range(3).group_by("k").agg(n=ew.count()).where(col("n") > 1),
    "two keys": S.range(5).group_by("k", "x").agg(n=ew.count()),
    "groups of groups": S.range(5).group_by("k", "x").agg(n=ew.count()).group_by("k").agg(m=ew.max("n")),
}


def row(k: str | None, x: int = 1) -> dict[str, object]:
    return {"k": k, "x": x}


def before(t: int, k: str) -> Punct:
    return Punct(ew.punctuation.Punctuation({"k": ew.punctuation.OneOf((k,))}, t))


ENDINGS: dict[str, list[Element]] = {
    "by the promise": [Insert(10, 17, row("b")), before(19, "b")],
    "by a change behind the promise": [Insert(10, 21, row("b")), before(18, "b"), Adjust(10, 21, 18, row("b"))],
    "for ever": [Insert(10, 17, row("b")), before(ew.INF, "b")],
}


@pytest.mark.parametrize("runtime", ["local", "session"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_closed_group_has_said_stands(ending: str, runtime: str) -> None:
    """The second group gets the number of the first one; all its adjusts are of its own events."""
    elements = [*ENDINGS[ending], Insert(16, 23, row("a")), Insert(15, 22, row("a"))]
    query = S.group_by("k").agg(n=ew.count())
    local, session = LocalRuntime(query, emit="all"), Session(emit="all")
    session.register("out", query)
    push = local.push if runtime == "local" else session.push
    said = Said(query.schema)  # which refuses an adjust of what is not there
    for epoch in in_turn(elements, 1):
        said.take(
            batch_of([each for each in push(epoch)["out"].elements() if not isinstance(each, Punct)], said.schema)
        )
    oracle = evaluate(query.node, {"S": History.of(elements, SCHEMA)})
    assert_snapshots(said, oracle, range(FIRST, LAST), ending)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("plan", GROUPS)
def test_no_group_answers_for_another(plan: str, seed: int) -> None:
    """Few keys, many promises, one element in a step: what is said is right, valid and grammatical at any time."""
    numbered(plan, seed)


def numbered(plan: str, seed: int) -> None:
    rng = random.Random(f"{plan} {seed}")
    events: list[Element] = []
    for _ in range(rng.randint(5, 9)):
        start = rng.randint(0, 12)
        events.append(Insert(start, start + rng.choice((1, 2, 5)), row(rng.choice(KEYS), rng.randint(0, 1))))
    given = {"S": History.of(events, SCHEMA)}
    stream = reorder(given["S"], rng, disorder=None, corrections=0.3, wrong=0.3, ctis=0.05, infinite=False)
    trial = PunctuatedTrial(GROUPS[plan], EMITS[seed % len(EMITS)], given, demand=False)
    for element in with_closed_groups(stream, rng):
        trial.push({"S": batch_of([element], SCHEMA, "S")})
        if rng.random() < 0.05:
            trial.restart()
    trial.close()


def with_closed_groups(stream: list[Element], rng: random.Random) -> list[Element]:
    """The stream with true promises about the groups that have come: until a while after their events, or for ever."""
    found: list[Element] = []
    for at, element in enumerate(stream):
        found.append(element)
        groups = {each.row["k"] for each in stream[: at + 1] if isinstance(each, Insert)}
        for k in sorted(groups, key=str):
            match: dict[str, AttributePattern] = {"k": ew.punctuation.OneOf((k,))}
            until = limit(match, stream[at + 1 :])
            if rng.random() < 0.3:
                found.append(
                    Punct(
                        ew.punctuation.Punctuation(
                            match, until if rng.random() < 0.2 else min(until, rng.randint(5, 25))
                        )
                    )
                )
    return found
