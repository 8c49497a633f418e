"""Random runs in which a query goes over from plan to plan, all of which mean the same.

A seed decides all of it: the query, its other forms, streams with disorder, corrections, rows without end and promises
about data, the policy and the level, and before which epochs the runtime migrates, is thrown away and taken up again
from its snapshot, or both; in some runs of local runtimes also when the policy changes.  In every second run switches
go in slices of a few rows.
A run that never migrates stands beside it; in every second run one of each form, whose words tell whether something is
to be said at a switch.

    cd tests; python -m engine.migration.migrated_runs FIRST LAST     runs these seeds, and prints what was drawn
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import everwhen as ew
from engine.punctuated_session import some_history
from everwhen.algebra.nodes import Filter, Fixpoint, Node, Recursion, Source, over, walk
from everwhen.core.consistency import MIDDLE, STRONG, Consistency, consistency
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.engine.session import network
from everwhen.engine.session.joining.gradual import GradualCutover
from everwhen.engine.session.session import Session
from everwhen.errors import QueryError
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.rule_order import RULES
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch
from everwhen.testing import assert_same_history, assert_valid
from operators.differential import EMITS, SCHEMA, epochs, streams_of
from operators.punctuated import punctuated
from plans import PLANS, REGROUPED, S, T, col
from state_files import through_file

A, B = S.range(4), T.range(3)
EQUAL: tuple[tuple[ew.Stream, ...], ...] = (
    (
        A.join(B, on="k").select("k", "x", y=col("x_right")),
        B.join(A, on="k").select("k", x=col("x_right"), y=col("x")),
        A.where(~col("k").is_null()).join(B, on="k").select("k", "x", y=col("x_right")),
    ),
    (
        A.join(B, on="k").select("k").distinct(),
        A.select("k").distinct().join(B.select("k").distinct(), on="k").select("k"),
    ),
    (
        A.join(B, on="k").join(A.select(k=col("k"), z=col("x")), on="k").select("k", "x", "x_right", "z"),
        A.join(B.join(A.select(k=col("k"), z=col("x")), on="k"), on="k").select("k", "x", "x_right", "z"),
    ),
    (
        A.where(col("x") > 0).group_by("k").agg(n=ew.count()),
        S.where(col("x") > 0).range(4).group_by("k").agg(n=ew.count()),
    ),
    (A.union(B).distinct(), A.distinct().union(B).distinct(), B.union(A.distinct()).distinct()),
    (
        S.group_by("k").agg(n=ew.sum("x")),
        S.where(~col("x").is_null() | col("x").is_null()).group_by("k").agg(n=ew.sum("x")),
    ),
)
"""Queries in forms that no rule makes."""


def padded(node: Node, rng: random.Random) -> Node:
    """The same plan with conditions in it that always hold, so that operators above are others."""
    built: dict[int, Node] = {}
    loops = any(isinstance(each, Fixpoint) for each in walk(node))
    for each in walk(node):
        found = over(each, *(built[id(child)] for child in each.inputs))
        often = 0.7 if isinstance(each, Source) else 0.15
        if not isinstance(each, Recursion) and (isinstance(each, Source) or not loops) and rng.random() < often:
            found = Filter(found, ew.lit(True))
        built[id(each)] = found
    return built[id(node)]


def forms(rng: random.Random) -> tuple[str, list[Node], bool]:
    """A query in several forms; whether rows without end are legal for it."""
    if rng.random() < 0.3:
        at = rng.randrange(len(EQUAL))
        return f"equal {at}", [each.node for each in EQUAL[at]], True
    drawn = rng.choice((*PLANS, *REGROUPED))
    node = drawn.build().node
    some = [rule for rule in RULES if rng.random() < 0.5]
    found = [node, rewrite(node).node, rewrite(node, some).node, padded(node, rng), padded(rewrite(node).node, rng)]
    same = [each for each in found if each.schema == node.schema]
    return drawn.name, rng.sample(same, min(3, len(same))), drawn.infinite


def levels(rng: random.Random, emit: str) -> Consistency:
    match rng.randrange(6):
        case 0:
            return consistency(0, rng.choice((0, 3, 10)), emit=emit)
        case 1 if emit != "final":
            return consistency(rng.choice((2, 5)), 20, emit=emit)
        case 2:
            return STRONG.changed(emit=emit)
    return MIDDLE.changed(emit=emit)


class Local:
    """A local runtime, behind the same words as a session's query."""

    def __init__(self, node: Node, level: Consistency) -> None:
        self.level = level
        self.runtime = LocalRuntime(node, consistency=level, keep_relations=True)
        self.now, self.left = node, node

    def push(self, epoch: dict[str, ElementBatch]) -> ElementBatch:
        read = {name: batch for name, batch in epoch.items() if name in self.runtime.inputs}
        return self.runtime.push(read)["out"]

    def close(self) -> ElementBatch:
        return self.runtime.close()["out"]

    def migrate(self, node: Node) -> None:
        found = self.runtime.migrate(node)
        assert found.done == (self.runtime.migrating is None)
        assert found.at >= found.valid_from
        self.left, self.now = self.now, node

    def change(self, emit: str) -> ElementBatch:
        return self.runtime.change(emit=emit)["out"]

    def restart(self) -> None:
        state = through_file(self.runtime.snapshot())
        left = None if self.runtime.migrating is None else self.left
        self.runtime = LocalRuntime(self.now, consistency=self.level, keep_relations=True)
        self.runtime.restore(state, left)

    @property
    def moves(self) -> bool:
        return self.runtime.migrating is not None

    @property
    def in_slices(self) -> bool:
        return self.runtime._gradual is not None


