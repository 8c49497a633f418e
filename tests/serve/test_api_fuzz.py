"""Requests that nobody thought of, drawn from the API's own description: none is answered by a 500 or a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from serve.served import Served, bid, served, write

schemathesis = pytest.importorskip("schemathesis", reason="there is no schemathesis: it comes with everwhen[dev]")

EXAMPLES = int(os.environ.get("EVERWHEN_EXAMPLES", "20")) // 7 or 1
HOW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
LEFT_OUT = {"events"}  # a stream that does not end by itself
KINDS = {200, 400, 401, 404, 409, 413, 415, 422, 429, 503}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = write(Path(tmp_path_factory.mktemp("fuzz")) / "bids.jsonl", [bid(t, t % 5, t) for t in range(60)])
    with served(files={"Bid": file}) as found:
        found.step(3)
        yield found


def operations(server: Served) -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(server.get("/api/openapi.json"))
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] not in LEFT_OUT:
            yield operation


def check(server: Served, operation: Any) -> None:
    """Some requests of an operation, half of them about a query that is there."""
    known = [False]

    @HOW
    @given(case=operation.as_strategy())
    def tried(case: Any) -> None:
        known[0] = not known[0]
        path = case.formatted_path
        if case.path_parameters and known[0]:
            if "q1" not in server.engine.books:  # another request has removed it
                server.post("/api/statements", {"text": "SELECT item FROM Bid", "name": "q1"})
            path = case.path.replace("{name}", "q1")
        body = case.body if operation.body else None
        has_body = isinstance(body, dict | list | str | int | float | bool) or body is None
        given = {"json": body} if operation.body and has_body else {}
        response = server.client.request(case.method.upper(), path, params=case.query or None, **given)
        assert response.status_code in KINDS, (case.method, path, case.query, body, response.text)
        assert "Traceback" not in response.text
        if response.status_code >= 400:
            assert response.json()["error"]["message"], response.text

    tried()


def test_no_request_is_answered_by_a_500(server: Served) -> None:
    tried = 0
    for operation in operations(server):
        check(server, operation)
        tried += 1
    assert tried >= 20
    assert server.get("/api/state")["epoch"] >= 3, "it still answers"


TEXTS = (
    "", ";", "\0", "SELECT", "'" * 1000, "(" * 2000, "EXPLAIN", "WAITING q1", "ALTER QUERY q1 AS", "DROP STREAM Bid",
    "SELECT \ud83d FROM Bid", "SELECT '\ud83d' AS x FROM Bid", "CREATE SINK s INTO file('x')",
    "INSERT INTO s SELECT item FROM Bid", "SELECT 1/0 AS x FROM Bid",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_that_are_no_queries_are_refused_in_words(server: Served, text: str) -> None:
    body = json.dumps({"text": text}).encode()  # a lone surrogate is legal there
    for path in ("/api/explain", "/api/statements", "/api/queries/q1/alter"):
        response = server.client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in KINDS - {401}, response.text
    assert server.get("/api/state")["epoch"] >= 3, "it still answers"
