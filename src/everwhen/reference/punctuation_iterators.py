"""Tucker's stream iterators for select, project, dupelim, join, merge, intersect, difference, group-by and sort.

Each is its `step` without punctuation and what punctuation adds: pass, prop and keep (Tucker et al., 4.2).  After every
slice its output and state are what the cumulative invariants of `punctuation_invariants` say.  Two slips of the paper
are corrected, and both have the same cause: a row may come after the other input's punctuation that concerns it.

* Its `sdiff` passes rows only with a slice of the right input.  Left rows that come later and match a right punctuation
  have to wait for the next one, so completeness does not hold after the left slice.  Here the left input passes, too.
* It drops rows only with a slice of the other input.  Here each slice applies all punctuation to both sides.

`intersect` and `difference` give rows more than once; the paper puts dupelim behind them, and so does `distinct`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from everwhen.reference.punctuation import (
    ANY,
    Behaviour,
    Patterns,
    Puncts,
    Row,
    Rows,
    Slice,
    Stage,
    State,
    StreamIterator,
    binary,
    init,
    keep_all,
    only_on,
    outputs,
    padded,
    pass_nothing,
    proj_ps,
    prop_nothing,
    set_combine,
    set_match_ts,
    set_nomatch_ps,
    set_nomatch_ts,
    unary,
)

Result = Callable[[Rows], Row]
"""The aggregate values of a group's rows."""


def _same(ps: list[Patterns], state: State) -> list[Patterns]:
    return ps


def unique(ts: Iterable[Row]) -> list[Row]:
    """δ, in the order in which they came."""
    return list(dict.fromkeys(ts))


def without(ts: Rows, others: Rows) -> list[Row]:
    """The rows that are not among the others, with all their copies."""
    return [t for t in ts if t not in others]


def project_row(t: Row, columns: Sequence[int]) -> Row:
    return tuple(t[i] for i in columns)


# --- one input --------------------------------------------------------------------------------------------------------


def select(predicate: Callable[[Row], bool]) -> StreamIterator:
    behaviour = Behaviour(lambda ts, st: ([t for t in ts if predicate(t)], st), pass_nothing, _same, keep_all)
    return StreamIterator(State(()), (behaviour,))


def project(columns: Sequence[int]) -> StreamIterator:
    behaviour = Behaviour(
        lambda ts, st: ([project_row(t, columns) for t in ts], st),
        pass_nothing,
        lambda ps, st: proj_ps(ps, columns),
        keep_all,
    )
    return StreamIterator(State(()), (behaviour,))


def dupelim(punctuated: bool = True) -> StreamIterator:
    """Rows that were not there before; not `punctuated`: the iterator of 4.1, which keeps all it has seen."""

    def step(ts: list[Row], st: State) -> tuple[list[Row], State]:
        new = without(unique(ts), st.rows[0])
        return new, State(([*st.rows[0], *new],))

    def keep(ps: list[Patterns], st: State) -> State:
        return State((set_nomatch_ts(st.rows[0], ps),))

    behaviour = Behaviour(step, pass_nothing, _same, keep)
    if not punctuated:
        behaviour = Behaviour(step, pass_nothing, prop_nothing, keep_all)
    return StreamIterator(State(([],)), (behaviour,))


def group_results(ts: Rows, keys: Sequence[int], result: Result) -> list[Row]:
    """One row per group: its key and what `result` makes of its rows."""
    groups: dict[Row, list[Row]] = {}
    for t in ts:
        groups.setdefault(project_row(t, keys), []).append(t)
    return [key + result(rows) for key, rows in groups.items()]


def group_by(keys: Sequence[int], result: Result, values: int = 1) -> StreamIterator:
    """A group is said when a punctuation covers it whole: one that binds nothing but the key."""
    behaviour = Behaviour(
        lambda ts, st: ([], State(([*st.rows[0], *ts],))),
        lambda ps, st: group_results(set_match_ts(st.rows[0], only_on(ps, keys)), keys, result),
        lambda ps, st: padded(proj_ps(ps, keys), behind=values),
        lambda ps, st: State((set_nomatch_ts(st.rows[0], only_on(ps, keys)),)),
    )
    return StreamIterator(State(([],)), (behaviour,))


def sort(column: int, domain: Sequence[Any]) -> StreamIterator:
    """By the column, then by the other columns: the order must not depend on arrival."""

    def closed(ps: list[Patterns], st: State) -> list[Patterns]:
        return init([*st.promises[0], *ps], column, domain)

    def keep(ps: list[Patterns], st: State) -> State:
        known = [*st.promises[0], *ps]
        said = tuple(init(known, column, domain))
        return State((set_nomatch_ts(st.rows[0], said),), (known,), said)

    behaviour = Behaviour(
        lambda ts, st: ([], State(([*st.rows[0], *ts],), st.promises, st.said)),
        lambda ps, st: in_order(set_match_ts(st.rows[0], closed(ps, st)), column),
        lambda ps, st: [p for p in closed(ps, st) if p not in st.said],
        keep,
    )
    return StreamIterator(State(([],), ([],)), (behaviour,))


def in_order(ts: Iterable[Row], column: int) -> list[Row]:
    return sorted(ts, key=lambda t: (t[column], t))


# --- two inputs -------------------------------------------------------------------------------------------------------

Step = Callable[[int, list[Row], State], list[Row]]
Pass = Callable[[State, Puncts, Puncts], list[Row]]
Keep = Callable[[State, Puncts, Puncts], tuple[list[Row], list[Row]]]


