"""Random sessions whose queries share parts, once as they are and once restored from a snapshot before every epoch.

Queries are drawn on a few streams that they all read, at levels that say more or less; they join, leave, stop, start,
are replaced and change their level, so that what is shared was placed by queries that have gone, in another order than
that in which the restored session places it.  What each query has promised is what the definition says
(`everwhen.reference`), from the instant on at which it was told to be right.  And both sessions say the same elements
where nothing is promised about data (a restart puts such promises together, and some rows come out earlier) and both
remember as much (a restart forgets earlier what no query needs).

    cd tests; python -m engine.shared_sessions FIRST LAST     runs these seeds
    cd tests; python -m engine.shared_sessions SEED           makes what happened in a run as short as it stays wrong
"""

from __future__ import annotations

import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import everwhen as ew
from engine.punctuated_session import some_history
from engine.seeds import run_seeds
from everwhen.algebra.builder import Stream
from everwhen.algebra.explain import explain
from everwhen.core.time import NEVER
from everwhen.engine.session.session import Session
from everwhen.errors import InputError, QueryError
from everwhen.reference import evaluate
from everwhen.rewrite.driver import rewrite
from everwhen.stream.element import Cti, Element, Punct
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History
from everwhen.testing import assert_valid
from operators.differential import EMITS, FIRST, LAST, SCHEMA, comparable, epochs, sources, streams_of
from operators.punctuated import punctuated
from plans import S, T, col
from state_files import through_file

INSTANTS = T.group_by("k").agg(x=ew.max("x")).istream()
SESSIONS = (
    "SELECT k, window_start, window_end FROM SESSION(TABLE A PARTITION BY k, 3) GROUP BY k, window_start, window_end"
)


def bases(rng: random.Random) -> list[Stream]:
    """Streams of the columns k and x that queries read."""
    window, groups = S.range(4), S.lifetime(length=4).group_by("k").agg(x=ew.max("x"))
    found = [
        S, T, window, groups, S.distinct(), S.select("k", "x").coalesce(), INSTANTS, S.union(T), S.rows(2),
        S.lifetime(length=5).union(T.lifetime(length=3)), S.except_(T), S.join(T, on="k", how="anti"), S.dstream(),
        S.range(3).group_by("k").agg(x=ew.sum("x")), S.distinct().coalesce(),
    ]  # fmt: skip
    return rng.sample(found, 4)


def some_query(rng: random.Random, known: list[Stream]) -> Stream:
    """A query of streams, which later ones may read too."""
    a, b = rng.choice(known), rng.choice(known)
    made = {
        "itself": lambda: a,
        "filter": lambda: a.where(col("x") > rng.randrange(3)),
        "distinct": lambda: a.distinct(),
        "groups": lambda: a.group_by("k").agg(x=rng.choice((ew.max, ew.min, ew.sum))("x")),
        "count": lambda: a.aggregate(x=ew.count()).select(k=ew.lit("c"), x=col("x")),
        "istream": lambda: a.istream(),
        "dstream": lambda: a.dstream(),
        "rows": lambda: a.rows(2),
        "window": lambda: a.range(3),
        "union": lambda: a.union(b),
        "minus": lambda: a.difference(b),
        "except": lambda: a.except_(b),
        "join": lambda: a.join(b, on="k").select("k", "x"),
        "join of keys": lambda: a.join(INSTANTS, on="k").select("k", "x"),
        "reads a group": lambda: a.group_by("k").agg(x=ew.max("x")).join(INSTANTS, on="k").select("k", "x"),
        "semi": lambda: a.join(b, on="k", how="semi"),
        "anti": lambda: a.join(b, on="k", how="anti"),
        "anti where": lambda: a.join(b, where=col("x") < col("x_right"), how="anti"),
        "left": lambda: a.join(b, on="k", how="left").select("k", "x"),
        "full": lambda: a.join(b, on={"k": "k"}, how="full").select("k", "x"),
        "coalesce": lambda: a.coalesce(),
        "sessions": lambda: ew.sql(SESSIONS, {"A": a}).select("k", x=col("window_end")),
        "sessions beside": lambda: beside(a, b, known),
        "levels": lambda: a.coalesce().lifetime(length=3),
        "split": lambda: a.split(2),
    }
    return made[rng.choice(sorted(made))]()


