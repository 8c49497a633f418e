"""Punctuate inside a plan: the input as it is, with the promises that follow from its schemes (Tucker, 6.2).

What the input promises goes on; what the punctuator derives comes beside it.  The rows of one step are an epoch
without order, so a row is compared with what earlier steps have promised.  A row that breaks a promise ends the query
with an error, before anything of the step goes on.  On a source the guard does the same, element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everwhen.core.punctuation import Frontier
from everwhen.errors import InputError
from everwhen.operators.contract import Operator, Output, StateSize
from everwhen.operators.punctuate.punctuator import Punctuator
from everwhen.punctuation.schemes import Scheme, described
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec


class PunctuateOperator(Operator):
    """The identity on changes; see the module's docstring."""

    keeps = "what its schemes need to know of the rows that came"

    def __init__(self, schemes: Sequence[Scheme], codec: RowCodec) -> None:
        self.codec = codec
        self._words = described(schemes)
        self._punctuator = Punctuator(schemes, codec.schema, ordered=False)

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        (batch,) = inputs
        index = self.codec.schema.index
        columns = {name: self.codec.column(batch.rows, index(name)) for name in self._punctuator.reads}
        found = self._punctuator.observe(columns, len(batch))
        if found.broken is not None:
            raise InputError(found.broken.problem, source=f"{self._words} inside the plan", remedy=found.broken.remedy)
        self._punctuator.settle()
        frontier = frontiers[0]
        if found.promises:
            frontier = Frontier(frontier.time, (*frontier.promises, *found.promises))
        return Output(batch, frontier)

    def state_size(self) -> StateSize:
        return StateSize(0, self._punctuator.nbytes)

    def snapshot(self) -> dict[str, Any]:
        return {"punctuator": self._punctuator.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self._punctuator.restore(state["punctuator"])
