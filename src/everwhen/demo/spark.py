"""The demo on Spark: four queries in one `start`, over four paced streams, on all cores of this machine.

Spark starts in one thread, so that the terminal always says what is happening and Ctrl-C works at any moment.  Loops
that are not compiled yet are compiled in a process of its own (`loops.py`), with what the others leave of the
processor; until then workers interpret them.  The streams are paced, and an epoch takes two seconds of them at the
most, so that a slow machine shows the same at a slower pace.  What is written goes to a temporary directory, which is
removed at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.live import Live

from everwhen.core.time import INF, NEVER
from everwhen.demo import loops
from everwhen.demo.local import DemoRun
from everwhen.demo.loops import CONFIG, RATE, demo_queries
from everwhen.demo.nexmark.generator import STREAMS
from everwhen.demo.view import DemoView, InputView, PartView, progress_line, render, summary
from everwhen.errors import EverwhenError
from everwhen.spark.api.launch import children, heard_by, told_signals
from everwhen.stream.element_batch import ElementBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from everwhen.spark import EpochReport, Handle

EPOCH_ROWS: Final = 2 * RATE  # at most so many in an epoch; one task makes them in 0.04 s, so there is one per stream
FIRST_ROWS: Final = RATE // 10  # in the first one, so that there is something to see
DEPTH: Final = 4
FRAME_SECONDS: Final = 0.25
RATE_SECONDS: Final = 5.0  # the rate shown is the average over so many seconds
PLAIN_LINES: Final = 8
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    # It lives for a minute: what the JVM's second compiler would save later it costs now, 10 of 24 s until queries run.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
INSTEAD: Final = "Without Spark: everwhen demo --engine local"


# -- start ---------------------------------------------------------------------------------------------------------


@dataclass
class Launch:
    """Spark and the queries, started in the background.

    `words` say what is being done; `handle` is there once the queries run; `error` if that failed.
    """

    sinks: Mapping[str, Callable[[int, ElementBatch], None]]
    events: int | None
    words: str = ""
    spark: SparkSession | None = None
    handle: Handle | None = None
    error: BaseException | None = None
    place: str = ""
    closed: bool = False
    loops: subprocess.Popen[bytes] | None = None
    _lock: Any = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _others: frozenset[int] = frozenset()

    def begin(self) -> None:
        """Returns at once."""
        self.words = "Starting Spark, which takes about ten seconds"
        self._others = children()
        self.compile_behind(10)
        self._thread = threading.Thread(target=self._run, name="everwhen-launch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        queries = demo_queries()
        try:
            from everwhen import spark as api
            from everwhen.demo.nexmark import spark_source

            with self._lock:
                if self.closed:
                    return
                self.place = tempfile.mkdtemp(prefix="everwhen-demo-")
            with heard_by(f"{self.place}/spark.log"):
                started = api.session("local[*]", "everwhen demo", **SETTINGS)
            with self._lock:
                self.spark = started
                if self.closed:
                    return
            self.words = "Planning the queries"
            spark_source.register(started)
            inputs = {
                name: started.readStream.format("nexmark").options(**self._options(name)).load() for name in STREAMS
            }
            handle = api.start(queries, inputs, sink=dict(self.sinks), checkpoint=f"{self.place}/checkpoint")
            with self._lock:
                self.handle = handle
            self.words = "Running the first epoch; it takes longer at the very first start, while loops are compiled"
        except BaseException as bad:  # told to whoever waits for the handle
            self.error = bad

    def _options(self, name: str) -> dict[str, str]:
        from everwhen.demo.nexmark.spark_source import options

        bounds = {} if self.events is None else {"events": self.events}
        paced = {"rows_per_second": RATE, "rows_per_batch": EPOCH_ROWS, "first_rows": FIRST_ROWS, "partitions": 1}
        return options(name, CONFIG, **paced, **bounds)

    def compile_behind(self, niceness: int) -> None:
        """Compile loops in a process of its own; they are kept on disk, where Spark's workers find them.  Returns at
        once.  Another such process, of another niceness, ends."""
        quiet, command = subprocess.DEVNULL, [sys.executable, "-m", loops.__name__, str(niceness)]
        if self.loops is None or self.loops.poll() is None:
            self._leave_loops()
            self.loops = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)

    def _leave_loops(self) -> None:
        if self.loops is not None:
            self.loops.kill()
            self.loops.wait()

    def close(self) -> None:
        """Stops what has been started and removes what has been written."""
        with self._lock:
            self.closed = True
        self._leave_loops()
        with suppress(Exception):  # who was asked to end with all of us may be gone already
            if self.handle is not None:
                self.handle.stop()
        if self.spark is not None:
            with suppress(Exception):
                self.spark.stop()
        elif self._thread is not None:
            # PySpark knows its JVM only once that is up.  Left alone it would end by itself, but not without a word.
            for process in children() - self._others:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)
            self._thread.join(5.0)
        if self.place:
            shutil.rmtree(self.place, ignore_errors=True)


# -- the run -------------------------------------------------------------------------------------------------------


class SparkDemo(DemoRun):
    """What has come out so far.  The sinks hand elements in; `take` counts an epoch when its report is there."""

    rate_seconds, depth = RATE_SECONDS, DEPTH

    def __init__(self, queries: Sequence[str], limit: str = "") -> None:
        super().__init__(queries, limit, is_played=True)
        self.before = NEVER
        self.last = self.began
        self.first = 0  # events of the first epochs, which came before the clock was started
        self.pace = 1.0
        self.report: EpochReport | None = None
        self._arrived: dict[int, dict[str, ElementBatch]] = {}
        self._rows_in: dict[int, int] = {}

    def sink(self, name: str) -> Callable[[int, ElementBatch], None]:
        """A sink for the elements of one query; they wait until the epoch is counted."""

        def take(epoch: int, batch: ElementBatch) -> None:
            self._arrived.setdefault(epoch, {})[name] = batch

        return take

    def take(self, reports: Sequence[EpochReport]) -> bool:
        """Counts the epochs that were not counted yet; whether there was one."""
        seen = -1 if self.report is None else self.report.epoch
        news = [report for report in reports if report.epoch > seen]
        for report in news:
            self.before, self.now = self.now, max(self.now, report.tau)
            self._take(self._arrived.pop(report.epoch, {}), self.before)
            for name in self.read:
                self.read[name] += max((note["fed"].get(name, 0) for note in report.buckets), default=0)
            for note in report.buckets:
                self._rows_in[note["stage"]] = self._rows_in.get(note["stage"], 0) + note["rows_in"]
            self.report = report
        if news:
            moment = time.monotonic()
            self.pace, self.last = max(moment - self.last, 0.1), moment
            self._count(self.last, sum(self.read.values()))
        return bool(news)

    def start_clock(self) -> None:
        """Time counts from the last epoch on, and so do events."""
        self.began, self.first = self.last, sum(self.read.values())

    @property
    def ended(self) -> bool:
        """Whether a bounded run is over."""
        return self.report is not None and min(self.report.progress.values(), default=NEVER) == INF

    def playing(self, moment: float) -> int:
        """The instant to show: while an epoch is under way, the instants of the one before it pass by, in about the
        time that an epoch takes."""
        if self.before == NEVER:
            return self.now
        share = min((moment - self.last) / self.pace, 1.0)
        return self.before + int((self.now - self.before) * share)

    def view(self, live: bool = True) -> DemoView:
        """What is to be seen now; `live`: an epoch is under way."""
        moment = time.monotonic()
        return DemoView(
            elapsed=max((moment if live else self.last) - self.began, 0.0),
            events=sum(self.read.values()),
            before=self.first,
            **self._seen(self.playing(moment) if live else self.now),
            parts=self._stages(),
            part="stage",
            engine="NEXMark on Spark",
            epochs=self._epochs(moment if live else None),
            waiting=self._waiting(),
        )

    def _input(self, name: str) -> InputView:
        cti = NEVER if self.report is None else self.report.progress.get(name, NEVER)
        lag = None if NEVER in (cti, self.now) or cti == INF else max(self.now - cti, 0)
        return InputView(name, self.read[name], cti, lag, name in self._holding())

    def _holding(self) -> tuple[str, ...]:
        held = () if self.report is None else self.report.holding
        return held if len(held) < len(STREAMS) else ()

    def _waiting(self) -> str:
        if self.report is None or self.ended:
            return ""
        held = self._holding()
        who = f"{', '.join(held)} hold{'s' if len(held) == 1 else ''} progress back" if held else "all inputs are level"
        return f"5% late, 1% wrong at first, 1% twice; {who}."

    def _epochs(self, moment: float | None) -> str:
        if self.report is None:
            return ""
        if moment is None:
            return f"Epochs: {self.report.epoch + 1}, the last in {self.report.seconds:.1f} s."
        return f"Epoch {self.report.epoch}: {self.report.seconds:.1f} s, next: {moment - self.last:.1f} s."

    def _stages(self) -> list[PartView]:
        notes = () if self.report is None else self.report.buckets
        found = []
        for stage in sorted({note["stage"] for note in notes}):
            mine = [note for note in notes if note["stage"] == stage]
            kept = [sum(note[what] for note in mine) for what in ("rows_out", "state_rows", "state_bytes")]
            found.append(PartView(f"{stage} in {len(mine)} partitions", self._rows_in.get(stage, 0), *kept))
        return found


def run_spark(console: Console, plain: bool, seconds: float | None, events: int | None) -> int:
    """Run the demo until a limit or Ctrl-C; the exit status."""
    demo = SparkDemo(list(demo_queries()), "" if seconds is None else f" of {seconds:g} s")
    launch = Launch({name: demo.sink(name) for name in demo.results}, events)
    stop = threading.Event()
    with told_signals(lambda _: stop.set()):
        launch.begin()
        started = _await_first_epoch(console, plain, launch, demo, stop)
        if started:
            demo.start_clock()
            launch.compile_behind(0)  # not before: the first answer would wait for the processor
            assert launch.handle is not None
            if plain:
                _run_plain(console, launch.handle, demo, seconds, stop)
            else:
                _run_live(console, launch.handle, demo, seconds, stop)
        error = launch.error or (launch.handle.last_error if launch.handle is not None else None)
        if stop.is_set() and launch.handle is None:
            console.print("Stopped before the start.")
        with nullcontext() if plain else console.status("Stopping Spark ..."):
            launch.close()
    if error is not None:
        return _failed(console, error, running=started)
    if started:
        console.print(summary(demo.view(live=False), "Stopped" if stop.is_set() else "Done", console.width))
    elif launch.handle is not None:
        console.print("Stopped before the first epoch was done.")
    return 0


def _await_first_epoch(console: Console, plain: bool, launch: Launch, demo: SparkDemo, stop: threading.Event) -> bool:
    """Says what is happening until there is something to see; whether there is."""
    began, said = time.monotonic(), ""
    with console.status(launch.words) if not plain else nullcontext() as status:
        while not stop.is_set() and launch.error is None:
            if launch.handle is not None:
                if demo.take(launch.handle.recent) and demo.now > NEVER:
                    return True
                if not launch.handle.is_active:
                    return False
            if plain and launch.words != said:
                console.print(f"{time.monotonic() - began:.0f} s: {launch.words} ...", soft_wrap=True)
            elif status is not None:
                status.update(f"{launch.words} ... {time.monotonic() - began:.0f} s")
            said = launch.words
            stop.wait(FRAME_SECONDS)
    return False


def _run_plain(console: Console, handle: Handle, demo: SparkDemo, seconds: float | None, stop: threading.Event) -> None:
    every = max((seconds or 20.0) / PLAIN_LINES, 1.0)
    shown = time.monotonic()
    for _ in _frames(handle, demo, seconds, stop):
        if time.monotonic() - shown >= every:
            shown = time.monotonic()
            console.print(progress_line(demo.view()), soft_wrap=True)


def _run_live(console: Console, handle: Handle, demo: SparkDemo, seconds: float | None, stop: threading.Event) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for _ in _frames(handle, demo, seconds, stop):
            live.update(render(demo.view(), console.width, console.height), refresh=True)


def _frames(handle: Handle, demo: SparkDemo, seconds: float | None, stop: threading.Event) -> Iterator[None]:
    """A moment to draw, again and again, until the time is over, all is read, Ctrl-C is pressed or the query ends."""
    while not stop.is_set() and not demo.ended and handle.is_active:
        if seconds is not None and time.monotonic() - demo.began >= seconds:
            break
        demo.take(handle.recent)
        yield
        stop.wait(FRAME_SECONDS)
    demo.take(handle.recent)


def _failed(console: Console, error: BaseException, running: bool) -> int:
    what = "The demo failed" if running else "The demo on Spark could not start"
    text = str(error) if isinstance(error, EverwhenError) else f"{type(error).__name__}: {str(error).splitlines()[0]}"
    console.print(f"{what}: {text}", soft_wrap=True, markup=False, highlight=False)
    console.print(INSTEAD, soft_wrap=True, highlight=False)
    return 1
