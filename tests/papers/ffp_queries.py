"""The queries of the paper on the Flying Fixed-Point operator, and how they are run here, epoch by epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.loop.fixpoint import FixpointOperator
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of

col = ew.col

# -- section 2: reachability, with the nodes of a path as bits ---------------------------------------------------------

SOURCE = ew.source("Source", {"n": "string"})
LINK = ew.source("Link", {"a": "string", "b": "string"})
BITS = "CASE {} WHEN 'n1' THEN 8 WHEN 'n2' THEN 4 WHEN 'n3' THEN 2 ELSE 1 END"
PATHS = f"""
WITH RECURSIVE r(s, n, bv) {{options}} AS (
    SELECT n, n, {BITS.format("n")} FROM Source
    UNION ALL
    SELECT s, b, bv + {BITS.format("b")} FROM r JOIN Link ON r.n = a WHERE bv // {BITS.format("b")} % 2 = 0
)
SELECT s, n, bv FROM r"""
REACHABLE = """
WITH RECURSIVE r(s, n) AS (
    SELECT s.n, l.b FROM Source s JOIN Link l ON s.n = l.a
    UNION
    SELECT s, b FROM r JOIN Link ON r.n = a
)
SELECT s, n FROM r"""
TIMES: dict[int, dict[str, list[Element]]] = {
    1: {"Source": [Insert(1, INF, {"n": "n2"}), Insert(1, INF, {"n": "n3"})]},
    2: {"Link": [Insert(2, INF, {"a": "n3", "b": "n1"})]},
    3: {"Link": [Insert(3, INF, {"a": "n1", "b": "n2"}), Insert(3, INF, {"a": "n2", "b": "n3"})]},
    4: {"Link": [Insert(4, INF, {"a": "n3", "b": "n4"})]},
}
"""Figure 2, time by time."""
OUTPUTS = {
    2: [(2, "n3", "n1", "1010")],
    3: [(3, "n2", "n1", "1110"), (3, "n2", "n3", "0110"), (3, "n3", "n2", "1110")],
    4: [(4, "n2", "n4", "0111"), (4, "n3", "n4", "0011")],
}


def paths(options: str = "") -> ew.Stream:
    """Each path without a repeated node: section 2's plan."""
    return ew.sql(PATHS.format(options=options), SOURCE, LINK)


def link(vs: int, ve: int, a: str, b: str) -> Insert:
    return Insert(vs, ve, {"a": a, "b": b})


def reached(elements: Iterable[Element]) -> list[tuple[int, str, str, str]]:
    """What the paper's FFP says: (start, from, to, bits).  Sources enter below it, so rows of length 0 do not pass."""
    found = [each for each in elements if isinstance(each, Insert) and each.row["s"] != each.row["n"]]
    return sorted((each.vs, each.row["s"], each.row["n"], f"{each.row['bv']:04b}") for each in found)


# -- section 4: automata as a stream of transitions --------------------------------------------------------------------

SYMBOL = ew.source("Symbol", {"seq": "int64", "symbol": "string"})
TRANSITION = ew.source("Transition", {"q": "string", "symbol": "string", "q2": "string"})


def automaton(**options: Any) -> ew.Stream:
    """Reach(b, t, q): from symbol b to symbol t the automaton comes to q; b - 1 is nothing yet."""
    seeds = SYMBOL.select(b=col("seq"), t=col("seq") - 1, q=ew.lit("S"))

    def step(r: ew.Stream) -> ew.Stream:
        met = r.with_columns(seq=col("t") + 1).join(SYMBOL, on=["seq"]).join(TRANSITION, on=["q", "symbol"])
        return met.select("b", t=col("seq"), q=col("q2"))

    return ew.fixpoint(seeds, step, kind="union all", name="Reach", **options)


W_TRANSITIONS = (
    ("S0", "U", "S1", 0, "any"), ("S1", "D", "S2", 1, "any"), ("S2", "D", "S2", 1, "any"), ("S2", "U", "S3", -1, "any"),
    ("S3", "U", "S3", -1, "any"), ("S3", "D", "S4", 1, "any"), ("S4", "D", "S4", 1, "any"),
    ("S4", "U", "S5", -1, "M>1"), ("S5", "U", "S5", -1, "M>1"),
    ("S4", "U", "F", -1, "M=1"), ("S5", "U", "F", -1, "M=1"),
)  # fmt: skip
"""The W query's automaton: from, toss, to, how M changes, and the guard."""
WINDOW = 30
TOSS = ew.source("Toss", {"seq": "int64", "side": "string"}, insert_only=True)
MOVE = ew.source(
    "Move",
    {"q": "string", "side": "string", "q2": "string", "dm": "int64", "least": "int64", "most": "int64"},
    insert_only=True,
)
_GUARDS = {"any": (-WINDOW, WINDOW), "M>1": (2, WINDOW), "M=1": (1, 1)}


