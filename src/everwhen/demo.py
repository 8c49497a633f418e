"""The live demo: NEXMark in process, all queries of the thesis at once, with late, wrong and doubled bids.

It shows for every query what holds now, what it has said and what it had to correct; for every input how far it has
promised to be complete; and what every operator keeps.  Without a terminal, or with `--plain`, it prints a few lines
of progress and the summary instead.  The demo ends by itself, or cleanly on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from types import FrameType
from typing import Any, Final, Protocol

import numpy as np
from rich.console import Console
from rich.live import Live

from everwhen.api import Stream
from everwhen.connectors.nexmark import queries as nexmark
from everwhen.connectors.nexmark.config import NexmarkConfig
from everwhen.connectors.nexmark.generator import FIRST_ID, STREAMS, NexmarkGenerator, generate
from everwhen.demo_view import (
    DemoView,
    InputView,
    OperatorView,
    QueryView,
    progress_line,
    render,
    show_row,
    summary,
)
from everwhen.model.elements import ADJUST, CTI, INSERT, ElementBatch
from everwhen.model.time import INF, NEVER
from everwhen.runtime.local import LocalRuntime

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
FIRST_EPOCH: Final = 1_000
SMALLEST_EPOCH: Final = 250
LARGEST_EPOCH: Final = 50_000
EPOCH_SECONDS: Final = 0.15  # an epoch is as large as can be worked off in this time
FRAME_SECONDS: Final = 0.2
RATE_SECONDS: Final = 3.0  # the rate shown is the average over so many seconds
WARM_UP_EVENTS: Final = 32_000
DEFAULT_SECONDS: Final = 60.0
PLAIN_LINES: Final = 8


class Runtime(Protocol):
    """What the demo needs of a runtime; `everwhen.runtime.local.LocalRuntime` is one."""

    @property
    def progress(self) -> Mapping[str, int]: ...

    def push(self, batches: dict[str, ElementBatch]) -> Mapping[str, ElementBatch]: ...

    def close(self) -> Mapping[str, ElementBatch]: ...

    def metadata(self) -> Sequence[Any]: ...


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


@dataclass
class Results:
    """What a query's output says: the rows alive at the latest instant, and counts of what was said.

    Only events that reach the latest instant are looked at one by one, so that a busy query costs no more than a
    quiet one; those that have ended go when the table has doubled.  An adjust counts as a correction if it changes an
    instant that had been answered before its epoch; the others end a result because time went on.
    """

    rows: dict[tuple[int, int, tuple[Any, ...]], int] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    inserts: int = 0
    ended: int = 0
    corrected: int = 0
    last: tuple[Any, ...] | None = None
    purged_to: int = 0

    def take(self, batch: ElementBatch, before: int, now: int) -> None:
        """One epoch's output; `before` and `now` are the latest instants before and after it."""
        self.columns = batch.schema.names
        inserts, adjusts = batch.op == INSERT, batch.op == ADJUST
        sync = np.minimum(batch.ve, batch.vnew)
        corrected = int(np.count_nonzero(adjusts & (sync <= before)))
        self.inserts += int(np.count_nonzero(inserts))
        self.corrected += corrected
        self.ended += int(np.count_nonzero(adjusts)) - corrected
        if inserts.any():
            self.last = self._row(batch, int(np.flatnonzero(inserts)[-1]))
        reaching = (inserts & (batch.ve > now)) | (adjusts & (np.maximum(batch.ve, batch.vnew) > now))
        for i in np.flatnonzero(reaching).tolist():
            vs, ve, row = int(batch.vs[i]), int(batch.ve[i]), self._row(batch, i)
            if inserts[i]:
                self._add((vs, ve, row), 1)
            else:
                self._add((vs, ve, row), -1)
                if batch.vnew[i] > vs:
                    self._add((vs, int(batch.vnew[i]), row), 1)
        if len(self.rows) > 2 * self.purged_to + 100:
            self.rows = {key: copies for key, copies in self.rows.items() if key[1] > now}
            self.purged_to = len(self.rows)

    def alive(self, now: int) -> list[tuple[int, tuple[Any, ...]]]:
        """The starts and rows of what is alive at `now`."""
        return [(vs, row) for (vs, ve, row), copies in self.rows.items() if vs <= now < ve for _ in range(copies)]

    def view(self, name: str, now: int) -> QueryView:
        """The newest row alive stands for all; where none is, the last one said."""
        alive = self.alive(now)
        row = max(alive, key=itemgetter(0))[1] if alive else self.last
        text = "" if row is None else show_row(zip(self.columns, row, strict=True))
        title = TITLES.get(name, "")
        return QueryView(name, title, len(alive), self.inserts, self.ended, self.corrected, text, bool(alive))

    def _add(self, key: tuple[int, int, tuple[Any, ...]], copies: int) -> None:
        left = self.rows.get(key, 0) + copies
        if left:
            self.rows[key] = left
        else:
            self.rows.pop(key, None)

    @staticmethod
    def _row(batch: ElementBatch, i: int) -> tuple[Any, ...]:
        return tuple(column[i].as_py() for column in batch.columns)


