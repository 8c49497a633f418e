"""The warehouse (Tucker, 1.1 and 7.2): two sensors report temperatures, doubles are dropped, each hour has its maximum.

As in the paper, rows have no time: they live on [0, ∞), and no CTI comes, so only punctuation settles anything.
`per_hour` punctuations are embedded in each hour of a sensor: the last says that the hour is over, the others say so of
the minutes since the one before; the query drops the minutes, so those help nobody, and cost something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import AttributePattern, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.stream.element_batch import ElementBatch
from scenarios.embedding import embedded

SENSORS: Final = ("Sensor1", "Sensor2")
_COLUMNS: Final = "sid VARCHAR, hour INT, minute INT, temp DOUBLE"
WAREHOUSE: Final = f"""CREATE STREAM Sensor1 ({_COLUMNS}) INSERT ONLY PUNCTUATE (GIVEN hour);
CREATE STREAM Sensor2 ({_COLUMNS}) INSERT ONLY PUNCTUATE (GIVEN hour);
SELECT hour, MAX(temp) AS hottest
FROM (SELECT hour, temp FROM Sensor1 UNION SELECT hour, temp FROM Sensor2) Report
GROUP BY hour
CONSISTENCY STRONG"""
_SCHEMA: Final = Schema.of([("sid", pa.string()), ("hour", pa.int64()), ("minute", pa.int64()), ("temp", pa.float64())])


def warehouse(hours: int, reports: int, per_hour: int, batch: int, seed: int = 7) -> Iterator[dict[str, ElementBatch]]:
    """Epochs of `batch` reports per sensor, which sends `reports` an hour; `per_hour` is 0 or divides 60."""
    if per_hour and 60 % per_hour:
        raise QueryError(f"{per_hour} punctuations an hour do not stand at whole minutes; take a divisor of 60")
    random = np.random.default_rng(seed)
    total = hours * reports
    parts = hours * per_hour
    said = 0
    for first in range(0, total, batch):
        number = np.arange(first, min(first + batch, total))
        promises = []
        while said < parts and -(-(said + 1) * reports // per_hour) <= number[-1] + 1:
            said += 1
            promises.append((-(-said * reports // per_hour) - first, _over(said - 1, per_hour)))
        epoch = {}
        for name in SENSORS:
            temp = np.round(70 + 8 * np.sin(number / reports) + random.normal(0, 2, len(number)), 2)
            columns = [
                pa.array([name.lower()] * len(number)), pa.array(number // reports),
                pa.array(number % reports * 60 // reports), pa.array(temp),
            ]  # fmt: skip
            epoch[name] = embedded(_SCHEMA, np.zeros(len(number), np.int64), columns, promises)
        yield epoch


def _over(part: int, per_hour: int) -> Punctuation:
    """That a part of an hour is over, or with its last part the hour."""
    hour, within = divmod(part, per_hour)
    match: dict[str, AttributePattern] = {"hour": OneOf((hour,))}
    if within < per_hour - 1:
        match["minute"] = Range(ge=60 * within // per_hour, lt=60 * (within + 1) // per_hour)
    return Punctuation(match)
