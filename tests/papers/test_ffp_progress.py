"""The Flying Fixed-Point paper, 3.1, 3.3 to 3.6 and 5.3: speculation-friendly operators, the token, and its strategies.

Numbers in brackets are rows of the table of statements in `docs/papers.md`.  dp(h) and sp(h) of the paper are the
times h + 1 here: a promise of t is about everything before t, and an event counts with the start of its segment.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import get_args

import pytest

import everwhen as ew
from everwhen.core.loop_options import ProgressStrategy
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.operators.contract import Output
from everwhen.operators.loop.progress import ProgressToken
from everwhen.rows.changes import Changes, no_changes
from everwhen.stream.element import Adjust, Cti, Element, Insert
from operators.loop import recursive_runs as rr
from operators.loop.recursive_runs import QUERIES, Network
from papers.ffp_queries import LINK, TIMES, Run, link, paths

STRATEGIES = get_args(ProgressStrategy)
SOUND = [strategy for strategy in STRATEGIES if strategy != "high water mark"]


# -- 3.5, token by token -----------------------------------------------------------------------------------------------


def test_high_water_mark_walks_through_the_example() -> None:
    """[29-35] Links have promised dp(2), nodes dp(5): externally 3."""
    token = ProgressToken("high water mark")
    token.arrived(3, 3)  # (3, n3, n2, 1110)
    token.leave(external=3)
    assert (token.high, token.token, token.sent) == (3, 4, 1)  # hwm = cst = 3: sp(3)
    token.arrived(3, 3)  # (3, n2, n3, 0110)
    assert not token.converged
    token.returned(external=3)  # lodged at the join, whose links are at dp(2)
    assert (token.token, token.promise, token.sent) == (4, NEVER, 1)
    token.arrived(3, 3)  # (3, n2, n1, 1110), which the text has pass before
    token.arrived(4, 4)  # (4, n3, n4) joins; then dp(4) releases the token
    token.returned(external=5)
    assert (token.token, token.promise, token.converged, token.sent) == (4, NEVER, True, 2)  # sent again
    token.arrived(4, 4)  # only events of time 4 circulate
    token.returned(external=5)
    assert (token.token, token.promise, token.given) == (None, 4, 1)  # dp(3)
    token.leave(external=5)
    assert (token.high, token.token, token.sent) == (4, 5, 3)  # hwm = cst = 4


def test_probing_walks_through_the_example() -> None:
    """[36-39] sp(+∞) comes back as sp(2); d = min(2, 3); the same again says nothing."""
    token = ProgressToken("probing")
    token.arrived(3, 3)
    token.leave(external=3)
    assert (token.token, token.earliest) == (INF, INF)
    token.arrived(3, 3)
    assert token.earliest == 3
    token.returned(external=3)
    assert (token.promise, token.given) == (3, 1)  # dp(2)
    token.leave(external=3)
    token.returned(external=3)
    assert (token.promise, token.given, token.sent) == (3, 1, 2)


def test_operators_lower_a_probing_token() -> None:
    """[37] ∞ on the loop, nodes at dp(5), links at dp(2): it comes back as sp(2), however the body is laid out."""
    run = Run(paths())
    body = run.loop._body
    inputs = outside(run, lambda name: 6 if name == "Source" else 3)
    body.step([*inputs, Output(no_changes(run.loop._head.sent), Frontier(INF))], NEVER)
    assert body._given(body._result, inputs).frontier.time == 3
    assert 6 in {seat.output.frontier.time for seat in body._seats} | {each.frontier.time for each in inputs}


def outside(run: Run, promised: Callable[[str], int]) -> list[Output]:
    """Nothing but promises on the loop's ports, by the source that each reads."""
    plan = run.runtime.plan
    (placed,) = [each for each in plan.operators if each.operator is run.loop]
    found = []
    for port in placed.inputs:
        codec = plan.codecs[port.source] if port.source is not None else plan.operators[port.operator].operator.codec
        while port.source is None:
            port = plan.operators[port.operator].inputs[0]
        found.append(Output(no_changes(codec), Frontier(promised(port.source))))
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_example_on_the_operator(strategy: ProgressStrategy) -> None:
    """[29-39] The same with the rows of section 2 on the loop, one round per push."""
    run = Run(paths(f"ROUNDS 1 PROGRESS {strategy.upper()}"))
    run.push({"Source": [*TIMES[1]["Source"], Cti(6)], "Link": [*TIMES[2]["Link"], Cti(3)]})
    promises = [run.loop.progress.promise]
    for epoch in (TIMES[3], {}, {"Link": [*TIMES[4]["Link"], Cti(5)]}, {}, {}, {}):
        run.push(epoch)
        promises.append(run.loop.progress.promise)
    # at first (2, n3, n1) is still to go round.  The rows of 3 raise the mark to 3, and its token waits for the links,
    # which have promised 3; the others say what the links say.  With the links at 5 nothing circulates any more.
    waits = strategy == "high water mark"
    assert promises == [2, 2, 2, 5, 5, 5, 5] if waits else promises == [2, 3, 3, 5, 5, 5, 5]


