"""The W query of the Flying Fixed-Point paper on a loop: its automaton is a stream, and so are the tosses.

U D^i U^j D^k U^l with i + k = j + l, in a window of 30 tosses: seven states, eleven transitions, one register.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.operators.loop.fixpoint import FixpointOperator
from everwhen.stream.element_batch import ElementBatch

WINDOW = 30
TOSS = ew.source("Toss", {"seq": "int64", "side": "string"}, insert_only=True)
MOVE = ew.source(
    "Move",
    {"q": "string", "side": "string", "q2": "string", "dm": "int64", "least": "int64", "most": "int64"},
    insert_only=True,
)
_ANY, _MORE, _LAST = (-WINDOW, WINDOW), (2, WINDOW), (1, 1)
_MOVES = (
    ("S0", "U", "S1", 0, _ANY), ("S1", "D", "S2", 1, _ANY), ("S2", "D", "S2", 1, _ANY), ("S2", "U", "S3", -1, _ANY),
    ("S3", "U", "S3", -1, _ANY), ("S3", "D", "S4", 1, _ANY), ("S4", "D", "S4", 1, _ANY), ("S4", "U", "S5", -1, _MORE),
    ("S5", "U", "S5", -1, _MORE), ("S4", "U", "F", -1, _LAST), ("S5", "U", "F", -1, _LAST),
)  # fmt: skip


def w_query(**options: Any) -> ew.Stream:
    """Runs of the automaton: from toss b on, toss `seq` is next, in state q, with M = downs - ups."""
    col = ew.col
    seeds = TOSS.select(b=col("seq"), seq=col("seq"), q=ew.lit("S0"), m=ew.lit(0))

    def step(r: ew.Stream) -> ew.Stream:
        met = r.join(TOSS, on=["seq"]).join(MOVE, on=["q", "side"])
        met = met.where((col("m") >= col("least")) & (col("m") <= col("most")))
        return met.select("b", seq=col("seq") + 1, q=col("q2"), m=col("m") + col("dm"))

    return ew.fixpoint(seeds, step, kind="union all", name="W", **options)


def moves() -> ElementBatch:
    """The automaton, for ever."""
    rows = [dict(zip(MOVE.schema.names, (*each[:4], *each[4]), strict=True)) for each in _MOVES]
    return ElementBatch.of([*(ew.Insert(0, ew.INF, row) for row in rows), ew.Cti(ew.INF)], MOVE.schema)


def fair(n: int, seed: int = 1) -> np.ndarray:
    """Tosses: True is up."""
    return np.random.default_rng(seed).integers(0, 2, n).astype(bool)


def tosses(seq: np.ndarray, up: np.ndarray, cti: int) -> ElementBatch:
    """Tosses by number, each alive for the window, and a promise behind them."""
    n = len(seq)
    sides = pa.array(["D", "U"]).take(pa.array(up[seq].astype(np.int64)))
    columns = tuple(pa.concat_arrays([each, pa.nulls(1, each.type)]) for each in (pa.array(seq, pa.int64()), sides))
    op = np.zeros(n + 1, np.uint8)
    op[n] = ElementBatch.CTI
    vs = np.append(seq, cti).astype(np.int64)
    return ElementBatch(TOSS.schema, op, vs, vs + np.where(op == 0, WINDOW, 0), np.zeros(n + 1, np.int64), columns)


def loop_of(runtime: LocalRuntime) -> FixpointOperator:
    """The one loop of a plan."""
    (found,) = [each.operator for each in runtime.plan.operators if isinstance(each.operator, FixpointOperator)]
    return found
