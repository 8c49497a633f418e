"""The loop as one operator: its body is stepped in rounds until nothing circulates.

An epoch:
    0. the body is stepped with what came from outside: derivations that come and go;
    D. what lost its support goes round the loop, and so does all that goes because of it;
    I. then what is derived and absent comes, round by round.
Nothing comes while anything goes.  Behind the last batch the token of progress leaves (`progress.py`); what it gives
is promised at once, to the outside and round the loop, where it frees the joins.

*Staged* (the default) an epoch ends when nothing circulates.  *Flying*, it ends after so many rounds of I; what is due
then rides with later input.  When all inputs have ended the rest is done at once.

Kept: what the body's operators keep, and per row its birth and derivations, from the promise on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everwhen.core.loop_options import LoopOptions
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER, show
from everwhen.errors import EvaluationError
from everwhen.operators.contract import Operator, Output, StateSize, lowest
from everwhen.operators.loop.body import BodyOperator, LoopBody
from everwhen.operators.loop.head import LoopHead
from everwhen.operators.loop.progress import ProgressToken
from everwhen.operators.net import netted, put_together
from everwhen.rows.changes import Changes, concat_all, no_changes


def diverged(name: str, limit: str, sample: str) -> EvaluationError:
    """The error of a loop that has not ended after so much; `sample` still comes."""
    return EvaluationError(
        f"the recursion {name!r} has not ended after {limit} in one epoch; {sample} still comes.  Bound the recursion "
        "by a condition, or use UNION instead of UNION ALL where rows repeat; MAX RECURSION LEVEL allows more rounds, "
        "MAX RECURSION ROWS more rows"
    )


class FixpointOperator(Operator):
    """See the module's docstring.  Ports are what the body reads from outside; its last input is the loop itself."""

    def __init__(self, name: str, ports: int, head: LoopHead, body: LoopBody, options: LoopOptions) -> None:
        self.name = name
        self.ports = ports
        self.codec = head.codec
        self.keeps = head.keeps
        self.counts = head.counts
        self.progress = ProgressToken(options.progress)
        self.rounds = 0
        """Rounds of all epochs."""
        self.touched = 0
        """Derivations looked at so far."""
        self._head = head
        self._body = body
        self._options = options
        self._purged = NEVER
        self._circulated = (0, 0)  # rounds and rows of this epoch

    @property
    def body(self) -> list[BodyOperator]:
        """What is stepped in each round."""
        return self._body.operators

    @property
    def runs(self) -> str:
        """How it runs, for people."""
        rounds = self._options.rounds
        many = "until nothing circulates" if rounds is None else f"{rounds} round{'s' * (rounds > 1)} an epoch"
        return f"{'flying' if rounds else 'staged'}, {many}; progress: {self._options.progress}"

    @property
    def unfinished(self) -> bool:
        return self._head.due

    def step(self, inputs: Sequence[Changes], frontiers: Sequence[Frontier], tau: int) -> Output:
        self._circulated = (0, 0)
        external = lowest(frontiers)
        outside = [Output(changes, frontier) for changes, frontier in zip(inputs, frontiers, strict=True)]
        derived = self._arrive(self._body.step([*outside, self._round(no_changes(self._head.sent))], tau))
        resting = [Output(no_changes(each.changes.codec), Frontier(each.frontier.time)) for each in outside]
        said = self._go_round(derived, resting, external, tau)
        self._promise(external, resting, tau)
        answer = [self._head.answer(each) for each in said]
        changes = concat_all(self.codec, answer)
        if self._head.once and len(answer) > 1:  # pieces of a row that came in different rounds
            changes = put_together(changes)
        elif any((each.weight < 0).any() for each in answer):
            changes = netted(changes)
        return Output(changes, Frontier(self.progress.promise))

    def _go_round(self, derived: Changes, resting: list[Output], external: int, tau: int) -> list[Changes]:
        """Phases D and I: all that went round."""
        head, said = self._head, []
        fresh: Changes | None = derived
        if head.due or (derived.weight < 0).any():
            batch = head.retract(derived)
            while len(batch):
                said.append(batch)
                self._check(batch)
                batch = head.retract(self._arrive(self._body.step([*resting, self._round(batch)], tau)))
            fresh = None
        most = None if external == INF else self._options.rounds
        batch = head.insert(fresh)
        done = 0
        while len(batch):
            said.append(batch)
            self._check(batch)
            self.progress.leave(external)
            done += 1
            fresh = self._arrive(self._body.step([*resting, self._round(batch)], tau))
            self.progress.returned(external)
            if done == most:
                head.hold(fresh)
                break
            batch = head.insert(fresh)
        return said

    def _promise(self, external: int, resting: list[Output], tau: int) -> None:
        """Let the token go round once nothing circulates; free what nobody needs any more."""
        if not self._head.due:
            self.progress.settle(external)
        promise = self.progress.promise
        if promise > self._purged:
            self._purged = promise
            self._body.step([*resting, self._round(no_changes(self._head.sent))], tau)
        self._head.expire(promise)

    def _round(self, batch: Changes) -> Output:
        return Output(batch, Frontier(self.progress.promise))

    def _arrive(self, derived: Changes) -> Changes:
        self.rounds += 1
        if len(derived):
            self.touched += len(derived)
            self.progress.arrived(int(derived.lo.min()), int(derived.lo.max()))
        return derived

    def _check(self, batch: Changes) -> None:
        """Stop a loop that diverges; nothing of the epoch has been said yet."""
        rounds, rows = self._circulated
        self._circulated = rounds, rows = rounds + 1, rows + len(batch)
        level, most = self._options.max_level, self._options.max_rows
        if rounds <= level and rows <= most and not self._head.endless:
            return
        row = self._head.answer(batch.take(slice(0, 1)))
        columns = zip(self.codec.schema.names, self.codec.decode(row.rows), strict=True)
        shown = ", ".join(f"{name}={column[0].as_py()!r}" for name, column in columns)
        limit = f"{level} rounds" if rounds > level else f"{most} rows" if rows > most else f"{rounds} rounds"
        raise diverged(self.name, limit, f"at instant {show(int(row.lo[0]))} the row ({shown})")

    def needs(self, t: int) -> tuple[int, ...]:
        return (self.progress.needs(t),) * self.ports

    def standing(self, frontiers: Sequence[Frontier]) -> tuple[int, Changes] | None:
        found = self._head.standing()
        return None if found is None else (self.progress.promise, found)

    def state_size(self) -> StateSize:
        return self._head.state_size() + self._body.state_size()

    def snapshot(self) -> dict[str, Any]:
        return {
            "head": self._head.snapshot(), "body": self._body.snapshot(), "progress": self.progress.snapshot(),
            "purged": self._purged,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._head.restore(state["head"])
        self._body.restore(state["body"])
        self.progress.restore(state["progress"])
        self._purged = state["purged"]