# -- 3.1 and the shape of promises -------------------------------------------------------------------------------------


def test_stabilization_points_are_the_first_instant_that_changes() -> None:
    """[14, a slip; 15] Defined as the last snapshot an event leaves alone, used as the first it changes."""
    history: list[Element] = []
    for element, used in (
        (link(3, 6, "n1", "n2"), 3), (link(2, INF, "n3", "n1"), 2), (Adjust(2, INF, 5, {"a": "n3", "b": "n1"}), 5),
    ):  # fmt: skip
        before = ew.History.of(history, LINK.schema)
        history.append(element)
        after = ew.History.of(history, LINK.schema)
        same = [t for t in range(9) if before.snapshot(t) == after.snapshot(t)]
        defined = max(t for t in range(9) if set(range(t + 1)) <= set(same))
        assert (defined, _start(element)) == (used - 1, used)


def test_min_of_token_and_earliest_event_needs_half_open_times() -> None:
    """[40, a slip] With eet = 3 dp(3) would forbid what still circulates at 3; the promise 3 allows it."""
    token = ProgressToken("probing")
    token.leave(external=9)
    token.arrived(3, 3)
    token.returned(external=9)
    assert token.promise == 3
    token.leave(external=9)
    token.arrived(3, 7)  # what was at 3 brings more at 3
    token.returned(external=9)
    assert token.promise == 3


# -- 3.3: what operators on the loop must do ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_s1_operators_speculate_correctly(name: str) -> None:
    """[21, 23] A guess i on the loop's port comes back as j <= i, not below min(i, what is promised outside)."""
    run = Run(QUERIES[name]())
    body = run.loop._body
    rng = random.Random(5)
    inputs = outside(run, lambda _: rng.randrange(4, 9))
    external = min(each.frontier.time for each in inputs)
    for guess in (2, 4, 5, 8, 20, INF):
        body.step([*inputs, Output(no_changes(run.loop._head.sent), Frontier(guess))], NEVER)
        assert body._given(body._result, inputs).frontier.time == min(guess, external)


def test_without_the_token_promises_block() -> None:
    """[13] A join that waits for its own output never promises anything."""
    run = Run(QUERIES["nodes"]())
    body = run.loop._body
    for external in (3, 9, INF):
        inputs = outside(run, lambda _, time=external: time)
        body.step([*inputs, Output(no_changes(run.loop._head.sent), Frontier(NEVER))], NEVER)
        assert body._given(body._result, inputs).frontier.time == NEVER


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_s2_what_is_said_does_not_depend_on_promises(name: str) -> None:
    """[22] The same data with and without CTIs: the same output, epoch by epoch."""
    for seed in range(6):
        network = Network(random.Random(seed))
        epochs = [network.epoch() for _ in range(8)]
        with_them, without = Run(QUERIES[name]()), Run(QUERIES[name]())
        for epoch in epochs:
            used = {key: each for key, each in epoch.items() if key in with_them.runtime.inputs}
            bare = {key: [e for e in each if not isinstance(e, Cti)] for key, each in used.items()}
            with_them.push(used)
            without.push(bare)
            assert _cut(with_them) == _cut(without)


