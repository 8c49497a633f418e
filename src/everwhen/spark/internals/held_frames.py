"""Letting go of what frames without lineage hold, at once instead of when the JVM happens to collect them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


def release(frames: Iterable[DataFrame]) -> None:
    """Let go of frames that `localCheckpoint` gave."""
    for frame in frames:
        try:
            frame._jdf.queryExecution().logical().rdd().unpersist(False)
        except Py4JError as error:
            _log.debug("a held frame is left to the JVM: %s", error)