def beside(a: Stream, b: Stream, known: list[Stream]) -> Stream:
    """A stream that is read by sessions, which tell ends, and by something else, which others may read as well."""
    pairs = a.join(b, on="k").select("k", "x")
    known.append(pairs)
    sessions = ew.sql(SESSIONS, {"A": a}).select("k", w=col("window_end"))
    return pairs.join(sessions, on="k").select("k", "x")


Event = tuple[Any, ...]
"""What happens: a word and with what."""


def script(seed: int) -> list[Event]:
    """What happens in a run; what does not apply when its turn comes is left out."""
    rng = random.Random(f"shared {seed}")
    known, drawn, names, happens = bases(rng), list[Stream](), list[str](), list[Event]()
    happens.append(("session", rng.choice(EMITS)))
    streams = streams_of({name: some_history(rng, False, most=10) for name in ("S", "T")}, rng, False)
    if rng.random() < 0.25:
        streams = punctuated(streams, rng, SCHEMA, rng.choice((None, 0.4)))
    for at, epoch in enumerate(epochs(streams, rng)):
        for _ in range(rng.choice((0, 1, 2)) if at else 3):
            happens += some_change(rng, known, drawn, names)
        happens.append(("epoch", epoch))
    return happens


def some_change(rng: random.Random, known: list[Stream], drawn: list[Stream], names: list[str]) -> list[Event]:
    draw = rng.random()
    try:
        query = rng.choice(drawn) if drawn and rng.random() < 0.3 else some_query(rng, known)
    except QueryError:
        return []
    drawn.append(query)
    if query.schema == SCHEMA and draw < 0.3:
        known.append(query)
    if draw < 0.42 or not names:
        names.append(f"q{len(names)}")
        return [("register", names[-1], query, None if rng.random() < 0.5 else rng.choice(EMITS))]
    name = rng.choice(names)
    if draw < 0.56:
        return [("turn", name)]
    if draw < 0.63:
        return [("remove", name)]
    if draw < 0.83:
        others = {name: query} if rng.random() < 0.7 else {name: query, rng.choice(names): rng.choice(drawn)}
        return [("replace", others, None if rng.random() < 0.5 else rng.choice((0, 1, 3, 6)))]
    if draw < 0.92:
        return [("migrate", name)]
    return [("change", name, rng.choice(EMITS))]


