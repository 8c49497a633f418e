"""Tucker's punctuations on plain rows: match, combine, Table 1, and stream iterators (Tucker et al., sections 2 to 4).

A row is a tuple; a punctuation has one pattern for each of its attributes and says that no row after it matches all of
them.  A stream is a sequence of slices, each a list of rows and punctuations in any order.  An iterator reads one slice
after the other, of its inputs in turn, and keeps a state.  The law that everything rests on:

    match(t, combine(p, q)) == match(t, p) and match(t, q)

These are definitions, to be read and to be compared with.  There are no lifetimes, no corrections and no times in
promises here: what these become with them is in `everwhen.reference.promise_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from everwhen.core.punctuation import Nothing, OneOf, Range

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Anything:
    """The wildcard."""

    def matches(self, value: Any) -> bool:
        return True


ANY = Anything()
Pattern = Anything | Range | OneOf | Nothing


@dataclass(frozen=True, slots=True)
class Patterns:
    """One pattern per attribute."""

    patterns: tuple[Pattern, ...]


Element: TypeAlias = "Row | Patterns"
Slice: TypeAlias = "Sequence[Element]"
Stream: TypeAlias = "Sequence[Slice]"


def punct(*patterns: Any) -> Patterns:
    """A punctuation; a list stands for one of its values, any other value for itself.

    >>> punct(ANY, [7, 9], 3) == Patterns((ANY, OneOf((7, 9)), OneOf((3,))))
    True
    """
    return Patterns(tuple(_pattern(pattern) for pattern in patterns))


def _pattern(given: Any) -> Pattern:
    if isinstance(given, Pattern):
        return given
    return OneOf(tuple(given)) if isinstance(given, list) else OneOf((given,))


def between(low: Any, high: Any) -> Range:
    """The inclusive range."""
    return Range(ge=low, le=high)


# --- match and combine (3.1) ------------------------------------------------------------------------------------------


def match(t: Row, p: Patterns) -> bool:
    """Whether every value matches its pattern."""
    return all(pattern.matches(value) for pattern, value in zip(p.patterns, t, strict=True))


def combine(p: Patterns, q: Patterns) -> Patterns | None:
    """What both say; None is the paper's Ψ, where they have no row in common.

    >>> combine(punct(ANY, between(0, 4)), punct(7, between(2, 9))) == punct(7, Range(ge=2, le=4))
    True
    >>> combine(punct(1), punct([2, 3])) is None
    True
    """
    patterns = tuple(_both(a, b) for a, b in zip(p.patterns, q.patterns, strict=True))
    return None if any(isinstance(pattern, Nothing) for pattern in patterns) else Patterns(patterns)


def _both(p: Pattern, q: Pattern) -> Pattern:
    if isinstance(p, Anything):
        return q
    if isinstance(q, Anything):
        return p
    if isinstance(p, OneOf) or isinstance(q, OneOf):
        listed, other = (p, q) if isinstance(p, OneOf) else (q, p)
        assert isinstance(listed, OneOf)
        kept = tuple(value for value in listed.values if other.matches(value))
        return OneOf(kept) if kept else Nothing()
    if isinstance(p, Range) and isinstance(q, Range):
        return _narrowed(p, q)
    return Nothing()


def _narrowed(p: Range, q: Range) -> Range | Nothing:
    ge, gt = (max((b for b in pair if b is not None), default=None) for pair in ((p.ge, q.ge), (p.gt, q.gt)))
    le, lt = (min((b for b in pair if b is not None), default=None) for pair in ((p.le, q.le), (p.lt, q.lt)))
    bounds = ((ge, le, False), (ge, lt, True), (gt, le, True), (gt, lt, True))
    for low, high, strict in bounds:
        if low is not None and high is not None and (low > high or (strict and low == high)):
            return Nothing()
    return Range(ge=ge, gt=gt, le=le, lt=lt)


# --- Table 1 ----------------------------------------------------------------------------------------------------------

Rows = Sequence[Row]
Puncts = Sequence[Patterns]


def nomatch(t: Row, p: Patterns) -> bool:
    return not match(t, p)


def set_match(t: Row, ps: Puncts) -> bool:
    return any(match(t, p) for p in ps)


def set_nomatch(t: Row, ps: Puncts) -> bool:
    return not set_match(t, ps)


def set_match_ts(ts: Rows, ps: Puncts) -> list[Row]:
    return [t for t in ts if set_match(t, ps)]


def set_nomatch_ts(ts: Rows, ps: Puncts) -> list[Row]:
    return [t for t in ts if set_nomatch(t, ps)]


def set_nomatch_ps(ts: Rows, ps: Puncts) -> list[Patterns]:
    """The punctuations that none of the rows matches."""
    return [p for p in ps if not any(match(t, p) for t in ts)]


def set_combine(ps: Puncts, qs: Puncts) -> list[Patterns]:
    return [both for p in ps for q in qs if (both := combine(p, q)) is not None]


def tups(elements: Iterable[Element]) -> list[Row]:
    return [element for element in elements if not isinstance(element, Patterns)]


def puncts(elements: Iterable[Element]) -> list[Patterns]:
    return [element for element in elements if isinstance(element, Patterns)]


# --- punctuations of other shapes (5.2 to 5.4) ------------------------------------------------------------------------


def only_on(ps: Puncts, columns: Sequence[int]) -> list[Patterns]:
    """groupPs: the punctuations with wildcards off the columns; projPs and joinPs start from the same."""
    return [p for p in ps if all(isinstance(each, Anything) or i in columns for i, each in enumerate(p.patterns))]


def proj_ps(ps: Puncts, columns: Sequence[int]) -> list[Patterns]:
    """projPs, joinPs: those that say nothing of other columns, cut to the columns."""
    return [Patterns(tuple(p.patterns[i] for i in columns)) for p in only_on(ps, columns)]


def padded(ps: Puncts, before: int = 0, behind: int = 0) -> list[Patterns]:
    """modPs: wildcards for the attributes that stand before and behind in the output."""
    return [Patterns(((ANY,) * before) + p.patterns + ((ANY,) * behind)) for p in ps]


def init(ps: Puncts, column: int, domain: Sequence[Any]) -> list[Patterns]:
    """The paper's init: of the values in sort order, the first ones, as far as no row with such a value can come.

    `domain` is the order of the attribute's values.  The first of them must be known: without it nothing is first.

    >>> two = [punct(ANY, between(2, 4)), punct(ANY, between(0, 3))]
    >>> init(two[:1], 1, range(24)), init(two, 1, range(24)) == [punct(ANY, between(0, 4))]
    ([], True)
    """
    said = only_on(ps, [column])
    last = None
    for value in domain:
        if not any(p.patterns[column].matches(value) for p in said):
            break
        last = value
    if last is None:
        return []
    width = len(said[0].patterns)
    return [Patterns(tuple(between(domain[0], last) if i == column else ANY for i in range(width)))]


# --- streams and iterators (2.2, 4) -----------------------------------------------------------------------------------


def prefix(stream: Stream, i: int) -> list[Element]:
    """S[i]: the elements of the first i slices."""
    return [element for each in stream[:i] for element in each]


def grammatical(stream: Stream) -> bool:
    """Whether no row of a slice matches a punctuation of an earlier one."""
    return all(set_nomatch(t, puncts(prefix(stream, i))) for i, each in enumerate(stream) for t in tups(each))


@dataclass(frozen=True, slots=True)
class State:
    """What an iterator keeps: rows and punctuations of each input, and the punctuations that it has said."""

    rows: tuple[list[Row], ...]
    promises: tuple[list[Patterns], ...] = ()
    said: tuple[Patterns, ...] = ()


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What an iterator does with a slice of one input.  `pass_`, `prop` and `keep` see the state that `step` left."""

    step: Callable[[list[Row], State], tuple[list[Row], State]]
    pass_: Callable[[list[Patterns], State], list[Row]]
    prop: Callable[[list[Patterns], State], list[Patterns]]
    keep: Callable[[list[Patterns], State], State]


