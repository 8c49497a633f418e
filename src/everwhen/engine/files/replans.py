"""A query and the plans by which it may run: which one runs, when another one's turn comes, and what a checkpoint says.

A checkpoint belongs to a query *as asked*.  The plan that runs is a matter of the program: it is told beside the state,
as text, so that a run that is started again finds it among the plans of the query, goes on with it, and then goes over
to the plan that it would have taken by itself.  With `every` the run goes over to its next plan after so many epochs.
A plan that cannot join (its past is not kept) is left out: that is told once, and the run goes on as it is.

A checkpoint of another query with the same columns is gone on from where that is asked for: the state is restored with
the plan of that query, which is compiled again from its text, and the new query takes over at an instant that is told.
While that has not come to an end, or no state says that it has begun, the checkpoint has both texts, and no third one
can take over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node
from everwhen.core.time import show
from everwhen.engine.files.checkpoint_texts import Claim
from everwhen.engine.files.query_forms import QueryForms
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import QueryError, StateError
from everwhen.rows.restored import misfit
from everwhen.storage.state_format import restore

FROM_THE_BEGINNING: Final = "nothing was saved yet: the new text counts from the beginning"


def counts_from(at: int) -> str:
    """What is told of a text that takes over."""
    return f"the new text counts from {show(at)} on; before that the answer is the old one's"


Make = Callable[[Node], LocalRuntime]
"""A new runtime for a plan."""


@dataclass
class Replans:
    """The plan of a run.  `every`: go over to the next one after so many epochs.  `stored`: the other queries whose
    texts the checkpoint has, the last one first."""

    forms: QueryForms
    every: int | None = None
    tell: Callable[[str], None] = lambda _: None
    stored: Sequence[QueryForms] = ()
    migrate: bool = False
    """Whether to go on from the checkpoint of one of them, if it is not this query's already."""
    shown: Query | None = None
    """The query as its answer is shown: it tells of times."""
    runs: QueryForms = field(init=False)
    """The query whose plan runs."""
    now: Node = field(init=False)
    before: Node | None = field(init=False, default=None)
    """The plan that is being left."""
    keeps: bool = field(init=False)
    """Whether rows of relations are kept for plans that join later; decided when the run begins."""
    epochs: int = 0
    migrations: int = 0
    _refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.runs, self.now = self.forms, self.forms.plans[self.forms.first]
        self.keeps = self.every is not None

    @staticmethod
    def of(query: Query) -> Replans:
        """A query that runs as it is."""
        return Replans(QueryForms.of(query), shown=query)

    def look(self, runtime: LocalRuntime) -> str | None:
        """Before an epoch: whether it is another plan's turn; its name if the run goes over to it."""
        self.epochs += 1
        if self.every is not None and self.epochs % self.every == 0 and len(self.forms.plans) > 1:
            names = list(self.forms.plans)
            at = next((i for i, name in enumerate(names) if self.forms.plans[name] is self.now), -1)
            turn = names[(at + 1) % len(names)]
            return turn if self.go_over(runtime, turn) else None
        return None

    def go_over(self, runtime: LocalRuntime, name: str) -> bool:
        """To another plan of the query that runs, if it can join; whether it does."""
        plan = self.runs.plans.get(name)
        if plan is None or plan is self.now or runtime.migrating is not None:
            return False
        try:
            runtime.migrate(plan)
        except QueryError as refused:
            if name not in self._refused:
                self._refused.add(name)
                self.tell(f"the plan {name} is left out: {str(refused).splitlines()[0]}")
            return False
        self.before, self.now = self.now, plan
        self.migrations += 1
        return True

    # -- checkpoints --------------------------------------------------------------------------------------------

    def state(self, runtime: LocalRuntime) -> dict[str, Any]:
        """What is saved: the state, and the plans that it is of."""
        before = None if runtime.migrating is None or self.before is None else explain(self.before)
        plans = {"plan": explain(self.now), "before": before}
        return {"runtime": runtime.snapshot(), **plans, "epochs": self.epochs, "keeps": self.keeps}

    def claim(self, identity: Callable[[QueryForms], Mapping[str, str]]) -> Claim:
        """Whose checkpoint may be gone on from, where `identity` is that of a query."""
        others = [(forms, identity(forms)) for forms in self.stored]
        return Claim(self.forms, identity(self.forms), others, self.migrate)

    def restored(self, state: Mapping[str, Any], make: Make, place: str, owner: QueryForms) -> LocalRuntime:
        """A runtime that goes on from a state, with the plan that it was saved with; `settle` goes over to that of this
        run.  `owner`: whose checkpoint it is."""
        if not isinstance(state, Mapping) or not {"plan", "before", "epochs", "keeps", "runtime"} <= state.keys():
            raise misfit(f"{place} does not tell with which plan it was saved")
        runs, self.now = self._plan(state["plan"], place, owner)
        left, self.before = runs, None
        if state["before"] is not None:
            left, self.before = self._plan(state["before"], place, owner)
        self._run_as(runs, place, owner, left)
        self.epochs, self.keeps = state["epochs"], state["keeps"]
        runtime = make(self.now)
        replaced = self.before
        restore(RestoredRuntime(runtime, replaced), state["runtime"], place)
        return runtime

    def begin_as(self, runs: QueryForms, place: str, owner: QueryForms) -> None:
        """The run begins as that of a query of which no state was kept; `settle` goes over to this one."""
        self._run_as(runs, place, owner, runs)
        self.now = runs.plans[runs.first]

    def begin_anew(self) -> None:
        """The run begins, and there is nothing to go on from."""
        if self.migrate:
            self.tell(FROM_THE_BEGINNING)

    def _run_as(self, runs: QueryForms, place: str, owner: QueryForms, left: QueryForms) -> None:
        """Whose plan is there, perhaps on its way from that of another query, `left`.  QueryError: it is on its way to
        that of the checkpoint's owner, and this query is another one."""
        if owner is not self.forms and (left is not runs or (runs is not owner and runs is not self.forms)):
            raise QueryError(
                f"{place}: the run is still going over from a text before the last one to that; let it go on with the "
                f"last one until that is done, then --migrate. The last one is:\n{owner.text.strip()}"
            )
        self.runs = runs
        if runs is self.forms is not owner:
            self.tell("what was saved is of the new text's plan already, so it goes on as it is")

    def settle(self, runtime: LocalRuntime) -> None:
        """Go over to the text or the plan of this run, if a state of another one was restored."""
        if self.runs is not self.forms:
            self._take_over(runtime)
        elif self.every is None:
            self.go_over(runtime, self.forms.first)

    def _take_over(self, runtime: LocalRuntime) -> None:
        """The new text goes on for the one of the checkpoint."""
        new = self.forms.plans[self.forms.first]
        if runtime.migrating is not None:
            raise QueryError(
                "the run is going over to another plan of the text that it has: let it go on with that text, without "
                "--replan-every, until that is done, then --migrate"
            )
        went = runtime.replace(new)
        self.runs, self.before, self.now = self.forms, self.now, new
        self.tell(counts_from(went.at))

    def _plan(self, shown: str, place: str, owner: QueryForms) -> tuple[QueryForms, Node]:
        """A plan that is shown so, and whose it is: this query's, that of the checkpoint's owner, or another one's."""
        for forms in (self.forms, owner, *self.stored):
            if (name := forms.named(shown)) is not None:
                return forms, forms.plans[name]
        raise StateError(
            f"{place}: the run had another plan of this query than the program makes now, so its state cannot be used:"
            f"\n{shown}\nGo on with the program that wrote it, or start with a new checkpoint."
        )


@dataclass(frozen=True, slots=True)
class RestoredRuntime:
    """A runtime, and the query that it had left for another one when it was saved."""

    runtime: LocalRuntime
    replaced: Node | None

    def restore(self, state: Any) -> None:
        self.runtime.restore(state, self.replaced)
