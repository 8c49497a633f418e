"""Patterns: read from text, shown as text, and as automata that spell the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest

import everwhen as ew
from everwhen.algebra.patterns.automaton import automaton
from everwhen.algebra.patterns.pattern import (
    Alternation,
    Concatenation,
    Pattern,
    Repeat,
    Symbol,
    read_pattern,
    variables,
)
from everwhen.reference.patterns import _ways
from operators.pattern.random_patterns import random_pattern

A, B, C = Symbol("A"), Symbol("B"), Symbol("C")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A", A),
        ("A B", Concatenation((A, B))),
        ("A | B C", Alternation((A, Concatenation((B, C))))),
        ("(A|B)+ C?", Concatenation((Repeat(Alternation((A, B)), 1, None), Repeat(C, 0, 1)))),
        ("A* B{2} C{2,}", Concatenation((Repeat(A, 0, None), Repeat(B, 2, 2), Repeat(C, 2, None)))),
        ("A{,3}", Repeat(A, 0, 3)),
        ("((A B))", Concatenation((A, B))),
    ],
)
def test_text_is_read(text: str, found: Pattern) -> None:
    assert read_pattern(text) == found
    assert read_pattern(str(found)) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a variable"),
        ("A |", "expected a variable"),
        ("(A", r"expected '\)'"),
        ("A)", "expected a variable, a quantifier"),
        ("A+?", "reluctant"),
        ("A**", "a second quantifier"),
        ("A{}", "expected a number"),
        ("A{3,2}", "at least 3 and at most 2"),
        ("A{0}", "at least 0 and at most 0"),
        ("A{2000}", "more than 1000 times"),
        ("^A", "anchors"),
        ("A {- B -}", "exclusions"),
        ("PERMUTE(A, B)", "PERMUTE"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ew.QueryError, match=problem):
        read_pattern(text)


def test_what_is_written_out_has_a_limit() -> None:
    with pytest.raises(ew.QueryError, match="more than 1000 places"):
        automaton(read_pattern("((A{10}){20}){10}"))


def spelled(pattern: Pattern, most: int) -> Iterator[tuple[str, ...]]:
    """Every word of the pattern's variables that its automaton takes, up to a length."""
    names, found = variables(pattern), automaton(pattern)
    for length in range(1, most + 1):
        for word in product(names, repeat=length):
            places, nexts = set[int](), set(found.first)
            for name in word:
                places = {place for place in nexts if names[found.labels[place]] == name}
                nexts = {each for place in places for each in found.follow[place]}
            if places & found.accepting:
                yield word


@pytest.mark.parametrize("seed", range(40))
def test_the_automaton_takes_what_the_definition_spells(seed: int) -> None:
    pattern = random_pattern(random.Random(seed))
    words = {way for way in _ways(pattern, (), lambda taken: len(taken) <= 4) if way}
    assert set(spelled(pattern, 4)) == words