def _cut(run: Run) -> dict[int, set[tuple[object, ...]]]:
    """The history as snapshots: pieces may be cut at a promise."""
    return {t: {row for (vs, ve, row) in run.alive() if vs <= t < ve} for t in range(-1, 18)}


@pytest.mark.parametrize("name", sorted(QUERIES))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_s3_nothing_moves_back(name: str, strategy: ProgressStrategy) -> None:
    """[22] What is said because of an epoch begins to change things no earlier than the epoch's input does."""
    for seed in range(4):
        network = Network(random.Random(seed))
        run = Run(QUERIES[name](progress=strategy))
        for _ in range(8):
            epoch = {key: each for key, each in network.epoch().items() if key in run.runtime.inputs}
            said = run.push(epoch)
            came = min((_start(e) for each in epoch.values() for e in each if not isinstance(e, Cti)), default=INF)
            assert all(_start(each) >= came for each in said if not isinstance(each, Cti))


def _start(element: Element) -> int:
    return element.vs if isinstance(element, Insert) else min(element.ve, element.vnew)  # type: ignore[union-attr]


# -- 3.4: segments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["simple_paths", "linear", "nodes"])
def test_f1_f2_everything_leaves_and_goes_round(name: str) -> None:
    """[24] What goes round the loop is what leaves it; only promises do not go round as data."""
    run = Run(QUERIES[name]())
    head, body = run.loop._head, run.loop._body
    went: list[Changes] = []
    step = body.step

    def watched(inputs: list[Output], tau: int) -> Changes:
        went.append(head.answer(inputs[-1].changes))
        return step(inputs, tau)

    body.step = watched  # type: ignore[method-assign]
    network = Network(random.Random(3))
    for _ in range(12):
        went.clear()
        said = run.push({key: each for key, each in network.epoch().items() if key in run.runtime.inputs})
        round_ = sum((int((each.weight * (each.hi - each.lo)).sum()) for each in went), 0)
        out = sum(e.ve - e.vs if isinstance(e, Insert) else e.vnew - e.ve for e in said if not isinstance(e, Cti))  # type: ignore[union-attr]
        assert round_ == out


