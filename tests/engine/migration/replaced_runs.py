"""Random runs in which a query becomes another one of another meaning, and another one after that.

Before each instant that was told the answer is that of the query before, from there on that of the next one: by the
definition (`everwhen.reference`), spliced.  A seed decides all: plans of all kinds with the columns k and x, streams
with disorder, corrections, rows without end and promises about data, policy and level; and what happens between two
epochs: a change of the query or of its policy, a restart from its snapshot, a question why it is silent, another query
that joins or leaves, the pool of values collected.  In every second run switches go in slices of a few rows.

    cd tests; python -m engine.migration.replaced_runs FIRST LAST     runs these seeds, and prints what was drawn
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import everwhen as ew
from engine.migration.migrated_runs import levels, slices
from engine.punctuated_session import some_history
from everwhen.algebra.nodes import Sort
from everwhen.core.consistency import Consistency
from everwhen.core.time import INF, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.reference import evaluate
from everwhen.stream.element import Adjust, Cti, Element
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.differential import EMITS, FIRST, LAST, SCHEMA, comparable, epochs, sources, streams_of
from operators.punctuated import punctuated
from plans import PLANS, REGROUPED, S, T, col
from state_files import through_file

SOURCES = {"S": S, "T": T}
TEXTS = {
    "session": "SELECT k, COUNT(*) AS x FROM SESSION(TABLE S PARTITION BY k, 3) GROUP BY k, window_start, window_end",
    "lag": "SELECT k, LAG(x) OVER (PARTITION BY k ORDER BY x) AS x FROM S",
    "asof": "SELECT S.k, T.x AS x FROM S ASOF JOIN T ON S.k = T.k AND S.x >= T.x",
    "window in SQL": "SELECT S.k, T.x FROM S WINDOW(RANGE 4) JOIN T WINDOW(RANGE 3) ON S.k = T.k",
    "rollup": "SELECT k, SUM(x) AS x FROM S GROUP BY ROLLUP (k)",
    "lateral": "SELECT S.k, y.n AS x FROM S, LATERAL (SELECT COUNT(*) AS n FROM T WHERE T.k = S.k) AS y",
}
EMITTED = [{"emit": emit} for emit in EMITS]


def of_two_columns(query: ew.Stream) -> ew.Stream | None:
    """The plan with a text and a number of it as k and x, if it has such."""
    texts, numbers = ([each.name for each in query.schema if str(each.type) == kind] for kind in ("string", "int64"))
    if not numbers or isinstance(query.node, Sort):
        return None
    return query.select(k=col(texts[0]) if texts else ew.lit("c"), x=col(numbers[-1]))


def some_queries() -> dict[str, tuple[ew.Stream, bool]]:
    """Queries of the columns k and x, and whether rows without end are legal for them."""
    found = {plan.name: (of_two_columns(plan.build()), plan.infinite) for plan in (*PLANS, *REGROUPED)}
    found |= {name: (of_two_columns(ew.sql(text, S, T)), True) for name, text in TEXTS.items()}
    return {name: (query, infinite) for name, (query, infinite) in found.items() if query is not None}


QUERIES = some_queries()


class Replaced:
    """A query by the name of what it is, in a runtime or in a session, and what it was told to become from when on."""

    def __init__(self, name: str, level: Consistency, local: bool) -> None:
        self.now, self.left = name, name
        self.told: list[tuple[int, str]] = [(NEVER, name)]
        self.others: dict[str, str] = {}
        self.level = level
        self.local = LocalRuntime(self.query, consistency=level, keep_relations=True) if local else None
        self.session = Session()
        if not local:
            for each, source in SOURCES.items():
                self.session.register(each.lower(), source)
            self.session.register("q", self.query, consistency=level)

    @property
    def query(self) -> ew.Stream:
        return QUERIES[self.now][0]

    @property
    def moves(self) -> bool:
        return self.session.is_replaced("q") if self.local is None else self.local.migrating is not None

    def push(self, epoch: Mapping[str, ElementBatch]) -> ElementBatch:
        if self.local is None:
            heard = self.session.push(epoch)
            assert "q" in heard, self.session.query("q").error
            return heard["q"]
        return self.local.push({name: each for name, each in epoch.items() if name in self.local.inputs})["out"]

    def close(self) -> ElementBatch:
        return self.session.close()["q"] if self.local is None else self.local.close()["out"]

    def replace(self, name: str, at: int | None) -> None:
        query = QUERIES[name][0]
        done = self.session.replace("q", query, at) if self.local is None else self.local.replace(query, at).at
        assert at is None or done == at
        self.left, self.now = self.now, name
        self.told.append((done, name))

    def change(self, **level: str) -> ElementBatch | None:
        if self.local is None:
            self.session.change("q", **level)
            return None
        return (self.local.change(**level) or {}).get("out")

    def restart(self) -> None:
        pair = (QUERIES[self.left][0], self.query)
        if self.local is not None:
            level, state = self.local.consistency, through_file(self.local.snapshot())
            left = pair[0] if self.moves else None
            self.local = LocalRuntime(self.query, consistency=level, keep_relations=True)
            self.local.restore(state, left)
            return
        state, moves = through_file(self.session.snapshot()), self.moves
        queries: dict[str, ew.Stream | tuple[ew.Stream, ew.Stream]] = {
            "s": S,
            "t": T,
            "q": pair if moves else self.query,
        }
        queries |= {name: QUERIES[what][0] for name, what in self.others.items()}
        self.session = Session()
        self.session.restore(state, queries)

    def ask(self, t: int) -> None:
        """It is looked at from all sides, which changes nothing."""
        if self.local is None:
            looks = (self.session.waiting("q"), self.session.analyze("q"), self.session.needs(t, "q"))
        else:
            looks = (self.local.waiting(), self.local.analyze(), self.local.needs(t))
        assert all(map(str, looks))

    def beside(self, rng: random.Random) -> None:
        """In a session another query joins, or one leaves."""
        if self.local is not None:
            return
        if self.others and rng.random() < 0.4:
            name = rng.choice(sorted(self.others))
            self.session.remove(name)
            del self.others[name]
            return
        name, what = f"o{len(self.told)} {len(self.others)}", rng.choice(sorted(QUERIES))
        try:
            self.session.register(name, QUERIES[what][0], consistency=self.level)
        except QueryError:
            return
        self.others[name] = what


def run_once(seed: int, counts: Counter[str]) -> None:
    """One run; an AssertionError says what is wrong."""
    rng = random.Random(f"replaced {seed}")
    with slices(random.Random(f"slices {seed}")) as sliced:
        _run(seed, rng, counts, sliced)


def _run(seed: int, rng: random.Random, counts: Counter[str], sliced: bool) -> None:
    local = rng.random() < 0.4
    names = some_names(rng, local)
    emit = rng.choice(EMITS)
    level = levels(rng, emit)
    infinite = all(QUERIES[name][1] for name in names) and rng.random() < 0.35
    histories = {name: some_history(rng, infinite, most=30 if sliced else 10) for name in SOURCES}
    streams = streams_of(histories, rng, infinite)
    if rng.random() < 0.25:
        streams = punctuated(streams, rng, SCHEMA, rng.choice((None, 0.4)))
    where = f"seed {seed}: {', '.join(names)}, {emit}, {level}, {'local' if local else 'session'}"
    counts.update({"runs": 1, "local": local, "in slices": sliced, emit: 1})
    said: list[Element] = []
    changed = False
    try:
        moving = Replaced(names[0], level, local)
        for epoch in epochs(streams, rng):
            if rng.random() < 0.35:
                promised = max([0, *(each.t for each in said if isinstance(each, Cti))])
                at = None if rng.random() < 0.7 else promised + rng.choice((0, 1, 2, 3, 5, 8))
                try:
                    moving.replace(rng.choice(names), at)
                    counts["replaced"] += 1
                except QueryError:
                    counts["refused"] += 1
            if rng.random() < 0.04:
                try:
                    news = moving.change(**rng.choice(EMITTED))
                    said += [] if news is None else news.elements()
                    changed = True
                    counts["changed"] += 1
                except QueryError:
                    counts["change refused"] += 1
            if rng.random() < 0.12:
                counts["restarts between"] += moving.moves
                counts["restarts"] += 1
                moving.restart()
            if rng.random() < 0.1:
                moving.ask(rng.randrange(20))
            if rng.random() < 0.1:
                moving.beside(rng)
            said += moving.push(epoch).elements()
        said += moving.close().elements()
    except AssertionError as wrong:
        raise AssertionError(f"{where}: {wrong}") from wrong
    except Exception as error:
        raise AssertionError(f"{where}: {traceback.format_exc(limit=-6)}") from error
    try:
        assert_valid(said)
        assert said and isinstance(said[-1], Cti) and said[-1].t == INF, "it ends"
        if emit == "final" and not changed:
            assert not any(isinstance(each, Adjust) for each in said), "nothing is corrected in final"
        if level.remember == INF:
            given = {name: History.of(each, SCHEMA) for name, each in streams.items()}
            assert_spliced(said, moving.told, given)
    except AssertionError as wrong:
        raise AssertionError(f"{where}, told {moving.told}: {wrong}") from None


def some_names(rng: random.Random, local: bool) -> list[str]:
    """Some queries; a local runtime has the inputs of its first one."""
    names = rng.sample(sorted(QUERIES), rng.choice((2, 2, 3)))
    if local:
        names.sort(key=lambda name: -len(sources(QUERIES[name][0])))
        read = set(sources(QUERIES[names[0]][0]))
        names = [name for name in names if read.issuperset(sources(QUERIES[name][0]))]
    return names


def assert_spliced(said: Iterable[Element], told: list[tuple[int, str]], given: Mapping[str, History]) -> None:
    """At every instant what the query says that counts there."""
    answers = {}
    for name in {name for _, name in told}:
        query = QUERIES[name][0]
        answers[name] = evaluate(query.node, {each: given[each] for each in sources(query)})
    heard = History.of(said, SCHEMA)
    for t in instants():
        counts = next(name for at, name in reversed(told) if at <= t)
        got, right = comparable(heard.snapshot(t)), comparable(answers[counts].at(t))
        assert got == right, f"at {t}: {dict(right - got)} is missing, {dict(got - right)} is too much"


def instants() -> Iterator[int]:
    yield from range(FIRST, LAST + 12)
    yield 10**6


def main(first: int, last: int) -> int:
    counts, failed = Counter[str](), 0
    for seed in range(first, last):
        try:
            run_once(seed, counts)
        except AssertionError as wrong:
            failed += 1
            print(f"WRONG {seed}: {wrong}", flush=True)
        if (seed + 1) % 500 == 0:
            print(f"seed {seed}: {failed} wrong", flush=True)
    print(f"seeds {first} to {last - 1}: {failed} wrong; {dict(counts)}")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
