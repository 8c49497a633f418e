"""Tucker's cumulative invariants: what an iterator must have passed, said and kept, given all that came (5.2 to 5.4).

Tables 2, 3 and 4 as functions of the rows and punctuations that have arrived from each input, one line per operator,
beside the relational operator that the iterator stands for.  They know nothing of slices or of how an iterator works:
an iterator conforms if after every slice the rows it has passed are `cpass`, the punctuations it has said describe what
`cprop` describes, and the rows that it keeps of its j-th input are `ckeep[j]`.

Table 3 for join reads "kept" for the rows of an input (see `punctuation_iterators.join`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everwhen.reference.punctuation import (
    Patterns,
    Puncts,
    Row,
    Rows,
    init,
    only_on,
    padded,
    proj_ps,
    set_combine,
    set_match_ts,
    set_nomatch_ps,
    set_nomatch_ts,
)
from everwhen.reference.punctuation_iterators import (
    Result,
    elsewhere,
    group_results,
    in_order,
    partners,
    project_row,
    unique,
    without,
)


@dataclass(frozen=True, slots=True)
class Arrived:
    """The rows and the punctuations of one input so far."""

    ts: Rows
    ps: Puncts


@dataclass(frozen=True, slots=True)
class Invariants:
    """An operator on finite lists of rows, and the invariants of the iterators that are faithful to it."""

    relational: Callable[..., list[Row]]
    cpass: Callable[..., list[Row]]
    cprop: Callable[..., list[Patterns]]
    ckeep: tuple[Callable[..., list[Row]], ...]


def of_select(predicate: Callable[[Row], bool]) -> Invariants:
    def relational(ts: Rows) -> list[Row]:
        return [t for t in ts if predicate(t)]

    return Invariants(relational, lambda s: relational(s.ts), lambda s: list(s.ps), ())


def of_project(columns: Sequence[int]) -> Invariants:
    def relational(ts: Rows) -> list[Row]:
        return [project_row(t, columns) for t in ts]

    return Invariants(relational, lambda s: relational(s.ts), lambda s: proj_ps(s.ps, columns), ())


OF_DUPELIM = Invariants(
    unique,
    lambda s: unique(s.ts),
    lambda s: list(s.ps),
    (lambda s: set_nomatch_ts(unique(s.ts), s.ps),),
)


def of_group_by(keys: Sequence[int], result: Result, values: int = 1) -> Invariants:
    return Invariants(
        lambda ts: group_results(ts, keys, result),
        lambda s: group_results(set_match_ts(s.ts, only_on(s.ps, keys)), keys, result),
        lambda s: padded(proj_ps(s.ps, keys), behind=values),
        (lambda s: set_nomatch_ts(s.ts, only_on(s.ps, keys)),),
    )


def of_sort(column: int, domain: Sequence[Any]) -> Invariants:
    return Invariants(
        lambda ts: in_order(ts, column),
        lambda s: in_order(set_match_ts(s.ts, init(s.ps, column, domain)), column),
        lambda s: init(s.ps, column, domain),
        (lambda s: set_nomatch_ts(s.ts, init(s.ps, column, domain)),),
    )


OF_MERGE = Invariants(
    lambda ls, rs: [*ls, *rs],
    lambda left, right: [*left.ts, *right.ts],
    lambda left, right: set_combine(left.ps, right.ps),
    (lambda left, right: [], lambda left, right: []),
)

OF_INTERSECT = Invariants(
    lambda ls, rs: unique(t for t in ls if t in rs),
    lambda left, right: unique(t for t in left.ts if t in right.ts),
    lambda left, right: set_combine(left.ps, right.ps),
    (
        lambda left, right: set_nomatch_ts(left.ts, right.ps),
        lambda left, right: set_nomatch_ts(right.ts, left.ps),
    ),
)

OF_DIFFERENCE = Invariants(
    lambda ls, rs: unique(without(ls, rs)),
    lambda left, right: unique(set_match_ts(without(left.ts, right.ts), right.ps)),
    lambda left, right: set_combine(left.ps, right.ps),
    (
        lambda left, right: set_nomatch_ts(without(left.ts, right.ts), right.ps),
        lambda left, right: set_nomatch_ts(right.ts, left.ps),
    ),
)


def of_join(on: Sequence[tuple[int, int]], left: int, right: int) -> Invariants:
    lefts, rights = [i for i, _ in on], [j for _, j in on]

    def relational(ls: Rows, rs: Rows) -> list[Row]:
        return [a + b for a in ls for b in rs if partners(a, b, on)]

    def keep_left(a: Arrived, b: Arrived) -> list[Row]:
        return set_nomatch_ts(a.ts, elsewhere(b.ps, rights, lefts, left))

    def keep_right(a: Arrived, b: Arrived) -> list[Row]:
        return set_nomatch_ts(b.ts, elsewhere(a.ps, lefts, rights, right))

    def cprop(a: Arrived, b: Arrived) -> list[Patterns]:
        return [
            *padded(set_nomatch_ps(keep_left(a, b), a.ps), behind=right),
            *padded(set_nomatch_ps(keep_right(a, b), b.ps), before=left),
        ]

    return Invariants(relational, lambda a, b: relational(a.ts, b.ts), cprop, (keep_left, keep_right))
