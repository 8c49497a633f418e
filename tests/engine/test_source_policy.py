"""Source policies in process: the same promises and late rows in every runtime, through snapshots and restarts."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import everwhen as ew
from everwhen.core.late_count import LateCount
from everwhen.core.source_policy import SourcePolicy
from everwhen.engine.element_ingress import ElementIngress
from everwhen.engine.files.live.options import LiveOptions
from everwhen.engine.files.live.run import LiveRun
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.formats.input_file import InputFile
from everwhen.reference.late_rows import on_time
from everwhen.stream.element import Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from state_files import through_file

COLUMNS = {"k": "string", "x": "int64"}


def disordered(rng: random.Random, count: int, disorder: int) -> list[list[Element]]:
    """Batches of rows of which some are later than others."""
    found: list[list[Element]] = []
    t = 0
    while count > 0:
        size = rng.randint(1, 8)
        batch: list[Element] = []
        for _ in range(size):
            t += rng.randint(0, 3)
            start = t - (rng.randint(0, disorder) if rng.random() < 0.4 else 0)
            batch.append(Insert(start, start + rng.choice((1, 1, 4)), {"k": rng.choice("ab"), "x": rng.randint(0, 3)}))
        found.append(batch)
        count -= size
    return found


@pytest.mark.parametrize("late", ["drop", "adjust"])
@pytest.mark.parametrize("seed", range(6))
def test_an_answer_is_that_of_the_rows_that_are_on_time(late: str, seed: int) -> None:
    rng = random.Random(seed)
    policy = SourcePolicy(rng.choice((0, 4)), None, late)  # type: ignore[arg-type]
    source = ew.source("S", COLUMNS, within=policy.within, late=late)  # type: ignore[arg-type]
    query = source.range(6).group_by("k").agg(total=ew.sum("x"))
    given = disordered(rng, 60, 12)
    wanted = on_time(given, policy)
    runtime, said = LocalRuntime(query), list[Element]()
    session = Session()
    session.register("q", query)
    heard: list[Element] = []
    for at, batch in enumerate(given):
        epoch = {"S": batch_of(batch, source.schema)}
        said += runtime.push(epoch)["out"].elements()
        heard += session.push(epoch)["q"].elements()
        assert runtime.progress == session.progress == {"S": on_time(given[: at + 1], policy).cti}
        if rng.random() < 0.2:
            fresh = LocalRuntime(query)
            fresh.restore(through_file(runtime.snapshot()))
            runtime = fresh
    assert runtime.late["S"] == session.late["S"]
    assert (runtime.late["S"].dropped, runtime.late["S"].moved) == (len(wanted.dropped), len(wanted.moved))
    said += runtime.close()["out"].elements()
    heard += session.close()["q"].elements()
    rows = [each for batch in wanted.said for each in batch]
    oracle = ew.reference.history(query.node, {"S": History.of(rows, source.schema)})
    assert_same_history(History.of(said, query.schema), oracle)
    assert_same_history(History.of(heard, query.schema), oracle)


def test_a_query_that_joins_later_goes_on_with_the_promises() -> None:
    source = ew.source("S", COLUMNS, within=5, late="drop")
    session = Session()
    session.register("first", source)
    session.push({"S": batch_of([Insert(100, 200, {"k": "a", "x": 1})], source.schema)})
    session.register("second", source.range(3), consistency=ew.consistency(block=2, remember=50))
    said = session.push({"S": batch_of([Insert(90, 300, {"k": "b", "x": 2}), Insert(99, 300, {"k": "c", "x": 3})],
                                       source.schema)})  # fmt: skip
    assert [str(each) for each in said["first"].elements()] == ["insert [99, 300) k='c' x=3"]
    assert session.late == {"S": LateCount(3, 1)}


def test_elements_for_spark_get_the_same_promises() -> None:
    source = ew.source("S", COLUMNS, within=5, late="adjust")
    ingress = ElementIngress({"S": source.node}, frozenset(), ew.MIDDLE)  # type: ignore[dict-item]
    rows = [Insert(100, 101, {"k": "a", "x": 1})]
    assert [str(each) for each in ingress.push({"S": batch_of(rows, source.schema)})["S"].elements()][-1] == "cti 95"
    late = ingress.push({"S": batch_of([Insert(3, 4, {"k": "b", "x": 1})], source.schema)})["S"]
    assert [str(each) for each in late.elements()] == ["insert [95, 96) k='b' x=1"]
    assert (ingress.late, ingress.promised) == ({"S": LateCount(2, 0, 1)}, {"S": 95})


def test_a_source_is_idle_after_its_own_time() -> None:
    now = [100.0]
    a = ew.source("A", COLUMNS, within=2)
    b = ew.source("B", COLUMNS, within=2, idle=10, late="drop")
    runtime = LocalRuntime(a.range(5).join(b.range(5), on="k"), clock=lambda: now[0], consistency=ew.STRONG)

    def push(**rows: int) -> None:
        batches = {n: batch_of([Insert(t, t + 1, {"k": "a", "x": t})], a.schema) for n, t in rows.items()}
        runtime.push(batches)

    push(A=50, B=50)
    now[0] += 9
    push(A=60)
    assert runtime.progress == {"A": 58, "B": 48}
    now[0] += 1
    push(A=70)
    assert runtime.progress == {"A": 68, "B": 68}
    push(B=60)  # it rests no more, and this is behind what was believed of it
    assert runtime.late["B"] == LateCount(2, 1)
    now[0] += 100
    push(B=90)
    assert runtime.progress == {"A": 68, "B": 88}  # A never rests


def test_what_one_relation_cannot_have() -> None:
    with pytest.raises(QueryError, match=r"are for streams"):
        ew.source("R", COLUMNS, kind="constant", late="drop")
    with pytest.raises(QueryError, match=r"late rows are one of error, drop, adjust"):
        ew.source("S", COLUMNS, late="keep")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"declared"):
        LocalRuntime(ew.source("S", COLUMNS, within=1).union(ew.source("S", COLUMNS, within=2)))


# -- runs that go on ---------------------------------------------------------------------------------------------------


class Stopped(Exception):
    pass


def follow(place: Path, query: ew.Stream, sources: dict[str, ew.Stream], seconds: float) -> LiveRun:
    """Follow files until nothing has come for a while."""
    inputs: dict[str, str | InputFile] = {
        name: InputFile(str(place / f"{name}.jsonl"), each.schema, late_rows=str(place / f"{name}.late.jsonl"))
        for name, each in sources.items()
    }
    until = [time.monotonic() + seconds, 0]

    def watch(progress: Any) -> None:
        if progress.read != until[1]:
            until[:] = [time.monotonic() + seconds, progress.read]
        if time.monotonic() > until[0]:
            raise Stopped

    options = LiveOptions(batch=5, every=0.0, progress=watch)
    run = LiveRun(query, inputs, str(place / "out"), str(place / "state"), ew.STRONG, options)
    with pytest.raises(Stopped):
        run.run()
    return run


def append(place: Path, name: str, *starts: int) -> None:
    with open(place / f"{name}.jsonl", "a") as file:
        file.writelines(json.dumps({"vs": t, "row": {"k": "a", "x": t}}) + "\n" for t in starts)


def test_a_run_that_goes_on_makes_the_same_promises_again_and_keeps_late_rows_once(tmp_path: Path) -> None:
    sources = {
        "A": ew.source("A", COLUMNS, within=2, late="drop"),
        "B": ew.source("B", COLUMNS, within=2, idle=0.25, late="drop"),
    }
    query = sources["A"].range(5).join(sources["B"].range(5), on="k")
    append(tmp_path, "A", *range(0, 40, 2), 3)
    append(tmp_path, "B", 1, 2)
    first = follow(tmp_path, query, sources, 0.6)
    assert first.runtime.progress == {"A": 36, "B": 36}  # B rests
    append(tmp_path, "B", 20, 50)
    append(tmp_path, "A", 60, 30)
    second = follow(tmp_path, query, sources, 0.1)
    assert second.runtime.progress["A"] == 58
    shutil.rmtree(tmp_path / "state")  # all steps again, from the first one on
    third = follow(tmp_path, query, sources, 0.6)
    assert third.said >= second.said
    assert third.runtime.late == {"A": LateCount(23, 2), "B": LateCount(4, 1)}
    kept = {n: [json.loads(x)["vs"] for x in (tmp_path / f"{n}.late.jsonl").read_text().splitlines()] for n in sources}
    assert kept == {"A": [3, 30], "B": [20]}
