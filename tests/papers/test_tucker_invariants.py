"""Tucker's iterators are faithful and proper, and conform to the cumulative invariants (section 5), on random streams.

Faithfulness looks into the future: after every slice the rows that were passed are compared with what the relational
operator gives for every legal addition.  The values of the domain are few; one value more, `REST`, which only wildcards
match, stands for all the others, so that no pattern covers an attribute by accident.  It comes first in every order.

Single additions decide completeness: a row that some finite addition takes out of the answer is taken out by one row.
Safety is also tried with two rows at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.punctuation import Nothing, OneOf, Range
from everwhen.reference import punctuation_invariants as inv
from everwhen.reference import punctuation_iterators as its
from everwhen.reference.punctuation import (
    ANY,
    Element,
    Pattern,
    Patterns,
    Row,
    Stage,
    State,
    StreamIterator,
    binary,
    combine,
    grammatical,
    match,
    outputs,
    prefix,
    puncts,
    set_match,
    tups,
    unary,
)
from example_counts import examples_per_case

VALUES = (0, 1, 2)
REST = -1
ROWS = list(product(VALUES, VALUES))
EVERYTHING = tuple(product((REST, *VALUES), repeat=2))


@dataclass(frozen=True)
class Case:
    """An iterator, what it stands for, and whether dupelim stands behind it."""

    name: str
    iterator: StreamIterator
    invariants: inv.Invariants
    distinct: bool = False
    ordered: bool = False
    rows: tuple[Row, ...] = EVERYTHING
    """What may come at all: a sort must know the first value of its column."""

    def __str__(self) -> str:
        return self.name

    @property
    def inputs(self) -> int:
        return len(self.iterator.inputs)

    def run(self, *streams: Sequence[Sequence[Element]]) -> list[Stage]:
        """The stages of the iterator itself."""
        return list(unary(self.iterator, *streams) if self.inputs == 1 else binary(self.iterator, *streams))

    def said(self, *streams: Sequence[Sequence[Element]]) -> list[list[Element]]:
        """The output, without duplicates where the operator has none."""
        return outputs(its.distinct(self.iterator, *streams)) if self.distinct else outputs(self.run(*streams))


def rows_of(rows: Sequence[Row]) -> Row:
    """An aggregate that every row changes: all values, in order."""
    return (tuple(sorted(row[1] for row in rows)),)


CASES = (
    Case("select", its.select(lambda t: t[0] != 1), inv.of_select(lambda t: t[0] != 1)),
    Case("project", its.project([1]), inv.of_project([1])),
    Case("project, turned round", its.project([1, 0]), inv.of_project([1, 0])),
    Case("dupelim", its.dupelim(), inv.OF_DUPELIM),
    Case("join", its.join([(0, 0)], 2, 2), inv.of_join([(0, 0)], 2, 2)),
    Case("join of both columns", its.join([(0, 1), (1, 0)], 2, 2), inv.of_join([(0, 1), (1, 0)], 2, 2)),
    Case("product", its.join([], 2, 2), inv.of_join([], 2, 2)),
    Case("merge", its.merge(), inv.OF_MERGE),
    Case("intersect", its.intersect(), inv.OF_INTERSECT, distinct=True),
    Case("difference", its.difference(), inv.OF_DIFFERENCE, distinct=True),
    Case("group-by", its.group_by([0], rows_of), inv.of_group_by([0], rows_of)),
    Case("group-by without keys", its.group_by([], rows_of), inv.of_group_by([], rows_of)),
    Case(
        "sort", its.sort(0, VALUES), inv.of_sort(0, VALUES), ordered=True, rows=tuple(product(VALUES, (REST, *VALUES)))
    ),
)


# --- random grammatical streams ---------------------------------------------------------------------------------------

PATTERNS: st.SearchStrategy[Pattern] = st.one_of(
    st.just(ANY),
    st.sampled_from(VALUES).map(lambda v: OneOf((v,))),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True).map(lambda vs: OneOf(tuple(vs))),
    st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda b: Range(ge=min(b), le=max(b))),
    st.tuples(st.integers(0, 2), st.integers(1, 3)).map(lambda b: Range(ge=b[0], lt=b[0] + b[1])),
    st.integers(0, 2).map(lambda v: Range(gt=v - 1, lt=v + 1)),
    st.just(Nothing()),
)
PUNCTUATIONS = st.tuples(PATTERNS, PATTERNS).map(Patterns)


@st.composite
def streams(draw: st.DrawFn, slices: int, values: Sequence[Any] = VALUES) -> list[list[Element]]:
    """Slices in which no row matches an earlier punctuation; within a slice there is no order."""
    stream: list[list[Element]] = []
    said: list[Patterns] = []
    for _ in range(slices):
        rows = [t for t in draw(st.lists(st.sampled_from(ROWS), max_size=3)) if not set_match(t, said)]
        new = draw(st.lists(PUNCTUATIONS, max_size=2))
        stream.append([*rows, *new])
        said += new
    return stream


def arrived(stream: Sequence[Sequence[Element]], i: int) -> inv.Arrived:
    seen = prefix(stream, i)
    return inv.Arrived(tups(seen), puncts(seen))


def progress(case: Case, given_: Sequence[Sequence[Sequence[Element]]]) -> Iterator[tuple[int, list[inv.Arrived]]]:
    """After every stage: its number, and what has arrived from each input.  The left input is one slice ahead."""
    for stage in range(len(given_[0]) * case.inputs):
        yield (
            stage,
            [arrived(stream, (stage + case.inputs - side) // case.inputs) for side, stream in enumerate(given_)],
        )


def draw_streams(data: st.DataObject, case: Case) -> list[list[list[Element]]]:
    slices = data.draw(st.integers(1, 4), label="slices")
    return [data.draw(streams(slices), label=f"input {side}") for side in range(case.inputs)]


SOME = settings(max_examples=examples_per_case(2))
per_case = pytest.mark.parametrize("case", CASES, ids=str)


# --- the law ----------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(p=PUNCTUATIONS, q=PUNCTUATIONS)
def test_combine_is_and(p: Patterns, q: Patterns) -> None:
    both = combine(p, q)
    for t in EVERYTHING:
        assert (both is not None and match(t, both)) == (match(t, p) and match(t, q))


# --- conformance ------------------------------------------------------------------------------------------------------


def described(ps: Sequence[Patterns], width: int) -> set[Row]:
    """All rows that a punctuation of the list matches, of any width."""
    return {t for t in product((REST, *VALUES), repeat=width) if set_match(t, ps)}


def kept(state: State) -> list[set[Row]]:
    return [set(rows) for rows in state.rows]


@per_case
@SOME
@given(data=st.data())
def test_it_conforms_to_the_invariants_after_every_slice(case: Case, data: st.DataObject) -> None:
    given_ = draw_streams(data, case)
    stages, said = case.run(*given_), case.said(*given_)
    for stage, seen in progress(case, given_):
        so_far = [element for each in said[: stage + 1] for element in each]
        passed, wanted = tups(so_far), case.invariants.cpass(*seen)
        assert (passed == wanted) if case.ordered else Counter(passed) == Counter(wanted)
        promised, expected = puncts(so_far), case.invariants.cprop(*seen)
        for width in {len(p.patterns) for p in (*promised, *expected)}:
            assert described(promised, width) == described(expected, width)
        state = kept(stages[stage].state)
        assert state == [set(keep(*seen)) for keep in case.invariants.ckeep]


# --- faithfulness -----------------------------------------------------------------------------------------------------


def legal(case: Case, seen: inv.Arrived) -> list[Row]:
    """Rows that may still come."""
    return [t for t in case.rows if not set_match(t, seen.ps)]


def additions(case: Case, seen: Sequence[inv.Arrived]) -> Iterator[list[list[Row]]]:
    """Nothing, and single rows to one input or the other."""
    yield [[] for _ in seen]
    for side, each in enumerate(seen):
        for t in legal(case, each):
            yield [[t] if at == side else [] for at in range(len(seen))]


def pairs(case: Case, seen: Sequence[inv.Arrived]) -> Iterator[list[list[Row]]]:
    """Two rows to one input, or one to each."""
    for side, each in enumerate(seen):
        for two in combinations_with_replacement(legal(case, each), 2):
            yield [list(two) if at == side else [] for at in range(len(seen))]
    if len(seen) == 2:
        for a, b in product(*(legal(case, each) for each in seen)):
            yield [[a], [b]]


def answer(case: Case, seen: Sequence[inv.Arrived], added: Sequence[Sequence[Row]]) -> list[Row]:
    return case.invariants.relational(*([*each.ts, *more] for each, more in zip(seen, added, strict=True)))


def within(part: list[Row], whole: list[Row], ordered: bool) -> bool:
    return part == whole[: len(part)] if ordered else Counter(part) <= Counter(whole)


def common(answers: list[list[Row]], ordered: bool) -> list[Row]:
    """The largest M that is part of all answers."""
    if not ordered:
        both = Counter(answers[0])
        for each in answers[1:]:
            both &= Counter(each)
        return list(both.elements())
    first = answers[0]
    return first[
        : next((i for i in range(len(first)) if any(each[: i + 1] != first[: i + 1] for each in answers)), None)
    ]


@per_case
@SOME
@given(data=st.data())
def test_it_is_faithful(case: Case, data: st.DataObject) -> None:
    """Safety: what is passed is in every possible answer.  Completeness: what is in every possible answer is passed."""
    given_ = draw_streams(data, case)
    said = case.said(*given_)
    for stage, seen in progress(case, given_):
        passed = tups(element for each in said[: stage + 1] for element in each)
        possible = [answer(case, seen, added) for added in additions(case, seen)]
        for each in possible:
            assert within(passed, each, case.ordered), "not safe"
        assert within(common(possible, case.ordered), passed, case.ordered), "not complete"


@per_case
@settings(max_examples=15)
@given(data=st.data())
def test_it_is_safe_against_two_more_rows(case: Case, data: st.DataObject) -> None:
    given_ = [data.draw(streams(2), label=f"input {side}") for side in range(case.inputs)]
    passed = tups(element for each in case.said(*given_) for element in each)
    seen = [arrived(stream, 2) for stream in given_]
    assert all(within(passed, answer(case, seen, added), case.ordered) for added in pairs(case, seen))


@per_case
@SOME
@given(data=st.data())
def test_it_is_proper(case: Case, data: st.DataObject) -> None:
    given_ = draw_streams(data, case)
    assert all(map(grammatical, given_))
    assert grammatical(case.said(*given_))
    assert grammatical(outputs(case.run(*given_)))


# --- and the checks can fail ------------------------------------------------------------------------------------------


def broken(case: Case, side: int, **changes: Callable[..., Any]) -> Case:
    """The case with one of its functions replaced."""
    behaviours = list(case.iterator.inputs)
    behaviours[side] = replace(behaviours[side], **changes)
    return replace(case, iterator=StreamIterator(case.iterator.initial, tuple(behaviours)))


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_an_iterator_that_passes_too_early_is_not_safe() -> None:
    hasty = broken(named("difference"), 0, pass_=lambda ps, state: list(state.rows[0]))
    given_: list[list[list[Element]]] = [[[(1, 1)]], [[]]]
    seen = [arrived(stream, 1) for stream in given_]
    passed = tups(element for each in hasty.said(*given_) for element in each)
    assert not all(within(passed, answer(hasty, seen, added), False) for added in additions(hasty, seen))


def test_an_iterator_that_says_what_it_cannot_keep_is_not_proper() -> None:
    rash = broken(named("difference"), 1, prop=lambda ps, state: ps)
    only_ones = Patterns((OneOf((1,)), ANY))
    given_: list[list[list[Element]]] = [[[], [(1, 1)]], [[only_ones], []]]
    assert not grammatical(rash.said(*given_))
