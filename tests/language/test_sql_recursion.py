"""What recursion in SQL means: at every instant what DuckDB answers to the same text, and what networkx finds.

Judged by the reference, as written and rewritten.  DuckDB's recursion reads only the last round, which for linear
queries is the least fixed point; the others are compared with graph algorithms.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from types import MappingProxyType
from typing import Any

import duckdb
import networkx as nx
import pytest

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.reference import evaluate
from everwhen.stream.history import History

STREAMS = (
    ew.source("Start", {"n": "int64"}),
    ew.source("Link", {"a": "int64", "b": "int64", "w": "int64"}),
)
SEEDS = range(4)
Rows = Counter[tuple[Any, ...]]


@cache
def histories(seed: int, forward: bool = False) -> dict[str, History]:
    """A small random graph whose links live for a while; `forward` ones go to larger numbers, so paths end."""
    rng = random.Random(seed)
    nodes = 6

    def lives() -> tuple[int, int]:
        vs = rng.randint(0, 8)
        return vs, vs + rng.randint(1, 7)

    start = [(*lives(), (rng.randrange(nodes) if rng.random() < 0.9 else None,)) for _ in range(3)]
    links = []
    for _ in range(rng.randint(5, 12)):
        a, b = rng.randrange(nodes), rng.randrange(nodes)
        if forward and a >= b:
            a, b = b, a + 1 if a == b else a
        links.append((*lives(), (a, b if rng.random() < 0.95 else None, rng.randint(0, 4))))
    return {
        stream.node.name: History(stream.schema, MappingProxyType(dict(Counter(events))))  # type: ignore[attr-defined]
        for stream, events in zip(STREAMS, (start, links), strict=True)
    }


def instants(given: dict[str, History]) -> list[int]:
    return sorted({t for history in given.values() for vs, ve, _ in history.events() for t in (vs, ve)})


def answers(text: str, given: dict[str, History]) -> Iterator[tuple[int, Rows]]:
    """Our answer at each instant at which anything changes, the same as written and rewritten."""
    plans = [ew.sql(text, *STREAMS, optimize=optimize) for optimize in (False, True)]
    read = {node.name for node in walk(plans[0].node) if isinstance(node, Source)}
    streams = [evaluate(plan.node, {name: given[name] for name in read}) for plan in plans]
    for t in instants(given):
        written, rewritten = (Counter(stream.at(t)) for stream in streams)
        assert written == rewritten, f"at {t}:\n{plans[1]}"
        yield t, written


# -- DuckDB ------------------------------------------------------------------------------------------------------------

LINEAR = {
    "reach": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION SELECT b FROM r, Link WHERE a = n) SELECT * FROM r",
    "pairs": "WITH RECURSIVE r(x, y) AS (SELECT a, b FROM Link UNION SELECT r.x, b FROM r JOIN Link ON r.y = a) "
    "SELECT x, y FROM r WHERE x < 3",
    "pairs, filtered by what is kept": "WITH RECURSIVE r(x, y) AS (SELECT a, b FROM Link UNION SELECT r.x, b FROM r "
    "JOIN "
    "Link ON r.y = a) SELECT y FROM r WHERE x = 2 AND y > 0",
    "counter": "WITH RECURSIVE r(n, d) AS (SELECT n, 0 FROM Start UNION SELECT n, d + 1 FROM r WHERE d < 5) SELECT * "
    "FROM r",
    "sum as key": "WITH RECURSIVE r(n, d) AS (SELECT n, 0 FROM Start UNION SELECT b, d + 1 FROM r, Link WHERE a = n "
    "+ 1 AND "
    "d < 9) SELECT n, d FROM r",
    "two bases, two steps": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION SELECT a FROM Link WHERE w = 0 UNION "
    "(SELECT "
    "b FROM r, Link WHERE a = n UNION SELECT n - 1 FROM r WHERE n > 0)) SELECT * FROM r",
    "behind a filter": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION SELECT b FROM r, Link WHERE a = n AND w > 1) "
    "SELECT COUNT(*) AS c, n FROM r GROUP BY n",
    "anti": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION SELECT n + 1 FROM r WHERE n < 7 AND NOT EXISTS "
    "(SELECT * FROM "
    "Link WHERE a = n)) SELECT * FROM r",
    "in a subquery": "SELECT a, b FROM Link WHERE b IN (WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION SELECT b "
    "FROM r, "
    "Link WHERE a = n) SELECT n FROM r)",
    "twice": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION SELECT b FROM r, Link WHERE a = n), q(n) AS (SELECT "
    "n FROM r "
    "WHERE n > 2 UNION SELECT a FROM q, Link WHERE b = n) SELECT * FROM q",
    "inner with": "WITH RECURSIVE r(n) AS (WITH l AS (SELECT a, b FROM Link WHERE w < 4) SELECT n FROM Start UNION "
    "SELECT b "
    "FROM r, l WHERE a = n) SELECT * FROM r",
}  # fmt: skip
ENDING = {
    "paths": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION ALL SELECT b FROM r, Link WHERE a = n) SELECT * FROM r",
    "paths with length": "WITH RECURSIVE r(n, d) AS (SELECT n, 0 FROM Start UNION ALL SELECT b, d + w FROM r, Link "
    "WHERE a = "
    "n) SELECT n, COUNT(*) AS c, MIN(d) AS d FROM r GROUP BY n",
    "semi": "WITH RECURSIVE r(n) AS (SELECT n FROM Start UNION ALL SELECT n + 1 FROM r WHERE n IN (SELECT a FROM "
    "Link)) "
    "SELECT n FROM r",
}  # fmt: skip


def theirs(text: str, given: dict[str, History], t: int) -> Rows:
    with duckdb.connect() as connection:
        for name, history in given.items():
            columns = ", ".join(f"{field.name} BIGINT" for field in history.schema)
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            rows = [row for row, copies in history.snapshot(t).items() for _ in range(copies)]
            if rows:
                connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(rows[0]))})', rows)
        return Counter(connection.execute(text).fetchall())


@pytest.mark.parametrize("name", LINEAR)
def test_linear_recursion_is_that_of_duckdb(name: str) -> None:
    for seed in SEEDS:
        given = histories(seed)
        for t, found in answers(LINEAR[name], given):
            assert found == theirs(LINEAR[name], given, t), f"{LINEAR[name]}\nat {t}, seed {seed}"


@pytest.mark.parametrize("name", ENDING)
def test_copies_are_counted_as_duckdb_does(name: str) -> None:
    for seed in SEEDS:
        given = histories(seed, forward=True)
        for t, found in answers(ENDING[name], given):
            assert found == theirs(ENDING[name], given, t), f"{ENDING[name]}\nat {t}, seed {seed}"


# -- networkx ----------------------------------------------------------------------------------------------------------


def graph(given: dict[str, History], t: int) -> nx.DiGraph:
    """The links alive at t, the cheapest of each pair; those to nowhere are left out."""
    found: nx.DiGraph = nx.DiGraph()
    for a, b, w in given["Link"].snapshot(t):
        if b is not None:
            known = found.get_edge_data(a, b)
            found.add_edge(a, b, w=w if known is None else min(w, known["w"]))
    return found


def starts(given: dict[str, History], t: int) -> set[int]:
    return {n for (n,) in given["Start"].snapshot(t) if n is not None}


def closure(g: nx.DiGraph) -> set[tuple[int, int]]:
    return set(nx.transitive_closure(g, reflexive=False).edges)


def shortest(g: nx.DiGraph, sources: set[int]) -> set[tuple[int, int]]:
    found: dict[int, int] = {}
    for n in sources:
        lengths = nx.single_source_dijkstra_path_length(g, n, weight="w") if n in g else {n: 0}
        for m, length in lengths.items():
            found[m] = min(length, found.get(m, length))
    return set(found.items())


def widest(g: nx.DiGraph, sources: set[int]) -> set[tuple[int, int]]:
    """Per node the largest w such that a path from a source has only links of at least w."""
    found: dict[int, int] = dict.fromkeys(sources, 99)
    for w in sorted({w for *_, w in g.edges(data="w")}):
        kept = nx.DiGraph([(a, b) for a, b, own in g.edges(data="w") if own >= w])
        for n in sources & set(kept):
            for m in nx.descendants(kept, n) - sources:
                found[m] = w
    return set(found.items())


def same_generation(g: nx.DiGraph) -> set[tuple[int, int]]:
    found = {(b, d) for a, b in g.edges for c, d in g.edges if a == c}
    while True:
        more = found | {(b, d) for x, y in found for a, b in g.edges for c, d in g.edges if (a, c) == (x, y)}
        if more == found:
            return found
        found = more


def by_parity(g: nx.DiGraph, sources: set[int]) -> tuple[set[int], set[int]]:
    """Nodes at the end of a walk of even, and of odd length."""
    doubled = nx.DiGraph([((a, p), (b, 1 - p)) for a, b in g.edges for p in (0, 1)])
    doubled.add_nodes_from((n, 0) for n in sources)
    reached = set().union(*({(n, 0)} | nx.descendants(doubled, (n, 0)) for n in sources)) if sources else set()
    return {n for n, p in reached if p == 0}, {n for n, p in reached if p == 1}


L = "(SELECT a, b, w FROM Link WHERE b IS NOT NULL)"
S = "(SELECT n FROM Start WHERE n IS NOT NULL)"
PARITY = (
    f"WITH RECURSIVE e(n) AS (SELECT n FROM {S} UNION SELECT b FROM o, {L} l WHERE a = n), "
    f"o(n) AS (SELECT b FROM e, {L} l WHERE a = n{{}}) "
)
BY_GRAPH: dict[str, tuple[str, Callable[[nx.DiGraph, set[int]], set[Any]]]] = {
    "closure, non-linear": (
        f"WITH RECURSIVE r(x, y) AS (SELECT a, b FROM {L} UNION SELECT p.x, q.y FROM r p, r q WHERE p.y = q.x) "
        "SELECT * FROM r",
        lambda g, _: closure(g),
    ),
    "closure, non-linear, of one": (
        f"WITH RECURSIVE r(x, y) AS (SELECT a, b FROM {L} UNION SELECT p.x, q.y FROM r p, r q WHERE p.y = q.x) "
        "SELECT * FROM r WHERE x = 2",
        lambda g, _: {(x, y) for x, y in closure(g) if x == 2},
    ),
    "closure, by IN": (
        f"WITH RECURSIVE r(x, y) AS (SELECT a, b FROM {L} UNION SELECT l.a, m.b FROM {L} l, {L} m WHERE l.b = m.a AND "
        f"(l.a, l.b) IN (SELECT x, y FROM r) UNION SELECT r.x, b FROM r, {L} l WHERE r.y = a) SELECT * FROM r",
        lambda g, _: closure(g),
    ),
    "shortest": (
        f"WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) AS c FROM (SELECT n, 0 AS c FROM {S} UNION ALL SELECT b, c + w "
        f"FROM d, "
        f"{L} l WHERE a = n) u GROUP BY n) SELECT * FROM d",
        shortest,
    ),
    "shortest, bounded": (
        f"WITH RECURSIVE d(c, n) AS (SELECT MIN(c), n FROM (SELECT n, 0 AS c FROM {S} UNION ALL SELECT b, c + w FROM "
        f"d, {L} l "
        "WHERE a = n AND c + w <= 5) u GROUP BY n) SELECT n, c FROM d",
        lambda g, s: {(n, c) for n, c in shortest(g, s) if c <= 5},
    ),
    "shortest between all, non-linear": (
        f"WITH RECURSIVE d(x, y, c) AS (SELECT x, y, MIN(c) FROM (SELECT a AS x, b AS y, w AS c FROM {L} UNION ALL "
        f"SELECT "
        "p.x, q.y, p.c + q.c FROM d p, d q WHERE p.y = q.x) u GROUP BY x, y) SELECT x, y, c FROM d WHERE x <> y",
        lambda g, _: {
            (x, y, c) for x in g for y, c in nx.single_source_dijkstra_path_length(g, x, weight="w").items() if x != y
        },
    ),
    "widest": (
        f"WITH RECURSIVE d(n, c) AS (SELECT n, MAX(c) FROM (SELECT n, 99 AS c FROM {S} UNION ALL SELECT b, LEAST(c, "
        f"w) FROM d, "
        f"{L} l WHERE a = n) u GROUP BY n) SELECT * FROM d",
        widest,
    ),
    "same generation": (
        f"WITH RECURSIVE g(x, y) AS (SELECT l.b, m.b FROM {L} l, {L} m WHERE l.a = m.a UNION SELECT l.b, m.b FROM g, "
        f"{L} l, "
        f"{L} m WHERE l.a = g.x AND m.a = g.y) SELECT * FROM g",
        lambda g, _: same_generation(g),
    ),
    "even, odd put in": (PARITY.format("") + "SELECT n FROM e", lambda g, s: {(n,) for n in by_parity(g, s)[0]}),
    "even, odd a variable": (
        PARITY.format(f" UNION SELECT b FROM e, {L} l WHERE a = n AND w > 1") + "SELECT n FROM e",
        lambda g, s: {(n,) for n in by_parity(g, s)[0]},
    ),
    "odd, a variable": (
        PARITY.format(f" UNION SELECT b FROM e, {L} l WHERE a = n AND w > 1") + "SELECT n FROM o",
        lambda g, s: {(n,) for n in by_parity(g, s)[1]},
    ),
    "a MIN and a set": (
        f"WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) FROM (SELECT n, 0 AS c FROM {S} UNION ALL SELECT n, c FROM t) "
        f"u GROUP BY "
        f"n), t(n, c) AS (SELECT b, c + w FROM d, {L} l WHERE a = n), seen(n) AS (SELECT n FROM d UNION SELECT b "
        f"FROM seen, "
        f"{L} l WHERE a = n) SELECT d.n, c FROM d, seen WHERE d.n = seen.n",
        shortest,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_GRAPH)
def test_recursion_is_what_graph_algorithms_find(name: str) -> None:
    text, expected = BY_GRAPH[name]
    for seed in SEEDS:
        given = histories(seed)
        for t, found in answers(text, given):
            wanted = Counter(expected(graph(given, t), starts(given, t)))
            assert Counter(dict(found)) == wanted, f"{text}\nat {t}, seed {seed}"


def test_a_set_and_a_min_that_use_each_other() -> None:
    """Nodes near a source open links whose number is that of a node; a cost may shrink when others have opened."""
    text = (
        f"WITH RECURSIVE d(n, c) AS (SELECT n, MIN(c) FROM (SELECT n, 0 AS c FROM {S} UNION ALL SELECT b, c + w FROM "
        f"d, {L} l, "
        "open o WHERE a = n AND w = o.k) u GROUP BY n), "
        "open(k) AS (SELECT n FROM d WHERE c <= 3 UNION SELECT k - 1 FROM open WHERE k > 0) SELECT n, c FROM d"
    )
    for seed in SEEDS:
        given = histories(seed)
        for t, found in answers(text, given):
            assert set(found) == _opened(given, t), f"at {t}, seed {seed}"


def _opened(given: dict[str, History], t: int) -> set[tuple[int, int]]:
    links = [(a, b, w) for a, b, w in given["Link"].snapshot(t) if b is not None]
    best = dict.fromkeys(starts(given, t), 0)
    opened: set[int] = set()
    while True:
        more = {k for n, c in best.items() if c <= 3 for k in range(min(n, 0), n + 1)}
        better = dict(best)
        for a, b, w in links:
            if a in best and w in opened:
                better[b] = min(better.get(b, best[a] + w), best[a] + w)
        if (more, better) == (opened, best):
            return set(best.items())
        opened, best = more, better


def test_several_variables_that_count_copies() -> None:
    """Walks of even and of odd length in a graph without cycles, each as often as there are such walks."""
    text = (
        f"WITH RECURSIVE e(n) AS (SELECT n FROM {S} UNION ALL SELECT b FROM o, {L} l WHERE a = n), "
        f"o(n) AS (SELECT b FROM e, {L} l WHERE a = n UNION ALL SELECT n FROM {S} WHERE n > 2) SELECT n FROM o"
    )
    for seed in SEEDS:
        given = histories(seed, forward=True)
        for t, found in answers(text, given):
            links = [
                (a, b)
                for (a, b, _), copies in given["Link"].snapshot(t).items()
                if b is not None
                for _ in range(copies)
            ]
            begin = [n for (n,), copies in given["Start"].snapshot(t).items() if n is not None for _ in range(copies)]
            even, odd = list(begin), [n for n in begin if n > 2]
            result = Counter(odd)
            while even or odd:
                even, odd = [b for n in odd for a, b in links if a == n], [b for n in even for a, b in links if a == n]
                result += Counter(odd)
            assert found == Counter({(n,): count for n, count in result.items()}), f"at {t}, seed {seed}"
