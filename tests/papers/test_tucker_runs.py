"""The worked runs of Tucker et al., call by call, and runs that follow from its definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everwhen.core.punctuation import Nothing, Range
from everwhen.reference import punctuation_iterators as its
from everwhen.reference.punctuation import (
    ANY,
    Behaviour,
    Element,
    Patterns,
    Stage,
    State,
    StreamIterator,
    between,
    binary,
    combine,
    grammatical,
    init,
    match,
    outputs,
    pass_nothing,
    prop_nothing,
    punct,
    set_combine,
    set_match_ts,
    set_nomatch_ps,
    set_nomatch_ts,
    unary,
)

Slices = list[list[Element]]


def ones(values: Iterable[Any]) -> list[Element]:
    """The paper's elements are single values; ours are rows of one attribute."""
    return [value if isinstance(value, Patterns) else (value,) for value in values]


def lines(stages: Iterable[Stage], *functions: str) -> list[tuple[Any, ...]]:
    """The run as the paper prints it: function, input, state, output and, of step and keep, the new state."""
    found: list[tuple[Any, ...]] = []
    for stage in stages:
        for call in stage.calls:
            if call.function in functions:
                new = [call.new_state.rows[0]] if call.function in ("step", "keep") else []
                found.append((call.function, call.input, call.state.rows[0], list(call.output), *new))
    return found


# --- 3 and 3.1: patterns ----------------------------------------------------------------------------------------------


def test_the_bids_on_two_items() -> None:
    """<{1001, 2004}, *, *> over <itemid, increase, buyerid>."""
    p = punct([1001, 2004], ANY, ANY)
    assert match((1001, 5, "ann"), p) and match((2004, 1, "bob"), p) and not match((1002, 5, "ann"), p)


def test_patterns_of_section_3() -> None:
    inclusive, exclusive = punct(between(2, 4)), punct(Range(gt=2, lt=4))
    assert [match((v,), inclusive) for v in (1, 2, 3, 4, 5)] == [False, True, True, True, False]
    assert [match((v,), exclusive) for v in (2, 3, 4)] == [False, True, False]
    assert not match((1,), punct(Nothing()))
    assert combine(inclusive, punct(between(5, 9))) is None
    assert combine(punct(ANY), punct(Nothing())) is None
    assert combine(inclusive, exclusive) == punct(Range(ge=2, gt=2, le=4, lt=4))


def test_table_1() -> None:
    ts, ps = [(1, 1), (1, 2), (3, 3)], [punct(1, ANY), punct(5, 5)]
    assert set_match_ts(ts, ps) == [(1, 1), (1, 2)]
    assert set_nomatch_ts(ts, ps) == [(3, 3)]
    assert set_nomatch_ps(ts, ps) == [punct(5, 5)]
    assert set_combine([punct(1, ANY), punct(2, ANY)], [punct(ANY, 7)]) == [punct(1, 7), punct(2, 7)]
    assert set_combine([punct(1, ANY)], [punct(2, ANY)]) == []


# --- 4: dupelim -------------------------------------------------------------------------------------------------------


def test_sdupelim_without_punctuation() -> None:
    """The table in 4.1."""
    stream: Slices = [ones([1, 5]), ones([3]), [], ones([5, 6, 7])]
    assert lines(unary(its.dupelim(punctuated=False), stream), "step") == [
        ("step", ones([1, 5]), [], ones([1, 5]), ones([1, 5])),
        ("step", ones([3]), ones([1, 5]), ones([3]), ones([1, 5, 3])),
        ("step", [], ones([1, 5, 3]), [], ones([1, 5, 3])),
        ("step", ones([5, 6, 7]), ones([1, 5, 3]), ones([6, 7]), ones([1, 5, 3, 6, 7])),
    ]


def test_sdupelim_with_punctuation() -> None:
    """The table in 4.2: the punctuation is said, and what it covers is forgotten."""
    p = punct(between(0, 4))
    stream: Slices = [ones([1, 5]), ones([3]), [p], ones([5, 6, 7])]
    assert grammatical(stream)
    assert lines(unary(its.dupelim(), stream), "step", "prop", "keep") == [
        ("step", ones([1, 5]), [], ones([1, 5]), ones([1, 5])),
        ("prop", [], ones([1, 5]), []),
        ("keep", [], ones([1, 5]), [], ones([1, 5])),
        ("step", ones([3]), ones([1, 5]), ones([3]), ones([1, 5, 3])),
        ("prop", [], ones([1, 5, 3]), []),
        ("keep", [], ones([1, 5, 3]), [], ones([1, 5, 3])),
        ("step", [], ones([1, 5, 3]), [], ones([1, 5, 3])),
        ("prop", [p], ones([1, 5, 3]), [p]),
        ("keep", [p], ones([1, 5, 3]), [], ones([5])),
        ("step", ones([5, 6, 7]), ones([5]), ones([6, 7]), ones([5, 6, 7])),
        ("prop", [], ones([5, 6, 7]), []),
        ("keep", [], ones([5, 6, 7]), [], ones([5, 6, 7])),
    ]


