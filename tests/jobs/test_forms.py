"""Read back, the rows of a form are the snapshot: of the elements said, and of the query by its definition."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen import reference
from everwhen.core.emit import Emit
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.errors import QueryError, SinkError
from everwhen.jobs.forms import Append, AsOfNow, form_of
from everwhen.language.program import program
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges
from everwhen.storage.state_format import decode, encode
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.history import History

S = ew.source("S", {"k": "string", "x": "int64"})
QUERIES = {
    "filter": (S.where(ew.col("x") > 1), ()),
    "sums": (S.range(4).group_by("k").agg(total=ew.sum("x"), n=ew.count()), ("k",)),
    "whole": (S.aggregate(n=ew.count()), ()),
}


def stream(rng: random.Random, length: int = 60) -> list[Element]:
    """Rows that come late, are corrected, taken back, prolonged; promises now and then."""
    found: list[Element] = []
    alive: list[Insert] = []
    promise, front = 0, 0
    for _ in range(length):
        front += rng.randint(0, 3)
        kind = rng.random()
        near = [e for e in alive if e.ve >= promise]
        if kind < 0.25 and near:
            old = rng.choice(near)
            low = max(old.vs, promise)
            new = rng.choice([low, low + rng.randint(0, 9), INF])
            if new == old.ve or min(new, old.ve) < promise:
                continue
            alive.remove(old)
            found.append(Adjust(old.vs, old.ve, new, old.row))
            if new > old.vs:
                alive.append(Insert(old.vs, new, old.row))
        elif kind < 0.35:
            promise = max(promise, front - rng.randint(0, 4))
            found.append(Cti(promise))
        else:
            vs = max(promise, front - rng.randint(0, 5))
            row = {"k": rng.choice(["a", "b", None]), "x": rng.randint(0, 3)}
            event = Insert(vs, rng.choice([vs + 1, vs + rng.randint(1, 12), INF]), row)
            alive.append(event)
            found.append(event)
    return found


class Table:
    """What a reader of the changes has."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key, self.rows = key, Counter()

    def take(self, changes: RowChanges) -> None:
        expecting = None
        for op, row in zip(changes.op.tolist(), changes.rows.to_pylist(), strict=True):
            assert (op == AFTER) == (expecting is not None)
            values = tuple(row.values())
            mine = tuple(row[name] for name in self.key)
            if changes.form == "upsert":
                self.rows = Counter({r: n for r, n in self.rows.items() if r[: len(self.key)] != mine})
            elif op in (DELETE, BEFORE):
                self.rows[values] -= 1
                assert self.rows[values] >= 0
            expecting = mine if op == BEFORE else None
            if op in (PUT, AFTER):
                self.rows[values] += 1
        self.rows = +self.rows


def said(query, level, elements, rng):
    runtime = LocalRuntime(query, consistency=level)
    at = 0
    while at < len(elements):
        size = rng.randint(1, 8)
        yield elements[: at + size], runtime.push({"S": ew.ElementBatch.of(elements[at : at + size], S.schema)})["out"]
        at += size
    yield [*elements, Cti(INF)], runtime.close()["out"]


def at_now(elements: list[Element], schema, now: int) -> Counter:
    events = History.of([e for e in elements if not isinstance(e, Cti)], schema)
    if now == INF:
        return endless(events)
    return events.snapshot(now)


def endless(events: History) -> Counter:
    found: Counter = Counter()
    for _, ve, row in events.events():
        if ve == INF:
            found[row] += 1
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", [ew.MIDDLE, ew.STRONG], ids=["middle", "strong"])
@pytest.mark.parametrize(
    ("name", "form"), [("filter", "retract"), ("sums", "retract"), ("sums", "upsert"), ("whole", "retract")]
)
def test_the_answer_as_of_now_is_the_snapshot(name, form, level, seed):
    rng = random.Random(f"{seed}{name}{form}")
    query, key = QUERIES[name]
    made = AsOfNow(query.schema, key, form)
    table, out, now = Table(key), [], NEVER
    for _, batch in said(query, level, stream(rng), rng):
        changes = made.step(batch)
        table.take(changes)
        out += batch.elements()
        assert changes.now >= now
        now = changes.now
        if now > NEVER:
            assert table.rows == at_now(out, query.schema, now)
        if rng.random() < 0.3:  # another process goes on
            state = decode([memoryview(b"".join(map(bytes, frame))) for frame in encode(made.snapshot())])
            made = AsOfNow(query.schema, key, form)
            made.restore(state)
    assert len(made.waiting) == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", [ew.MIDDLE, ew.STRONG], ids=["middle", "strong"])
