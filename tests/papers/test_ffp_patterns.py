"""The Flying Fixed-Point paper, sections 4 and 5.1: automata on a loop, whose transitions are a stream themselves.

Numbers in brackets are rows of the table of statements in `docs/papers.md`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.reference import evaluate
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History
from papers.ffp_queries import (
    SYMBOL,
    TRANSITION,
    W_TRANSITIONS,
    WINDOW,
    Run,
    automaton,
    loop_of,
    tosses,
    w_moves,
    w_query,
)  # fmt: skip

AB_STAR_A = [("S", "A", "X"), ("X", "B", "X"), ("X", "A", "F")]


def symbol(seq: int, which: str, ve: int = INF) -> Insert:
    return Insert(seq, ve, {"seq": seq, "symbol": which})


def transition(q: str, which: str, q2: str, vs: int = 0, ve: int = INF) -> Insert:
    return Insert(vs, ve, {"q": q, "symbol": which, "q2": q2})


def rows(run: Run, t: int | None = None) -> Counter[tuple[Any, ...]]:
    """How often each row is there, at an instant or at all."""
    found: Counter[tuple[Any, ...]] = Counter()
    for (vs, ve, row), count in run.alive().items():
        if t is None or vs <= t < ve:
            found[row] += count
    return found


# -- ABBA --------------------------------------------------------------------------------------------------------------


def test_abba_has_nine_outputs() -> None:
    """[45] AB*A over ABBA: five patterns with where they end, and four seeds of length 0."""
    run = Run(automaton())
    run.push({"Transition": [transition(*each) for each in AB_STAR_A]})
    for seq, which in enumerate("ABBA", 1):
        run.push({"Symbol": [symbol(seq, which)]})
    assert rows(run) == Counter(
        [(1, 0, "S"), (2, 1, "S"), (3, 2, "S"), (4, 3, "S"), (1, 1, "X"), (1, 2, "X"), (1, 3, "X"), (1, 4, "F"),
         (4, 4, "X")]
    )  # fmt: skip
    assert sorted("ABBA"[b - 1 : t] + f":{t}" for b, t, q in rows(run) if q != "S") == [
        "A:1", "A:4", "AB:2", "ABB:3", "ABBA:4",
    ]  # fmt: skip


def test_a_run_takes_as_many_rounds_as_symbols_at_most() -> None:
    """[44] Each round consumes a symbol: so every derivation ends, and UNION ALL does."""
    run = Run(automaton())
    run.push({"Transition": [transition(*each) for each in AB_STAR_A]})
    before = run.loop.rounds
    run.push({"Symbol": [symbol(seq, which) for seq, which in enumerate("ABBBBBBA", 1)]})
    assert run.loop.rounds - before <= 8 + 3  # and what comes from outside, the last that finds nothing, the purge


def test_windows_by_lifetimes() -> None:
    """[46] Symbols that live for d: one of more than d never is, a shorter one until its first expires."""
    run = Run(automaton())
    run.push({"Transition": [transition(*each) for each in AB_STAR_A]})
    run.push({"Symbol": [symbol(seq, which, seq + 3) for seq, which in enumerate("ABABBA", 1)]})
    final = {(vs, ve, *row) for (vs, ve, row) in run.alive() if row[2] == "F"}
    assert final == {(3, 4, 1, 3, "F")}  # ABA ends at 3; ABBA would need four symbols


@pytest.mark.parametrize("options", [{}, {"rounds": 1}, {"rounds": 2, "progress": "probing"}], ids=str)
def test_an_automaton_that_changes_while_it_runs(options: Mapping[str, Any]) -> None:
    """[46] Transitions come, end and are withdrawn, symbols come late: after each epoch as if computed anew."""
    for seed in range(15):
        rng = random.Random(seed)
        run = Run(automaton(**options))
        given: dict[str, list[Element]] = {"Symbol": [], "Transition": []}
        alive: list[Insert] = []
        missing = list(range(1, 13))
        for _ in range(10):
            epoch: dict[str, list[Element]] = {"Symbol": [], "Transition": []}
            for _ in range(rng.randrange(3)):
                if missing:
                    seq = missing.pop(rng.randrange(min(4, len(missing))))
                    epoch["Symbol"].append(symbol(seq, rng.choice("AB"), rng.choice((seq + 5, INF))))
            for _ in range(rng.randrange(3)):
                if alive and rng.random() < 0.4:
                    old = alive.pop(rng.randrange(len(alive)))
                    epoch["Transition"].append(Adjust(old.vs, old.ve, rng.randrange(old.vs, 13), old.row))
                else:
                    new = transition(rng.choice("SXY"), rng.choice("AB"), rng.choice("XYF"), rng.randrange(9))
                    alive.append(new)
                    epoch["Transition"].append(new)
            for name, elements in epoch.items():
                given[name] += elements
            run.push(epoch)
            if not options:
                compare(run, given)
        run.close()
        compare(run, given)


def compare(run: Run, given: Mapping[str, list[Element]]) -> None:
    schemas = {"Symbol": SYMBOL.schema, "Transition": TRANSITION.schema}
    wanted = evaluate(automaton().node, {name: History.of(each, schemas[name]) for name, each in given.items()})
    for t in range(14):
        assert rows(run, t) == wanted.at(t)


# -- W -----------------------------------------------------------------------------------------------------------------


def test_the_automaton_of_w_is_the_one_of_the_paper() -> None:
    """[49] Seven states, eleven transitions, one final."""
    states = {each[0] for each in W_TRANSITIONS} | {each[2] for each in W_TRANSITIONS}
    final = states - {each[0] for each in W_TRANSITIONS}
    assert (len(states), len(set(W_TRANSITIONS)), final) == (7, 11, {"F"})


def ws(text: str) -> set[tuple[int, int]]:
    """From the definition: U D^i U^j D^k U^l, i + k = j + l, all at least 1, the downs and ups as long as they are."""
    found = set()
    for b in range(len(text)):
        for e in range(b + 5, min(b + WINDOW, len(text)) + 1):
            part = text[b + 1 : e]
            runs = [part[0]]
            for side in part[1:]:
                if side == runs[-1][0]:
                    runs[-1] += side
                else:
                    runs.append(side)
            shape = text[b] == "U" and len(runs) == 4 and runs[0][0] == "D"
            if shape and len(runs[0]) + len(runs[2]) == len(runs[1]) + len(runs[3]):
                found.add((b, e))
    return found


def test_w_on_the_loop_is_w_by_its_definition() -> None:
    """[44, 47, 49] Random tosses; M > 1 guards steps that are not the last, so l = 1 is a match, too."""
    up = np.random.default_rng(4).integers(0, 2, 600).astype(bool)
    text = "".join("U" if each else "D" for each in up)
    runtime = LocalRuntime(w_query(), emit="all")
    runtime.push({"Move": w_moves()})
    out = runtime.push({"Toss": tosses(np.arange(len(up)), up)})["out"]
    got = Counter(
        (each.row["b"], each.row["seq"]) for each in out.elements() if isinstance(each, Insert) and each.row["q"] == "F"
    )
    wanted = ws(text)
    assert got == Counter(wanted) and len(wanted) > 40
    assert any(text[e - 2 : e] == "DU" for _, e in wanted), "a last group of one up"
    # read as a guard of every step into the last group, M > 1 would lose those
    strict = {(b, e) for b, e in wanted if text[e - 2 : e] != "DU"}
    assert strict < wanted


def test_one_register_cannot_tell_which_trough_is_deeper() -> None:
    """[50, a slip] Two runs in the same state with the same M, of which one has its second trough above the first."""

    def runs_to(text: str) -> tuple[str, int, list[int]]:
        state, m, depth, troughs = "S1", 0, 0, []
        for at, side in enumerate(text):
            (move,) = [each for each in W_TRANSITIONS if each[0] == state and each[1] == side and each[4] == "any"]
            state, m, depth = move[2], m + move[3], depth + (1 if side == "D" else -1)
            if side == "D" and (at + 1 == len(text) or text[at + 1] == "U"):
                troughs.append(depth)
        return state, m, troughs

    shallow, deep = runs_to("DDDUUD"), runs_to("DUDD")
    assert shallow[:2] == deep[:2] == ("S4", 2)
    assert shallow[2] == [3, 2] and deep[2] == [1, 2]


@pytest.mark.parametrize("n", [1_000_000])
def test_w_on_fair_tosses(n: int) -> None:
    """[51] Window 30: 5/54 matches and 3.30 rows on the loop per toss; the state stays that of the window."""
    up = np.random.default_rng(7).integers(0, 2, n).astype(bool)
    runtime = LocalRuntime(w_query(), emit="all")
    runtime.push({"Move": w_moves()})
    per, found, matches, kept = 10_000, 0, 0, []
    for first in range(0, n, per):
        out = runtime.push({"Toss": tosses(np.arange(first, first + per), up, first + per)})["out"]
        found += int((out.op == out.INSERT).sum())
        matches += pc.sum(pc.equal(out.columns[2], "F")).as_py() or 0
        assert (out.op == out.ADJUST).sum() == 0
        kept.append(loop_of(runtime).state_size().rows)
    assert matches / n == pytest.approx(5 / 54, abs=0.001)
    assert found / n == pytest.approx(3.30, abs=0.02)
    assert max(kept) < 5 * WINDOW  # a promise after each batch: what is left are runs that may go on


def test_no_tosses_no_matches() -> None:
    """A promise without tosses is a promise of the loop."""
    runtime = LocalRuntime(w_query(), emit="all")
    runtime.push({"Move": w_moves()})
    out = runtime.push({"Toss": tosses([], np.zeros(1, bool), 50)})["out"]
    assert list(out.elements()) == [Cti(50)]
