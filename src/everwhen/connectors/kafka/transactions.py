"""One transaction per epoch, and the epoch's number in it: so an epoch is in the topic once, or not at all.

The number goes with every message (header `everwhen-epoch`: the id of the sink and the number), and into the offsets
that the transaction commits for the group `everwhen-<id>`: partition 0 of the topic, the number plus one.  After a
crash it is read there; if the broker has forgotten the group (offsets.retention.minutes), the newest message of this
sink says it.  An unfinished transaction of a crashed job is aborted when the next one begins with the same id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from everwhen.connectors.kafka.client import Topic
from everwhen.connectors.kafka.texts import Message
from everwhen.errors import SinkError

HEADER: Final = "everwhen-epoch"
_FIRST_LOOK: Final = 1000
_LOOK: Final = 0.02


class Transactions:
    """The writing side of a sink.  `id`: the transactional id; one job at a time writes with it."""

    def __init__(self, topic: Topic, id_: str) -> None:
        self.topic, self.id = topic, id_
        self._producer: Any = None
        self._reader: Any = None
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producer": None, "_reader": None, "_last": None}

    def open(self) -> None:
        """Connects, ends what an earlier job with this id has left open, and finds out which epoch is in."""
        self.close()
        try:
            with self.topic.explained(SinkError, "begin to write"):
                self._reader = self.topic.consumer(**{"group.id": f"everwhen-{self.id}"})
                self.topic.partitions(self._reader, SinkError)
                self._producer = self.topic.producer(**{"transactional.id": self.id})
                self._producer.init_transactions(max(self.topic.timeout, 30.0))
                self._last = self._find()
        except BaseException:
            self.close()
            raise

    def committed(self) -> int:
        if self._last is None:
            self.open()
        assert self._last is not None
        return self._last

    def write(self, epoch: int, messages: Iterable[Message], partition: int | None = None) -> None:
        """Writes an epoch, unless it is in."""
        if epoch <= self.committed():
            return
        listed = list(messages)
        if not listed:
            return
        try:
            with self.topic.explained(SinkError, f"commit epoch {epoch}"):
                self._write(epoch, listed, partition)
        except BaseException:
            self.close()  # what became of the transaction is found out by the next one
            raise
        self._last = epoch

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._producer is not None:
            self._producer.purge()  # else the library waits for a broker that may be away
        self._producer = self._reader = self._last = None

    # -- inside -------------------------------------------------------------------------------------------------

    def _write(self, epoch: int, messages: list[Message], partition: int | None) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        producer, topic = self._producer, self.topic.topic
        headers = {HEADER: f"{self.id}:{epoch}".encode()}
        where = {} if partition is None else {"partition": partition}
        producer.begin_transaction()
        try:
            for key, value in messages:
                while True:
                    try:
                        producer.produce(topic, value, key, headers=headers, **where)
                        break
                    except BufferError:  # the queue of the library is full: let it send
                        producer.poll(0.1)
            if producer.flush(self.topic.timeout):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "not all messages were taken in time"))
            noted = [TopicPartition(topic, 0, epoch + 1, metadata=self.id)]
            group = self._reader.consumer_group_metadata()
            self._again(lambda seconds: producer.send_offsets_to_transaction(noted, group, seconds))
            self._again(producer.commit_transaction)
        except BaseException:
            self._abort()
            raise

    def _again(self, call: Callable[[float], Any]) -> None:
        """Calls, and again where the broker asks for that and there is time left."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + self.topic.timeout
        while True:
            try:
                call(max(0.1, until - time.monotonic()))
                return
            except KafkaException as bad:
                if not bad.args[0].retriable() or time.monotonic() > until:
                    raise

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        with suppress(KafkaException):  # else it is aborted when the next one begins
            self._producer.abort_transaction(1.0)

    def _find(self) -> int:
        """The last epoch that is in."""
        from confluent_kafka import TopicPartition

        noted = self._reader.committed([TopicPartition(self.topic.topic, 0)], self.topic.timeout)[0]
        if noted.error is None and noted.offset > 0:
            return int(noted.offset) - 1
        parts = self.topic.partitions(self._reader, SinkError)
        return max((self._newest_in(part) for part in parts), default=-1)

    def _newest_in(self, part: int) -> int:
        """The epoch of the newest message of this sink in a partition, looking further and further back."""
        from confluent_kafka import TopicPartition

        topic = self.topic.topic
        low, high = self._reader.get_watermark_offsets(TopicPartition(topic, part), self.topic.timeout)
        end, length = high, _FIRST_LOOK
        while end > low:
            begin = max(low, end - length)
            found = self._newest_between(part, begin, end)
            if found >= 0:
                return found
            end, length = begin, 4 * length
        return -1

    def _newest_between(self, part: int, begin: int, end: int) -> int:
        from confluent_kafka import KafkaError, TopicPartition

        wanted = f"{self.id}:".encode()
        self._reader.assign([TopicPartition(self.topic.topic, part, begin)])
        newest, until = -1, time.monotonic() + self.topic.timeout
        try:
            while True:
                found = self._reader.consume(_FIRST_LOOK, _LOOK)
                if found:
                    until = time.monotonic() + self.topic.timeout
                elif time.monotonic() > until:
                    raise SinkError(
                        f"{self.topic.shown}: partition {part} cannot be read back: no answer within "
                        f"{self.topic.timeout:g} s (is a transaction of another producer open?)"
                    )
                for message in found:
                    if message.error() is not None:
                        if message.error().code() == KafkaError._PARTITION_EOF:
                            return newest
                        raise SinkError(f"{self.topic.shown}: {message.error().str()} (while it was read back)")
                    if message.offset() >= end:
                        return newest
                    for name, value in message.headers() or ():
                        if name == HEADER and value.startswith(wanted):
                            newest = max(newest, int(value[len(wanted) :]))
        finally:
            self._reader.unassign()
