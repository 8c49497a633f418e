"""The turning point of a loop whose rounds cross exchanges: its head, in one partition, told what to do.

The rows of the loop are spread over partitions by their keys, and so are its derivations.  In every round all
partitions do the same, which the driver of the rounds decides:

    retract   take derivations; what has lost its support goes            until nothing goes in any partition
    insert    take derivations; what is derived and absent comes          until nothing comes in any partition
    settle    everything before the promise is final

So nothing comes anywhere while anything goes somewhere; and all partitions count the same rounds, so births can be
compared.  A round is a step.  Ports: the derivations, then the loop's inputs without their rows, for their promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from everwhen.core.punctuation import Frontier
from everwhen.core.time import NEVER, show
from everwhen.errors import EvaluationError
from everwhen.operators.contract import Operator, Output, StateSize, lowest
from everwhen.operators.loop.fixpoint import diverged
from everwhen.operators.loop.head import LoopHead
from everwhen.rows.changes import Changes, no_changes

TurnPhase = Literal["retract", "insert", "settle"]


class TurnOperator(Operator):
    """See the module's docstring.  What it gives goes round."""

    def __init__(self, ports: int, head: LoopHead) -> None:
        self.ports = ports
        self.codec = head.sent
        self.keeps = head.keeps
        self.external = NEVER
        """What all inputs of the loop have promised."""
        self._head = head
        self._promise = NEVER
        self._told: tuple[TurnPhase, int] = ("retract", NEVER)
        self._last: Changes = no_changes(head.sent)

    @property
    def unfinished(self) -> bool:
        return True  # it does what it is told, also where nothing comes

    def tell(self, phase: TurnPhase, promise: int) -> None:
        """What to do in the next step; to settle, what is final."""
        self._told = phase, promise

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        phase, promise = self._told
        derived = inputs[0]
        self.external = lowest(frontiers[1:])
        match phase:
            case "retract":
                batch = self._head.retract(derived)
            case "insert":
                batch = self._head.insert(derived if len(derived) else None)
            case "settle":
                assert not len(derived) and not self._head.due, "something is still under way"
                batch = no_changes(self.codec)
                self._promise = promise
                self._head.expire(promise)
        self._last = batch
        if self._head.endless:
            raise EvaluationError(f"a recursion does not end: {self.sample} is derived ever more often")
        return Output(batch, Frontier(self._promise))

    @property
    def sample(self) -> str:
        """A row that goes round after this step, and when."""
        if not len(self._last):
            return ""
        row = self._head.answer(self._last.take(slice(0, 1)))
        columns = zip(self._head.codec.schema.names, self._head.codec.decode(row.rows), strict=True)
        shown = ", ".join(f"{name}={column[0].as_py()!r}" for name, column in columns)
        return f"at instant {show(int(row.lo[0]))} the row ({shown})"

    def state_size(self) -> StateSize:
        return self._head.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {"head": self._head.snapshot(), "promise": self._promise}

    def restore(self, state: dict[str, Any]) -> None:
        self._head.restore(state["head"])
        self._promise = state["promise"]


def check_rounds(name: str, rounds: int, most_rounds: int, rows: int, most_rows: int, sample: str) -> None:
    """Stop a loop that diverges: so many rounds and rows were there in an epoch."""
    if rounds > most_rounds or rows > most_rows:
        limit = f"{most_rounds} rounds" if rounds > most_rounds else f"{most_rows} rows"
        raise diverged(name, limit, sample)
