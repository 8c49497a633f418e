"""The Flying Fixed-Point paper (Chandramouli, Goldstein, Maier), sections 1 and 2: reachability, time by time.

Numbers in brackets are rows of the table of statements in `docs/papers.md`.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.reference import evaluate
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History
from papers.ffp_queries import LINK, OUTPUTS, REACHABLE, SOURCE, TIMES, Run, link, paths, reached

ALL_OUTPUTS = sorted(row for rows in OUTPUTS.values() for row in rows)


def arrived() -> Run:
    """The four times, each run to its fixed point."""
    run = Run(paths())
    for time in TIMES:
        run.push(TIMES[time])
    return run


def test_the_outputs_at_their_times() -> None:
    """[4-8] What FFP outputs at each of the four times, after the sources at 1, which are no output."""
    run = Run(paths())
    for time in TIMES:
        new = run.push({**TIMES[time], "Link": [*TIMES[time].get("Link", ()), Cti(time + 1)]})
        assert reached(new) == OUTPUTS.get(time, [])
    assert reached(run.out) == ALL_OUTPUTS and len(ALL_OUTPUTS) == 6


def test_sources_are_rows_of_the_recursion_in_sql() -> None:
    """[4] In the plan of figure 1 they enter at the Union, behind which FFP's output does not lie."""
    run = Run(paths())
    assert run.push(TIMES[1]) == [
        Insert(1, INF, {"s": "n2", "n": "n2", "bv": 0b0100}), Insert(1, INF, {"s": "n3", "n": "n3", "bv": 0b0010}),
    ]  # fmt: skip


def test_time_3_round_by_round() -> None:
    """[6] Two rows in the first round, one in the second, and what would follow has been there."""
    run = Run(paths("ROUNDS 1"))
    rounds = []
    for epoch in (TIMES[1], TIMES[2], TIMES[3], {}, {}):
        rounds.append(reached(run.push(epoch)))
    assert rounds[2:] == [
        [(3, "n2", "n3", "0110"), (3, "n3", "n2", "1110")],
        [(3, "n2", "n1", "1110")],
        [],
    ]
    assert not run.loop.unfinished


@pytest.mark.parametrize("options", ["", "ROUNDS 1", "ROUNDS 2 PROGRESS PROBING"])
def test_inputs_that_enter_before_the_fixed_point(options: str) -> None:
    """[9] Links in any order, the next before the last has gone round: the same answer, perhaps in another order."""
    links = [element for time in TIMES for element in TIMES[time].get("Link", [])]
    orders = set()
    for order in permutations(links):
        run = Run(paths(options))
        run.push({"Link": [order[0]]})
        run.push(TIMES[1])
        for element in order[1:]:
            run.push({"Link": [element]})
        run.close()
        assert reached(run.out) == ALL_OUTPUTS
        orders.add(tuple(map(str, run.out)))
    assert len(orders) > 1


def test_lifetimes_are_those_that_all_inputs_share() -> None:
    """[10] Half-open: the source [1, 6), the links [2, 8) and [3, 10) give (n3, n2) on [3, 6)."""
    run = Run(paths())
    run.push({"Source": [Insert(1, 6, {"n": "n3"})], "Link": [link(2, 8, "n3", "n1"), link(3, 10, "n1", "n2")]})
    assert run.alive() == {
        (1, 6, ("n3", "n3", 0b0010)): 1, (2, 6, ("n3", "n1", 0b1010)): 1, (3, 6, ("n3", "n2", 0b1110)): 1,
    }  # fmt: skip


def test_a_retraction_ripples_through_all_that_was_derived() -> None:
    """[11, a slip] Three rows end with the link (n3, n1), not two: (n2, n1) came by it, too.  Three stay."""
    run = arrived()
    said = run.push({"Link": [Adjust(2, INF, 5, {"a": "n3", "b": "n1"})]})
    ended = {tuple(each.row.values())[:2] for each in said if isinstance(each, Adjust)}
    assert len(said) == 3 and all(isinstance(each, Adjust) and each.vnew == 5 for each in said)
    assert ended == {("n3", "n1"), ("n3", "n2"), ("n2", "n1")}
    stay = {row[:2] for (_, ve, row) in run.alive() if ve == INF and row[0] != row[1]}
    assert stay == {("n2", "n3"), ("n3", "n4"), ("n2", "n4")}


def diamond() -> dict[str, list[Element]]:
    """Two ways from n1 to n4 through the same nodes, in another order."""
    pairs = [("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n1", "n3"), ("n3", "n2"), ("n2", "n4")]
    return {"Source": [Insert(0, INF, {"n": "n1"})], "Link": [link(0, INF, a, b) for a, b in pairs]}


def test_operators_have_bag_semantics() -> None:
    """[12] As many copies as there are paths over the same nodes; a set has the row once."""
    run = Run(paths())
    run.push(diamond())
    copies = {row: count for (_, _, row), count in run.alive().items()}
    assert copies["n1", "n4", 0b1111] == 2
    once = ew.sql(
        "WITH RECURSIVE r(s, n) AS (SELECT n, n FROM Source UNION SELECT s, b FROM r JOIN Link ON r.n = a) "
        "SELECT * FROM r",
        SOURCE,
        LINK,
    )
    other = Run(once)
    other.push(diamond())
    assert set(other.alive().values()) == {1}


def test_the_definition_has_pairs_that_bit_vectors_hide() -> None:
    """[3, two readings] Through one or more links n2 and n3 reach themselves from 3 on; the plan with bits says not."""
    run = Run(ew.sql(REACHABLE, SOURCE, LINK))
    for time in TIMES:
        run.push(TIMES[time])
    pairs = {(vs, *row) for (vs, _, row) in run.alive()}
    assert pairs == {row[:3] for row in ALL_OUTPUTS} | {(3, "n3", "n3"), (3, "n2", "n2")}


def test_rounds_begin_with_nothing_and_end_when_nothing_is_new() -> None:
    """[2] r_0 = Q(∅), r_i = Q(r_(i-1)), by hand at every instant, beside the query and its definition."""
    histories = {
        "Source": History.of(TIMES[1]["Source"], SOURCE.schema),
        "Link": History.of([each for time in TIMES for each in TIMES[time].get("Link", [])], LINK.schema),
    }
    defined = evaluate(paths().node, histories)
    run = arrived()
    for t in range(6):
        sources = [row[0] for row in _at(histories["Source"], t)]
        links = _at(histories["Link"], t)
        known: Counter[tuple[str, str, int]] = Counter()
        while True:
            found = Counter({(n, n, _bit(n)): 1 for n in sources})
            for (s, n, bv), count in known.items():
                for a, b in links:
                    if a == n and not bv & _bit(b):
                        found[s, b, bv | _bit(b)] += count
            if found == known:
                break
            known = found
        assert known == defined.at(t) == Counter(row for (vs, ve, row) in run.alive() if vs <= t < ve)


def _bit(node: str) -> int:
    return 16 >> int(node[1])


def _at(history: History, t: int) -> list[tuple[str, ...]]:
    return [row for vs, ve, row in history.events() if vs <= t < ve]
