"""What the page costs the engine: ten queries as fast as they go, bare, served, and with one, ten and a stalled page.

    python bench/page.py [--events N] [--size N] [--block N]

One engine runs, and pages come and go: some epochs with, some without, in turns, because machines are never quiet.
What counts is the time of the processor that the engine's thread takes for an epoch, which other processes do not
change much; and what all other threads take, which is the most that they can hold the engine up on one core.  Pages
are read by a process of their own, as browsers are.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from everwhen.demo.local import CONFIG
from everwhen.demo.nexmark.generator import NexmarkGenerator
from everwhen.demo.nexmark.texts import DECLARATIONS
from everwhen.engine.epochs import Epoch
from everwhen.engine.session.sql_session import SqlSession
from everwhen.serve.engine_loop import COUNTING_SHARE, EngineLoop
from everwhen.serve.gate import Rules, hosts_of
from everwhen.serve.program import LOOPBACK, PageServer, Place, make_server, open_socket
from everwhen.shell.input import Feeds
from everwhen.stream.element_batch import ElementBatch

TOKEN = "a-token-of-the-benchmark"
QUERIES = [
    "SELECT itemID, bid_price * 0.908 AS euros FROM Bid WHERE bid_price > 9000",
    "SELECT itemID, bid_price FROM Bid WHERE itemID < 1100",
    "SELECT COUNT(*) AS bids FROM Bid WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND)",
    "SELECT SUM(bid_price) AS turnover FROM Bid WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND)",
    "SELECT itemID, COUNT(*) AS bids FROM Bid WINDOW(RANGE 5 SECONDS SLIDE 1 SECOND) GROUP BY itemID",
    "SELECT itemID, MAX(bid_price) AS best FROM Bid WINDOW(RANGE 5 SECONDS SLIDE 1 SECOND) GROUP BY itemID",
    "SELECT bidderID, COUNT(*) AS bids FROM Bid WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) GROUP BY bidderID",
    "SELECT AVG(bid_price) AS average FROM Bid WINDOW(RANGE 60 SECONDS SLIDE 1 SECOND)",
    "SELECT category, COUNT(*) AS opened FROM OpenAuction WINDOW(RANGE 10 SECONDS SLIDE 1 SECOND) GROUP BY category",
    "SELECT city, COUNT(*) AS people FROM Person WINDOW(RANGE 60 SECONDS SLIDE 1 SECOND) GROUP BY city",
]
READER = """
import socket, sys, threading
port, token = int(sys.argv[1]), sys.argv[2]
held = []
def read(made, stalled):
    while not stalled and made.recv(1 << 16): pass
for line in sys.stdin:
    count, stalled = map(int, line.split())
    for made in held: made.shutdown(socket.SHUT_RDWR); made.close()
    held.clear()
    for n in range(count + stalled):
        made = socket.create_connection(("127.0.0.1", port))
        made.sendall(f"GET /api/events?query=q{n % 10 + 1} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n"
                     f"Authorization: Bearer {token}\\r\\n\\r\\n".encode())
        held.append(made)
        if n < count: threading.Thread(target=read, args=(made, False), daemon=True).start()
"""
"""Browsers: told how many read, and how many do not."""


class Prepared(Feeds):
    """Epochs that are there already, so that only the engine is measured."""

    epochs: Iterator[Epoch]

    def epoch(self, session: SqlSession) -> Epoch | None:
        return self._noted(next(self.epochs, None))

    def missing(self, session: SqlSession) -> list[str]:
        return []


def prepared(events: int, size: int) -> list[Epoch]:
    generator = NexmarkGenerator(replace(CONFIG, rate=100_000, late=0.01, corrections=0.001, duplicates=0.001))
    names = ("Bid", "OpenAuction", "Person")
    found = (generator.read(at, at + size) for at in range(0, events, size))
    return [Epoch({name: batches[name] for name in names}, ()) for batches in found]


class Timed(EngineLoop):
    """An engine that knows what its thread does for the page: what it notes after an epoch, and what it tells."""

    def __post_init__(self) -> None:
        self.noted: list[float] = []
        super().__post_init__()

    def _take(self, results: Mapping[str, ElementBatch]) -> None:
        began = time.thread_time()
        super()._take(results)
        self.noted.append(time.thread_time() - began)

    def look(self, fresh: bool) -> float:
        """What a look takes: once a second what nodes keep is counted."""
        self._counted = -math.inf if fresh else self.clock()
        began = time.thread_time()
        self.observe()
        return time.thread_time() - began


def engine_of(epochs: list[Epoch]) -> Timed:
    feeds = Prepared("1ms", 1_000)
    feeds.epochs = iter(epochs)
    engine = Timed(SqlSession("current"), feeds, playing=False)
    engine.execute(DECLARATIONS + ";\n".join(QUERIES))
    return engine


def bare(epochs: list[Epoch]) -> None:
    """The session alone: loops are compiled then."""
    engine = engine_of([])
    for epoch in epochs:
        engine.session.push(epoch.batches)


@contextmanager
def served(engine: EngineLoop) -> Iterator[tuple[PageServer, Callable[[int, int], None]]]:
    """The server, and who opens so many pages of which so many do not read."""
    listening = open_socket(Place(port=0))
    port = int(listening.getsockname()[1])
    server = make_server(engine, Rules(TOKEN, hosts_of(LOOPBACK, port), port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    reader = subprocess.Popen([sys.executable, "-c", READER, str(port), TOKEN], stdin=subprocess.PIPE, text=True)
    assert reader.stdin is not None

    def look(pages: int, stalled: int) -> None:
        reader.stdin.write(f"{pages} {stalled}\n")  # type: ignore[union-attr]
        reader.stdin.flush()  # type: ignore[union-attr]
        while server.subscribers.count != pages + stalled:
            time.sleep(0.005)

    while not server.started:
        time.sleep(0.01)
    try:
        yield server, look
    finally:
        server.should_exit = True
        thread.join(20)
        reader.stdin.close()
        reader.terminate()
        reader.wait()


@dataclass(frozen=True)
class Block:
    """Some epochs: seconds of the processor for the engine's thread and for all others, of the clock, and looks."""

    own: float
    others: float
    clock: float
    looks: int