class Both:
    """The same session twice: one that runs through, and one that is restored before each epoch."""

    def __init__(self, emit: str, promises: bool) -> None:
        self.emit, self.alike = emit, not promises
        self.at: dict[str, Any] = {}
        self.sessions = {"plain": Session(emit=emit), "restarted": Session(emit=emit)}
        self.queries: dict[str, Stream] = {}
        self.left: dict[str, Stream] = {}
        self.heard: dict[str, Heard] = {}
        self.past: list[Heard] = []
        self.done = Counter[str]()
        for name, source in {"s": S, "t": T}.items():
            self.happen("register", name, source, None)

    def happen(self, what: str, *given: Any) -> None:
        """One event."""
        if what == "epoch":
            return self.run(*given)
        if what == "replace":
            return self.replace(*given)
        name, plain = given[0], self.sessions["plain"]
        known = name in self.queries
        if known == (what == "register"):
            return None
        state = plain.query(name).state if known else ""
        if what == "turn":
            what = "stop" if state == "running" else "start"
        elif what in ("migrate", "change") and state != "running":
            return None
        named: dict[str, Any] = {}
        if what == "register" and given[2] is not None:
            named["consistency"] = plain.consistency.changed(emit=given[2])
        if what == "change":
            named["emit"] = given[1]
        query = given[1] if what == "register" else None
        if what == "migrate":
            query = Stream(rewrite(self.queries[name].node).node)
        if not self.both(what, name, *([] if query is None else [query]), **named):
            return None
        self.done[what] += 1
        if what in ("stop", "remove") and name in self.heard:
            self.past.append(self.heard.pop(name))
        if what in ("start", "register"):
            now = query or self.queries[name]
            self.heard[name] = Heard(f"{name}, {dict(self.done)}", {each: [(NEVER, now)] for each in self.sessions})
            self.heard[name].valid_from = {
                each: session.query(name).valid_from for each, session in self.sessions.items()
            }
        if name in self.heard and not self.heard[name].is_alike:
            self.alike = False
        if what == "remove":
            del self.queries[name]
        elif query is not None:
            self.take_up(name, query)
        return None

    def take_up(self, name: str, query: Stream) -> None:
        self.left[name] = self.queries.get(name, query)
        self.queries[name] = query

    def replace(self, queries: Mapping[str, Stream], later: int | None) -> None:
        """Let queries become others together: so much later than has been promised, or as soon as they can."""
        plain = self.sessions["plain"]
        given = {name: each for name, each in queries.items() if name in self.queries}
        if not given or any(plain.query(name).state != "running" for name in given):
            return
        at = None
        if later is not None:
            heard = [each.t for name in given for each in self.heard[name].said["plain"] if isinstance(each, Cti)]
            at = min(max(heard, default=FIRST), LAST) + later
        if not self.both("replace_all", given, at):
            return
        self.done["replace" if at is None else "replace later"] += 1
        for name, query in given.items():
            for each in self.sessions:
                self.heard[name].told[each].append((self.at[each], query))
            self.alike &= self.heard[name].is_alike
            self.take_up(name, query)

    def both(self, what: str, *args: object, **named: object) -> bool:
        """Let both do something; whether they did."""
        told = {}
        for which, session in self.sessions.items():
            try:
                self.at[which] = getattr(session, what)(*args, **named)
                told[which] = ""
            except QueryError as error:
                told[which] = re.sub(r"\d+ (?=\w)", "", str(error))  # operators have numbers in it
            except Exception as error:
                raise AssertionError(f"{which}: {what} {args[0]}: {traceback.format_exc(limit=-6)}") from error
        apart = ("is known from which on", "cannot take over at")
        if len(set(told.values())) > 1 and any(each in words for words in told.values() for each in apart):
            raise Apart
        assert len(set(told.values())) == 1, f"{what} {args}: {told}"
        return not any(told.values())

    def run(self, epoch: dict[str, ElementBatch] | None) -> None:
        """An epoch, None: the end, before which one session starts again."""
        try:
            self.restart()
        except Exception as error:
            raise AssertionError(f"restart: {traceback.format_exc(limit=-6)}") from error
        said = {}
        for which, session in self.sessions.items():
            batches = session.close() if epoch is None else session.push(epoch)
            said[which] = {name: texts(batch) for name, batch in batches.items()}
            for name, batch in batches.items():
                self.heard[name].said[which] += batch.elements()
        one, other = said.values()
        wrong = [
            f"{name}: only the first says {one[name] - other[name]}, only the other {other[name] - one[name]}"
            for name in one
            if one[name] != other[name]
        ]
        assert not self.alike or not wrong, "\n".join(wrong)
        states = [[(each.name, each.state) for each in session.queries()] for session in self.sessions.values()]
        assert states[0] == states[1]

    def restart(self) -> None:
        session = self.sessions["restarted"]
        state = through_file(session.snapshot())  # which finishes what goes in slices
        given: dict[str, Stream | tuple[Stream, Stream]] = {
            name: (self.left[name], query) if session.is_replaced(name) else query
            for name, query in self.queries.items()
        }
        self.sessions["restarted"] = Session(emit=self.emit)
        self.sessions["restarted"].restore(state, given)


