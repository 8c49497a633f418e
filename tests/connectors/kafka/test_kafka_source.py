"""A topic as an input: rows and elements, the same again from any position, progress by partition, errors by name."""

from __future__ import annotations

import json
import pickle
import random
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connectors.kafka_cluster import SCHEMA, Cluster, mock_cluster
from everwhen.connectors.options import OptionError
from everwhen.connectors.registry import SourcePlace
from everwhen.core.schema import Schema
from everwhen.errors import InputError, QueryError, SourceError, StateError
from everwhen.stream.element_batch import ElementBatch


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"item": i, "name": f"n{i}", "ts": 10 * i} for i in range(first, first + count)]


def taken(source: Any, count: int = 1) -> list[str]:
    """What comes, until there are so many elements."""
    found: list[str] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        batch = source.take(10_000)
        if batch is not None:
            found += map(str, batch.elements())
    return found


def shown(batch: ElementBatch | None) -> list[str]:
    return [] if batch is None else list(map(str, batch.elements()))


ORDERED = SourcePlace("Bid", SCHEMA, time="ts")


def test_rows_by_a_column_of_time(cluster: Cluster) -> None:
    cluster.put("rows", [*rows(2), {"item": 7, "name": None, "ts": 100, "more": {"left": "alone"}}])
    source = cluster.source("rows", ORDERED)
    source = pickle.loads(pickle.dumps(source))
    assert taken(source, 3) == [
        "insert [0, 1) item=0 name='n0'",
        "insert [10, 11) item=1 name='n1'",
        "insert [100, 101) item=7 name=null",
    ]
    source.close()


def test_offsets_of_another_cluster_are_refused(cluster: Cluster) -> None:
    """Brokers may get other addresses; the same offsets of another cluster are other messages."""
    cluster.put("moved", rows(2))
    source = cluster.source("moved", ORDERED)
    assert len(taken(source, 2)) == 2
    position = json.loads(json.dumps(source.position))
    source.close()
    with mock_cluster() as elsewhere:
        elsewhere.put("moved", rows(5))
        other = elsewhere.source("moved", ORDERED)
        with pytest.raises(
            StateError, match=r"is of the cluster mock.+, and at .+ is the cluster mock.+check the option"
        ):
            other.seek(position)
        other.close()
    again = Cluster(f"{cluster.servers},127.0.0.1:9").source("moved", ORDERED)
    again.seek(position)
    cluster.put("moved", rows(1, 2))
    assert taken(again) == ["insert [20, 21) item=2 name='n2'"]
    again.close()


def test_timestamps_as_text_and_rows_by_the_messages_own_time(cluster: Cluster) -> None:
    cluster.put("texts", [{"item": 1, "name": "a", "ts": "1970-01-01T00:00:05Z"}])
    source = cluster.source("texts", SourcePlace("Bid", SCHEMA, time="ts", tick="1s"))
    assert taken(source) == ["insert [5, 6) item=1 name='a'"]
    source.close()
    cluster.put("stamps", [{"item": 1}, {"item": 2, "name": "b"}], stamps=[4000, 5000])
    for tick, times in (("1ms", (4000, 5000)), ("1s", (4, 5)), ("1us", (4_000_000, 5_000_000))):
        source = cluster.source("stamps", SourcePlace("Bid", SCHEMA, tick=tick))
        assert [text.split(",")[0] for text in taken(source, 2)] == [f"insert [{t}" for t in times]
        source.close()


def test_elements_and_their_promises(cluster: Cluster) -> None:
    elements = [
        {"op": "insert", "vs": 1, "ve": None, "row": {"item": 1, "name": "a"}},
        {"op": "adjust", "vs": 1, "ve": None, "vnew": 4, "row": {"item": 1, "name": "a"}},
        {"op": "cti", "t": 9},
    ]
    for part in range(4):
        cluster.put("elements", elements if part == 0 else [{"op": "cti", "t": 5 + part}], part)
    source = cluster.source("elements")
    said = taken(source, 3)
    while said[-1] != "cti 6":
        said += taken(source)
    assert [text for text in said if not text.startswith("cti")] == [
        "insert [1, ∞) item=1 name='a'",
        "adjust [1, ∞ -> 4) item=1 name='a'",
    ]
    for part in range(4):
        cluster.put("elements", [{"op": "cti", "t": None}], part)
    while not source.ended:
        said += taken(source)
    assert said[-1] == "cti ∞" and said == sorted(said, key=lambda text: text.startswith("cti"))
    source.close()


