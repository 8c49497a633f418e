"""Flying Fixed-Point, sections 4 and 5.1: patterns."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.stream.element import Element
from everwhen.stream.element_batch import ElementBatch

W = """
    SELECT b, e FROM Toss WINDOW(RANGE {window}) MATCH_RECOGNIZE (
        ORDER BY t MEASURES FIRST(t) AS b, LAST(t) AS e
        PATTERN (S D+ U+ E+ X* F)
        DEFINE S AS side = 'U', D AS side = 'D', U AS side = 'U', E AS side = 'D',
            X AS side = 'U' AND COUNT(D.*) + COUNT(E.*) > COUNT(U.*) + COUNT(X.*),
            F AS side = 'U' AND COUNT(D.*) + COUNT(E.*) = COUNT(U.*) + COUNT(X.*) + COUNT(F.*)) W
"""
TOSS = ew.source("Toss", {"t": "int64", "side": "string"}, insert_only=True, chronons=True)


def tosses(text: str) -> list[Element]:
    return [ew.Insert(t, t + 1, {"t": t, "side": side}) for t, side in enumerate(text)]


def ends(said: list[Element]) -> dict[int, int]:
    return {e.row["b"]: e.row["e"] for e in said if isinstance(e, ew.Insert)}


def test_abba() -> None:
    """Section 4: AB*A on the symbols A, B, B, A at 1 … 4 accepts ABBA, from 1 to 4, and nothing else."""
    symbol = ew.source("Symbol", {"n": "int64", "s": "string"})
    query = ew.sql(
        "SELECT b, e FROM Symbol WINDOW(RANGE 100) MATCH_RECOGNIZE (ORDER BY n MEASURES FIRST(n) AS b, n AS e "
        "PATTERN (A B* Z) "
        "DEFINE A AS s = 'A', B AS s = 'B', Z AS s = 'A') M",
        symbol,
    )
    stream = [ew.Insert(n, n + 1, {"n": n, "s": s}) for n, s in enumerate("ABBA", 1)]
    assert [str(e) for e in ew.run(query, {"Symbol": stream})] == ["insert [4, 101) b=1 e=4", "cti ∞"]
    begun = ew.sql(
        "SELECT b, e, n FROM Symbol WINDOW(RANGE 100) MATCH_RECOGNIZE (ORDER BY n MEASURES FIRST(n) AS b, n AS e, "
        "COUNT(*) AS n "
        "PATTERN (A B* Z?) DEFINE A AS s = 'A', B AS s = 'B', Z AS s = 'A') M",
        symbol,
    )
    rows = [e.row for e in ew.run(begun, {"Symbol": stream}, emit="final") if isinstance(e, ew.Insert)]
    # A:1, AB:2, ABB:3, ABBA:4, and the A of 4: what the figure derives beside its four seeds
    assert [(row["b"], row["e"]) for row in rows] == [(1, 1), (1, 2), (1, 3), (1, 4), (4, 4)]


def test_a_match_lives_while_all_of_its_rows_are_in_the_window() -> None:
    said = [str(e) for e in ew.run(ew.sql(W.format(window=30), TOSS), {"Toss": tosses("UDUDU")})]
    assert said == ["insert [4, 30) b=0 e=4", "cti ∞"]
    assert ends(list(ew.run(ew.sql(W.format(window=4), TOSS), {"Toss": tosses("UDUDU")}))) == {}


def accepted(text: str, start: int) -> int | None:
    """The automaton of the paper: 7 states, 11 transitions, one register M = downs - ups after the first U."""
    state, m = "S0", 0
    for at in range(start, len(text)):
        up = text[at] == "U"
        match state, up:
            case "S0", True:
                state = "S1"
                continue
            case ("S1" | "S2", False):
                state = "S2"
            case ("S2" | "S3", True):
                state = "S3"
            case ("S3" | "S4", False):
                state = "S4"
            case ("S4" | "S5", True) if m > 1:
                state = "S5"
            case ("S4" | "S5", True) if m == 1:
                return at
            case _:
                return None
        m += -1 if up else 1
    return None


@pytest.mark.parametrize("seed", range(5))
def test_w_is_what_its_automaton_accepts(seed: int) -> None:
    text = "".join(random.Random(seed).choices("UD", k=300))
    expected = {start: end for start in range(300) if (end := accepted(text, start)) is not None and end - start < 300}
    assert ends(list(ew.run(ew.sql(W.format(window=300), TOSS), {"Toss": tosses(text)}, batch=50))) == expected


def test_w_on_a_million_fair_tosses() -> None:
    """5 in 54 tosses begin a W; a window of 30 takes off 1.3e-7."""
    n, batch = 1_000_000, 50_000
    runtime = ew.LocalRuntime(ew.sql(W.format(window=30), TOSS))
    sides = pa.array(["D", "U"]).take(pa.array(np.random.default_rng(11).integers(0, 2, n)))
    found = 0
    for first in range(0, n, batch):
        t = np.arange(first, first + batch + 1)
        op = np.full(len(t), ElementBatch.INSERT, np.uint8)
        op[-1] = ElementBatch.CTI
        rows = pa.array(t[:-1]), sides.slice(first, batch)
        columns = tuple(pa.concat_arrays([column, pa.nulls(1, column.type)]) for column in rows)
        out = runtime.push({"Toss": ElementBatch(TOSS.schema, op, t, t + 1, np.zeros(len(t), np.int64), columns)})[
            "out"
        ]
        assert (out.op != ElementBatch.ADJUST).all()
        found += int((out.op == ElementBatch.INSERT).sum())
    assert abs(found / n - 5 / 54) < 0.001
    assert runtime.state_size().rows < 200
