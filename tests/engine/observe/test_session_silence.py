"""WAITING's law in sessions: several queries in SQL that share sources, of which some rest, drop late rows, promise by
their rows, or are copies of one stream; at the ends of time, too.

The law is `test_find_waiting.py`'s; here whatever is told is tried on copies that know who rests.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

import everwhen as ew
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER, last_tick
from everwhen.engine.observe.silence.find_waiting import least
from everwhen.engine.observe.silence.waiting import Waiting
from everwhen.engine.session.session import Session
from everwhen.errors import EverwhenError, QueryError
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of

SOURCES = """
    CREATE STREAM S (k TEXT, x INT);
    CREATE STREAM T (k TEXT, x INT);
    CREATE STREAM A (k TEXT, x INT);
    CREATE STREAM B (k TEXT, x INT);
    CREATE STREAM I (k TEXT, x INT) IDLE AFTER 10 SECONDS LATE ROWS DROP;
    CREATE STREAM O (k TEXT, x INT, at INT) ORDERED BY at WITHIN 3 LATE ROWS DROP;
    CREATE STREAM D AS SELECT k, SUM(x) AS x FROM S WINDOW(RANGE 5) GROUP BY k
"""
QUERIES = (
    "SELECT S.k, T.x FROM S JOIN T ON S.k = T.k",
    "SELECT S.k, I.x FROM S LEFT JOIN I ON S.k = I.k",
    "SELECT k, x FROM S WHERE k IN (SELECT k FROM I)",
    "SELECT k, x FROM D UNION SELECT k, x FROM O WINDOW(RANGE 4 SLIDE 3)",
    "SELECT k, COUNT(*) AS n FROM I WINDOW(RANGE 6) GROUP BY k",
    "SELECT CAST(k AS INT) AS k, x FROM S",
    "SELECT k, x FROM (SELECT k, MIN(x) AS x FROM S GROUP BY k) p WINDOW(UNBOUNDED)",
    "SELECT k, x FROM (SELECT k, MAX(x) AS x FROM S GROUP BY k) p LIFETIME(LENGTH 4)",
    "SELECT k, CAST(x AS TEXT) AS x FROM S EXCEPT SELECT k, CAST(x AS TEXT) FROM T",
    "SELECT k, x FROM LMERGE(A, B) m",
    "SELECT m.k, T.x FROM LMERGE(A, B WITH LEADER) m LEFT JOIN T ON m.k = T.k",
    "SELECT k, LAG(x) OVER (PARTITION BY k ORDER BY x) AS x FROM S",
    "SELECT O.k, S.x FROM O ASOF JOIN S ON O.k = S.k AND O.x >= S.x",
)
LEVELS = (
    "STRONG", "STRONG", "MIDDLE", "WEAK", "(BLOCK 3 MILLISECONDS)", "(REMEMBER 5 MILLISECONDS)",
    "(BLOCK 2 MILLISECONDS, REMEMBER 6 MILLISECONDS)",
)  # fmt: skip


class Silence:
    """A session and its clock."""

    def __init__(self, emit: str | None = None, idle: float | None = None) -> None:
        self.now = 100.0
        self.session = ew.SqlSession(emit=emit, idle=idle, allow_unbounded=True, clock=lambda: self.now)
        self.session.execute(SOURCES)

    def push(self, epoch: Mapping[str, list[Element]]) -> None:
        read = {name: each for name, each in epoch.items() if name in self.session.inputs}
        self.session.push({name: batch_of(each, self.session.schema_of(name), name) for name, each in read.items()})

    def copied(self) -> Session:
        """The session as it is, with who rests."""
        session = self.session._session
        now, idle = self.now, session._network.ingress.idle
        copy = Session(clock=lambda: now, idle=idle.seconds)
        copy.restore(session.snapshot(), {name: each.node for name, each in session._catalogue.entries.items()})
        copy._network.ingress.idle.resume(idle.spoke)
        return copy

    def brings(self, query: str, promises: Mapping[str, int]) -> int | str:
        """How much of a query is said to promises, or why it fails."""
        copy, said = self.copied(), 0
        epoch = {name: [Cti(t)] for name, t in promises.items() if t > copy.progress[name]}
        for each in (epoch, {}):
            heard = copy.push({name: batch_of(cti, copy.schema_of(name), name) for name, cti in each.items()})
            if query not in heard:
                return copy.error_of(query)
            said += sum(isinstance(element, Insert | Adjust) for element in heard[query].elements())
        return said


def assert_law(silence: Silence, query: str) -> Waiting:
    told = silence.session.waiting(query)
    assert str(told) == str(silence.session.waiting(query))
    open_ = [each.name for each in told.sources if each.promised < INF]
    match told.reason:
        case "promise":
            needs = {need.source.name: need.t for need in told.needs}
            assert silence.brings(query, needs) == told.rows + told.corrections, told
            for name, t in needs.items():
                without = {other: at for other, at in needs.items() if other != name}
                for less in (without, {**needs, name: last_tick(t)}):
                    came = silence.brings(query, less)
                    assert not came or isinstance(came, str), (less, told)
        case "fails":
            assert told.first is not None
            assert isinstance(silence.brings(query, dict.fromkeys(open_, told.first)), str), told
            assert silence.brings(query, dict.fromkeys(open_, last_tick(told.first))) == 0, told
        case "under way":
            assert silence.brings(query, {}) == told.rows + told.corrections, told
        case _:
            assert silence.brings(query, dict.fromkeys(open_, INF)) == 0, told
    return told


def elements(rng: random.Random, name: str, promised: int, base: int) -> list[Element]:
    """Rows behind what is promised, as O has them by what its rows promise; and a promise now and then."""
    low = max(promised, base)
    if low > MAX_TIME - 20:
        return []
    length = 1 if name == "O" else 8
    found: list[Element] = []
    for start in (low + rng.randrange(6) for _ in range(rng.randrange(4))):
        end = INF if length > 1 and rng.random() < 0.1 else start + rng.randint(1, length)
        found.append(Insert(start, end, {"k": rng.choice("112a"), "x": rng.randrange(3)}))
    if name != "O" and rng.random() < 0.5:
        found.append(Cti(low + rng.randrange(4)))
    return found


def random_silences(case: str) -> list[Waiting]:
    """What is told in a session of which everything is drawn."""
    rng = random.Random(case)
    emit = rng.choice((None, None, "final", "current", "all"))
    silence, found = Silence(emit, rng.choice((None, None, 30.0))), []
    base = rng.choice((0, 0, 0, -50, MIN_TIME, MAX_TIME - 40))
    names = [f"q{number}" for number in range(rng.randint(1, 3))]
    for name in names:
        silence.session.start(name, f"{rng.choice(QUERIES)} CONSISTENCY {rng.choice(LEVELS)}")
    for _ in range(rng.randint(1, 4)):
        read = [name for name in silence.session.inputs if rng.random() < 0.8]
        epoch = {name: elements(rng, name, silence.session.progress.get(name, NEVER), base) for name in read}
        try:
            silence.push(epoch)
        except EverwhenError:  # what is not taken leaves everything as it was
            continue
        silence.now += rng.choice((0.0, 5.0, 12.0, 40.0))
        for name in names:
            if silence.session.query(name).state == "running":
                found.append(assert_law(silence, name))
    return found


@pytest.mark.parametrize("part", range(2))
def test_the_law_in_sessions(part: int) -> None:
    for number in range(6):
        random_silences(f"{part} {number}")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_the_law_in_many_sessions(part: int) -> None:
    for number in range(60):
        random_silences(f"many {part} {number}")


# -- what was wrong ----------------------------------------------------------------------------------------------------


def insert(start: int, end: int, k: str = "a", x: int = 1) -> Insert:
    return Insert(start, end, {"k": k, "x": x})


def test_a_source_that_rests_is_not_waited_for() -> None:
    silence = Silence(idle=30.0)
    silence.session.start("q", f"{QUERIES[0]} CONSISTENCY STRONG")
    silence.push({"S": [insert(1, 9), Cti(1)], "T": [insert(2, 20)]})
    silence.now += 60
    first, *told, _ = str(assert_law(silence, "q")).splitlines()
    assert first == "q: 1 row from 2 on waits for a promise of 3 of S"
    assert [line.split("; ")[-1] for line in told] == [
        "its last element came 60 s ago: all rest, and the answer waits for one",
        '    -> {"op":"cti","t":3} of S',
    ]
    assert str(assert_law(silence, "q")).endswith("60 s ago; it rests, and holds nobody back: not waited for")
    silence.push({"S": [Cti(2)]})
    told = assert_law(silence, "q")
    assert [(need.source.name, need.t) for need in told.needs] == [("S", 3)] and "it holds the answer back" in str(told)


@pytest.mark.parametrize(("start", "needed"), [(MIN_TIME, MIN_TIME + 1), (MAX_TIME - 1, MAX_TIME), (MAX_TIME, INF)])
def test_at_the_ends_of_time(start: int, needed: int) -> None:
    silence = Silence()
    silence.session.start("q", "SELECT DISTINCT k FROM S CONSISTENCY STRONG")
    silence.push({"S": [insert(start, INF)]})
    assert [need.t for need in assert_law(silence, "q").needs] == [needed]


def test_any_promise_will_do() -> None:
    silence = Silence()
    silence.session.start("q", "SELECT m.k, T.x FROM LMERGE(A, B) m LEFT JOIN T ON m.k = T.k CONSISTENCY (BLOCK 3)")
    silence.push({"A": [insert(4, 5)], "B": [insert(0, 3)]})
    (need,) = assert_law(silence, "q").needs
    assert (need.source.name, need.t) == ("A", MIN_TIME)


def test_promises_on_which_a_query_fails_are_not_asked_for() -> None:
    silence = Silence("current")
    text = "SELECT k, x FROM (SELECT k, MIN(x) AS x FROM S GROUP BY k) p WINDOW(UNBOUNDED) CONSISTENCY (BLOCK 3)"
    silence.session.start("q", text)
    for row in (insert(8, 10, x=2), insert(7, INF, x=-1)):
        silence.push({"S": [row]})
    assert [need.t for need in assert_law(silence, "q").needs] == [9]
    assert "an unbounded window over rows that never end" in str(silence.brings("q", {"S": INF}))


def test_a_promise_of_everything_is_found_at_once() -> None:
    tried: list[int] = []

    def enough(t: int) -> bool:
        tried.append(t)
        return t == INF

    assert least(enough, 5, 9) == INF and tried == [MAX_TIME]


def test_a_query_that_fails_with_the_next_epoch() -> None:
    """A source comes to rest, and what waited for it is a row that the query refuses."""
    silence = Silence(idle=30.0)
    silence.session.start("q", "SELECT CAST(S.k AS INT) AS k FROM S JOIN T ON S.x = T.x CONSISTENCY (BLOCK 9)")
    silence.push({"S": [insert(1, 9), Cti(1)], "T": [insert(1, 9)]})
    silence.now += 20
    silence.push({"S": [Cti(20)]})
    silence.now += 20
    told = silence.session.waiting("q")
    assert (told.reason, told.first) == ("fails", None)
    assert str(told).startswith("q: it fails with the next epoch: ")
    with pytest.raises(QueryError, match="'a'"):
        silence.push({})
        raise QueryError(silence.session.query("q").error)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k FROM S WHERE NOT EXISTS (SELECT * FROM T WHERE T.k = S.k AND T.x > 100)",
        "SELECT S.k, T.x FROM S LEFT JOIN (SELECT * FROM T WHERE x > 100) AS T ON S.k = T.k",
        "SELECT k FROM S UNION ALL SELECT k FROM T WHERE x > 100",
    ],
)
def test_a_filter_of_one_side_is_not_to_blame_where_all_is_said(text: str) -> None:
    session = ew.SqlSession()
    session.execute(f"CREATE STREAM S (k TEXT, x INT); CREATE STREAM T (k TEXT, x INT); {text}")
    rows = [ew.Insert(0, 5, {"k": "a", "x": 1}), ew.Cti(9)]
    assert len(session.push({name: ew.ElementBatch.of(rows, session.schema_of(name)) for name in "ST"})["q1"]) > 1
    assert session.waiting("q1").reason == "all is said"
