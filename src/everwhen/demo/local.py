"""The demo in process: all nine queries of the thesis at once, epochs as large as can be worked off in a moment."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from everwhen.algebra.builder import Stream
from everwhen.compiled.njit import compiling_at_once
from everwhen.core.time import INF, NEVER
from everwhen.demo.nexmark import queries as nexmark
from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.generator import FIRST_ID, STREAMS, NexmarkGenerator, generate
from everwhen.demo.results import Results
from everwhen.demo.story import Storyteller
from everwhen.demo.view import DemoView, InputView, PartView, progress_line, render, summary
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element_batch import CTI, ElementBatch

CONFIG: Final = NexmarkConfig(
    rate=1_000,
    auction_length=20_000,
    hot_item_every=50,
    burst=2.5,
    burst_period=30_000,
    late=0.05,
    lateness=1_000,
    corrections=0.01,
    duplicates=0.01,
    correction_delay=2_000,
    cti_interval=500,
)
TITLES: Final = {
    "q1": "in euros",
    "q2": "five items",
    "q3": "short auctions",
    "q4": "highest bid",
    "q5": "closing price",
    "q6": "hot items",
    "q7": "average price",
    "q8": "new sellers",
    "q9": "tumbling bid",
}
DEPTH: Final = 1
FIRST_EPOCH: Final = 1_000
SMALLEST_EPOCH: Final = 250
LARGEST_EPOCH: Final = 50_000
EPOCH_SECONDS: Final = 0.15  # an epoch is as large as can be worked off in this time
FRAME_SECONDS: Final = 0.2
RATE_SECONDS: Final = 3.0  # the rate shown is the average over so many seconds
WARM_UP_EVENTS: Final = 32_000
PLAIN_LINES: Final = 8
FIRST_WORDS: Final = (
    "Starting nine queries. At the very first start it is slow until loops are compiled, some minutes ..."
)


Make = Callable[[Mapping[str, Stream]], LocalRuntime]


def demo_queries() -> dict[str, Stream]:
    """The queries with windows of seconds instead of hours, and the closing prices computed once."""
    longest = CONFIG.auction_length
    closing = nexmark.closing_price(longest)
    popular = tuple(FIRST_ID + CONFIG.hot_item_every * i for i in (2, 20, 200, 1_000, 4_000))
    return {
        "q1": nexmark.currency_conversion(),
        "q2": nexmark.selection(popular),
        "q3": nexmark.short_auctions("5 s"),
        "q4": nexmark.highest_bid("10 s"),
        "q5": closing,
        "q6": nexmark.hot_items_by_maximum("10 s"),
        "q7": nexmark.average_selling_price(10, longest, closing),
        "q8": nexmark.new_sellers("10 s"),
        "q9": nexmark.highest_bid_tumbling("10 s"),
    }


class DemoRun(ABC):
    """What a run keeps, whatever runs it: what queries have said, and how fast events come."""

    rate_seconds, depth = RATE_SECONDS, DEPTH

    def __init__(self, queries: Iterable[str], limit: str, is_played: bool = False) -> None:
        self.results = {name: Results(is_played=is_played) for name in queries}
        self.storyteller = Storyteller()
        self.read = dict.fromkeys(STREAMS, 0)
        self.now = NEVER
        self.limit = limit
        self.began = time.monotonic()
        self._recent = deque([(self.began, 0)])

    def _take(self, outputs: Mapping[str, ElementBatch], before: int) -> None:
        for name, batch in outputs.items():
            self.results[name].take(batch, before, self.now)
            self.storyteller.take(name, batch, before, self.now)

    def _count(self, moment: float, events: int) -> None:
        """So many events have come by now."""
        self._recent.append((moment, events))
        while len(self._recent) > 2 and moment - self._recent[0][0] > self.rate_seconds:
            self._recent.popleft()

    def _seen(self, now: int) -> dict[str, Any]:
        """What a view shows at an instant, of both engines."""
        (first, then), (last, since) = self._recent[0], self._recent[-1]
        return {
            "limit": self.limit,
            "rate": (since - then) / (last - first) if last > first else 0.0,
            "now": now,
            "queries": [results.view(name, TITLES[name], now, self.depth) for name, results in self.results.items()],
            "inputs": [self._input(name) for name in STREAMS],
            "depth": self.depth,
            "stories": [story.told() for story in self.storyteller.told()],
        }

    @abstractmethod
    def _input(self, name: str) -> InputView:
        """What is shown of an input."""


class Demo(DemoRun):
    """A run: feeds the runtime epoch by epoch and keeps what the view shows."""

    def __init__(
        self,
        runtime: LocalRuntime,
        queries: Iterable[str],
        config: NexmarkConfig,
        limit: str = "",
        is_compiling: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(queries, limit)
        self.runtime = runtime
        self.is_compiling = is_compiling
        self.generator = NexmarkGenerator(config)
        self.newest: dict[str, int] = {}
        self.slot = 0
        self.shown = self.view()

    def run(self, show: Callable[[DemoView], None], seconds: float | None, events: int | None, frame: float) -> None:
        """Epochs until a limit is reached; shows a view every `frame` seconds."""
        size, drawn = FIRST_EPOCH, NEVER * 1.0
        while True:
            moment = time.monotonic()
            left = LARGEST_EPOCH if events is None else events - self.slot
            if left <= 0 or (seconds is not None and moment - self.began >= seconds):
                break
            self.step(min(size, left))
            took = time.monotonic() - moment
            factor = min(max(EPOCH_SECONDS / max(took, 1e-6), 0.5), 2.0)
            size = min(max(int(size * factor), SMALLEST_EPOCH), LARGEST_EPOCH)
            if time.monotonic() - drawn >= frame:
                self.shown = self.view()
                show(self.shown)
                drawn = time.monotonic()
        self.shown = self.view()

    def step(self, events: int) -> None:
        """One epoch of so many events."""
        batches = self.generator.read(self.slot, self.slot + events)
        before = self.now
        for name, batch in batches.items():
            data = batch.op != CTI
            if data.any():
                self.read[name] += int(np.count_nonzero(data))
                self.newest[name] = max(self.newest.get(name, NEVER), int(batch.vs[data].max()))
        self.now = max(self.newest.values(), default=NEVER)
        self._take(self.runtime.push(batches), before)
        self.slot += events
        self._count(time.monotonic(), self.slot)

    def close(self) -> None:
        """All inputs are complete: what is still open becomes final and the state goes."""
        open_view = self.shown
        self._take(self.runtime.close(), self.now)
        closed = self.view()
        left = sum(one.state_rows for one in closed.parts)
        self.shown = replace(closed, parts=open_view.parts, kept_after=left)

    def view(self) -> DemoView:
        """What is to be seen now."""
        return DemoView(
            elapsed=self._recent[-1][0] - self.began,
            events=self.slot,
            parts=[
                PartView(one.name, one.rows_in, one.rows_out, one.state_rows, one.state_bytes)
                for one in self.runtime.metadata()
            ],
            **self._seen(self.now),
            waiting="Loops are being compiled. Until then they are interpreted." if self.is_compiling() else "",
        )

    def _input(self, name: str) -> InputView:
        cti, newest = self.runtime.progress.get(name, NEVER), self.newest.get(name)
        lag = None if newest is None or cti in (NEVER, INF) else max(newest - cti, 0)
        return InputView(name, self.read[name], cti, lag)


def compile_behind(runtime: LocalRuntime) -> threading.Thread:
    """Compile the loops of a runtime in another thread, by sending events through it; returns at once."""

    def send() -> None:
        with suppress(Exception), compiling_at_once():  # what is wrong shows in the run itself
            for batches in generate(CONFIG, WARM_UP_EVENTS, epoch=WARM_UP_EVENTS // 4):
                runtime.push(batches)
            runtime.close()

    thread = threading.Thread(target=send, name="everwhen-loops", daemon=True)
    thread.start()
    return thread


def run_local(
    console: Console, plain: bool, seconds: float | None, events: int | None, make: Make | None = None
) -> int:
    """Run the demo until a limit or Ctrl-C; the exit status."""
    make = make or local_runtime
    queries = demo_queries()
    reason = "Done"
    demo = None
    try:
        if plain:
            console.print(FIRST_WORDS, soft_wrap=True)
        compiler = compile_behind(make(queries))
        demo = Demo(make(queries), queries, CONFIG, "" if seconds is None else f" of {seconds:g} s", compiler.is_alive)
        if plain:
            frame = max((seconds or 20.0) / PLAIN_LINES, 1.0)
            demo.run(lambda view: console.print(progress_line(view), soft_wrap=True), seconds, events, frame)
        else:
            with Live(Text(FIRST_WORDS), console=console, screen=True, auto_refresh=False) as live:
                live.refresh()
                demo.run(partial(_draw, live, console), seconds, events, FRAME_SECONDS)
        demo.close()
    except KeyboardInterrupt:
        reason = "Stopped"
    if demo is None:
        console.print("Stopped before the start.")
    else:
        console.print(summary(demo.shown, reason, console.width))
    return 0


def local_runtime(queries: Mapping[str, Stream]) -> LocalRuntime:
    """All queries in this process, answering at once and correcting later."""
    return LocalRuntime(dict(queries), emit="current")


def _draw(live: Live, console: Console, view: DemoView) -> None:
    live.update(render(view, console.width, console.height), refresh=True)