class InSession:
    """A query of a session in which both sources are always read."""

    def __init__(self, node: Node, level: Consistency) -> None:
        self.level = level
        self.session = self._begun()
        for name, source in (("s", S), ("t", T)):
            self.session.register(name, source)
        self.session.register("q", ew.Stream(node), consistency=level)
        self.now, self.left = node, node

    def _begun(self) -> Session:
        return Session(consistency=self.level)

    def push(self, epoch: dict[str, ElementBatch]) -> ElementBatch:
        heard = self.session.push(epoch)
        assert "q" in heard, self.session.query("q").error
        return heard["q"]

    def close(self) -> ElementBatch:
        return self.session.close()["q"]

    def migrate(self, node: Node) -> None:
        found = self.session.migrate("q", node)
        assert found.at >= found.valid_from
        self.left, self.now = self.now, node

    def restart(self) -> None:
        state = through_file(self.session.snapshot())
        pair = (self.left, self.now) if self.session.is_replaced("q") else self.now
        self.session = self._begun()
        self.session.restore(state, {"s": S, "t": T, "q": pair})

    @property
    def moves(self) -> bool:
        return self.session.is_replaced("q")

    @property
    def in_slices(self) -> bool:
        return any(isinstance(each.cutover, GradualCutover) for each in self.session._network.outlets.values())


def told(elements: list[Element]) -> Counter[tuple]:
    """How often each row is said to live, by the instants at which that changes."""
    edges: dict[tuple, Counter[int]] = {}
    for each in elements:
        if isinstance(each, Insert | Adjust):
            row = edges.setdefault(tuple(map(repr, each.row.values())), Counter())
            for lo, hi, n in ((each.vs, each.ve, 1),) if isinstance(each, Insert) else (
                (each.vs, each.ve, -1), (each.vs, each.vnew, 1)):  # fmt: skip
                row[lo] += n
                row[hi] -= n
    return Counter({(row, t): n for row, at in edges.items() for t, n in at.items() if n})


@dataclass
class Counts:
    runs: int = 0
    migrations: int = 0
    refused: int = 0
    restarts: int = 0
    switches: int = 0
    quiet: int = 0
    """Switches in epochs in which no plan by itself says anything, where each has a run beside."""
    silent: int = 0
    """Those of them at which nothing was said."""
    sliced: int = 0
    """Epochs in which a switch went in slices."""
    restarts_between: int = 0
    """Restarts while both plans ran."""
    changes: int = 0
    """Of the policy."""
    several: int = 0
    """Runs with two migrations or more."""
    why: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    """Of runs: the policy, the level, the runtime, and what stands in the streams."""
    plans: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [
            f"{self.runs} runs of {len(self.plans)} queries, {self.several} with several migrations",
            f"{self.migrations} migrations, {self.refused} refused, {self.switches} switches seen to end "
            f"({self.quiet} in quiet epochs, nothing said at {self.silent}), {self.sliced} epochs in slices",
            f"{self.restarts} restarts, {self.restarts_between} of them while both plans ran",
            f"{self.changes} changes of the policy",
            f"drawn: {_counted(self.drawn)}",
            f"refused: {_counted(self.why)}",
        ]
        return "\n".join(lines)


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))


def kinds(streams: Iterable[list[Element]]) -> Iterator[str]:
    """What stands in streams."""
    for elements in streams:
        last = -1
        for each in elements:
            if isinstance(each, Punct):
                yield "promises about data"
            elif isinstance(each, Adjust):
                yield "growing adjusts" if each.vnew > each.ve else "shrinking adjusts"
            elif isinstance(each, Insert):
                if each.vs < last:
                    yield "disorder"
                if each.ve == INF:
                    yield "rows without end"
                last = max(last, each.vs)


@contextmanager
def slices(rng: random.Random) -> Iterator[bool]:
    """Slices of a few rows; or the usual ones, which are never reached here."""
    before, sliced = network.SLICE_ROWS, rng.random() < 0.5
    if sliced:
        network.SLICE_ROWS = rng.choice((1, 1, 2, 4))
    try:
        yield sliced
    finally:
        network.SLICE_ROWS = before