# --- 5.2: sort and group-by over the warehouse's reports --------------------------------------------------------------


def report(sid: int, hour: int, minute: int, temperature: int) -> tuple[int, int, int, int]:
    return (sid, hour, minute, temperature)


HOURS = range(24)


def hours(pattern: Any) -> Patterns:
    return punct(ANY, pattern, ANY, ANY)


def test_sort_with_2_to_4_then_0_to_3() -> None:
    """Nothing until hour 0 is closed; then everything through hour 4."""
    early = [report(1, 3, 0, 60), report(2, 0, 5, 61), report(1, 5, 0, 62), report(2, 4, 9, 63), report(1, 3, 0, 59)]
    stages = list(unary(its.sort(1, HOURS), [early, [hours(between(2, 4))], [hours(between(0, 3))]]))
    assert outputs(stages) == [
        [],
        [],
        [
            report(2, 0, 5, 61),
            report(1, 3, 0, 59),
            report(1, 3, 0, 60),
            report(2, 4, 9, 63),
            hours(between(0, 4)),
        ],
    ]
    assert [stage.state.rows[0] for stage in stages] == [early, early, [report(1, 5, 0, 62)]]
    assert init([hours(between(2, 4)), hours(between(0, 3))], 1, HOURS) == [hours(between(0, 4))]
    assert init([hours(between(2, 4))], 1, HOURS) == []


def test_a_sort_reads_only_what_concerns_whole_values() -> None:
    """A punctuation that also binds the sensor leaves the hour open."""
    stream: Slices = [[report(1, 0, 0, 60)], [punct(1, between(0, 9), ANY, ANY)], [hours(between(0, 1))]]
    assert outputs(unary(its.sort(1, HOURS), stream)) == [[], [], [report(1, 0, 0, 60), hours(between(0, 1))]]