def test_progress_is_that_of_the_slowest_partition_unless_it_is_idle(cluster: Cluster) -> None:
    for part, t in enumerate((100, 80, 90)):
        cluster.put("slow", [{"item": part, "ts": t}], part)
    source = cluster.source("slow", ORDERED, disorder="10 ms")
    assert not [text for text in taken(source, 3) if text.startswith("cti")]  # nothing is known of partition 3
    cluster.put("slow", [{"item": 3, "ts": 300}], 3)
    assert taken(source, 2)[-1] == "cti 70"
    source.close()
    source = cluster.source("slow", ORDERED, disorder="10 ms", idle="200 ms")
    said = taken(source, 4)
    cluster.put("slow", [{"item": 1, "ts": 85}], 1)
    until = time.monotonic() + 5
    while "cti 75" not in said and time.monotonic() < until:
        said += shown(source.take(100))
    assert "cti 75" in said
    until = time.monotonic() + 5
    while "cti 390" not in said and time.monotonic() < until:  # by now only the partition that is written to counts
        cluster.put("slow", [{"item": 3, "ts": 400}], 3)
        said += shown(source.take(100))
    assert "cti 390" in said
    source.close()


def test_the_same_again_from_any_position(cluster: Cluster) -> None:
    """Random looks, each told by its position; another process goes on from any of them."""
    rng = random.Random(1)
    said: list[tuple[dict[str, Any], list[str], dict[str, Any]]] = []
    cluster.put("again", rows(1))
    source = cluster.source("again", ORDERED, disorder="50 ms")
    at = 1
    for _ in range(15):
        for part in range(4):
            n = rng.randrange(60)
            cluster.put("again", rows(n, at), part)
            at += n
        before = source.position
        batch = source.take(rng.choice([25, 10_000]))
        said.append((before, shown(batch), source.position))
    source.close()
    cluster.put("again", rows(5, at))  # however much of it was taken, there is more
    assert sum(len(found) for _, found, _ in said) > 100 and any(
        "cti" in text for _, found, _ in said for text in found
    )
    for first in (0, 3, 7):
        other = cluster.source("again", ORDERED, disorder="50 ms")
        other.seek(json.loads(json.dumps(said[first][0])))
        for _, expected, position in said[first:]:
            assert shown(other.take_to(json.loads(json.dumps(position)))) == expected
            assert other.position == position
        rest = taken(other, 1)
        assert rest and not set(rest) & {text for _, found, _ in said for text in found if "cti" not in text}
        other.close()


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"{not json", "offset 2: not JSON"),
        ({"item": "x", "ts": 1}, "offset 2: attribute 'item': the text \"x\" is not of type INT"),
        ({"item": 1}, "offset 2: the row has no time"),
        (b"[1]", "offset 2: "),
        (b"\xff", "offset 2: "),
    ],
)
def test_a_wrong_message_is_named_by_its_offset_and_nothing_is_taken(cluster: Cluster, value: Any, what: str) -> None:
    topic = f"wrong-{len(str(value))}-{len(what)}"
    cluster.put(topic, [*rows(2), value, *rows(1)])
    source = cluster.source(topic, ORDERED)
    with pytest.raises(InputError) as bad:
        taken(source)
    assert f"Kafka topic '{topic}', partition 0, " in str(bad.value) and what in str(bad.value)
    assert source.position["offsets"]["0"] in (0, 2)
    source.close()


def test_an_error_of_the_guard_has_the_place_of_the_message(cluster: Cluster) -> None:
    cluster.put("guard", rows(3))
    source = cluster.source("guard", ORDERED)
    taken(source, 3)
    placed = source.place_of(InputError("too late", source=source.given.shown, line=2))
    assert str(placed) == "Kafka topic 'guard', partition 0, offset 1: too late"
    source.close()


def test_messages_without_a_value_and_with_line_ends(cluster: Cluster) -> None:
    pretty = json.dumps(rows(1)[0], indent=1).encode()
    cluster.put("odd", [None, pretty, None])
    source = cluster.source("odd", ORDERED)
    assert taken(source) == ["insert [0, 1) item=0 name='n0'"]
    source.close()


