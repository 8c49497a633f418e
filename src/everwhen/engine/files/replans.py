"""A query and the plans by which it may run: which one runs, when another one's turn comes, and what a checkpoint says.

A checkpoint belongs to a query *as asked*.  The plan that runs is a matter of the program: it is told beside the state,
as text, so that a run that is started again finds it among the plans of the query, goes on with it, and then goes over
to the plan that it would have taken by itself.  With `every` the run goes over to its next plan after so many epochs.
A plan that cannot join (its past is not kept) is left out: that is told once, and the run goes on as it is.

A checkpoint of another query with the same columns is gone on from where that is asked for: the state is restored with
the plan of that query, which is compiled again from its text, and the new query takes over at an instant that is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.builder import node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node
from everwhen.core.time import show
from everwhen.engine.files.checkpoint import agree, belongs_to, note_run
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import QueryError, StateError
from everwhen.rows.restored import misfit
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.state_format import restore

AS_WRITTEN: Final = "as written"
REWRITTEN: Final = "rewritten"


@dataclass(frozen=True, slots=True)
class QueryForms:
    """A query as asked, with its text if there is one, and its plans by name; the first one is taken at the start."""

    asked: Node
    plans: Mapping[str, Node]
    text: str = ""

    @staticmethod
    def of(query: Query) -> QueryForms:
        """A query that runs as it is."""
        node = node_of(query)
        return QueryForms(node, {AS_WRITTEN: node})

    @property
    def first(self) -> str:
        return next(iter(self.plans))

    def named(self, shown: str) -> str | None:
        """The name of the plan that is shown so."""
        return next((name for name, node in self.plans.items() if explain(node) == shown), None)


Make = Callable[[Node], LocalRuntime]
"""A new runtime for a plan."""


@dataclass
class Replans:
    """The plan of a run.  `every`: go over to the next one after so many epochs.  `left`: the query of whose checkpoint
    the run went on."""

    forms: QueryForms
    every: int | None = None
    tell: Callable[[str], None] = lambda _: None
    left: QueryForms | None = None
    migrate: bool = False
    """Whether to go on from its checkpoint, if it is not this query's already."""
    shown: Query | None = None
    """The query as its answer is shown: it tells of times."""
    now: Node = field(init=False)
    before: Node | None = field(init=False, default=None)
    """The plan that is being left."""
    keeps: bool = field(init=False)
    """Whether rows of relations are kept for plans that join later; decided when the run begins."""
    epochs: int = 0
    migrations: int = 0
    _refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.now = self.forms.plans[self.forms.first]
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
        """To another plan of the same query, if it can join; whether it does."""
        if runtime.migrating is not None or self.forms.plans[name] is self.now:
            return False
        try:
            runtime.migrate(self.forms.plans[name])
        except QueryError as refused:
            if name not in self._refused:
                self._refused.add(name)
                self.tell(f"the plan {name} is left out: {str(refused).splitlines()[0]}")
            return False
        self.before, self.now = self.now, self.forms.plans[name]
        self.migrations += 1
        return True

    # -- checkpoints --------------------------------------------------------------------------------------------

    def state(self, runtime: LocalRuntime) -> dict[str, Any]:
        """What is saved: the state, and the plans that it is of."""
        before = None if runtime.migrating is None or self.before is None else explain(self.before)
        plans = {"plan": explain(self.now), "before": before}
        return {"runtime": runtime.snapshot(), **plans, "epochs": self.epochs, "keeps": self.keeps}

    def restored(self, state: Mapping[str, Any], make: Make, place: str) -> LocalRuntime:
        """A runtime that goes on from a state, with the plan that it was saved with; `settle` goes over to that of this
        run."""
        if not isinstance(state, Mapping) or not {"plan", "before", "epochs", "keeps", "runtime"} <= state.keys():
            raise misfit(f"{place} does not tell with which plan it was saved")
        self.now = self._plan(state["plan"], place)
        if state["before"] is not None and self.takes_over:
            raise QueryError(
                f"{place}: the run is still going over from a text before the last one to that; let it go on with the "
                "last one until that is done, then --migrate"
            )
        self.before = None if state["before"] is None else self._plan(state["before"], place)
        self.epochs, self.keeps = state["epochs"], state["keeps"]
        runtime = make(self.now)
        replaced = self.before
        restore(RestoredRuntime(runtime, replaced), state["runtime"], place)
        return runtime

    def begin_with_left(self) -> None:
        """The run begins with the query that is left, of which no state was kept."""
        assert self.left is not None
        self.now = self.left.plans[self.left.first]

    @property
    def takes_over(self) -> bool:
        """Whether the plan that runs is of the text that is left."""
        return (
            self.left is not None and self.now in self.left.plans.values() and self.now not in self.forms.plans.values()
        )

    def settle(self, runtime: LocalRuntime) -> None:
        """Go over to the text or the plan of this run, if a state of another one was restored."""
        if self.takes_over:
            self._take_over(runtime)
        elif self.every is None:
            self.go_over(runtime, self.forms.first)

    def _take_over(self, runtime: LocalRuntime) -> None:
        """The new text goes on for the one of the checkpoint."""
        new = self.forms.plans[self.forms.first]
        went = runtime.replace(new)
        self.before, self.now = self.now, new
        self.tell(f"the new text counts from {show(went.at)} on; before that the answer is the old one's")

    def _plan(self, shown: str, place: str) -> Node:
        for forms in (self.forms, self.left):
            if forms is not None and (name := forms.named(shown)) is not None:
                return forms.plans[name]
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


