"""A topic as a log: its partitions are the parts, offsets the positions.

What lies between two positions is given by partition and then by offset.  A position is always just behind a message
that was read, so reading to it again can tell whether the same messages are still there: if one of them was deleted
(retention, compaction), that is an error.  A position names the cluster, too: brokers may get other addresses, and
offsets of another cluster mean other messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from everwhen.connectors.changes.log import Plain
from everwhen.connectors.kafka.client import Topic
from everwhen.errors import SourceError, StateError

_LOOK: Final = 0.02
_REFRESH: Final = 30.0
_CLUSTER: Final = "cluster"
_REMEDY: Final = "take a new checkpoint and a new output, or restore the topic"


class TopicLog:
    """Messages by partition.  `start`: 'earliest' or 'latest'."""

    def __init__(self, topic: Topic, start: str = "earliest") -> None:
        self.topic, self.start = topic, start
        self._offsets: dict[int, int] = {}
        self._client: Any = None
        self._ahead: dict[int, deque[Any]] = {}
        self._down: float | None = None
        self._refreshed = 0.0
        self._ends: dict[int, int] = {}
        self._cluster: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        assert self._client is None, "it is open"
        return self.__dict__

    @property
    def shown(self) -> str:
        return self.topic.shown

    @property
    def is_there(self) -> bool:
        try:
            self._opened()
        except SourceError:
            return False
        return True

    @property
    def position(self) -> dict[str, Any]:
        known = {} if self._cluster is None else {_CLUSTER: self._cluster}
        return {**known, **{str(part): offset for part, offset in sorted(self._offsets.items())}}

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(map(str, sorted(self._offsets)))

    @property
    def lag(self) -> int | None:
        """Messages that are there and were not taken, as far as the client has heard."""
        if self._client is None:
            return None
        from confluent_kafka import TopicPartition

        total = 0
        for part, offset in self._offsets.items():
            found = self._client.get_watermark_offsets(TopicPartition(self.topic.topic, part), cached=True)
            total += max(0, (found[1] if found and found[1] > 0 else offset) - offset)
        return total

    def begin(self) -> None:
        from confluent_kafka import TopicPartition

        client = self._opened()
        parts = self.topic.partitions(client, SourceError)
        with self.topic.explained(SourceError):
            for part in parts:
                place = TopicPartition(self.topic.topic, part)
                low, high = client.get_watermark_offsets(place, timeout=self.topic.timeout)
                self._offsets[part] = low if self.start == "earliest" else high
        self._assign()

    def seek(self, position: Plain) -> None:
        there = self.topic.partitions(self._opened(), SourceError)
        self._offsets = self._offsets_of(position)
        self._ahead = {}
        if missing := sorted(set(self._offsets) - set(there)):
            raise StateError(f"{self.shown}: partition {missing[0]} was read and is gone ({_REMEDY})")
        self._assign()

    def take(self, most: int) -> list[Any] | None:
        self._look_for_partitions()
        found = list(islice(self._from_ahead(), most))
        until = time.monotonic() + _LOOK
        while len(found) < most:
            fresh = self._consume(min(most - len(found), 10_000), max(0.0, until - time.monotonic()))
            if not fresh:
                break
            found += fresh
        if not found:
            self._check_broker()
            return None
        self._down = None
        found.sort(key=lambda message: (message.partition(), message.offset()))
        for message in found:
            self._offsets[message.partition()] = message.offset() + 1
        return found

    def take_to(self, position: Plain) -> list[Any] | None:
        target = self._offsets_of(position)
        if fresh := set(target) - set(self._offsets):
            self._offsets |= dict.fromkeys(fresh, 0)
            self._assign()
        found: dict[int, list[Any]] = {part: [] for part in target}
        open_ = {part for part, offset in target.items() if self._offsets[part] < offset}
        until = time.monotonic() + self.topic.timeout
        while open_:
            for part in list(open_):
                waiting = self._ahead.get(part, deque())
                while waiting and waiting[0].offset() < target[part]:
                    found[part].append(waiting.popleft())
                    until = time.monotonic() + self.topic.timeout
                if found[part] and found[part][-1].offset() == target[part] - 1:
                    open_.discard(part)
                elif waiting or self._ends.get(part, -1) >= target[part]:
                    raise StateError(
                        f"{self.shown}: partition {part}, offset {target[part] - 1} was read before and is gone "
                        f"({_REMEDY})"
                    )
            if not open_:
                break
            for message in self._consume(10_000, 0.1):
                self._ahead.setdefault(message.partition(), deque()).append(message)
            if time.monotonic() > until:
                part = min(open_)
                raise StateError(
                    f"{self.shown}: partition {part} has no offset {target[part] - 1} any more, which was read before, "
                    f"or no broker answers at {self.topic.servers} ({_REMEDY})"
                )
        self._offsets |= target
        return [message for part in sorted(found) for message in found[part]] or None

    def passed(self, position: Plain) -> None:
        """A topic keeps what it keeps."""

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _opened(self) -> Any:
        if self._client is None:
            client = self.topic.consumer(error_cb=self._heard)
            try:
                self.topic.partitions(client, SourceError)
                self._cluster = self.topic.cluster(client)
            except BaseException:
                client.close()
                raise
            self._client = client
            self._refreshed = time.monotonic()
        return self._client

    def _offsets_of(self, position: Plain) -> dict[int, int]:
        """By partition; an error if they are those of another cluster."""
        read, here = position.get(_CLUSTER), self._cluster
        if None not in (read, here) and read != here:
            raise StateError(
                f"{self.shown}: what was read is of the cluster {read}, and at {self.topic.servers} is the cluster "
                f"{here}, where the same offsets are other messages (check the option servers; else {_REMEDY})"
            )
        return {int(part): offset for part, offset in position.items() if part != _CLUSTER}

    def _heard(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._down is None:
            self._down = time.monotonic()

    def _check_broker(self) -> None:
        """Raise if no broker has answered for a while."""
        if self._down is not None and time.monotonic() - self._down > self.topic.timeout:
            with self.topic.explained(SourceError):
                self._client.list_topics(timeout=1.0)
            self._down = None

    def _look_for_partitions(self) -> None:
        """A topic may get more partitions."""
        now = time.monotonic()
        if now - self._refreshed < _REFRESH or self._down is not None:
            return
        self._refreshed = now
        fresh = set(self.topic.partitions(self._opened(), SourceError)) - set(self._offsets)
        if fresh:
            self._offsets |= dict.fromkeys(fresh, 0)
            self._assign()

    def _assign(self) -> None:
        from confluent_kafka import TopicPartition

        self._ahead, self._ends = {}, {}
        with self.topic.explained(SourceError):
            places = [TopicPartition(self.topic.topic, part, offset) for part, offset in self._offsets.items()]
            self._opened().assign(places)

    def _from_ahead(self) -> Any:
        for part in sorted(self._ahead):
            while self._ahead[part]:
                yield self._ahead[part].popleft()

    def _consume(self, most: int, timeout: float) -> list[Any]:
        from confluent_kafka import KafkaError

        with self.topic.explained(SourceError):
            found: Sequence[Any] = self._opened().consume(most, timeout)
        if all(message.error() is None for message in found):
            return list(found)
        kept = []
        for message in found:
            error = message.error()
            if error is None:
                kept.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.partition()] = message.offset()
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                part = message.partition()
                raise StateError(
                    f"{self.shown}: partition {part}, offset {self._offsets.get(part)} was reached before and is not "
                    f"there any more, the topic was cleaned or made anew ({_REMEDY})"
                )
            elif error.fatal() or not error.retriable():
                raise SourceError(f"{self.shown}: {error.str()} ({self.topic.remedy(error)})")
        return kept