def hottest(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return (max(row[3] for row in rows),)


def test_group_by_says_an_hour_when_it_is_closed() -> None:
    """The maximum per hour (1.1, 7.2.2); a punctuation about one sensor closes no hour."""
    reports = [report(1, 0, 0, 60), report(2, 0, 0, 64), report(1, 1, 0, 70)]
    about_a_sensor = punct(1, between(0, 3), ANY, ANY)
    stages = list(unary(its.group_by([1], hottest), [reports, [about_a_sensor], [hours(0)], [hours(between(0, 3))]]))
    assert outputs(stages) == [[], [], [(0, 64), punct(0, ANY)], [(1, 70), punct(between(0, 3), ANY)]]
    assert [len(stage.state.rows[0]) for stage in stages] == [3, 3, 1, 0]


def test_union_of_sensors_waits_for_all_of_them() -> None:
    """1.3 and 7.2.1: the hour is closed, and its reports forgotten, once every input has closed it."""
    left: Slices = [[report(1, 0, 0, 60), report(1, 1, 0, 61)], [hours(0)], []]
    right: Slices = [[report(2, 0, 0, 60), report(1, 0, 0, 60)], [], [hours(between(0, 1))]]
    stages = list(its.union(left, right))
    assert outputs(stages) == [
        [report(1, 0, 0, 60), report(1, 1, 0, 61)],
        [report(2, 0, 0, 60)],
        [],
        [],
        [],
        [hours(0)],
    ]
    assert [len(stage.state.rows[0]) for stage in stages] == [2, 3, 3, 3, 3, 1]


# --- 5.3: projection --------------------------------------------------------------------------------------------------


def test_projection_says_only_what_it_can() -> None:
    """<currtmp, hour>: a pattern on a dropped attribute would be lost, and with it the truth."""
    stream: Slices = [[report(1, 0, 5, 60)], [hours(0), punct(1, between(0, 3), ANY, ANY), punct(ANY, [1, 2], ANY, 70)]]
    assert outputs(unary(its.project([3, 1]), stream)) == [[(60, 0)], [punct(ANY, 0), punct(70, [1, 2])]]


def test_select_passes_punctuation_on() -> None:
    stream: Slices = [[(1, 2), (3, 4)], [punct(1, ANY)]]
    assert outputs(unary(its.select(lambda row: row[0] > 1), stream)) == [[(3, 4)], [punct(1, ANY)]]


# --- 4.2: difference --------------------------------------------------------------------------------------------------


def as_printed() -> StreamIterator:
    """The paper's sdiff: with a slice of the left input it passes, says and drops nothing."""
    left, right = its.difference().inputs

    def remember(ps: list[Patterns], st: State) -> State:
        return State(st.rows, ([*st.promises[0], *ps], st.promises[1]), st.said)

    mute = Behaviour(left.step, pass_nothing, prop_nothing, remember)
    return StreamIterator(its.difference().initial, (mute, right))


def test_sdiff_with_left_rows_after_the_right_punctuation() -> None:
    """Left 1 and 2, right 2; the right input closes 0 to 4; then come 3 and 2 on the left, and 3 once more."""
    closed, done = punct(between(0, 4)), punct(3)
    left: Slices = [ones([1, 2]), [], ones([3, 2]), ones([3]), [done]]
    right: Slices = [ones([2]), [closed], [], [], []]
    assert grammatical(left) and grammatical(right)
    stages = list(binary(its.difference(), left, right))
    assert outputs(stages) == [
        [],  # left 1, 2: the right input may still bring both
        [],  # right 2
        [],
        ones([1]),  # right closes 0 to 4: 1 is sure, 2 is there
        ones([3]),  # a left row for which nothing is open: passed at once
        [],
        ones([3]),  # a copy, which dupelim takes out
        [],
        [punct(3)],  # closed on both sides
        [],
    ]
    assert [stage.state.rows for stage in stages] == [
        (ones([1, 2]), []),
        (ones([1]), ones([2])),  # 2 is covered
        (ones([1]), ones([2])),
        ([], ones([2])),
        ([], ones([2])),
        ([], ones([2])),
        ([], ones([2])),
        ([], ones([2])),
        ([], ones([2])),  # the left input may bring 2 again, and must not pass
        ([], ones([2])),
    ]
    distinct = outputs(its.distinct(its.difference(), left, right))
    assert [row for each in distinct for row in each] == [*ones([1, 3]), punct(3)]


def test_sdiff_as_printed_holds_a_sure_row_back() -> None:
    """After the left slice 3 is in every possible answer.  The paper's code passes it with the next right slice only,
    and keeps it until then although table 4 says that it need not."""
    left: Slices = [[], ones([3])]
    right: Slices = [[punct(between(0, 4))], []]
    assert outputs(binary(its.difference(), left, right)) == [[], [], ones([3]), []]
    assert outputs(binary(as_printed(), left, right)) == [[], [], [], ones([3])]
    assert [stage.state.rows[0] for stage in binary(its.difference(), left, right)] == [[], [], [], []]
    assert [stage.state.rows[0] for stage in binary(as_printed(), left, right)] == [[], [], ones([3]), []]


def test_sdiff_forgets_the_right_row_when_the_left_will_not_bring_it() -> None:
    stages = list(binary(its.difference(), [[], [punct(2)]], [ones([2, 5]), []]))
    assert [stage.state.rows[1] for stage in stages] == [[], ones([2, 5]), ones([5]), ones([5])]


# --- 1.3: the auction -------------------------------------------------------------------------------------------------

ITEM, BID = 2, 3  # <itemid, seller>, <itemid, increase, buyer>


def test_the_auction_of_section_1_3() -> None:
    """Items are unique, so a punctuation follows each; bids on an item are closed later.  The join keeps open auctions
    only, and the sum of an item's increases comes out when it is closed on both sides."""
    sellers: Slices = [[(1001, "ann"), punct(1001, ANY)], [(1002, "bob"), punct(1002, ANY)], [], []]
    bids: Slices = [
        [(1001, 5, "cay")],
        [(1002, 1, "cay"), (1001, 2, "dan")],
        [punct(1001, ANY, ANY)],
        [(1002, 4, "dan"), punct(1002, ANY, ANY)],
    ]
    assert grammatical(sellers) and grammatical(bids)
    stages = list(binary(its.join([(0, 0)], ITEM, BID), sellers, bids))
    assert [stage.state.rows for stage in stages] == [
        ([(1001, "ann")], []),
        ([(1001, "ann")], []),  # no other item 1001 will come: its bids need not wait
        ([(1001, "ann"), (1002, "bob")], []),
        ([(1001, "ann"), (1002, "bob")], []),
        ([(1001, "ann"), (1002, "bob")], []),
        ([(1002, "bob")], []),
        ([(1002, "bob")], []),
        ([], []),
    ]
    joined = outputs(stages)
    assert joined == [
        [],
        [(1001, "ann", 1001, 5, "cay")],
        [],
        [(1002, "bob", 1002, 1, "cay"), (1001, "ann", 1001, 2, "dan")],
        [],
        [punct(1001, ANY, ANY, ANY, ANY), punct(ANY, ANY, 1001, ANY, ANY)],
        [],
        [
            (1002, "bob", 1002, 4, "dan"),
            punct(1002, ANY, ANY, ANY, ANY),
            punct(ANY, ANY, 1002, ANY, ANY),
        ],
    ]
    assert grammatical(joined)
    prices = its.group_by([0], lambda rows: (sum(row[3] for row in rows),))
    assert [each for each in outputs(unary(prices, joined)) if each] == [
        [(1001, 7), punct(1001, ANY)],
        [(1002, 5), punct(1002, ANY)],
    ]


def test_by_all_rows_that_ever_came_the_join_would_never_speak() -> None:
    """Table 3 with ts as printed: a row matches its own punctuation for ever."""
    item, p = (1001, "ann"), punct(1001, ANY)
    assert set_nomatch_ps([item], [p]) == []
    closed = list(binary(its.join([(0, 0)], ITEM, BID), [[item, p]], [[punct(1001, ANY, ANY)]]))[-1]
    assert punct(1001, ANY, ANY, ANY, ANY) in closed.output
