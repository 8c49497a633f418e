"""A server of a small session on a socket of its own, for tests: data moves when a test says so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from everwhen.engine.session.sql_session import SqlSession
from everwhen.serve.engine_loop import EngineLoop
from everwhen.serve.gate import Rules, hosts_of
from everwhen.serve.program import LOOPBACK, Place, make_server, open_socket
from everwhen.shell.input import Feeds

TOKEN = "the-token-of-the-tests"
BIDS = """\
CREATE STREAM Bid (item INT, price INT);
SELECT item, MAX(price) AS best FROM Bid WINDOW(RANGE 10) GROUP BY item;
"""


def bid(t: int, item: int, price: int) -> dict[str, Any]:
    return {"op": "insert", "vs": t, "ve": t + 1, "row": {"item": item, "price": price}}


def write(path: Path, elements: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in elements))
    return str(path)


@dataclass
class Served:
    port: int
    engine: EngineLoop
    client: httpx.Client
    app: Any

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"{self.base}/#token={TOKEN}"

    def get(self, path: str, **params: Any) -> Any:
        response = self.client.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, status: int = 200) -> Any:
        response = self.client.post(path, json=dict(body or {}))
        assert response.status_code == status, response.text
        return response.json()

    def step(self, count: int = 1) -> None:
        """So many epochs, one after the other."""
        for _ in range(count):
            before = self.engine.session.epoch
            self.post("/api/run", {"action": "step"})
            until(lambda before=before: self.engine.session.epoch > before or self.engine.problem)


def until(is_so: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextmanager
def served(
    text: str = BIDS,
    files: Mapping[str, str] | None = None,
    *,
    read_only: bool = False,
    most: int = 32,
    prepare: Callable[[EngineLoop], None] | None = None,
    playing: bool = False,
    rate: float | None = None,
    batch: int = 3,
) -> Iterator[Served]:
    """Serve a text over files; paused unless told otherwise, three elements an epoch."""
    feeds = Feeds("1ms", batch)
    for name, file in (files or {}).items():
        feeds.attach(name, file)
    engine = EngineLoop(SqlSession("current", found=feeds.found), feeds, rate, playing=playing)
    if prepare is not None:
        prepare(engine)
    engine.execute(text) if text else None
    listening = open_socket(Place(port=0))
    port = int(listening.getsockname()[1])
    server = make_server(engine, Rules(TOKEN, hosts_of(LOOPBACK, port), port, read_only), most)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=90) as client:
            yield Served(port, engine, client, server.config.app.app)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()