def test_broker_away_topic_missing_offsets_gone(cluster: Cluster) -> None:
    cluster.put("there", rows(3))
    missing = cluster.source("nowhere", ORDERED)
    assert not missing.is_there
    with pytest.raises(SourceError, match=r"Kafka topic 'nowhere' is not there at .*option topic; there is "):
        missing.take(1)
    away = Cluster("127.0.0.1:9").source("there", ORDERED, timeout="500 ms")
    with pytest.raises(SourceError, match=r"topic 'there': cannot read it: .*no broker answers at 127.0.0.1:9"):
        away.take(1)
    for offset in (50, 2):
        source = cluster.source("there", ORDERED, timeout="1 s")
        taken(source, 3)
        beyond = {**source.position, "offsets": {**source.position["offsets"], "0": offset + 3}}
        with pytest.raises(StateError, match=r"partition 0.*offset"):
            source.take_to(beyond)
        source.close()
    source = cluster.source("there", ORDERED)
    taken(source, 3)
    gone = {**source.position, "offsets": {"0": 77, "1": 0, "2": 0, "3": 0}}
    source.close()
    source = cluster.source("there", ORDERED)
    with pytest.raises(StateError, match="partition 0, offset 77 was reached before"):
        source.seek(gone)
        taken(source, 1)
    source.close()


def test_options_are_refused_by_name(cluster: Cluster) -> None:
    for options, what in (
        ({"formt": "json"}, "no option 'formt'; did you mean 'format'"),
        ({"format": "avro"}, "format"),
        ({"format": "debezium"}, "key = 'id'"),
        ({"key": "item"}, "key is for format = 'debezium'"),
        ({"format": "debezium", "key": "item", "idle": "1 s"}, "idle is for rows"),
        ({"format": "debezium", "key": "itm"}, "unknown column 'itm'"),
    ):
        with pytest.raises(QueryError, match=what):
            cluster.source("rows", **options)
    with pytest.raises(OptionError, match="no name of a topic"):
        cluster.source("a b")
    cluster.put("settings", rows(1))
    with pytest.raises(QueryError, match=r'kafka: No such configuration property: "no.such" \(the options properties'):
        cluster.source("settings", **{"properties__no__such": "1"}).take(1)


def test_other_types_go_the_careful_way(cluster: Cluster) -> None:
    schema = Schema.of([("at", pa.timestamp("us")), ("tags", pa.list_(pa.string())), ("op", pa.string())])
    cluster.put("types", [{"at": "2024-05-01T12:00:00", "tags": ["a"], "op": "insert", "ts": 3}])
    source = cluster.source("types", SourcePlace("Bid", schema, time="ts"))
    (text,) = taken(source)
    assert text.startswith("insert [3, 4)") and "2024-05-01" in text and "op='insert'" in text
    source.close()


def test_many_messages_are_read_by_arrow(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from everwhen.connectors.kafka.messages import MessageReader

    def never(*_: object) -> None:
        raise AssertionError("the careful reader")

    monkeypatch.setattr(MessageReader, "_careful", never)
    reader = MessageReader(ORDERED.file("kafka://x/y"))
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows(1000)]
    batch = reader.read(values, np.zeros(1000, np.int64))
    assert batch.vs.tolist() == [10 * i for i in range(1000)]
    lines: list[bytes | None] = [b'{"op":"insert","vs":1,"row":{"item":1,"name":"x"}}'] * 3
    assert len(reader.read(lines, np.zeros(3, np.int64))) == 3
    assert len(reader.read(values, np.zeros(1000, np.int64))) == 1000


def test_the_first_step_is_the_same_again_where_only_what_is_new_was_wanted(cluster: Cluster) -> None:
    cluster.put("latest", rows(3))
    source = cluster.source("latest", ORDERED, start="latest")
    assert source.take(10) is None
    cluster.put("latest", rows(2, 5))
    found = taken(source, 2)
    position = json.loads(json.dumps(source.position))
    source.close()
    cluster.put("latest", rows(2, 9))
    other = cluster.source("latest", ORDERED, start="latest")
    assert shown(other.take_to(position)) == found and len(found) == 2
    other.close()