def run_once(seed: int, counts: Counts) -> None:
    """One run; an AssertionError says what is wrong."""
    rng = random.Random(f"migrated {seed}")
    with slices(random.Random(f"slices {seed}")) as sliced:
        counts.drawn["slices of a few rows"] += sliced
        _run(seed, rng, counts, sliced)


def _run(seed: int, rng: random.Random, counts: Counts, sliced: bool) -> None:
    name, given, infinite = forms(rng)
    emit = rng.choice(EMITS)
    level = levels(rng, emit)
    infinite = infinite and rng.random() < 0.4
    histories = {each: some_history(rng, infinite, most=30 if sliced else 12) for each in ("S", "T")}
    streams = streams_of(histories, rng, infinite)
    if rng.random() < 0.3:
        streams = punctuated(streams, rng, SCHEMA, rng.choice((None, 0.4)))
    pushes = epochs(streams, rng)
    how = rng.choice((Local, InSession))
    current = rng.randrange(len(given))
    moving = how(given[current], level)
    policies = random.Random(f"policies {seed}")
    changes = how is Local and policies.random() < 0.4
    watched = random.Random(f"watched {seed}").random() < 0.5 and not changes
    shadows = [how(node, level) for node in (given if watched else given[:1])]
    beside: list[list[Element]] = [[] for _ in shadows]
    said: list[Element] = []
    counts.runs += 1
    counts.plans[name] += 1
    for what in {emit, how.__name__, _level(level), f"{len(given)} forms", *kinds(streams.values())}:
        counts.drawn[what] += 1
    migrations = counts.migrations
    switching: int | None = None
    where = f"seed {seed}: {name}, {emit}, {level}, {how.__name__}"
    try:
        for epoch in pushes:
            if rng.random() < 0.4:
                to = rng.randrange(len(given))
                try:
                    moving.migrate(given[to])
                except QueryError as refused:
                    counts.refused += 1
                    counts.why[_kind(str(refused))] += 1
                else:
                    counts.migrations += 1
                    switching = to
            if changes and not moving.moves and policies.random() < 0.4:
                emit = policies.choice(EMITS)
                counts.changes += 1
                for each, heard in ((moving, said), *zip(shadows, beside, strict=True)):
                    assert isinstance(each, Local)
                    heard += each.change(emit).elements()
            if rng.random() < (0.1 if sliced else 0.2):
                counts.restarts += 1
                counts.restarts_between += moving.moves
                moving.restart()
            counts.sliced += moving.in_slices
            new = list(moving.push(dict(epoch)).elements())
            lately = [list(shadow.push(dict(epoch)).elements()) for shadow in shadows]
            for heard, each in zip(beside, lately, strict=True):
                heard += each
            if switching is not None and not moving.moves:
                counts.switches += 1
                quiet = watched and not any(isinstance(each, Insert | Adjust) for part in lately for each in part)
                found = [each for each in new if isinstance(each, Insert | Adjust)]
                if quiet:
                    counts.quiet += 1
                    counts.silent += not found
                    # in `ended` what is said depends on where pieces were cut before, which one that joins cannot know
                    if emit != "ended" and told(said) == told(beside[switching]):
                        assert not found, f"{where}: at the switch {found} is said, and both tell the same"
                switching = None
            said += new
        counts.several += counts.migrations - migrations > 1
        said += moving.close().elements()
        for shadow, heard in zip(shadows, beside, strict=True):
            heard += shadow.close().elements()
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{where}: {traceback.format_exc(limit=-6)}") from error
    try:
        assert_valid(said)
        assert said and isinstance(said[-1], Cti), "it ends with a promise"
        assert_same_history([each for each in said], beside[0])
        if emit == "final" and not changes:
            assert not any(isinstance(each, Adjust) for each in said), "nothing is corrected in final"
    except AssertionError as wrong:
        raise AssertionError(f"{where}: {wrong}") from None


def _level(level: Consistency) -> str:
    if level.block == 0:
        return "middle level" if level.remember == INF else "weak level"
    return "strong level" if level.block == INF else "level that waits"


def _kind(text: str) -> str:
    return next((word for word in REASONS if word in text), text)


REASONS = (
    "needs all of the past", "has no end", "being replaced", "going over", "never change", "ORDER BY", "waiting",
    "(lmerge)", "has ended", "come to its end", "is not known", "more of the past",
)  # fmt: skip


def main(first: int, last: int) -> int:
    counts, failed, began = Counts(), 0, time.process_time()
    for seed in range(first, last):
        try:
            run_once(seed, counts)
        except AssertionError as wrong:
            failed += 1
            print(f"WRONG {seed}: {wrong}", flush=True)
        if (seed + 1) % 500 == 0:
            print(f"seed {seed}: {failed} wrong, {time.process_time() - began:.0f} s of the processor", flush=True)
    print(f"seeds {first} to {last - 1}: {failed} wrong, {time.process_time() - began:.0f} s of the processor")
    print(counts)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
