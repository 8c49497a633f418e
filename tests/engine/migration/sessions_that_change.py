"""Random sessions of several queries that become others, one by one or together, while queries join and leave.

What each query says is, from the instant on at which it was told to be right, what the definition says of the query
that counted there (`everwhen.reference`).  A seed decides all: plans of all kinds and in several equal forms, some of
them just a source, which others read as well; disorder, corrections, rows without end, promises about data; the policy;
and what happens between two epochs: a query joins (often one that runs already), leaves, becomes another one at once or
at an instant that lies ahead, goes over to another plan, changes its policy; the session starts again from a snapshot.
In every second run switches go in slices of a few rows.

    cd tests; python -m engine.migration.sessions_that_change FIRST LAST     runs these seeds
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import everwhen as ew
from engine.migration.migrated_runs import padded, slices
from engine.migration.replaced_runs import QUERIES, SOURCES, instants
from engine.punctuated_session import some_history
from engine.seeds import run_seeds
from everwhen.core.time import NEVER
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.rewrite.driver import rewrite
from everwhen.stream.element import Adjust, Cti, Element
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.differential import EMITS, LAST, SCHEMA, comparable, epochs, sources, streams_of
from operators.punctuated import punctuated
from plans import S, T
from state_files import through_file

TEXTS = {
    "positive": "SELECT k, x FROM S WHERE x > 1",
    "of one key": "SELECT k, x FROM S WHERE x < 2 AND k = 'a'",
    "computed": "SELECT k, x + 1 AS x FROM T",
    "all of both": "SELECT k, x FROM S UNION ALL SELECT k, x FROM T",
    "distinct rows": "SELECT DISTINCT k, x FROM S",
    "two largest": "SELECT k, x FROM S ORDER BY x DESC, k LIMIT 2",
    "first of each": "SELECT DISTINCT ON (k) k, x FROM S ORDER BY k, x",
    "in both": "SELECT k, x FROM S INTERSECT ALL SELECT k, x FROM T",
    "right join": "SELECT T.k, S.x FROM S RIGHT JOIN T ON S.k = T.k",
    "full join": "SELECT COALESCE(S.k, T.k) AS k, S.x + T.x AS x FROM S FULL JOIN T ON S.k = T.k AND S.x < T.x",
    "merge": "SELECT k, x FROM LMERGE(S, (SELECT k, x FROM S WHERE x IS NULL OR x IS NOT NULL)) AS m",
    "not there": "SELECT k, x FROM S WHERE NOT EXISTS (SELECT * FROM T WHERE T.k = S.k)",
    "reached": "WITH RECURSIVE r (k, x) AS "
    "(SELECT k, x FROM S UNION SELECT T.k, (r.x + 1) % 3 FROM r, T WHERE r.k = T.k) "
    "SELECT k, x FROM r",
}
KINDS: Mapping[str, tuple[ew.Stream, bool]] = {
    **QUERIES,
    **{name: (ew.sql(text, S, T), True) for name, text in TEXTS.items()},
    "S": (S, True),
    "T": (T, True),
}
"""Queries, and whether rows without end are legal for them."""
NEXT_TO_SOURCES = ["S", "T", "positive", "of one key", "computed", "all of both", "distinct rows"]


@dataclass
class Asked:
    """A query that runs: what it is, by which plan and by which one before, and what it was told and has said."""

    now: str
    plan: ew.Stream
    since: int
    left: ew.Stream = field(init=False)
    told: list[tuple[int, str]] = field(init=False)
    said: list[Element] = field(default_factory=list)
    changed: bool = False

    def __post_init__(self) -> None:
        self.left, self.told = self.plan, [(self.since, self.now)]

    def becomes(self, plan: ew.Stream, kind: str | None = None, at: int = NEVER) -> None:
        self.left, self.plan = self.plan, plan
        if kind is not None:
            self.now = kind
            self.told.append((at, kind))

    @property
    def promised(self) -> int:
        return max((each.t for each in self.said if isinstance(each, Cti)), default=NEVER)

    def check(self, answers: Mapping[str, History]) -> None:
        assert_valid(self.said)
        heard = History.of(self.said, SCHEMA)
        for t in instants():
            if self.since <= t < self.promised:
                counts = next(kind for at, kind in reversed(self.told) if at <= t)
                got, right = comparable(heard.snapshot(t)), comparable(answers[counts].at(t))
                wrong = f"{dict(right - got)} is missing, {dict(got - right)} is too much"
                assert got == right, f"{self.told} at {t}: {wrong}"


class Changing:
    """A session, and the queries in it by name."""

    def __init__(self, rng: random.Random, infinite: bool, level: ew.Consistency) -> None:
        self.rng, self.level, self.session = rng, level, Session()
        self.kinds = [name for name in KINDS if KINDS[name][1] or not infinite]
        self.asked: dict[str, Asked] = {}
        self.gone: dict[str, Asked] = {}
        self.done = Counter[str]()
        for name, source in SOURCES.items():
            self.session.register(name.lower(), source)

    def kind(self) -> str:
        among = NEXT_TO_SOURCES if self.rng.random() < 0.35 else self.kinds
        if self.asked and self.rng.random() < 0.4:
            return self.rng.choice([each.now for each in self.asked.values()])
        return self.rng.choice(among)

    def form(self, kind: str) -> ew.Stream:
        """One of its plans."""
        node, draw = KINDS[kind][0].node, self.rng.random()
        other = node if draw < 0.4 else rewrite(node).node if draw < 0.7 else padded(node, self.rng)
        return ew.Stream(other if other.schema == node.schema else node)

    def happen(self) -> None:
        draw = self.rng.random()
        some = self.rng.choice(sorted(self.asked)) if self.asked else None
        if some is None or draw < 0.22:
            self.tried("register", self.register)
        elif draw < 0.3:
            self.session.remove(some)
            self.gone[f"{some} {len(self.gone)}"] = self.asked.pop(some)
        elif draw < 0.6:
            self.tried("replace", self.replace, some)
        elif draw < 0.75:
            self.tried("migrate", self.migrate, some)
        elif draw < 0.82:
            self.tried("change", self.change, some)
        elif draw < 0.94:
            self.restart()
        else:
            assert all(map(str, (self.session.waiting(some), self.session.analyze(some))))

    def tried(self, what: str, work: object, *given: object) -> None:
        try:
            work(*given)  # type: ignore[operator]
            self.done[what] += 1
        except QueryError:
            self.done["refused"] += 1

    def register(self) -> None:
        kind, name = self.kind(), f"q{len(self.asked) + len(self.gone)}"
        plan = self.form(kind)
        handle = self.session.register(name, plan, consistency=self.level)
        self.asked[name] = Asked(kind, plan, handle.valid_from)

    def replace(self, name: str) -> None:
        """Perhaps together with another one; as soon as it can, or later."""
        names = {name} if self.rng.random() < 0.75 else {name, self.rng.choice(sorted(self.asked))}
        kinds = {each: self.kind() for each in sorted(names)}
        plans = {each: self.form(kind) for each, kind in kinds.items()}
        promised = min(max([0, *(self.asked[each].promised for each in kinds)]), LAST)
        at = None if self.rng.random() < 0.5 else promised + self.rng.choice((0, 1, 2, 3, 5, 8))
        done = self.session.replace_all(plans, at)
        assert at is None or done == at
        for each, kind in kinds.items():
            self.asked[each].becomes(plans[each], kind, done)

    def migrate(self, name: str) -> None:
        plan = self.form(self.asked[name].now)
        self.session.migrate(name, plan)
        self.asked[name].becomes(plan)

    def change(self, name: str) -> None:
        self.session.change(name, emit=self.rng.choice(EMITS))
        self.asked[name].changed = True

    def restart(self) -> None:
        state = through_file(self.session.snapshot())
        given: dict[str, ew.Stream | tuple[ew.Stream, ew.Stream]] = {
            name: (each.left, each.plan) if self.session.is_replaced(name) else each.plan
            for name, each in self.asked.items()
        }
        self.session = Session()
        self.session.restore(state, {"s": S, "t": T} | given)
        self.done["restart"] += 1

    def take(self, heard: Mapping[str, ElementBatch]) -> None:
        for name, each in self.asked.items():
            assert name in heard, f"{name} failed: {self.session.query(name).error}"
            each.said += heard[name].elements()

    def check(self, given: Mapping[str, History]) -> None:
        every = {**self.asked, **self.gone}
        kinds = {kind for each in every.values() for _, kind in each.told}
        answers = {}
        for kind in kinds:
            query = KINDS[kind][0]
            answers[kind] = evaluate(query.node, {each: given[each] for each in sources(query)})
        for name, each in every.items():
            try:
                each.check(answers)
                if self.level.emit.value == "final" and not each.changed:
                    assert not any(isinstance(one, Adjust) for one in each.said), "nothing is corrected in final"
            except AssertionError as wrong:
                raise AssertionError(f"{name}: {wrong}") from None


def run_once(seed: int) -> Counter[str]:
    """One run; an AssertionError says what is wrong."""
    rng = random.Random(f"changing {seed}")
    with slices(random.Random(f"slices {seed}")) as sliced:
        infinite = rng.random() < 0.3
        level = ew.STRONG if rng.random() < 0.15 else ew.MIDDLE.changed(emit=rng.choice(EMITS))
        histories = {name: some_history(rng, infinite, most=30 if sliced else 10) for name in SOURCES}
        streams = streams_of(histories, rng, infinite)
        if rng.random() < 0.2:
            streams = punctuated(streams, rng, SCHEMA, rng.choice((None, 0.4)))
        changing = Changing(rng, infinite, level)
        try:
            changing.tried("register", changing.register)
            for epoch in epochs(streams, rng):
                for _ in range(rng.choice((0, 1, 1, 2))):
                    changing.happen()
                changing.take(changing.session.push(epoch))
            changing.take(changing.session.close())
            changing.check({name: History.of(each, SCHEMA) for name, each in streams.items()})
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}: {wrong}") from wrong
        except Exception as error:
            raise AssertionError(f"seed {seed}: {traceback.format_exc(limit=-6)}") from error
    return changing.done


if __name__ == "__main__":
    sys.exit(bool(run_seeds(run_once, int(sys.argv[1]), int(sys.argv[2]))))