def measured(engine: EngineLoop, server: PageServer, count: int) -> Block:
    """Let so many epochs run."""

    def now() -> tuple[float, float, float, int]:
        number = 0 if server.subscribers.newest is None else server.subscribers.newest.number
        return time.thread_time(), time.process_time(), time.perf_counter(), number

    before = engine.submit(now).result(60)
    for _ in range(count):
        epoch = engine.session.epoch
        engine.submit(engine.step).result(60)
        while engine.session.epoch == epoch:
            time.sleep(0.0005)
            assert not engine.problem, engine.problem
    after = engine.submit(now).result(60)
    own, all_, clock, looks = (b - a for a, b in zip(before, after, strict=True))
    return Block(own, all_ - own, clock, int(looks))


WAYS: Final = {"no page": (0, 0), "one page": (1, 0), "ten pages": (10, 0), "a page that reads nothing": (0, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=12_000_000)
    parser.add_argument("--size", type=int, default=20_000, help="events of an epoch")
    parser.add_argument("--block", type=int, default=20, help="epochs of a block")
    parser.add_argument("--rate", type=float, default=200_000, help="events a second, for what a page takes of them")
    options = parser.parse_args()
    epochs = prepared(options.events, options.size)
    bare(epochs[:10])
    engine = engine_of(epochs)
    order = [name for name in WAYS if name != "no page"]
    found: list[tuple[str, Block]] = []
    with served(engine) as (server, look):
        measured(engine, server, 4 * options.block)
        left = len(epochs) - 4 * options.block
        while left >= options.block:
            name = order[len(found) // 2 % len(order)] if len(found) % 2 else "no page"
            look(*WAYS[name])
            found.append((name, measured(engine, server, options.block)))
            left -= options.block
        looks = [(engine.submit(partial(engine.look, fresh)).result(60), fresh) for _ in range(15) for fresh in (1, 0)]
    told(found, options)
    counted, plain = (statistics.median(took for took, each in looks if each == fresh) for fresh in (1, 0))
    noted, own = statistics.median(engine.noted), statistics.median(block.own for _, block in found) / options.block
    per_second = options.rate / options.size
    counting = min(counted, COUNTING_SHARE)  # of every second
    spent = noted * per_second + counting + 4 * plain
    fastest = 1 / own
    most = noted * fastest + counting + 4 * plain
    print(
        f"for the page the engine's thread takes {1e3 * noted:.2f} ms after an epoch, {1e3 * plain:.2f} ms a look, "
        f"{1e3 * counted:.2f} ms to count state, in a second {1e3 * counting:.2f} ms at most: {100 * spent:.1f} % of "
        f"its time at {options.rate:,.0f} events a second, {100 * most:.1f} % at the "
        f"{options.size * fastest:,.0f} that it can do"
    )


def told(found: list[tuple[str, Block]], options: argparse.Namespace) -> None:
    """Each block with a page against the mean of those without one before it and after it."""
    per_second = options.rate / options.size
    print(
        f"{per_second:g} epochs of {options.size:,} events and 4 looks a second are {4 / per_second:.2f} looks an epoch"
    )
    for name in WAYS:
        mine = [(at, block) for at, (way, block) in enumerate(found) if way == name]
        own = statistics.median(block.own for _, block in mine) / options.block
        beside = [(at, (found[at - 1][1].own + found[at + 1][1].own) / 2) for at, _ in mine if 0 < at < len(found) - 1]
        lost = [found[at][1].own / others - 1 for at, others in beside]
        looks = sum(block.looks for _, block in mine) / (options.block * len(mine))
        others = sum(block.others for _, block in mine) / sum(block.clock for _, block in mine)
        spread = statistics.quantiles(lost, n=4) if len(lost) > 1 else [0.0] * 3
        print(
            f"{name:26} {1e3 * own:7.2f} ms of the engine's thread an epoch; against the epochs beside it "
            f"{100 * statistics.median(lost):+5.1f} % (half of {len(lost)} blocks from {100 * spread[0]:+.1f} to "
            f"{100 * spread[2]:+.1f}); {looks:4.2f} looks an epoch; other threads {100 * others:4.1f} % of a core"
        )


if __name__ == "__main__":
    main()
