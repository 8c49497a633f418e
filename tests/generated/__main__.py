"""Looks for queries that are answered wrongly: `python -m generated`, or `make explore SECONDS=60 [SEED=…] [WAYS=…]`.

Ends with status 1 and the smallest failing case of each kind if there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from generated.cases import QUERIES_PER_WORLD, RANKED, Failure, Tally, drawn, judged
from generated.grammar import Grammar
from generated.reproduction import shown, unpacked
from generated.shrink import failure, smallest
from generated.ways import WAYS
from generated.wide.wide_grammar import WideGrammar

GRAMMARS = (WideGrammar, Grammar, WideGrammar, WideGrammar)
SPARK_QUERIES = 24
"""So many queries are one job on Spark."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="generated", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to look (of the clock)")
    parser.add_argument("--count", type=int, help="look at exactly so many queries of each way instead")
    parser.add_argument("--seed", default=None, help="the same seed gives the same cases; default: a random one")
    parser.add_argument("--ways", default="run,sessions,restore", help=f"some of {','.join(WAYS)}")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--stop", type=int, default=5, help="stop after so many failures")
    parser.add_argument("--case", help="run one packed case again and show it")
    given = parser.parse_args(arguments)
    if given.case:
        return _again(given.case)
    ways = given.ways.split(",")
    unknown = set(ways) - set(WAYS)
    if unknown or given.jobs < 1:
        parser.error(f"there is no way {', '.join(sorted(unknown))}; there are {', '.join(WAYS)}; --jobs is at least 1")
    seed = given.seed or str(random.randrange(10**9))
    print(f"seed {seed}, ways {given.ways}", flush=True)
    tally = Tally()
    began = time.monotonic()
    wanted = [way for way in ways if way != "spark"]
    until = began + given.seconds if given.count is None else None
    for found in _tallies(_tasks(wanted, seed, given.count, until), given.jobs):
        tally.add(found)
        for each in found.failures:
            print(f"failed: {each.case.way}, seed {each.seed}, query {each.at}: {each.what[-300:]}", flush=True)
        if len(tally.failures) >= given.stop:
            break
    if "spark" in ways:
        from generated.on_spark import explored

        tally.add(explored(seed, given.count or SPARK_QUERIES, until))
    _print(tally, time.monotonic() - began)
    return 1 if tally.failures else 0


def _again(text: str) -> int:
    case = unpacked(text)
    what = failure(case)
    print(shown(case, what or "no failure", "given"))
    return 1 if what else 0


def _tasks(ways: list[str], seed: str, count: int | None, until: float | None) -> Iterator[tuple[str, str, int]]:
    """(way, seed, number of queries), the ways in turn, until the number or the time is reached."""
    left = dict.fromkeys(ways, count if count is not None else sys.maxsize)
    at = 0
    while any(left.values()) and (until is None or time.monotonic() < until):
        for way in ways:
            if left[way]:
                n = min(QUERIES_PER_WORLD, left[way])
                left[way] -= n
                yield way, f"{seed}/{at}", n
        at += 1


def _tallied(task: tuple[str, str, int]) -> Tally:
    way, seed, queries = task
    tally = Tally()
    grammar = GRAMMARS[zlib.crc32(seed.encode()) % len(GRAMMARS)]
    judged(drawn(way, seed, queries, RANKED, grammar), seed, tally)
    return tally


def _tallies(tasks: Iterator[tuple[str, str, int]], jobs: int) -> Iterator[Tally]:
    if jobs == 1:
        yield from map(_tallied, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(_tallied, task) for _, task in zip(range(2 * jobs), tasks, strict=False)}
        while running:
            done = next(as_completed(running))
            running.remove(done)
            if (task := next(tasks, None)) is not None:
                running.add(pool.submit(_tallied, task))
            yield done.result()


def _print(tally: Tally, seconds: float) -> None:
    for name, n in sorted(tally.queries.items()):
        print(f"{n:8d} queries, {name}")
    print(f"{seconds:8.0f} seconds\n\nconstruct, queries that ran, queries refused or beyond DuckDB")
    for name in sorted({*tally.ran, *tally.refused}):
        print(f"  {name:40s} {tally.ran[name]:7d} {tally.refused[name]:7d}")
    print("\nwhy refused")
    for why, n in tally.reasons.most_common(15):
        print(f"  {n:6d} {why}")
    for each in tally.failures:
        print(f"\n{'=' * 40} a failure, made as small as possible", flush=True)
        print(_smallest(each), flush=True)


def _smallest(found: Failure) -> str:
    case, what = found.case, found.what
    if case.way != "spark":
        if failure(case.alone(found.at)) is not None:
            case = case.alone(found.at)
        case, what = smallest(case, what)
    return shown(case, what, found.seed)


if __name__ == "__main__":
    sys.exit(main())