def test_f3a_is_about_all_events_of_a_segment() -> None:
    """[25, a slip] Up to m, not k: an early event at the end of a segment keeps the token from being right."""
    token = ProgressToken("high water mark")
    token.arrived(5, 5)
    token.leave(external=9)
    for low in (7, 8, 6, 2):  # the last of them is before the guess
        token.arrived(low, low)
    token.returned(external=9)
    assert token.promise == NEVER and token.token == 6  # F3.b: sent again


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_promise_leaves_at_once(strategy: ProgressStrategy) -> None:
    """[26, two readings] F3.a names the way round the loop only; here it leaves by both ways in the same push."""
    run = Run(paths(f"PROGRESS {strategy.upper()}"))
    said = run.push({"Source": [*TIMES[1]["Source"], Cti(3)], "Link": [*TIMES[2]["Link"], Cti(3)]})
    assert said[-1] == Cti(3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_token_at_a_time_and_promises_that_grow(strategy: ProgressStrategy) -> None:
    """[27, 28] Random rounds: a new token only when the last is back; later guesses are later."""
    rng = random.Random(9)
    token = ProgressToken(strategy)
    external, guesses, promises = 0, [], []
    assert (token.promise, token.token) == (NEVER, None)
    for _ in range(2000):
        external += rng.choice((0, 0, 0, 1))
        before = token.token
        token.leave(external)
        if before is None and token.token is not None:
            guesses.append(token.token)
        else:
            assert token.token == before
        if rng.random() < 0.7:
            low = rng.randrange(max(token.promise, 0), max(token.promise, 0) + 5)
            token.arrived(low, low + rng.randrange(3))
        token.returned(external)
        promises.append(token.promise)
    assert promises == sorted(promises) and token.given > 50
    if strategy == "high water mark":
        assert all(one < other for one, other in pairwise(guesses))


# -- 3.6, 5.2.2, 5.3: progress -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_theorem_2_3_and_lulls(strategy: ProgressStrategy) -> None:
    """[41] Promises of the inputs bring promises of the output, also without events; but not with the high-water mark,
    which no event raises: it stays where it is for as long as the lull lasts."""
    run = Run(paths(f"PROGRESS {strategy.upper()}"))
    run.push({"Source": [*TIMES[1]["Source"], Cti(3)], "Link": [*TIMES[2]["Link"], Cti(3)]})
    said = [run.push({"Source": [Cti(t)], "Link": [Cti(t)]}) for t in range(4, 40)]
    if strategy == "high water mark":
        assert said == [[]] * 36
        later = run.push({"Link": [link(50, INF, "n1", "n2"), Cti(51)], "Source": [Cti(51)]})
        assert later[-1] == Cti(51)
    else:
        assert said == [[Cti(t)] for t in range(4, 40)]


@pytest.mark.parametrize("strategy", SOUND)
@pytest.mark.parametrize("name", sorted(QUERIES))
def test_a_promise_of_all_inputs_is_one_of_the_output_in_the_same_push(name: str, strategy: ProgressStrategy) -> None:
    """Staged: CTI(t) on all inputs gives CTI(t), with data and without."""
    for seed in range(3):
        network = Network(random.Random(seed), promises=0)
        run = Run(QUERIES[name](progress=strategy))
        for t in range(1, 12):
            epoch = {key: [*each, Cti(t)] for key, each in network.epoch().items() if key in run.runtime.inputs}
            network.ctis = {"Source": t, "Link": t}
            run.push(epoch)
            assert run.cti == t
        assert run.push({key: [Cti(20)] for key in run.runtime.inputs}) == [Cti(20)]


@pytest.mark.parametrize("strategy", SOUND)
def test_flying_it_comes_within_the_depth_of_the_loop(strategy: ProgressStrategy) -> None:
    """A way of seven links, then a promise, one round per push: promised once all has gone round, and it holds."""
    run = Run(rr.nodes(rounds=1, progress=strategy))
    links = [Insert(1, INF, {"a": n, "b": n + 1, "w": 0}) for n in range(7)]
    run.push({"Link": [*links, Cti(9)], "Source": [Insert(2, INF, {"n": 0}), Cti(9)]})
    pushes = 1
    while run.cti != 9:
        assert pushes < 9
        run.push()
        pushes += 1
    assert {row for (_, _, row) in run.alive()} == {(n,) for n in range(8)}
    assert pushes <= 9  # eight rows deep


def test_hybrid_counts_the_input_that_has_promised_least() -> None:
    """[58, two readings] Were the latest promise of any input to count, tokens would go round while one lags."""
    sent = {}
    for strategy in SOUND:
        run = Run(paths(f"PROGRESS {strategy.upper()}"))
        run.push({"Source": [*TIMES[1]["Source"], Cti(90)], "Link": [*TIMES[2]["Link"], Cti(3)]})
        before = run.loop.progress.sent
        for _ in range(50):
            run.push({"Source": [Insert(95, 96, {"n": "n4"})]})
        sent[strategy] = run.loop.progress.sent - before
    assert sent["hybrid"] == 0 and sent["probing"] >= 50


def test_operators_off_the_loop_need_progress_only() -> None:
    """[43] A window and a count below the loop, neither of which could stand on it."""
    counted = rr.LINK.range(3).group_by("a", "b").agg(w=ew.count()).where(ew.col("w") > 1).select("a", "b")
    query = ew.fixpoint(rr.SOURCE, lambda r: r.join(counted, on={"n": "a"}).select(n=ew.col("b")))
    run = Run(query)
    twice = [Insert(t, t + 1, {"a": 1, "b": 2, "w": 0}) for t in (4, 5)]
    run.push({"Source": [Insert(0, INF, {"n": 1}), Cti(20)], "Link": [*twice, Cti(20)]})
    assert run.cti == 20
    assert {(vs, ve, row) for (vs, ve, row) in run.alive()} == {(0, INF, (1,)), (5, 7, (2,))}