@pytest.mark.parametrize("name", list(QUERIES))
def test_appended_rows_are_final_and_in_the_end_all_of_the_history(name, level, seed):
    rng = random.Random(f"{seed}{name}")
    query, _ = QUERIES[name]
    elements = stream(rng)
    made = Append(query.schema, level.emit is Emit.FINAL)
    rows: list[dict] = []
    truth = reference.history(query.node, {"S": History.of([e for e in elements if not isinstance(e, Cti)], S.schema)})
    for _, batch in said(query, level, elements, rng):
        changes = made.step(batch)
        assert (changes.op == PUT).all()
        rows += changes.rows.to_pylist()
        if rng.random() < 0.3:
            state = made.snapshot()
            made = Append(query.schema, level.emit is Emit.FINAL)
            made.restore(state)
        # what was appended is part of the true answer at every instant, and never taken back
        last = changes.now - 1
        assert not History.of(events(rows, query.schema), query.schema).snapshot(last) - truth.snapshot(last)
    assert len(made.waiting) == 0
    ew.testing.assert_same_history(events(rows, query.schema), truth)


def events(rows: list[dict], schema) -> list[Element]:
    return [
        Insert(
            row["valid_from"], INF if row["valid_to"] is None else row["valid_to"], {n: row[n] for n in schema.names}
        )
        for row in rows
    ]


def test_in_a_strong_answer_a_row_is_final_at_its_end_and_else_behind_it():
    for final, expected in ((True, [1]), (False, [])):
        form = Append(S.schema, final)
        batch = ew.ElementBatch.of([Insert(0, 5, {"k": "a", "x": 1}), Cti(5)], S.schema)
        assert form.step(batch).rows["x"].to_pylist() == expected


def test_times_are_timestamps_where_ticks_have_a_length():
    form = Append(S.schema, True, tick=1_000_000)
    batch = ew.ElementBatch.of(
        [Insert(1_000, INF, {"k": "a", "x": 1}), Insert(0, 500, {"k": "b", "x": 1}), Cti(INF)], S.schema
    )
    rows = form.step(batch).rows
    assert form.schema.types[-1] == pa.timestamp("us")
    assert [str(v) for v in rows["valid_from"].to_pylist()] == ["1970-01-01 00:00:00", "1970-01-01 00:00:01"]
    assert rows["valid_to"].to_pylist()[1] is None


def test_updates_of_a_key_are_pairs():
    form = AsOfNow(S.schema, ("k",), "retract")
    form.step(ew.ElementBatch.of([Insert(0, INF, {"k": "a", "x": 1}), Insert(0, INF, {"k": "b", "x": 1})], S.schema))
    found = form.step(
        ew.ElementBatch.of(
            [Adjust(0, INF, 2, {"k": "a", "x": 1}), Insert(2, INF, {"k": "a", "x": 2}),
             Adjust(0, INF, 2, {"k": "b", "x": 1}), Insert(2, INF, {"k": "c", "x": 3})],
            S.schema,
        )
    )  # fmt: skip
    assert found.op.tolist() == [DELETE, BEFORE, AFTER, PUT]
    assert [tuple(row.values()) for row in found.rows.to_pylist()] == [("b", 1), ("a", 1), ("a", 2), ("c", 3)]


def test_what_is_no_key_is_an_error_with_its_value():
    form = AsOfNow(S.schema, ("k",), "upsert")
    with pytest.raises(SinkError, match="two rows with the key k = 'a' at 1"):
        form.step(ew.ElementBatch.of([Insert(0, 5, {"k": "a", "x": 1}), Insert(1, 5, {"k": "a", "x": 2})], S.schema))


def test_a_column_named_as_the_times_is_refused():
    with pytest.raises(QueryError, match="form append adds a column valid_to"):
        form_of("append", ew.source("S", {"valid_to": "int64"}).schema, (), True)


def test_what_is_kept_is_bounded_by_what_is_alive():
    form = AsOfNow(S.schema, (), "retract")
    most = 0
    for t in range(0, 20_000, 100):
        rows = [Insert(t + i, t + i + 50, {"k": "a", "x": i}) for i in range(100)]
        form.step(ew.ElementBatch.of(rows, S.schema))
        most = max(most, len(form.waiting))
    assert most <= 100


def test_an_empty_epoch_changes_nothing():
    for form in (AsOfNow(S.schema, ("k",), "upsert"), AsOfNow(S.schema, (), "retract"), Append(S.schema, False)):
        found = form.step(ew.ElementBatch.of([], S.schema))
        assert len(found) == 0 == found.rows.num_rows
        assert found.op.dtype == np.uint8


@pytest.mark.parametrize(("level", "appended_at"), [(ew.MIDDLE, 20), (ew.STRONG, 10)])
def test_the_row_of_a_window_is_appended_when_its_end_is_promised_to_have_passed(
    level: ew.Consistency, appended_at: int
) -> None:
    """As docs/jobs.md says: windows promise one by one, and at `middle` a row may be prolonged at its end."""
    text = (
        "CREATE STREAM S (at INT, x INT) ORDERED BY at; SELECT window_start, COUNT(*) AS n "
        "FROM TUMBLE(TABLE S, DESCRIPTOR(at), 10) GROUP BY window_start"
    )
    query = program(text).query
    form = Append(query.schema, level.emit is Emit.FINAL)
    promised = [9, 10, 15, 20]
    elements = [Insert(5, 6, {"x": 1}), *map(Cti, promised)]
    said = ew.run_batches(query, {"S": elements}, level, batch=1, open=True)
    counts = [len(form.step(batch).rows) for batch in said]
    assert counts == [0, *(int(t == appended_at) for t in promised)]
