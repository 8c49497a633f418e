"""A topic as a sink: elements as JSON lines have them, or rows in one of the other forms."""

from __future__ import annotations

import time

from everwhen.connectors.kafka.texts import messages_of
from everwhen.connectors.kafka.transactions import Transactions
from everwhen.core.scalars import json_texts
from everwhen.core.schema import Schema
from everwhen.errors import QueryError, SinkError
from everwhen.formats.json.lines import jsonlines
from everwhen.sinks.base import EpochSink
from everwhen.sinks.rows import RowChanges, RowSink
from everwhen.stream.element_batch import ElementBatch


class TopicElements(EpochSink):
    """Elements, one message each, in one partition: so their order, and with it their promises, are kept."""

    lasting = True

    def __init__(self, transactions: Transactions, partition: int = 0) -> None:
        self.transactions, self.partition = transactions, partition

    def prepare(self, schema: Schema) -> None:
        _require_json(self.transactions, schema)
        self.transactions.open()

    def committed(self) -> int:
        return self.transactions.committed()

    def commit(self, epoch: int, batch: ElementBatch) -> None:
        messages = ((None, line.encode()) for line in jsonlines(batch))
        self.transactions.write(epoch, messages, self.partition)

    def close(self) -> None:
        self.transactions.close()


class TopicRows(RowSink):
    """Rows, by key in the partitions of the topic."""

    def __init__(self, transactions: Transactions, key: tuple[str, ...]) -> None:
        self.transactions, self.key = transactions, key

    def prepare(self, schema: Schema) -> None:
        _require_json(self.transactions, schema)
        for name in self.key:
            schema.index(name, "the key of the sink")
        self.transactions.open()

    def committed(self) -> int:
        return self.transactions.committed()

    def commit(self, epoch: int, changes: RowChanges) -> None:
        self.transactions.write(epoch, messages_of(changes, self.key, time.time_ns() // 10**6))

    def close(self) -> None:
        self.transactions.close()


def _require_json(transactions: Transactions, schema: Schema) -> None:
    import pyarrow as pa

    try:
        for field in schema:
            json_texts(pa.array([], field.type))
    except QueryError as bad:
        raise SinkError(f"{transactions.topic.shown}: {bad} (cast the column)") from None