class Demo:
    """A run: feeds the runtime epoch by epoch and keeps what the view shows."""

    def __init__(self, runtime: Runtime, queries: Iterable[str], config: NexmarkConfig, limit: str = "") -> None:
        self.runtime = runtime
        self.generator = NexmarkGenerator(config)
        self.results = {name: Results() for name in queries}
        self.read = dict.fromkeys(STREAMS, 0)
        self.newest: dict[str, int] = {}
        self.now = NEVER
        self.slot = 0
        self.limit = limit
        self.began = time.monotonic()
        self._recent = deque([(self.began, 0)])
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
        moment = time.monotonic()
        self._recent.append((moment, self.slot))
        while len(self._recent) > 2 and moment - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()

    def close(self) -> None:
        """All inputs are complete: what is still open becomes final and the state goes."""
        open_view = self.shown
        self._take(self.runtime.close(), self.now)
        closed = self.view()
        left = sum(one.state_rows for one in closed.operators)
        self.shown = replace(closed, operators=open_view.operators, kept_after=left)

    def view(self) -> DemoView:
        """What is to be seen now."""
        (first, then), (last, since) = self._recent[0], self._recent[-1]
        return DemoView(
            elapsed=last - self.began,
            limit=self.limit,
            events=self.slot,
            rate=(since - then) / (last - first) if last > first else 0.0,
            now=self.now,
            queries=[results.view(name, self.now) for name, results in self.results.items()],
            inputs=[self._input(name) for name in STREAMS],
            operators=[
                OperatorView(one.name, one.rows_in, one.rows_out, one.state_rows, one.state_bytes)
                for one in self.runtime.metadata()
            ],
        )

    def _input(self, name: str) -> InputView:
        cti, newest = self.runtime.progress.get(name, NEVER), self.newest.get(name)
        lag = None if newest is None or cti in (NEVER, INF) else max(newest - cti, 0)
        return InputView(name, self.read[name], cti, lag)

    def _take(self, outputs: Mapping[str, ElementBatch], before: int) -> None:
        for name, batch in outputs.items():
            self.results[name].take(batch, before, self.now)


def warm_up(runtime: Runtime) -> None:
    """Send enough events through a runtime of its own that every kernel has been compiled once."""
    for batches in generate(CONFIG, WARM_UP_EVENTS, epoch=WARM_UP_EVENTS // 4):
        runtime.push(batches)
    runtime.close()


def main(
    argv: Sequence[str] | None = None,
    *,
    console: Console | None = None,
    runtime: Callable[[Mapping[str, Stream]], Runtime] | None = None,
) -> int:
    """Run the demo; `console` and `runtime` can be handed in by tests."""
    options = _arguments().parse_args(argv)
    console = console or Console()
    make = runtime or _local
    plain = options.plain or not console.is_terminal
    seconds = options.seconds if options.seconds is not None or options.events else DEFAULT_SECONDS
    limit = f" of {seconds:g} s" if seconds is not None else ""
    queries = demo_queries()
    reason = "Done"
    demo = None
    try:
        with _preparing(console, plain):
            warm_up(make(queries))
        demo = Demo(make(queries), queries, CONFIG, limit)
        if plain:
            frame = max((seconds or 20.0) / PLAIN_LINES, 1.0)
            demo.run(lambda view: console.print(progress_line(view), soft_wrap=True), seconds, options.events, frame)
        else:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                show = partial(_draw, live, console)
                demo.run(show, seconds, options.events, FRAME_SECONDS)
        demo.close()
    except KeyboardInterrupt:
        reason = "Stopped"
    if demo is None:
        console.print("Stopped before the start.")
    else:
        console.print(summary(demo.shown, reason, console.width))
    return 0


def _local(queries: Mapping[str, Stream]) -> Runtime:
    return LocalRuntime(dict(queries), emit="current")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="everwhen demo", description="NEXMark, live in the terminal.")
    words = f"how long to run (default {DEFAULT_SECONDS:g} unless --events is given)"
    parser.add_argument("--seconds", type=_positive(float), help=words)
    parser.add_argument("--events", type=_positive(int), help="stop after so many events")
    parser.add_argument("--plain", action="store_true", help="lines of progress instead of the live view")
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = kind(0)
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"a positive number is needed, not {text!r}")
        return number

    return convert


@contextmanager
def _preparing(console: Console, plain: bool) -> Iterator[None]:
    words = "Preparing: at the first start the kernels are compiled, which takes a while ..."
    with _interruptible(console):
        if plain:
            console.print(words, soft_wrap=True)
            yield
        else:
            with console.status(words):
                yield


@contextmanager
def _interruptible(console: Console) -> Iterator[None]:
    """Let Ctrl-C end the program at once: the compiler would swallow it, and there is nothing to tidy up yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        console.show_cursor(True)
        console.print("\ninterrupted while preparing")
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _draw(live: Live, console: Console, view: DemoView) -> None:
    live.update(render(view, console.width, console.height), refresh=True)