class Apart(Exception):
    """One session takes a query and one refuses it, because it has forgotten what it would have to know."""


@dataclass
class Heard:
    """What a query has said since it was started, by sessions.  `told`: from which instant on it is which query."""

    name: str
    told: dict[str, list[tuple[int, Stream]]]
    valid_from: dict[str, int] = field(default_factory=dict)
    said: dict[str, list[Element]] = field(default_factory=lambda: {"plain": [], "restarted": []})

    @property
    def is_alike(self) -> bool:
        """Whether both know as much of the past.  What is not needed is forgotten now and then."""
        return self.told["plain"] == self.told["restarted"] and len(set(self.valid_from.values())) == 1

    def check(self, given: Mapping[str, History]) -> None:
        for which, said in self.said.items():
            assert_valid(said)
            told = self.told[which]
            answers = [(at, evaluate(q.node, {n: given[n] for n in sources(q)})) for at, q in told]
            promised = max((each.t for each in said if isinstance(each, Cti)), default=NEVER)
            heard = History.of(said, told[0][1].schema)
            for t in range(max(FIRST, self.valid_from[which]), min(LAST, promised)):
                right = comparable(next(answer for at, answer in reversed(answers) if at <= t).at(t))
                got = comparable(heard.snapshot(t))
                wrong = f"{dict(right - got)} is missing, {dict(got - right)} is too much"
                assert got == right, f"{which} {self.name} at {t}: {wrong}"


def texts(batch: ElementBatch) -> Counter[str]:
    return Counter(map(str, batch.elements()))


def play(happens: Sequence[Event]) -> Counter[str]:
    """Let it happen; an AssertionError says what is wrong.  Returns how often what was done."""
    (_, emit), *others = happens
    epochs = [given[0] for what, *given in others if what == "epoch"]
    both = Both(
        emit, any(isinstance(e, Punct) for epoch in epochs for batch in epoch.values() for e in batch.elements())
    )
    try:
        for what, *given in others:
            both.happen(what, *given)
        both.run(None)
    except Apart:
        both.done["apart"] += 1
    told = {name: [each for epoch in epochs if name in epoch for each in epoch[name].elements()] for name in ("S", "T")}
    for each in (*both.past, *both.heard.values()):
        each.check({name: History.of(said, SCHEMA) for name, said in told.items()})
    return both.done


def run_once(seed: int) -> Counter[str]:
    try:
        return play(script(seed))
    except AssertionError as wrong:
        raise AssertionError(f"seed {seed}: {wrong}") from wrong


# -- what happened, made short -----------------------------------------------------------------------------------------


def shortened(happens: list[Event]) -> list[Event]:
    """As few events as stay wrong in the same way."""
    way = wrong(happens)
    assert way, "it is right"
    going = True
    while going:
        going = False
        for at in range(len(happens) - 1, 0, -1):
            fewer = [*happens[:at], *happens[at + 1 :]]
            if wrong(fewer) == way:
                happens, going = fewer, True
    return happens


def wrong(happens: Sequence[Event]) -> str:
    try:
        play(happens)
    except AssertionError as error:
        last = str(error).strip().splitlines()[-1] if str(error) else "no message"
        return last[:40] if "Error" in last else "other"
    except InputError:  # of what is left the streams are not legal
        return ""
    return ""


def told(event: Event) -> str:
    what, *given = event
    if what == "epoch":
        batches = (f"{name}: {', '.join(map(str, batch.elements()))}" for name, batch in given[0].items())
        return f"epoch {'; '.join(batches)}"
    return (
        f"{what} {' '.join(chr(10) + explain(each.node) if isinstance(each, Stream) else str(each) for each in given)}"
    )


if __name__ == "__main__":
    if len(sys.argv) == 2:
        short = shortened(script(int(sys.argv[1])))
        print(*map(told, short), sep="\n")
        play(short)
    else:
        sys.exit(bool(run_seeds(run_once, int(sys.argv[1]), int(sys.argv[2]))))
