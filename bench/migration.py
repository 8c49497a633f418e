"""Plan migration, chapter 30 of the thesis: a join of four streams goes over from the left-deep to the right-deep plan.

    python bench/migration.py figures | after | million [ROWS]

`figures`: 5,000 numbers per stream at 100/s, uniform in 0 to 500, 0 to 500, 0 to 1000, 0 to 1000; windows of 10 s;
the migration begins at 20 s.  The thesis's strategies are its models (`everwhen.reference.migration`), which count
pieces and comparisons of nested loops; ours is a session, in epochs of 100 ms, measured.  Every answer is compared with
that of the old plan alone.

`after`: processor time of the epochs behind a migration, against a session that always had the new plan.

`million`: a join with a million live rows goes over to another plan, in a session and in a local runtime: processor
time of the call and of each epoch, the one with which it ends included.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.engine.session.session import Session
from everwhen.operators.contract import StateSize
from everwhen.reference.migration.boxes import Box, Join, Piece, Port
from everwhen.reference.migration.strategies import GenMig, ParallelTrack, Strategy
from everwhen.stream.element_batch import ADJUST, CTI, INSERT, ElementBatch
from measure import percentile, report

WORK = "migration"
NAMES = "ABCD"
VALUES = (500, 500, 1000, 1000)
COUNT, GAP_MS, WINDOW_MS, START_MS, EPOCH_MS = 5_000, 10, 10_000, 20_000, 100
SOURCES = {name: ew.source(name, {name.lower(): "int64"}) for name in NAMES}


# -- chapter 30 --------------------------------------------------------------------------------------------------------


def numbers() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(30)
    return {name: rng.integers(0, most + 1, COUNT) for name, most in zip(NAMES, VALUES, strict=True)}


def first(row: tuple[Any, ...]) -> object:
    return row[0]


def left_box(evict: float | None = None) -> Box:
    box: Box = Port(0)
    for port in (1, 2, 3):
        box = Join(box, Port(port), first, first, evict)
    return box


def right_box(evict: float | None = None) -> Box:
    box: Box = Port(3)
    for port in (2, 1, 0):
        box = Join(Port(port), box, first, first, evict)
    return box


def arrivals(given: dict[str, np.ndarray]) -> Iterator[tuple[int, Piece]]:
    columns = [given[name].tolist() for name in NAMES]
    for at in range(COUNT):
        for port, column in enumerate(columns):
            yield port, Piece((column[at],), at * GAP_MS, at * GAP_MS + WINDOW_MS)


def modelled(strategy: Strategy, given: dict[str, np.ndarray]) -> dict[str, Any]:
    """What leaves, what is kept and what is compared, second by second."""
    rate, state, work, done, seconds = [], [], [], None, time.process_time()
    answer: Counter[tuple[Any, ...]] = Counter()
    said, now = 0, 0
    for port, piece in arrivals(given):
        if piece.start >= START_MS and done is None:
            strategy.begin()
        if piece.start >= (now + 1) * 1000:
            rate.append(said)
            state.append(strategy.kept())
            work.append(strategy.compared())
            said, now = 0, now + 1
        for each in strategy.take(port, piece):
            said += 1
            answer[each.row, each.start, each.end] += 1
        if strategy.done and done is None:
            done = piece.start / 1000
    for each in strategy.finish():
        answer[each.row, each.start, each.end] += 1
    return {
        "rate": [*rate, said], "state": [*state, strategy.kept()], "work": [*work, strategy.compared()],
        "done": done, "answer": answer, "seconds": time.process_time() - seconds,
    }  # fmt: skip


def windows() -> dict[str, ew.Stream]:
    return {name: source.range(WINDOW_MS) for name, source in SOURCES.items()}


def left_plan() -> ew.Stream:
    a, b, c, d = windows().values()
    return a.join(b, on={"a": "b"}).join(c, on={"a": "c"}).join(d, on={"a": "d"}).select(*NAMES.lower())


def right_plan() -> ew.Stream:
    a, b, c, d = windows().values()
    return a.join(b.join(c.join(d, on={"c": "d"}), on={"b": "c"}), on={"a": "b"}).select(*NAMES.lower())


def epoch_of(name: str, values: np.ndarray, first_at: int, gap: int, cti: int) -> ElementBatch:
    """Rows of one tick, and a CTI."""
    n = len(values)
    vs = np.append(first_at + gap * np.arange(n, dtype=np.int64), cti)
    op = np.append(np.full(n, INSERT, np.uint8), np.uint8(CTI))
    column = pa.array(np.append(values, 0), pa.int64(), mask=np.append(np.zeros(n, np.bool_), True))
    return ElementBatch(SOURCES[name].schema, op, vs, vs + 1, np.zeros(n + 1, np.int64), (column,))


def epochs(given: dict[str, np.ndarray]) -> Iterator[tuple[int, dict[str, ElementBatch]]]:
    each = EPOCH_MS // GAP_MS
    for at in range(0, COUNT, each):
        start = at * GAP_MS
        yield (
            start,
            {name: epoch_of(name, given[name][at : at + each], start, GAP_MS, start + EPOCH_MS) for name in NAMES},
        )


def ours(given: dict[str, np.ndarray], plan: ew.Stream, new: ew.Stream | None) -> dict[str, Any]:
    """A session: the same figures, and the seconds that it takes."""
    session = Session(emit="current", optimize=None)
    handle = session.register("q", plan)
    said, rate, state, at, done, both = 0, [], [], None, None, 0
    taken: list[float] = []
    answer: Counter[tuple[Any, ...]] = Counter()
    for start, batches in epochs(given):
        began = time.process_time()
        if start == START_MS and new is not None:
            at = handle.replace(new)
            both = session.state_size().rows
        found = session.push(batches)["q"]
        taken.append(time.process_time() - began)
        inserts = found.op == INSERT
        said += int(inserts.sum())
        assert not (found.op == ADJUST).any(), "both plans tell the same ends"
        columns = [np.asarray(column.to_numpy(zero_copy_only=False))[inserts] for column in found.columns]
        times = zip(found.vs[inserts].tolist(), found.ve[inserts].tolist(), strict=True)
        for row, (vs, ve) in zip(zip(*(c.astype(int).tolist() for c in columns), strict=True), times, strict=True):
            answer[row, vs, ve] += 1
        if new is not None and at is not None and done is None and not session.is_replaced("q"):
            done = (start + EPOCH_MS) / 1000
        if (start + EPOCH_MS) % 1000 == 0:
            rate.append(said)
            state.append(session.state_size().rows)
            said = 0
    return {
        "rate": rate, "state": state, "done": done, "at": at, "both": both, "answer": answer, "seconds": sum(taken),
        "epochs": taken,
    }  # fmt: skip


def alive(answer: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """For how long each row is there, however its lifetimes are cut."""
    found: Counter[tuple[Any, ...]] = Counter()
    for (row, start, end), count in answer.items():
        found[row] += count * (end - start)
    return found


def figures() -> None:
    given = numbers()
    ours(given, left_plan(), right_plan())  # compiles
    old = ours(given, left_plan(), None)
    fresh = ours(given, right_plan(), None)
    moved = ours(given, left_plan(), right_plan())
    assert fresh["answer"] == old["answer"] == moved["answer"]
    strategies: dict[str, Strategy] = {
        "Parallel Track": ParallelTrack(left_box(WINDOW_MS), right_box(WINDOW_MS), 4),
        "GenMig": GenMig(left_box(), right_box(), 4, WINDOW_MS),
        "GenMig, reference point": GenMig(left_box(), right_box(), 4, WINDOW_MS, reference_point=True),
    }
    rows = {name: modelled(strategy, given) for name, strategy in strategies.items()}
    for name, row in rows.items():
        same = alive(row["answer"]) == alive(old["answer"])
        report(
            WORK, "everwhen-local", 4 * COUNT, row["seconds"], case=name, rate=row["rate"], state=row["state"],
            work_done=row["work"], done=row["done"], same_answer=same,
            note=f"{name}: done at {row['done']} s, most kept {max(row['state']):,}, {row['work'][-1]:,} comparisons",
        )  # fmt: skip
    for name, row in (("ours", moved), ("left-deep alone", old), ("right-deep alone", fresh)):
        report(
            WORK, "everwhen-local", 4 * COUNT, row["seconds"], case=name, rate=row["rate"], state=row["state"],
            done=row["done"], at=row["at"], both=row["both"], cumulated=np.cumsum(row["epochs"]).round(4).tolist(),
            note=f"{name}: switch at {row['at']}, done at {row['done']} s, most kept "
            f"{max(*row['state'], row['both']):,}",
        )  # fmt: skip


# -- afterwards --------------------------------------------------------------------------------------------------------


def _busy(batches: int, rows: int) -> Iterator[tuple[int, dict[str, ElementBatch]]]:
    rng = np.random.default_rng(7)
    for at in range(batches):
        start = at * rows
        yield at, {name: epoch_of(name, rng.integers(0, 4 * rows, rows), start, 1, start + rows) for name in NAMES}


def _pairs(rows: int) -> dict[str, tuple[ew.Stream, ew.Stream]]:
    a, b, c, _ = (source.range(4 * rows) for source in SOURCES.values())
    col = ew.col("a")
    return {
        "join order": (
            a.join(b, on={"a": "b"}).join(c, on={"a": "c"}),
            a.join(b.join(c, on={"b": "c"}), on={"a": "b"}),
        ),
        "grouping": (
            a.group_by("a").agg(n=ew.count()),
            a.where(col >= 0).group_by("a").agg(n=ew.count()),
        ),
        "grouping of a join": (
            a.join(b, on={"a": "b"}).group_by("a").agg(n=ew.count(), most=ew.max("b")),
            b.join(a, on={"b": "a"}).group_by("a").agg(n=ew.count(), most=ew.max("b")),
        ),
    }


def after(batches: int = 60, rows: int = 5_000) -> None:
    """Epochs of both sessions in turn, so that what else the machine does concerns both."""
    for name, (old, new) in _pairs(rows).items():
        moved, fresh = Session(optimize=None), Session(optimize=None)
        moved.register("q", old)
        fresh.register("q", new)
        times: list[tuple[float, float]] = []
        for at, given in _busy(batches, rows):
            if at == 10:
                moved.replace("q", new)
            taken = []
            for session in (moved, fresh) if at % 2 else (fresh, moved):
                read = {each: given[each] for each in session.inputs}
                began = time.process_time()
                session.push(read)
                taken.append(time.process_time() - began)
            times.append((taken[0], taken[1]) if at % 2 else (taken[1], taken[0]))
        settled = times[batches // 2 :]
        one, two = sum(each for each, _ in settled), sum(each for _, each in settled)
        share = two / one
        report(
            WORK, "everwhen-local", rows * len(settled), one, case=f"after: {name}", share=share,
            note=f"{name}: {share:.1%} of a fresh plan's speed, wanted 95 %",
        )  # fmt: skip


# -- a large switch ----------------------------------------------------------------------------------------------------


_TOUCHED = 1 << 28
"""Numbers, 2 GB: more memory than a run takes."""


class Migrating(Protocol):
    """A session or a local runtime."""

    def push(self, batches: Mapping[str, ElementBatch]) -> Any: ...
    def state_size(self) -> StateSize: ...


def million(where: str = "session", live: int = 1_000_000) -> None:
    """Whether an epoch stands still while a query goes over, and what is kept."""
    np.ones(_TOUCHED)  # a virtual machine may be given memory when it is first written to: milliseconds for 2 MB
    _million(where, live // 5)  # compiles
    report(WORK, "everwhen-local", live, **_million(where, live))


def _million(where: str, live: int, rows: int = 10_000) -> dict[str, Any]:
    """Two windows of half of the rows each; every row has one partner, on average.  Time is that of the thread."""
    half = live // 2
    a, b = SOURCES["A"].range(half), SOURCES["B"].range(half)
    old = a.join(b, on={"a": "b"})
    new = b.where(ew.col("b") >= 0).join(a, on={"b": "a"}).select("a", "b")
    running: Migrating
    if where == "session":
        running = session = Session(optimize=None)
        session.register("q", old)
        migrate, goes_over = partial(session.migrate, "q", new), partial(session.is_replaced, "q")
    else:
        running = runtime = ew.LocalRuntime(old)
        migrate, goes_over = partial(runtime.migrate, new), lambda: runtime.migrating is not None
    rng = np.random.default_rng(1)
    taken: list[float] = []
    rows_kept: list[int] = []
    begin, call, last = half // rows + 20, 0.0, 0
    for at in range(half // rows + 400):
        start = at * rows
        given = {name: epoch_of(name, rng.integers(0, half, rows), start, 1, start + rows) for name in "AB"}
        if at == begin:
            began = time.thread_time()
            migrate()
            call = time.thread_time() - began
        began = time.thread_time()
        running.push(given)
        taken.append(time.thread_time() - began)
        rows_kept.append(running.state_size().rows)
        last = at if at >= begin and goes_over() else last
        if at > begin and at > last + 50:
            break
    before, meanwhile, behind = taken[begin - 20 : begin], taken[begin : last + 2], taken[last + 2 :]
    usual, most = median(before + behind), max(meanwhile)
    both, alone = max(rows_kept[begin : last + 2]), max(rows_kept[begin - 20 : begin] + rows_kept[last + 2 :])
    return dict(
        seconds=call, case=f"million, {where}", median_s=usual, most_s=most, call_s=call,
        during_s=median(meanwhile), lasted=len(meanwhile), p90_s=percentile(meanwhile, 0.9),
        most_before_s=max(before + behind), state_before=alone, state_both=both,
        over=sum(each > 5 * usual for each in meanwhile),
        note=f"{live:,} live rows, {where}: an epoch takes {usual * 1e3:.0f} ms (median; most "
        f"{max(before + behind) * 1e3:.0f}), the call {call * 1e3:.0f} ms, then {len(meanwhile)} epochs of "
        f"{median(meanwhile) * 1e3:.0f} ms (median; p90 {percentile(meanwhile, 0.9) * 1e3:.0f}, most {most * 1e3:.0f}: "
        f"{most / usual:.1f} times); state {alone:,}, then {both:,}",
    )  # fmt: skip


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["figures"]:
            figures()
        case ["after"]:
            after()
        case ["million", *size]:
            for where in ("session", "runtime"):
                million(where, *map(int, size))
        case other:
            raise SystemExit(f"figures, after or million, not {other}")
