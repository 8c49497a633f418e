"""Recursion over a network that changes, beside those who compute it anew; and its memory over many links.

Called by `ffp.py`.

reach: 10,000 nodes, 40,000 links, 100 sources: a million reachable pairs.  Links are replaced, and each time NetworkX
(descendants of every source, its graph kept up to date) and DuckDB (a recursive CTE, its table kept up to date, one
thread) compute everything anew.  All three must have the same pairs.  Times are CPU times of this process.

memory: links live for a window, a tenth of them is corrected to an earlier end; what 200 sources reach.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import duckdb
import networkx as nx
import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import ElementBatch
from measure import percentile, report
from w_query import loop_of

WORK = "ffp"
NODES, LINKS, SOURCES = 10_000, 40_000, 100
LINK = ew.source("Link", {"a": "int64", "b": "int64"})
SOURCE = ew.source("Source", {"n": "int64"})
ANEW = (
    "WITH RECURSIVE r(s, n) AS (SELECT n, n FROM source UNION SELECT s, b FROM r JOIN link ON a = n) SELECT s, n FROM r"
)


def reached() -> ew.Stream:
    """Pairs (source, node)."""
    base = SOURCE.select(s=ew.col("n"), n=ew.col("n"))
    return ew.fixpoint(base, lambda r: r.join(LINK, on={"n": "a"}).select("s", n=ew.col("b")))


def batch(schema: Any, *parts: tuple[int, Any, Any, Any, np.ndarray], cti: int | None = None) -> ElementBatch:
    """Parts (op, vs, ve, vnew, rows) one after the other, and a promise."""
    rows = np.concatenate([each[4] for each in parts])
    columns: list[Any] = [pa.array(rows[:, j]) for j in range(rows.shape[1])]
    times = [np.concatenate([np.broadcast_to(each[k], len(each[4])) for each in parts]) for k in range(4)]
    if cti is not None:
        columns = [pa.concat_arrays([each, pa.nulls(1, each.type)]) for each in columns]
        times = [np.append(each, new) for each, new in zip(times, (ElementBatch.CTI, cti, cti, 0), strict=True)]
    op, vs, ve, vnew = (each.astype(np.int64) for each in times)
    return ElementBatch(schema, op.astype(np.uint8), vs, ve, vnew, tuple(columns))


def taken(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def _numbered(s: pa.Array, n: pa.Array) -> np.ndarray:
    """Pairs as one number each."""
    return np.asarray(s) * NODES + np.asarray(n)


class Network:
    """The links, for ours and both others."""

    def __init__(self) -> None:
        rng = self.rng = np.random.default_rng(1)
        self.links = np.unique(rng.integers(0, NODES, (LINKS + 200, 2)), axis=0)
        self.links = self.links[rng.permutation(len(self.links))[:LINKS]]
        self.sources = rng.choice(NODES, SOURCES, replace=False).reshape(-1, 1)
        self.graph = nx.DiGraph()
        self.graph.add_nodes_from(range(NODES))
        self.graph.add_edges_from(self.links.tolist())
        self.duck = duckdb.connect()
        self.duck.execute("SET threads = 1")
        self.duck.register("links", pa.table({"a": self.links[:, 0], "b": self.links[:, 1]}))
        self.duck.register("sources", pa.table({"n": self.sources[:, 0]}))
        self.duck.execute("CREATE TABLE link AS SELECT * FROM links; CREATE TABLE source AS SELECT * FROM sources")
        self.runtime = LocalRuntime(reached(), emit="all")
        self.loop = loop_of(self.runtime)
        self.pairs: set[int] = set()

    def load(self) -> float:
        whole = {
            "Link": batch(LINK.schema, (0, 0, ew.INF, 0, self.links)),
            "Source": batch(SOURCE.schema, (0, 0, ew.INF, 0, self.sources)),
        }
        seconds, out = taken(lambda: self.runtime.push(whole)["out"])
        self._hear(out)
        return seconds

    def _hear(self, out: ElementBatch) -> None:
        numbers = _numbered(*out.columns)
        came = out.op == 0
        self.pairs -= set(numbers[~came].tolist())
        self.pairs |= set(numbers[came].tolist())

    def replace(self, count: int) -> tuple[float, int]:
        """Other links for so many of them: CPU seconds, and derivations looked at."""
        at = self.rng.choice(LINKS, count, replace=False)
        known = set(map(tuple, self.links.tolist()))
        fresh: list[tuple[int, int]] = []
        while len(fresh) < count:
            link = tuple(self.rng.integers(0, NODES, 2).tolist())
            if link not in known:
                known.add(link)  # type: ignore[arg-type]
                fresh.append(link)  # type: ignore[arg-type]
        old, new = self.links[at].copy(), np.array(fresh)
        self.links[at] = new
        self.graph.remove_edges_from(old.tolist())
        self.graph.add_edges_from(new.tolist())
        self.duck.executemany("DELETE FROM link WHERE a = ? AND b = ?", old.tolist())
        self.duck.executemany("INSERT INTO link VALUES (?, ?)", new.tolist())
        before = self.loop.touched
        change = batch(LINK.schema, (1, 0, ew.INF, 0, old), (0, 0, ew.INF, 0, new))
        seconds, out = taken(lambda: self.runtime.push({"Link": change})["out"])
        self._hear(out)
        return seconds, self.loop.touched - before

    def by_networkx(self) -> tuple[float, set[int]]:
        sources = self.sources[:, 0].tolist()
        seconds, found = taken(lambda: {s: nx.descendants(self.graph, s) for s in sources})
        return seconds, {s * NODES + n for s, reached in found.items() for n in reached | {s}}

    def by_duckdb(self) -> tuple[float, set[int]]:
        seconds, found = taken(lambda: self.duck.sql(ANEW).to_arrow_table())
        return seconds, set(_numbered(found["s"], found["n"]).tolist())


def reach() -> None:
    warm = Network()
    warm.load()
    warm.replace(5)
    del warm
    network = Network()
    loaded = network.load()
    gc.collect()
    gc.freeze()  # NetworkX makes many objects, and need not pay for those of ours
    base = network.loop.touched
    points: list[dict[str, Any]] = []
    for count, tries in ((LINKS // 1000, 7), (LINKS // 100, 5)):
        found = [network.replace(count) for _ in range(tries)]
        networkx, theirs = min((network.by_networkx() for _ in range(3)), key=lambda each: each[0])
        duck, others = min((network.by_duckdb() for _ in range(3)), key=lambda each: each[0])
        if not network.pairs == theirs == others:
            raise RuntimeError("the pairs differ")
        seconds = percentile([each[0] for each in found], 0.5)
        looked = percentile([each[1] for each in found], 0.5)
        points.append(
            {"replaced": count, "ms": round(seconds * 1e3, 2), "networkx_ms": round(networkx * 1e3, 1),
             "duckdb_ms": round(duck * 1e3, 1), "looked": looked / base, "pairs": len(network.pairs)}
        )  # fmt: skip
    single = [network.replace(1)[0] * 1e3 for _ in range(60)]
    points.append(
        {"replaced": 1, "ms": round(percentile(single, 0.5), 2), "p99_ms": round(percentile(single, 0.99), 2)}
    )
    note = f"{len(network.pairs):,} pairs from {LINKS:,} links in {loaded:.2f} s of CPU time; replaced links below"
    report(WORK, "everwhen-local", LINKS, loaded, case="reach", points=points, note=note)


def memory(number: str) -> None:
    """20,000 nodes, 0.8 living links out of each; 2,000 links a tick."""
    links = int(number)
    rng = np.random.default_rng(3)
    per, window, nodes = 2_000, 8, 20_000
    runtime = LocalRuntime(reached(), emit="all")
    sources = batch(SOURCE.schema, (0, 0, ew.INF, 0, rng.choice(nodes, 200, replace=False).reshape(-1, 1)), cti=ew.INF)
    runtime.push({"Source": sources})
    began, said, most = time.process_time(), 0, 0
    wrong = np.empty((0, 2), np.int64)
    for t in range(links // per):
        rows = rng.integers(0, nodes, (per, 2))
        ends = t + rng.integers(0, window - 1, len(wrong))
        parts = [(0, t, t + window, 0, rows), (1, t - 1, t - 1 + window, ends, wrong)]
        out = runtime.push({"Link": batch(LINK.schema, *parts, cti=t)})["out"]
        said += len(out)
        most = max(most, loop_of(runtime).state_size().rows)
        wrong = rows[: per // 10]
    seconds = time.process_time() - began
    note = f"{links:,} windowed links, a tenth corrected; {most:,} rows of state at most, {said:,} elements said"
    report(WORK, "everwhen-local", links, seconds, case=f"memory {links}", points=[], note=note)