# -- the query of a checkpoint -----------------------------------------------------------------------------------------


def stored_texts(place: str | Path) -> list[str]:
    """The texts of the queries of a checkpoint, the present one first; those that have none are left out."""
    found = _stored(Path(place))
    texts = [found.get("text"), (found.get("before") or {}).get("text")]
    return [text for text in texts if text]


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose checkpoint it is: this query's, by its identity, or that of the one that is left."""

    forms: QueryForms
    identity: Mapping[str, str]
    left: tuple[QueryForms, Mapping[str, str]] | None = None

    def require(self, place: Path) -> None:
        """QueryError unless the checkpoint is this query's, or that of the one that is left; a new one becomes it."""
        if self.goes_over(place):
            assert self.left is not None
            self._require_columns(place, self.left[0])
        else:
            agree(place, self.identity)

    def begin(self, place: Path) -> None:
        """The same, and the text is noted."""
        self.require(place)
        found = _stored(place)
        if not self.goes_over(place) and found.get("text") != self.forms.text:
            _note(place, {"query": explain(self.forms.asked), "text": self.forms.text, "before": found.get("before")})

    def confirm(self, place: Path) -> None:
        """The query has taken over: the checkpoint is its own from now on.  The texts are told first, so that whoever
        comes after a crash can go on from the state, whichever query it is of."""
        if self.goes_over(place):
            assert self.left is not None
            before = {"query": explain(self.left[0].asked), "text": self.left[0].text}
            _note(place, {"query": explain(self.forms.asked), "text": self.forms.text, "before": before})
            note_run(place, self.identity)

    def goes_over(self, place: Path) -> bool:
        """Whether it is the checkpoint of the query that is left."""
        mine = belongs_to(place, self.identity)
        return not mine and self.left is not None and belongs_to(place, self.left[1])

    def _require_columns(self, place: Path, left: QueryForms) -> None:
        if left.asked.schema != self.forms.asked.schema:
            raise QueryError(
                f"the checkpoint {place} is of a query with the columns {left.asked.schema}; one with "
                f"{self.forms.asked.schema} cannot go on from it: give it the same columns, or take a new directory"
            )


def _note(place: Path, found: Mapping[str, Any]) -> None:
    with whole_file(place / "query.json") as part:
        part.write_text(json.dumps(found, indent=1), encoding="utf-8")


def _stored(place: Path) -> dict[str, Any]:
    try:
        found = json.loads((place / "query.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
