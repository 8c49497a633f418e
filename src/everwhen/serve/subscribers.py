"""Who looks: each browser gets the newest frame whenever it is ready for one.

There is no queue to fill: a subscriber has seen frame `n`, and next gets the newest, with how many it has skipped.
What is sent waits for the socket, so a browser that reads nothing holds its own stream and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from everwhen.errors import EverwhenError

MOST: Final = 32
"""So many browsers may look at once."""
_PING: Final = 10.0
"""After so many seconds without a frame a comment is sent, so that both sides know that the other is there."""


class TooMany(EverwhenError):
    """No more may look."""


@dataclass(frozen=True, slots=True)
class View:
    """What a browser shows of an answer: a query, at an instant; None: now."""

    query: str
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What is shown at a moment: the session, and the answers that somebody looks at, as JSON."""

    number: int
    session: bytes
    answers: Mapping[View, bytes]


@dataclass(eq=False)
class Subscriber:
    view: View | None
    loop: asyncio.AbstractEventLoop
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    skipped: int = 0


class Subscribers:
    """All who look.  `opened` is called when the first one comes."""

    def __init__(self, most: int = MOST, opened: Callable[[], object] | None = None) -> None:
        self._most, self._opened = most, opened
        self._all: set[Subscriber] = set()
        self._lock = threading.Lock()
        self._over = False
        self.newest: Frame | None = None

    @property
    def count(self) -> int:
        return len(self._all)

    def views(self) -> set[View]:
        """What is looked at."""
        with self._lock:
            return {each.view for each in self._all if each.view is not None}

    def add(self, view: View | None) -> Subscriber:
        """One more who looks; `TooMany` if that is too many."""
        made = Subscriber(view, asyncio.get_running_loop())
        with self._lock:
            if len(self._all) >= self._most:
                raise TooMany(f"{len(self._all)} pages are open, and no more may be; close one")
            self._all.add(made)
            opened, self._opened = self._opened, None
        if opened is not None:
            opened()
        return made

    def leave(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._all.discard(subscriber)

    def publish(self, frame: Frame) -> None:
        """From any thread: there is a new frame.  Never waits."""
        self.newest = frame
        self._wake()

    def close(self) -> None:
        """All streams end."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting = list(self._all)
        for each in waiting:
            if not each.loop.is_closed():
                each.loop.call_soon_threadsafe(each.ready.set)

    async def stream(self, subscriber: Subscriber) -> AsyncIterator[bytes]:
        """Frames as server-sent events, until the browser leaves."""
        try:
            while not self._over:
                try:
                    await asyncio.wait_for(subscriber.ready.wait(), _PING)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                subscriber.ready.clear()
                frame = self.newest
                if frame is None or frame.number == subscriber.seen:
                    continue
                skipped = frame.number - subscriber.seen - 1 if subscriber.seen else 0
                subscriber.seen, subscriber.skipped = frame.number, subscriber.skipped + skipped
                yield _event(frame, subscriber, skipped)
        finally:
            self.leave(subscriber)


def _event(frame: Frame, subscriber: Subscriber, skipped: int) -> bytes:
    parts = [b"event: session\ndata: " + frame.session]
    answer = None if subscriber.view is None else frame.answers.get(subscriber.view)
    if answer is not None:
        parts.append(b"event: answer\ndata: " + answer)
    if skipped:
        parts.append(b'event: skipped\ndata: {"frames":%d,"in_all":%d}' % (skipped, subscriber.skipped))
    return b"\n\n".join(parts) + b"\n\n"
