"""Windows of rows in `ended`: what was said of a row and is still true stands, though the row is open again.

A row is said when it has left the window.  When the row that drove it out is removed, it is in the window again, and
the part of its lifetime that was said is still true.  To take it back, and to say it anew when it leaves, would be more
than `all` says (the CEDR paper's theorem 9; `docs/papers.md` has the argument).  The streams here are of few payloads
and short lifetimes, most of which are removed again, one element at a time or in epochs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from operators.differential import FIRST, LAST, SCHEMA, Said, epochs, in_turn
from operators.test_emission_all import outputs
from plans import S
from state_files import through_file

MANY = settings(max_examples=8 * settings().max_examples)
Pushes = Sequence[Mapping[str, ElementBatch]]
Row = tuple[object, ...]
Leaving = tuple[Row, int, int]
"""A payload, and when it enters and leaves the window."""

windows = st.builds(
    lambda rows, slide, partition: S.rows(rows, slide, partition),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([[], [], ["k"]]),
)


def come_and_go(rng: random.Random, ctis: float = 0.1) -> list[Element]:
    """A stream in any order, in which every other element takes back or moves the end of an earlier one."""
    payloads = [{"k": k, "x": x} for k, x in rng.choice(([("a", 1)], [("a", 1), ("b", 1)], [("a", 1), ("a", 2)]))]
    alive: list[tuple[int, int, dict[str, object]]] = []
    elements: list[Element] = []
    cti = NEVER
    for _ in range(rng.randint(2, 9)):
        legal = [each for each in alive if min(each[:2]) >= cti]
        if legal and rng.random() < 0.45:
            vs, ve, row = event = rng.choice(legal)
            vnew = rng.choice((vs, vs, vs, ve + 1, ve + 2))
            alive.remove(event)
            elements.append(Adjust(vs, ve, vnew, row))
            if vnew > vs:
                alive.append((vs, vnew, row))
        elif rng.random() < ctis:
            cti = max(cti, 0) + rng.randint(1, 4)
            elements.append(Cti(cti))
        else:
            vs, row = max(cti, 0) + rng.randint(0, 5), rng.choice(payloads)
            alive.append((vs, vs + rng.choice((1, 1, 2)), row))
            elements.append(Insert(*alive[-1]))
    return elements


def pushed(elements: Sequence[Element], rng: random.Random) -> Pushes:
    return in_turn(elements, 1) if rng.random() < 0.6 else epochs({"S": elements}, rng)


# --- who waits says no more -------------------------------------------------------------------------------------------


def parsed(texts: Iterable[str]) -> list[Element]:
    """`insert vs ve k`, `adjust vs ve vnew k`."""
    found: list[Element] = []
    for op, *times, k in (text.split() for text in texts):
        made = Insert if op == "insert" else Adjust
        found.append(made(*map(int, times), {"k": k, "x": 1}))
    return found


REOPENED = {
    # all that changes is which of the equal rows stands where
    "equal rows": (1, ["insert 0 1 b", "insert 3 4 b", "insert 1 2 b", "adjust 1 2 1 b"], (1, 1, 1)),
    "rows of their own": (1, ["insert 3 4 a", "insert 1 3 b", "insert 0 1 c", "adjust 1 3 1 b"], (2, 4, 4)),
    "driven out again": (
        1,
        ["insert 0 1 b", "insert 9 10 c", "insert 5 6 b", "adjust 5 6 5 b", "insert 2 3 b"],
        (2, 2, 3),
    ),
    # nothing is removed: equal rows overlap, and one more comes before them
    "late among equal rows": (2, ["insert 2 5 a", "insert 6 7 a", "insert 8 9 a", "insert 1 2 a"], (2, 4, 4)),
}


@pytest.mark.parametrize("case", REOPENED)
def test_the_smallest_cases(case: str) -> None:
    """For which `ended` would say more than `all`, if it took back whatever is open again."""
    rows, elements, counted = REOPENED[case]
    pushes = in_turn(parsed(elements), 1)
    assert tuple(outputs(S.rows(rows), emit, pushes) for emit in ("final", "ended", "all")) == counted


@MANY
@given(query=windows, seed=st.integers(0, 2**32))
def test_who_waits_longer_says_no_more(query: ew.Stream, seed: int) -> None:
    rng = random.Random(seed)
    pushes = pushed(come_and_go(rng), rng)
    final, ended, everything = (outputs(query, emit, pushes) for emit in ("final", "ended", "all"))
    assert final <= ended <= everything


# --- what is said, exactly --------------------------------------------------------------------------------------------


def leaving(events: Mapping[tuple[int, int, Row], int], present: int, query: ew.Stream) -> list[Leaving]:
    """The rows of the window by its definition, of instants before the present."""
    node = query.node
    found: list[Leaving] = []
    partitions: dict[object, list[tuple[int, Row]]] = {}
    for (vs, ve, row), copies in events.items():
        for t in range(vs, min(ve, present)):
            partitions.setdefault(row[0] if node.partition else None, []).extend([(t, row)] * copies)
    for ranked in partitions.values():
        ranked.sort()
        for rank, (_, row) in enumerate(ranked, 1):
            enters, leaves = (-(-each // node.slide) * node.slide for each in (rank, rank + node.rows))
            lo, hi = (ranked[each - 1][0] if each <= len(ranked) else INF for each in (enters, leaves))
            found.append((row, lo, hi))
    return found


def at(rows: Iterable[Leaving], t: int) -> Counter[Row]:
    return Counter(row for row, lo, hi in rows if lo <= t < hi)


@MANY
@given(query=windows, seed=st.integers(0, 2**32))
def test_what_is_true_stands_and_nothing_open_is_said_for_the_first_time(query: ew.Stream, seed: int) -> None:
    """After every push: of a payload all rows that have left are said, and all before the CTI; what was said and is
    true stands; and after the end of what was said of it nothing else."""
    rng = random.Random(seed)
    runtime, said = LocalRuntime(query, emit="ended"), Said(SCHEMA)
    events: Counter[tuple[int, int, Row]] = Counter()
    tau = cti = NEVER
    for push in pushed(come_and_go(rng), rng):
        before = {t: said.at(t) for t in range(FIRST, LAST)}
        ends = {row: max(t for t in before if row in before[t]) for row in set().union(*before.values())}
        said.take(runtime.push(push)["out"])
        for element in push["S"].elements() if push else ():
            if isinstance(element, Cti):
                cti = element.t
                continue
            row = tuple(element.row.values())
            tau = max(tau, element.vs) if isinstance(element, Insert) else tau
            if isinstance(element, Adjust):
                events[element.vs, element.ve, row] -= 1
            events[element.vs, element.ve if isinstance(element, Insert) else element.vnew, row] += 1
        rows = leaving(events, max(tau, cti), query)
        for t in range(FIRST, LAST):
            answer, gone = at(rows, t), at([each for each in rows if each[2] < INF or t < cti], t)
            assert gone | (before[t] & answer) <= said.at(t) <= answer
            assert all(said.at(t)[row] == gone[row] for row in answer if t > ends.get(row, NEVER))


# --- the memory of it -------------------------------------------------------------------------------------------------


@MANY
@given(query=windows, seed=st.integers(0, 2**32), c=st.integers(0, 12))
def test_the_memory_goes_with_the_rows(query: ew.Stream, seed: int, c: int) -> None:
    """However much is corrected: kept are the rows whose output end is not before the CTI, one record each."""
    rng = random.Random(seed)
    elements = come_and_go(rng, ctis=0.0)
    runtime, said = LocalRuntime(query, emit="ended"), Said(SCHEMA)
    for push in [*pushed(elements, rng), {"S": batch_of([Cti(c)], SCHEMA)}]:
        runtime.push(push)
    said.take(batch_of(elements, SCHEMA))  # the input's events, as they stand
    tau = max((each.vs for each in elements if isinstance(each, Insert)), default=NEVER)
    expected = sum(hi >= c for _, _, hi in leaving(said._events, max(tau, c), query))
    (window,) = [each for each in runtime.metadata() if "rows window" in each.name]
    assert window.state_rows == expected
    runtime.close()
    assert [each.state_rows for each in runtime.metadata()] == [0] * len(runtime.metadata())


@pytest.mark.parametrize("case", REOPENED)
def test_it_survives_a_restart(case: str) -> None:
    """The very elements, put into a new runtime after every one."""
    rows, elements, _ = REOPENED[case]
    whole, parts = (LocalRuntime(S.rows(rows), emit="ended") for _ in range(2))
    for push in in_turn(parsed(elements), 1):
        said, again = (list(runtime.push(push)["out"].elements()) for runtime in (whole, parts))
        assert again == said
        state, parts = through_file(parts.snapshot()), LocalRuntime(S.rows(rows), emit="ended")
        parts.restore(state)
    assert list(parts.close()["out"].elements()) == list(whole.close()["out"].elements())


def test_a_row_goes_on_where_it_stands() -> None:
    """Said up to 5, open again, and said from there on when it leaves: no adjust at all."""
    elements = parsed(
        ["insert 0 1 a", "insert 5 6 b", "insert 6 7 b", "adjust 5 6 5 b", "insert 9 10 c", "insert 11 12 d"]
    )
    runtime = LocalRuntime(S.rows(1).where(ew.col("k") == "a"), emit="ended")
    found = [str(each) for push in in_turn(elements, 1) for each in runtime.push(push)["out"].elements()]
    assert found == ["insert [0, 5) k='a' x=1", "insert [5, 6) k='a' x=1"]
