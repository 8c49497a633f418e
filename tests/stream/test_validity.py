"""Properties of streams, against their definitions in the papers, and what the reports say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.punctuation import Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError
from everwhen.stream import validity
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import batch_of
from everwhen.stream.validity import Checker, check, checked

XY = Schema.of([("x", pa.int64()), ("y", pa.string())])


def insert(vs: int, ve: int, x: Any = 1, y: Any = "a") -> Insert:
    return Insert(vs, ve, {"x": x, "y": y})


def adjust(vs: int, ve: int, vnew: int, x: Any = 1, y: Any = "a") -> Adjust:
    return Adjust(vs, ve, vnew, {"x": x, "y": y})


def punct(t: int = INF, **match: Any) -> Punct:
    return Punct(Punctuation(match, t))


rows = st.fixed_dictionaries({"x": st.none() | st.integers(0, 2), "y": st.sampled_from(["a", "b"])})
ends = st.integers(1, 8) | st.just(INF)
patterns = st.dictionaries(
    st.just("x"),
    st.one_of(
        st.lists(st.none() | st.integers(0, 2), max_size=2).map(lambda found: OneOf(tuple(found))),
        st.builds(Range, ge=st.integers(0, 2), lt=st.none() | st.integers(0, 3)),
        st.just(Nothing()),
    ),
) | st.just({"y": OneOf(("a",)), "x": Range(ge=1)})
elements = st.one_of(
    st.builds(lambda vs, n, row: Insert(vs, INF if n == INF else vs + n, row), st.integers(0, 6), ends, rows),
    st.builds(
        lambda vs, n, m, row: Adjust(vs, INF if n == INF else vs + n, vs + m, row),
        st.integers(0, 6),
        ends,
        st.integers(0, 3),
        rows,
    ),
    st.builds(Cti, st.integers(0, 6) | st.just(INF)),
    st.builds(lambda match, t: Punct(Punctuation(match, t)), patterns, st.integers(0, 6) | st.just(INF)),
    st.just(ExternalCti(0, 5, 3)),
)


@st.composite
def streams(draw: st.DrawFn) -> list[Element]:
    found: list[Element] = []
    for element in draw(st.lists(elements, max_size=9)):
        earlier = [e for e in found if isinstance(e, Insert)]
        if isinstance(element, Adjust) and earlier and draw(st.integers(0, 3)):
            event = draw(st.sampled_from(earlier))
            element = Adjust(event.vs, event.ve, max(event.vs, element.vnew), event.row)
        found.append(element)
    return found


def verdicts(stream: list[Element]) -> dict[str, int | None]:
    """The line at which each property breaks first, by the definitions, looking at all pairs of elements."""
    names = ["valid", "ordered", "grammatical", "insert_only", "shrink_only", "chronon"]
    broken: dict[str, int | None] = dict.fromkeys(names)
    alive: list[tuple[int, int, Any]] = []

    def breaks(name: str, line: int) -> None:
        if broken[name] is None:
            broken[name] = line

    for line, element in enumerate(stream, 1):
        before = stream[: line - 1]
        if isinstance(element, Insert | Adjust | Cti) and any(
            e.sync > element.sync for e in before if isinstance(e, Insert | Adjust | Cti)
        ):
            breaks("ordered", line)
        if not isinstance(element, Insert | Adjust):
            continue
        if isinstance(element, Adjust):
            breaks("insert_only", line)
            if element.vnew > element.ve:
                breaks("shrink_only", line)
        last = element.vnew if isinstance(element, Adjust) else element.ve
        if last > element.vs + 1:
            breaks("chronon", line)
        ungrammatical = any(
            e.promise.matches(element.row) and element.sync < e.promise.t for e in before if isinstance(e, Punct)
        )
        if ungrammatical:
            breaks("grammatical", line)
        if ungrammatical or any(element.sync < e.t for e in before if isinstance(e, Cti)):
            breaks("valid", line)
            continue
        if isinstance(element, Insert):
            alive.append((element.vs, element.ve, element.row))
        elif (element.vs, element.ve, element.row) in alive:
            alive.remove((element.vs, element.ve, element.row))
            if element.vnew > element.vs:
                alive.append((element.vs, element.vnew, element.row))
        else:
            breaks("valid", line)
    return broken


@given(stream=streams(), size=st.integers(1, 5), eager=st.booleans())
def test_properties_are_what_the_definitions_say(stream: list[Element], size: int, eager: bool) -> None:
    batch = batch_of(stream, XY)
    kept = validity._PURGE
    try:
        validity._PURGE = 0 if eager else kept  # type: ignore[misc]
        report = check([batch.slice(i, size) for i in range(0, len(batch), size)])
    finally:
        validity._PURGE = kept  # type: ignore[misc]
    for name, line in verdicts(stream).items():
        assert getattr(report, name) == (line is None), name
        assert (report.offences[name].line if name in report.offences else None) == line
    assert report.perfect == (report.ordered and report.insert_only)
    assert report.closed_up_to == max((e.t for e in stream if isinstance(e, Cti)), default=NEVER)
    last = stream[-1] if stream else None
    syncs = [e.sync for e in stream if isinstance(e, Insert | Adjust)]
    assert report.closed == (
        isinstance(last, Cti) and last.t == report.closed_up_to and (last.t == INF or all(t < last.t for t in syncs))
    )


@pytest.mark.parametrize(
    ("stream", "line", "why"),
    [
        ([insert(1, 5), Cti(3), insert(2, 9)], 3, "insert [2, 9) x=1 y='a' changes instant 2, but cti 3 came before"),
        ([insert(1, 5), Cti(3), adjust(1, 5, 2)], 3, "changes instant 2, but cti 3 came before"),
        ([Cti(INF), insert(1, 5)], 2, "but cti ∞ came before"),
        ([insert(1, 5), Cti(9), Cti(2), insert(4, 5)], 4, "but cti 9 came before"),
        ([insert(1, 5), adjust(1, 6, 3)], 2, "adjusts an event that is not there"),
        ([insert(1, 5), adjust(1, 5, 3, x=None)], 2, "adjusts an event that is not there"),
        ([adjust(1, 5, 3), insert(1, 5)], 1, "adjusts an event that is not there"),
        ([insert(1, 5), adjust(1, 5, 1), adjust(1, 5, 1)], 3, "adjusts an event that is not there"),
        ([punct(x=OneOf((1, 2))), insert(1, 5)], 2, "but punct x in (1, 2) came before"),
        ([punct(x=OneOf((None,))), insert(1, 5, None)], 2, "but punct x = null came before"),
        ([insert(1, 5), punct(4, x=Range(ge=0)), adjust(1, 5, 3)], 3, "but punct x >= 0 before 4 came before"),
        ([insert(5, 5)], 1, "the lifetime [5, 5) is empty"),
    ],
)
def test_an_offence_is_named(stream: list[Element], line: int, why: str) -> None:
    report = check(stream, XY)
    assert not report.valid and report.first_offence is not None
    assert report.first_offence.line == line
    assert why in report.first_offence.why
    with pytest.raises(InputError) as caught:
        list(checked([batch_of(stream, XY)]))
    assert caught.value.line == line


@pytest.mark.parametrize(
    "stream",
    [
        [insert(1, 5), Cti(3), adjust(1, 5, 3)],
        [insert(1, 5), Cti(5), adjust(1, 5, 9)],
        [insert(1, INF), Cti(9), adjust(1, INF, 9), Cti(10)],
        [insert(1, 5), insert(1, 5), adjust(1, 5, 1), adjust(1, 5, 1)],
        [punct(x=OneOf((1,))), insert(1, 5, 2), insert(1, 5, None)],
        [punct(3, x=OneOf((1,))), insert(3, 5)],
        [punct(x=OneOf((1,)), y=OneOf(("b",))), insert(1, 5)],
        [punct(x=Nothing()), insert(1, 5)],
        [Cti(1), ExternalCti(0, 1, 7), insert(1, 2)],
    ],
)
def test_what_is_valid(stream: list[Element]) -> None:
    assert check(stream, XY).valid
    assert [e for b in checked([batch_of(stream, XY)]) for e in b.elements()] == stream


def test_not_a_number_keeps_its_promise() -> None:
    schema = Schema.of([("x", pa.float64())])
    for pattern in (OneOf((1.0, float("nan"))), Range(ge=5.0)):
        report = check([punct(x=pattern), Insert(1, 5, {"x": float("nan")})], schema)
        assert not report.grammatical and report.offences["grammatical"].line == 2
    assert check([punct(x=Range(lt=5.0)), Insert(1, 5, {"x": float("nan")})], schema).valid


def test_ranges_that_grow_are_kept_once_and_all_of_them_hold() -> None:
    checker = Checker()
    steps = [punct(x=Range(lt=i)) for i in range(200)]
    apart = [punct(x=Range(ge=1000 + 2 * i, le=1000 + 2 * i)) for i in range(40)]
    checker.take(batch_of([*steps, *apart, punct(x=Range(ge=1040, lt=1080)), insert(1, 5, 1001)], XY))
    assert checker.report().valid and len(checker._patterns) <= 42
    checker.take(batch_of([insert(1, 5, 1079), insert(1, 5, 1000)], XY))
    assert str(checker.offences["valid"].why).endswith("but punct x >= 1040 and x < 1080 came before")
    for x in (199, 1000, 1078, 1079):
        other = Checker()
        other.take(batch_of([*steps, *apart, insert(1, 5, x)], XY))
        assert other.report().valid == (x in (199, 1079))


def test_after_an_offence_the_rest_is_judged_by_what_was_right() -> None:
    report = check([insert(1, 5), Cti(3), adjust(1, 5, 2), adjust(1, 5, 4), insert(3, 4)], XY)
    assert report.offences["valid"].line == 3
    checker = Checker()
    for element in [insert(1, 5), Cti(3), adjust(1, 5, 2)]:
        checker.take(batch_of([element], XY))
    checker.offences.clear()
    checker.take(batch_of([adjust(1, 5, 4)], XY))
    assert "valid" not in checker.offences


def test_memory_is_freed_by_ctis() -> None:
    checker = Checker()
    for start in range(0, 500_000, 50_000):
        stream = [insert(start + i, start + i + 1, i) for i in range(50_000)]
        checker.take(batch_of([*stream, Cti(start + 50_000)], XY))
        assert len(checker._events) <= 100_000
    assert checker.report().valid and checker.report().closed


def test_a_report_reads_well() -> None:
    text = str(check([insert(4, 5), Cti(3), insert(3, 9), punct(x=OneOf((7,)))], XY))
    assert text.splitlines() == [
        "elements      4  (2 inserts, 0 adjusts, 1 ctis, 1 patterns)",
        "valid         yes",
        "ordered       no   line 2: cti 3 comes after an element at 4",
        "perfect       no   line 2: cti 3 comes after an element at 4",
        "grammatical   yes",
        "insert-only   yes",
        "shrink-only   yes",
        "chronon       no   line 3: insert [3, 9) x=1 y='a'",
        "closed up to  3",
        "closed        no",
    ]
    assert "closed up to  nothing: there is no cti" in str(check([]))
