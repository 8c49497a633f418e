"""The endpoints against a session that runs: what they show is what the engine says."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everwhen.serve import engine_loop
from everwhen.serve.subscribers import Subscribers
from serve.served import TOKEN, Served, bid, served, until, write

ELEMENTS = [
    bid(1, 7, 40), bid(4, 8, 55), {"op": "cti", "t": 3},
    bid(9, 7, 30), bid(5, 7, 90), {"op": "cti", "t": 4},
    {"op": "adjust", "vs": 4, "ve": 5, "vnew": 4, "row": {"item": 8, "price": 55}}, bid(10, 9, 1),
    {"op": "cti", "t": 6},
]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(files={"Bid": write(tmp_path / "bids.jsonl", ELEMENTS)}) as found:
        yield found


def rows(told: dict[str, Any]) -> list[list[Any]]:
    return [each["row"] for each in told["rows"]]


def events(server: Served, count: int, **params: Any) -> list[tuple[str, dict[str, Any]]]:
    """The first events that are pushed."""
    found: list[tuple[str, dict[str, Any]]] = []
    with server.client.stream("GET", "/api/events", params=params) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
                if len(found) == count:
                    return found
    raise AssertionError("the stream has ended")


def test_an_answer_is_shown_now_and_at_any_instant(server: Served) -> None:
    server.step()
    told = server.get("/api/queries/q1/answer")
    assert (rows(told), told["at"], told["final"], told["final_before"]) == ([[7, 40], [8, 55]], 4, False, 3)
    told = server.get("/api/queries/q1/answer", at="2")
    assert (rows(told), told["final"]) == ([[7, 40]], True)
    assert rows(server.get("/api/queries/q1/answer", at="0")) == []


def test_a_correction_is_seen_with_what_stood_before(server: Served) -> None:
    server.step(2)
    assert rows(server.get("/api/queries/q1/answer", at="6")) == [[7, 90], [8, 55]]
    server.step()
    assert rows(server.get("/api/queries/q1/answer", at="6")) == [[7, 90]]
    found = server.get("/api/queries/q1/corrections", at="6")["corrections"]
    assert ["taken back", [8, 55]] in [[each["kind"], each["row"]] for each in found]
    (query,) = server.get("/api/queries")["queries"]
    assert query["corrections"] == 1 and query["state"] == "running"


def test_the_timeline_has_lifetimes_and_the_promise(server: Served) -> None:
    server.step()
    told = server.get("/api/queries/q1/timeline", **{"from": "0", "to": "20"})
    assert sorted((each["vs"], each["ve"]) for each in told["events"]) == [(1, "inf"), (4, "inf")]
    assert told["final_before"] == 3
    assert server.client.get("/api/queries/q1/timeline", params={"from": "9", "to": "3"}).status_code == 400


def test_the_graph_has_each_operator_once_with_its_figures(server: Served) -> None:
    server.post("/api/statements", {"text": "SELECT item, MAX(price) AS best FROM Bid WINDOW(RANGE 10) GROUP BY item"})
    server.step()
    nodes = {each["id"]: each for each in server.get("/api/graph")["nodes"]}
    assert [each["kind"] for each in nodes.values()] == ["source", "operator", "operator", "query", "query"]
    assert nodes["query q1"]["inputs"] == nodes["query q2"]["inputs"] == ["1 aggregate"]
    assert nodes["1 aggregate"]["queries"] == ["q1", "q2"] and nodes["1 aggregate"]["rows_in"] == 2
    assert nodes["source Bid"]["progress"] == 3 and nodes["source Bid"]["rows_out"] == 3
    assert set(server.get("/api/metadata")["operators"]) >= {"0 window", "1 aggregate"}


def test_waiting_and_analyze_are_said_in_words(server: Served) -> None:
    server.post("/api/queries/q1/consistency", {"emit": "final"})
    server.step()
    told = server.get("/api/queries/q1/waiting")
    assert told["reason"] == "promise" and told["needs"][0]["source"] == "Bid" and "waits" in told["text"]
    assert "Costliest" in server.get("/api/queries/q1/analyze")["text"]
    assert "q1" in server.get("/api/queries/q1/explain")["text"]


def test_explain_is_a_statement_too(server: Served) -> None:
    server.post("/api/queries/q1/consistency", {"emit": "final"})
    server.step()
    (told,) = server.post("/api/statements", {"text": "EXPLAIN WAITING q1;"})["outcomes"]
    assert told["kind"] == "explained" and told["text"] == server.get("/api/queries/q1/waiting")["text"]
    for what, words in (("WAITING", "waits for"), ("ANALYZE q1", "Costliest"), ("SELECT item FROM Bid", "as written")):
        assert words in server.post("/api/explain", {"text": f"EXPLAIN {what}"})["text"]
    opened = "EXPLAIN CREATE STREAM F (x INT) SOURCE file(path = 'f.jsonl')"
    assert "SOURCE is not taken" in server.post("/api/explain", {"text": opened}, status=422)["error"]["problem"]


def test_why_a_query_waits_is_found_while_epochs_run(server: Served) -> None:
    server.post("/api/queries/q1/consistency", {"emit": "final"})
    server.step()
    engine = server.engine
    search = engine.submit(lambda: engine.waiting("q1")).result(60)
    before = search()
    server.step(2)
    assert search() == before and before["needs"][0]["t"] != server.get("/api/queries/q1/waiting")["needs"][0]["t"]


def test_a_look_that_fails_is_told_and_the_next_one_goes_on(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    server.get("/api/state")
    subscribers, book = server.app.state.subscribers, server.engine.books["q1"]

    def broken(_: int) -> None:
        raise IndexError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(book, "settle", broken)
        until(lambda: b"the page: unforeseen IndexError: broken" in subscribers.newest.session)
    until(lambda: b"IndexError" not in subscribers.newest.session)


def test_there_is_a_limit_to_orders_that_wait(server: Served) -> None:
    held, free = threading.Event(), threading.Event()
    first = server.engine.submit(lambda: held.set() or free.wait(60))
    held.wait(60)
    try:
        waiting = [server.engine.submit(lambda: None) for _ in range(engine_loop.ORDERS)]
        told = server.post("/api/run", {"action": "play"}, status=503)["error"]
        assert told["kind"] == "busy" and "try again" in told["message"]
    finally:
        free.set()
    assert first.result(60) and [each.result(60) for each in waiting] == [None] * engine_loop.ORDERS


def test_an_error_names_its_place(server: Served) -> None:
    text = "SELECT item,\n  prize FROM Bid"
    told = server.post("/api/explain", {"text": text}, status=422)["error"]
    assert (told["line"], told["column"]) == (2, 3) and text[told["start"] : told["end"]] == "prize"
    assert "Bid" in server.post("/api/explain", {"text": "SELECT item FROM Bid"})["text"]
    told = server.post("/api/queries/q1/alter", {"text": "SELECT item, prize FROM Bid"}, status=422)["error"]
    assert told["start"] == len("SELECT item, ")


def test_queries_start_stop_change_and_go(server: Served) -> None:
    told = server.post("/api/statements", {"text": "SELECT item FROM Bid", "name": "items"})
    assert told["outcomes"][0]["text"] == "started query items"
    server.step()
    assert rows(server.get("/api/queries/items/answer", at="4")) == [[8]]
    (outcome,) = server.post("/api/queries/items/alter", {"text": "SELECT price AS item FROM Bid"})["outcomes"]
    assert outcome["kind"] == "altered"
    until(lambda: rows(server.get("/api/queries/items/answer", at="4")) == [[55]])
    server.post("/api/queries/items/stop")
    assert [each["state"] for each in server.get("/api/queries")["queries"]] == ["running", "stopped"]
    assert "stopped already" in server.post("/api/queries/items/stop", status=409)["error"]["message"]
    server.post("/api/queries/items/start")
    server.post("/api/queries/items/remove")
    assert [each["name"] for each in server.get("/api/queries")["queries"]] == ["q1"]
    for path in ("answer", "waiting", "analyze", "explain", "corrections", "timeline"):
        assert server.client.get(f"/api/queries/items/{path}").status_code == 404


def test_a_level_is_changed_while_it_runs(server: Served) -> None:
    told = server.post("/api/queries/q1/consistency", {"block": "2 ms", "remember": 8})["level"]
    assert (told["block"], told["remember"]) == (2, 8)
    assert "remember" in server.post("/api/queries/q1/consistency", {"block": 20}, status=409)["error"]["message"]
    server.post("/api/queries/q1/consistency", {"remember": "x" * 61}, status=400)


def test_frames_are_pushed_with_the_answer_that_is_looked_at(server: Served) -> None:
    server.step()
    server.get("/api/state")
    found = dict(events(server, 4, query="q1"))
    assert found["session"]["queries"][0]["name"] == "q1" and rows(found["answer"]) == [[7, 40], [8, 55]]
    assert rows(dict(events(server, 4, query="q1", at="2"))["answer"]) == [[7, 40]]
    until(lambda: server.app.state.subscribers.count == 0)


def test_a_source_that_is_wrong_pauses_and_is_told(tmp_path: Path) -> None:
    file = write(tmp_path / "bids.jsonl", [bid(5, 1, 1), {"op": "cti", "t": 9}, bid(3, 1, 1)])
    with served(files={"Bid": file}) as server:
        server.step()
        told = server.get("/api/state")
        assert told["state"] == "paused" and "an input is wrong" in told["problem"] and ":3:" in told["problem"]


def test_a_source_that_dies_is_told(tmp_path: Path) -> None:
    file = write(tmp_path / "bids.jsonl", ELEMENTS)
    with served(files={"Bid": file}) as server:
        Path(file).unlink()
        server.post("/api/run", {"action": "step"})
        until(lambda: server.get("/api/state")["problem"])
        assert "bids.jsonl" in server.get("/api/state")["problem"]


def test_late_rows_are_downloaded_as_elements(tmp_path: Path) -> None:
    text = (
        "CREATE STREAM Bid (item INT, price INT, at INT) ORDERED BY at WITHIN 2 LATE ROWS DROP;"
        "SELECT item, price FROM Bid; SELECT MAX(price) AS best FROM Bid WINDOW(RANGE 5) CONSISTENCY STRONG"
    )
    rows = [{"item": t, "price": t, "at": t} for t in (1, 9, 10, 3, 4, 12)]
    file = tmp_path / "bids.csv"
    file.write_text("".join(f"{','.join(map(str, row))}\n" for row in [list(rows[0]), *(r.values() for r in rows)]))
    with served(text, {"Bid": str(file)}) as server:
        server.step(2)
        (told,) = server.get("/api/state")["sources"]
        assert told["late"] == {"rows": 6, "dropped": 2, "moved": 0}
        response = server.client.get("/api/sources/Bid/late")
        assert response.headers["content-disposition"].startswith("attachment; filename=")
        found = [json.loads(line) for line in response.text.splitlines()]
        wanted = [{"op": "insert", "vs": t, "ve": t + 1, "row": {"item": t, "price": t}} for t in (3, 4)]
        assert found == wanted  # `at` is their start
        response = server.client.get("/api/sources/Nobody/late")
        assert response.status_code == 404 and "Nobody" in response.json()["error"]["message"]


def test_there_is_a_limit_to_queries(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_loop.MOST_QUERIES <= 100
    monkeypatch.setattr(engine_loop, "MOST_QUERIES", 3)
    for _ in range(2):
        server.post("/api/statements", {"text": "SELECT item FROM Bid"})
    told = server.post("/api/statements", {"text": "SELECT item FROM Bid"}, status=503)
    assert "stop one first" in told["error"]["message"]


def test_the_description_names_every_endpoint(server: Served) -> None:
    told = server.get("/api/openapi.json")
    assert told["openapi"].startswith("3.1") and "/api/queries/{name}/consistency" in told["paths"]
    wanted = {"streams", "queries", "graph", "metadata", "answer", "waiting", "consistency", "alter", "events"}
    assert wanted <= {each["operationId"] for path in told["paths"].values() for each in path.values()}


def test_streams_names_and_series_are_told(server: Served) -> None:
    (stream,) = server.get("/api/streams")["streams"]
    assert (stream["name"], stream["from"], stream["read_by"]) == ("Bid", "bids.jsonl", ["q1"])
    names = server.get("/api/names")
    assert names["streams"] == {"Bid": ["item", "price"]} and "max" in names["functions"]
    server.get("/api/state")
    assert server.get("/api/series")["points"]


def test_a_browser_that_reads_nothing_holds_nobody_back(tmp_path: Path) -> None:
    """Its frames are not made into a queue: it gets the newest when it reads again, and is told what it missed."""
    many = "\n".join(f"SELECT item, price + {n} AS p, '{'x' * 300}' AS t FROM Bid;" for n in range(40))
    file = write(tmp_path / "bids.jsonl", [bid(t, t % 50, t) for t in range(3_000)])
    with served("CREATE STREAM Bid (item INT, price INT);" + many, {"Bid": file}, batch=50) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as stalled:
            request = (
                f"GET /api/events?query=q1 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {TOKEN}"
            )
            stalled.sendall(f"{request}\r\n\r\n".encode())
            subscribers, observer = server.app.state.subscribers, server.app.state.observer
            until(lambda: subscribers.count == 1)
            (subscriber,) = subscribers._all
            for _ in range(2_000):  # until no buffer takes any more
                number = observer.look().number
                if number - subscriber.seen > 20:
                    break
            assert number - subscriber.seen > 20, "the socket has taken all of it"
            server.post("/api/run", {"action": "play"})
            until(lambda: server.engine.elements == 3_000)
        until(lambda: server.app.state.subscribers.count == 0)


def test_somebody_is_told_when_the_first_page_is_opened() -> None:
    """So that the page beside the demo computes nothing before."""
    told: list[str] = []

    async def opened_twice() -> None:
        subscribers = Subscribers(opened=lambda: told.append("opened"))
        assert told == []
        for _ in range(2):
            subscribers.add(None)

    asyncio.run(opened_twice())
    assert told == ["opened"]
