"""Who is refused, and how: without a token, from another origin, under another name, too large, too many."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest

from everwhen.serve.api import ENDPOINTS
from everwhen.serve.gate import LARGEST_BODY, POLICY
from serve.served import TOKEN, Served, served, until


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(most=2) as found:
        yield found


@pytest.fixture
def stranger(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base) as client:
        yield client


def kind(response: httpx.Response) -> str:
    return response.json()["error"]["kind"]


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if each.name != "login"], ids=lambda each: each.name)
def test_nothing_is_said_or_done_without_the_token(stranger: httpx.Client, endpoint: object) -> None:
    path = endpoint.path.replace("{name}", "q1")  # type: ignore[attr-defined]
    response = stranger.request(endpoint.method, path, json={} if endpoint.body is not None else None)  # type: ignore[attr-defined]
    assert response.status_code == 401 and kind(response) == "token"


def test_a_wrong_token_is_refused(stranger: httpx.Client) -> None:
    for given in ("", "x", TOKEN + "x", TOKEN[:-1], "ü" * 20):
        assert stranger.post("/api/login", json={"token": given}).status_code == 401
    for header in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer"):
        assert stranger.get("/api/state", headers={"Authorization": header}).status_code == 401
    assert stranger.get("/api/state", headers={"Cookie": "everwhen=1; =;"}).status_code == 401
    assert stranger.get(f"/api/state?token={TOKEN}").status_code == 401


def test_the_token_is_exchanged_for_a_strict_cookie(server: Served, stranger: httpx.Client) -> None:
    response = stranger.post("/api/login", json={"token": TOKEN})
    assert response.status_code == 200
    (cookie,) = SimpleCookie(response.headers["set-cookie"]).values()
    assert cookie["httponly"] and cookie["samesite"] == "strict" and cookie["path"] == "/"
    assert TOKEN not in cookie.value and str(server.port) in cookie.key
    assert stranger.get("/api/queries").status_code == 200
    assert stranger.post("/api/logout", json={}).status_code == 200
    stranger.cookies.clear()
    assert stranger.get("/api/queries").status_code == 401


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", "http://127.0.0.1.evil.example"],
)
def test_another_origin_is_refused_even_with_the_token(server: Served, origin: str) -> None:
    for method, path in (("GET", "/api/state"), ("POST", "/api/run"), ("GET", "/")):
        response = server.client.request(
            method, path, headers={"Origin": origin}, json={} if method == "POST" else None
        )
        assert response.status_code == 403 and kind(response) == "origin"
        assert "access-control-allow-origin" not in response.headers
    assert server.client.get("/api/queries", headers={"Origin": server.base}).status_code == 200


def test_a_page_of_another_site_is_refused_also_where_it_sends_no_origin(server: Served) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert server.client.get("/api/queries", headers={"Sec-Fetch-Site": site}).status_code == status


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.:{port}"]
)
def test_another_name_for_this_address_is_refused(server: Served, host: str) -> None:
    response = server.client.get("/api/state", headers={"Host": host.format(port=server.port)})
    assert response.status_code in (400, 421)
    assert server.client.get("/", headers={"Host": host.format(port=server.port)}).status_code in (400, 421)


def test_the_names_of_this_machine_are_accepted(server: Served) -> None:
    for name in ("localhost", "LOCALHOST", "[::1]"):
        assert server.client.get("/api/queries", headers={"Host": f"{name}:{server.port}"}).status_code == 200


def test_a_body_that_is_too_large_is_refused_however_it_comes(server: Served) -> None:
    large = b'{"text":"' + b"x" * LARGEST_BODY + b'"}'
    headers = {"Content-Type": "application/json"}
    assert server.client.post("/api/explain", content=large, headers=headers).status_code == 413
    pieces = (large[i : i + 1000] for i in range(0, len(large), 1000))  # without a length
    assert server.client.post("/api/explain", content=pieces, headers=headers).status_code == 413


def test_orders_are_json_so_no_form_can_send_one(server: Served) -> None:
    for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        response = server.client.post("/api/run", content=b'{"action":"play"}', headers={"Content-Type": form})
        assert response.status_code == 415
    for body in (b"{", b"[]", b'"x"', b"\xff", b"[" * 60_000, b'{"action":"fly"}', b'{"action":"play","x":1}'):
        response = server.client.post("/api/run", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400, body[:20]
    assert not server.engine.playing


def test_every_answer_forbids_inline_code_and_frames(server: Served, stranger: httpx.Client) -> None:
    for response in (
        stranger.get("/"),
        stranger.get("/api/state"),
        stranger.get("/nothing"),
        server.client.get("/api/state"),
    ):
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "server" not in response.headers or response.headers["server"] != "uvicorn/"
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY
    assert server.client.get("/api/state").headers["cache-control"] == "no-store"


def test_files_outside_of_the_page_are_not_served(stranger: httpx.Client) -> None:
    for path in ("/..%2f__init__.py", "/__init__.py", "/%2e%2e/app.py", "/page/index.html", "/index.html%00"):
        assert stranger.get(path).status_code == 404
    assert stranger.request("DELETE", "/").status_code == 404 and stranger.options("/").status_code == 404


def test_only_so_many_pages_may_look(server: Served) -> None:
    with server.client.stream("GET", "/api/events"), server.client.stream("GET", "/api/events"):
        until(lambda: server.app.state.subscribers.count == 2)
        response = server.client.get("/api/events")
        assert response.status_code == 429 and "pages are open" in response.json()["error"]["message"]
    until(lambda: server.app.state.subscribers.count == 0)


def test_a_read_only_page_shows_and_takes_no_orders() -> None:
    with served(read_only=True) as server:
        for endpoint in ENDPOINTS:
            if endpoint.method == "POST" and endpoint.name not in ("login", "logout", "explain"):
                response = server.client.post(endpoint.path.replace("{name}", "q1"), json={})
                assert response.status_code == 403 and kind(response) == "read-only", endpoint
                assert response.json()["error"]["message"] == "this page only shows: it watches a job, or is read-only"
        assert server.post("/api/explain", {"text": "SELECT item FROM Bid"})["text"]
        assert server.get("/api/state")["read_only"]


def test_a_text_of_the_page_opens_no_file(server: Served) -> None:
    text = "CREATE STREAM S (x INT) SOURCE file('/etc/passwd')"
    for path in ("/api/statements", "/api/explain"):
        told = server.post(path, {"text": text}, status=422)
        assert "SOURCE" in told["error"]["problem"] and text[told["error"]["start"] :].startswith("file(")