def w_query(**options: Any) -> ew.Stream:
    """Runs of the W automaton: from toss b, next comes toss `seq`, in state q, with M = downs - ups."""
    seeds = TOSS.select(b=col("seq"), seq=col("seq"), q=ew.lit("S0"), m=ew.lit(0))

    def step(r: ew.Stream) -> ew.Stream:
        met = r.join(TOSS, on=["seq"]).join(MOVE, on=["q", "side"])
        met = met.where((col("m") >= col("least")) & (col("m") <= col("most")))
        return met.select("b", seq=col("seq") + 1, q=col("q2"), m=col("m") + col("dm"))

    return ew.fixpoint(seeds, step, kind="union all", name="W", **options)


def w_moves() -> ElementBatch:
    """The automaton, for ever."""
    rows = [
        dict(zip(MOVE.schema.names, (q, side, q2, dm, *_GUARDS[guard]), strict=True))
        for q, side, q2, dm, guard in W_TRANSITIONS
    ]
    return batch_of([*(Insert(0, INF, row) for row in rows), Cti(INF)], MOVE.schema, "Move")


def tosses(at: Sequence[int] | np.ndarray, up: np.ndarray, cti: int | None = None) -> ElementBatch:
    """Tosses by number, each with the window as its lifetime, and a promise behind them."""
    seq = np.asarray(at, np.int64)
    sides = pa.array(["D", "U"]).take(pa.array(up[seq].astype(np.int64)))
    n, times, op = len(seq), seq, np.zeros(len(seq), np.uint8)
    columns: list[pa.Array] = [pa.array(seq), sides]
    if cti is not None:
        times, op = np.append(seq, cti), np.append(op, np.uint8(ElementBatch.CTI))
        columns = [pa.concat_arrays([each, pa.nulls(1, each.type)]) for each in columns]
    ends = times + WINDOW
    ends[n:] = times[n:]
    return ElementBatch(TOSS.schema, op, times, ends, np.zeros(len(times), np.int64), tuple(columns))


# -- running -----------------------------------------------------------------------------------------------------------


def loop_of(runtime: LocalRuntime) -> FixpointOperator:
    """The one loop of a plan."""
    (found,) = [each.operator for each in runtime.plan.operators if isinstance(each.operator, FixpointOperator)]
    return found


class Run:
    """A query in process: what is pushed, as lists of elements, and what came out."""

    def __init__(self, query: ew.Stream, emit: str = "all") -> None:
        self.runtime = LocalRuntime(query, emit=emit)
        self.loop = loop_of(self.runtime)
        self.out: list[Element] = []

    def push(self, epoch: Mapping[str, Sequence[Element]] | None = None) -> list[Element]:
        sources = self.runtime.plan.sources
        batches = {name: batch_of(list(each), sources[name].schema, name) for name, each in (epoch or {}).items()}
        return self._take(self.runtime.push(batches)["out"])

    def close(self) -> list[Element]:
        return self._take(self.runtime.close()["out"])

    def _take(self, batch: ElementBatch) -> list[Element]:
        new = list(batch.elements())
        self.out += new
        return new

    @property
    def cti(self) -> int | None:
        """The last promise said."""
        return next((each.t for each in reversed(self.out) if isinstance(each, Cti)), None)

    def alive(self) -> Counter[tuple[int, int, tuple[Any, ...]]]:
        """Events as they stand: (vs, ve, row)."""
        found: Counter[tuple[int, int, tuple[Any, ...]]] = Counter()
        for each in self.out:
            if isinstance(each, Insert):
                found[each.vs, each.ve, tuple(each.row.values())] += 1
            elif isinstance(each, Adjust):
                found[each.vs, each.ve, tuple(each.row.values())] -= 1
                if each.vnew > each.vs:
                    found[each.vs, each.vnew, tuple(each.row.values())] += 1
        return +found
