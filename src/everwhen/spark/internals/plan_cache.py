"""What Spark has planned for an epoch: run in two jobs, and kept for the epochs after it.

    rows of the epoch ─▶ … ─▶ counted ─▶ exchange │ ─▶ stage 1 ─▶ exchange ─▶ stage 2 … ─▶ answers
                                       first job  │  second job

Every partition has to know how far the source has come before it begins, and that is known when all rows have been
counted: after the first job, which leaves the rows where the second one fetches them.  So rows are read once, and
nothing has to be held in memory in between.

Epochs differ in their rows alone.  Spark takes a tenth of a second or two to build and plan a query; what it comes to
is a chain of operators, which is put upon the rows of the next epoch as it is.  It is put upon the very operators that
read them: a frame that is handed to `foreachBatch` would give them one by one, and take as long as merging them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

_QUERY: Final = "sql.streaming.queryId"
_ROWS: Final = "RDDScanExec"
_COUNTS: Final = "CollectMetricsExec"
_EXCHANGE: Final = "ShuffleExchangeExec"
_COMPILED: Final = "WholeStageCodegenExec"
_BORDER: Final = "InputAdapter"
_FEW: Final = 2
"""As many tasks per partition may merge rows without anyone merging what they have merged, before Python."""


@dataclass(frozen=True)
class _Operator:
    """An operator of Spark, and its kind."""

    plan: Any
    kind: str

    @staticmethod
    def of(plan: Any) -> _Operator:
        return _Operator(plan, plan.getClass().getSimpleName())

    def upon(self, below: Any) -> Any:
        """The same operator, upon another one (`withNewChildren` takes a list: four calls instead of one)."""
        return self.plan.withNewChildInternal(below)


class CachedPlan:
    """The operators from the rows of an epoch to its answers, one upon the other."""

    @staticmethod
    def of(frame: DataFrame) -> CachedPlan | None:
        """What Spark makes of a frame; None if that is no chain in which rows are counted before an exchange."""
        operators = [_Operator.of(frame._jdf.queryExecution().executedPlan())]
        while (children := operators[-1].plan.children()).size() == 1:
            operators.append(_Operator.of(children.head()))
        leaf, *chain = reversed(operators)
        kinds = [operator.kind for operator in chain]
        counts = kinds.index(_COUNTS) if _COUNTS in kinds else len(kinds)
        if _EXCHANGE not in kinds[counts:]:
            return None
        return CachedPlan(frame, leaf, chain, counts, kinds.index(_EXCHANGE, counts))

    def __init__(
        self, frame: DataFrame, leaf: _Operator, chain: Sequence[_Operator], counts: int, crosses: int
    ) -> None:
        self._session, self._schema = frame.sparkSession, frame._jdf.schema()
        self._leaf, self._chain, self._counts, self._crosses = leaf, chain, counts, crosses
        self._columns = leaf.plan.output()
        borders = [operator.kind for operator in chain if operator.kind in (_COMPILED, _BORDER, _EXCHANGE)]
        self._compiled = borders[0] == _COMPILED
        """Whether the lowest operators are compiled into one piece of code."""

    def fits(self, frame: DataFrame) -> bool:
        """Whether the chain can be put upon the rows of another epoch."""
        return self._leaf.kind == _ROWS and bool(self._columns.equals(frame._jdf.logicalPlan().output()))

    def count(self, frame: DataFrame, epoch: int, partitions: int, session: SparkSession) -> Counted:
        """The first job, over the rows of a frame, that of an epoch of a query that was started in a session."""
        plan = self._rows(frame, epoch, session)
        rows = frame._jdf.logicalPlan().rdd() if self._leaf.kind == _ROWS else plan.execute()
        few = rows.getNumPartitions() <= _FEW * partitions
        counts = None
        for at, operator in enumerate(self._chain[: self._crosses + 1]):
            if not (few and at < self._counts and operator.kind == _EXCHANGE):
                plan = operator.upon(plan)
            if at == self._counts:
                counts = plan
        assert counts is not None
        waiting = _jvm().scala.concurrent
        with unwrap_spark_exception():
            waiting.Await.result(plan.submitShuffleJob(), waiting.duration.Duration.Inf())
        row = counts.collectedMetrics()
        return Counted(self, plan, tuple(row.get(i) for i in range(row.size())))

    def _rows(self, frame: DataFrame, epoch: int, session: SparkSession) -> Any:
        """What the chain is put upon."""
        if self._leaf.kind != _ROWS:
            return self._leaf.plan
        reads = _reading(session, epoch)
        if reads is None or not self._columns.equals(reads.plan.output()):
            return frame._jdf.queryExecution().sparkPlan()
        if not self._compiled:
            return reads.plan
        if reads.kind == _COMPILED:  # what is compiled together passes rows on without writing them down
            return reads.plan.child()
        return getattr(_jvm(), "org.apache.spark.sql.execution.InputAdapter")(reads.plan)

    def answers(self, exchange: Any) -> pa.Table:
        """The second job, behind the exchange of the first one."""
        plan = exchange
        for operator in self._chain[self._crosses + 1 :]:
            plan = operator.upon(plan)
        found = self._session._jsparkSession.internalCreateDataFrame(plan.execute(), self._schema, False)
        return ClassicFrame(found, self._session).toArrow()


@dataclass(frozen=True)
class Counted:
    """Rows that have been counted and stand before the stages."""

    chain: CachedPlan
    exchange: Any
    statistics: tuple[int | None, ...]

    def answers(self) -> pa.Table:
        return self.chain.answers(self.exchange)


def _reading(session: SparkSession, epoch: int) -> _Operator | None:
    """The operators that read the rows of the epoch under way; None if they cannot be found."""
    id_ = session.sparkContext.getLocalProperty(_QUERY)
    query = None if id_ is None else session._jsparkSession.streams().get(id_)
    execution = None if query is None else query.streamingQuery().lastExecution()
    if execution is None or execution.currentBatchId() != epoch:
        return None
    return _Operator.of(execution.executedPlan())


def _jvm() -> Any:
    context = SparkContext._active_spark_context
    assert context is not None
    return context._jvm