def _two_sided(step: Step, pass_: Pass | None, keep: Keep, said: Callable[[State], list[Patterns]]) -> StreamIterator:
    """An iterator whose behaviours read all punctuation so far, of both inputs, whichever the slice came from.

    `said` gives what may be said by the state that `keep` leaves; what was said before is not said again.
    """

    def known(side: int, ps: list[Patterns], st: State) -> tuple[list[Patterns], list[Patterns]]:
        left, right = st.promises
        return ([*left, *ps], right) if side == 0 else (left, [*right, *ps])

    def kept(side: int, ps: list[Patterns], st: State) -> State:
        both = known(side, ps, st)
        return State(keep(st, *both), both, st.said)

    def behaviour(side: int) -> Behaviour:
        def arrive(ts: list[Row], st: State) -> tuple[list[Row], State]:
            rows = tuple([*mine, *ts] if at == side else mine for at, mine in enumerate(st.rows))
            return step(side, ts, st), State(rows, st.promises, st.said)

        def prop(ps: list[Patterns], st: State) -> list[Patterns]:
            return [p for p in dict.fromkeys(said(kept(side, ps, st))) if p not in st.said]

        def keep_side(ps: list[Patterns], st: State) -> State:
            after = kept(side, ps, st)
            return State(after.rows, after.promises, (*st.said, *prop(ps, st)))

        def passing(ps: list[Patterns], st: State) -> list[Row]:
            return pass_(st, *known(side, ps, st)) if pass_ is not None else []

        return Behaviour(arrive, passing, prop, keep_side)

    return StreamIterator(State(([], []), ([], [])), (behaviour(0), behaviour(1)))


def _combined(st: State) -> list[Patterns]:
    return set_combine(*st.promises)


def merge() -> StreamIterator:
    """All rows of both; union is dupelim of it."""
    return _two_sided(lambda side, ts, st: ts, None, lambda st, lps, rps: ([], []), _combined)


def intersect() -> StreamIterator:
    """Rows of both; a row goes when the other input will not bring it (again)."""

    def keep(st: State, lps: Puncts, rps: Puncts) -> tuple[list[Row], list[Row]]:
        return set_nomatch_ts(st.rows[0], rps), set_nomatch_ts(st.rows[1], lps)

    return _two_sided(lambda side, ts, st: [t for t in ts if t in st.rows[1 - side]], None, keep, _combined)


def difference() -> StreamIterator:
    """Left rows that the right input has not brought and will not bring."""

    def passing(st: State, lps: Puncts, rps: Puncts) -> list[Row]:
        return set_match_ts(without(*st.rows), rps)

    def keep(st: State, lps: Puncts, rps: Puncts) -> tuple[list[Row], list[Row]]:
        return set_nomatch_ts(without(*st.rows), rps), set_nomatch_ts(st.rows[1], lps)

    return _two_sided(lambda side, ts, st: [], passing, keep, _combined)


def join(on: Sequence[tuple[int, int]], left: int, right: int) -> StreamIterator:
    """Pairs that agree on the columns `on`; `left` and `right` are the numbers of columns.

    A row goes when the other input will bring no partner.  A punctuation goes on when no row that is *kept* matches it:
    the paper writes ts, all rows that ever came, by which the join of its auction example would never say anything.
    """

    def pairs(side: int, ts: list[Row], st: State) -> list[Row]:
        if side == 0:
            return [a + b for a in ts for b in st.rows[1] if partners(a, b, on)]
        return [a + b for b in ts for a in st.rows[0] if partners(a, b, on)]

    def keep(st: State, lps: Puncts, rps: Puncts) -> tuple[list[Row], list[Row]]:
        lefts, rights = [i for i, _ in on], [j for _, j in on]
        return (
            set_nomatch_ts(st.rows[0], elsewhere(rps, rights, lefts, left)),
            set_nomatch_ts(st.rows[1], elsewhere(lps, lefts, rights, right)),
        )

    def said(st: State) -> list[Patterns]:
        mine, theirs = (set_nomatch_ps(rows, ps) for rows, ps in zip(st.rows, st.promises, strict=True))
        return [*padded(mine, behind=right), *padded(theirs, before=left)]

    return _two_sided(pairs, None, keep, said)


def partners(a: Row, b: Row, on: Sequence[tuple[int, int]]) -> bool:
    return all(a[i] == b[j] for i, j in on)


def elsewhere(ps: Puncts, columns: Sequence[int], theirs: Sequence[int], width: int) -> list[Patterns]:
    """joinPs: punctuations that bind the join's columns only, as the other side's rows would match them."""
    found = []
    for p in proj_ps(ps, columns):
        patterns = dict(zip(theirs, p.patterns, strict=True))
        found.append(Patterns(tuple(patterns.get(i, ANY) for i in range(width))))
    return found


# --- compositions -----------------------------------------------------------------------------------------------------


def distinct(iterator: StreamIterator, left: Iterable[Slice], right: Iterable[Slice]) -> Iterator[Stage]:
    """An iterator of two inputs with dupelim behind it."""
    return unary(dupelim(), outputs(binary(iterator, left, right)))


def union(left: Iterable[Slice], right: Iterable[Slice]) -> Iterator[Stage]:
    """Merge and dupelim (5.3)."""
    return distinct(merge(), left, right)