def pass_nothing(ps: list[Patterns], state: State) -> list[Row]:
    """The paper's passT."""
    return []


def prop_nothing(ps: list[Patterns], state: State) -> list[Patterns]:
    """propT."""
    return []


def keep_all(ps: list[Patterns], state: State) -> State:
    """keepT."""
    return state


@dataclass(frozen=True, slots=True)
class StreamIterator:
    """An initial state and the behaviour for each input."""

    initial: State
    inputs: tuple[Behaviour, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the paper's runs."""

    function: str
    input: Sequence[Element]
    state: State
    output: Sequence[Element]
    new_state: State


@dataclass(frozen=True, slots=True)
class Stage:
    """What became of one slice."""

    output: list[Element]
    state: State
    calls: tuple[Call, ...]


def stage(behaviour: Behaviour, slice_: Slice, state: State) -> Stage:
    """One slice: step, then pass before prop, since what is promised must be out, and keep last, since both read
    state that it may drop."""
    ts, ps = tups(slice_), puncts(slice_)
    out, stepped = behaviour.step(ts, state)
    passed = behaviour.pass_(ps, stepped)
    said = behaviour.prop(ps, stepped)
    kept = behaviour.keep(ps, stepped)
    calls = (
        Call("step", ts, state, out, stepped),
        Call("pass", ps, stepped, passed, stepped),
        Call("prop", ps, stepped, said, stepped),
        Call("keep", ps, stepped, (), kept),
    )
    return Stage([*out, *passed, *said], kept, calls)


def unary(iterator: StreamIterator, stream: Iterable[Slice]) -> Iterator[Stage]:
    """Slice by slice."""
    state = iterator.initial
    for each in stream:
        done = stage(iterator.inputs[0], each, state)
        state = done.state
        yield done


def binary(iterator: StreamIterator, left: Iterable[Slice], right: Iterable[Slice]) -> Iterator[Stage]:
    """A slice of the left input, then one of the right, and so on: twice as many stages as slices of one input."""
    state = iterator.initial
    for both in zip(left, right, strict=True):
        for behaviour, each in zip(iterator.inputs, both, strict=True):
            done = stage(behaviour, each, state)
            state = done.state
            yield done


def outputs(stages: Iterable[Stage]) -> list[list[Element]]:
    """The output as a stream, for the next iterator."""
    return [done.output for done in stages]
