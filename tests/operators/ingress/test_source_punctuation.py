"""The first element that breaks a promise is found, by whatever way: against the definition, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.core.consistency import length_of
from everwhen.core.punctuation import AttributePattern, Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.operators.ingress import source_punctuation as source_promises
from everwhen.operators.ingress.checked_batch import Arrived
from everwhen.operators.ingress.guard import Guard
from everwhen.operators.ingress.source_punctuation import SourcePromises
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ADJUST, ElementBatch, batch_of

SCHEMA = Schema.of([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("b", pa.bool_())])


def arrived(batch: ElementBatch) -> Arrived:
    data = np.flatnonzero(batch.op <= ADJUST)
    gaps = np.setdiff1d(np.arange(data[-1] if len(data) else 0), data)
    whole = batch.slice(0, len(data) + len(gaps))
    adjusts = int((batch.op == ADJUST).sum())
    return Arrived(whole.op, whole.vs, whole.ve, whole.vnew, whole.columns, adjusts, gaps)


def values(name: str, nulls: bool) -> st.SearchStrategy[object]:
    of: dict[str, st.SearchStrategy[object]] = {
        "k": st.integers(0, 4),
        "x": st.sampled_from([0.0, 1.5, float("nan")]),
        "s": st.sampled_from(["", "a", "ab"]),
        "b": st.booleans(),
    }
    return st.none() | of[name] if nulls else of[name]


@st.composite
def patterns(draw: st.DrawFn, name: str) -> AttributePattern:
    if draw(st.booleans()):
        return OneOf(tuple(draw(st.lists(values(name, draw(st.booleans())), min_size=1, max_size=2))))
    return draw(
        st.sampled_from(
            {
                "k": [Range(lt=2), Range(ge=3), Range(gt=0, le=2)],
                "x": [Range(lt=1.5), Range(gt=1.5)],
                "s": [Range(ge="a"), Range(lt="b")],
                "b": [Range(lt=True), Nothing()],
            }[name]
        )
    )


@st.composite
def elements(draw: st.DrawFn) -> list[Element]:
    nulls = draw(st.booleans())
    bound = draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=4, unique=True))
    found: list[Element] = []
    for kind in draw(st.lists(st.sampled_from("iiiiacppp"), max_size=14)):
        row = {name: draw(values(name, nulls)) for name in SCHEMA.names}
        start = draw(st.integers(0, 6))
        if kind == "i":
            found.append(Insert(start, start + 3, row))
        elif kind == "a":
            found.append(Adjust(start, start + 3, start + draw(st.integers(0, 5)), row))
        elif kind == "c":
            found.append(Cti(-1))
        else:
            names = (
                draw(st.lists(st.sampled_from(bound), max_size=2, unique=True)) if draw(st.booleans()) else bound[:1]
            )
            found.append(
                Punct(
                    Punctuation({name: draw(patterns(name)) for name in names}, draw(st.sampled_from([2, 4, ew.INF])))
                )
            )
    return found


def broken_by(said: Sequence[Punctuation], element: Element) -> bool:
    if not isinstance(element, Insert | Adjust):
        return False
    return any(promise.t > element.sync and promise.matches(element.row) for promise in said)


@pytest.mark.parametrize(("compared", "standing"), [(256, 8), (-1, -1)], ids=["compared", "looked up"])
@settings(max_examples=150)
@given(batches=st.lists(elements(), min_size=1, max_size=3))
def test_the_first_one(compared: int, standing: int, batches: list[list[Element]]) -> None:
    kept = source_promises._COMPARED, source_promises._STANDING
    source_promises._COMPARED, source_promises._STANDING = compared, standing
    try:
        promises, said = SourcePromises(SCHEMA), list[Punctuation]()
        for listed in batches:
            batch = batch_of(listed, SCHEMA, "S")
            expected, after = None, list(said)
            for i, element in enumerate(listed):
                if expected is None and broken_by(after, element):
                    expected = i
                if isinstance(element, Punct):
                    after.append(element.promise)
            broken = promises.check(batch, arrived(batch))
            assert (None if broken is None else broken.at) == expected
            if broken is not None:
                assert str(listed[broken.at]) in broken.problem
                promises.undo()
            else:
                promises.settle(-1)
                said = after
    finally:
        source_promises._COMPARED, source_promises._STANDING = kept


@pytest.mark.parametrize("pattern", [OneOf((33,)), Range(ge=33, le=33), Range(gt=32, lt=36), Range(gt=32)])
def test_a_promise_that_comes_after_many(pattern: AttributePattern) -> None:
    """Rows are looked up among many constants by marks; what is promised later is marked, too, in whatever form."""
    row = {"x": 0.0, "s": "", "b": False}
    promises = SourcePromises(SCHEMA)
    many = [Punct(Punctuation({"k": OneOf((k,))})) for k in range(0, 60, 2)]
    for listed in (many, [Insert(0, 1, {"k": 33, **row})], [Punct(Punctuation({"k": pattern}))]):
        batch = batch_of(listed, SCHEMA, "S")
        assert promises.check(batch, arrived(batch)) is None
        promises.settle(-1)
    batch = batch_of([Insert(0, 1, {"k": 31, **row}), Insert(0, 1, {"k": 33, **row})], SCHEMA, "S")
    broken = promises.check(batch, arrived(batch))
    assert broken is not None
    assert broken.at == 1


@given(listed=elements())
def test_rows_are_coded_around_promises(listed: list[Element]) -> None:
    batch, codec = batch_of(listed, SCHEMA, "S"), RowCodec(SCHEMA, Interner())
    data = arrived(batch)
    rows = [element for element in listed if isinstance(element, Insert | Adjust)]
    plain = batch_of(rows, SCHEMA, "S")
    coded = codec.encode(data.columns, len(data), data.gaps if len(data.gaps) else None)
    assert (coded == codec.encode(plain.columns, len(plain))).all()
    op, vs, ve, vnew = data.head()
    for found, expected in ((op, plain.op), (vs, plain.vs), (ve, plain.ve), (vnew, plain.vnew)):
        assert found.tolist() == expected.tolist()
    places = [i for i, element in enumerate(listed) if isinstance(element, Insert | Adjust)]
    assert [data.place(row) for row in range(len(data))] == places
    for at in range(len(SCHEMA)):
        assert data.column(at).equals(plain.columns[at]) or SCHEMA.types[at] == pa.float64()


def test_values_in_the_place_of_a_promise_are_no_data() -> None:
    """Whoever makes a batch by hand may leave anything there; as many nulls stand elsewhere."""
    batch = batch_of([Insert(0, 1, {"k": None, "x": 1.5}), Punct(Punctuation({})), Insert(1, 2, {"k": 2})], SCHEMA, "S")
    filled = tuple(pa.array([None, 7, 2], pa.int64()) if i == 0 else column for i, column in enumerate(batch.columns))
    made = ElementBatch(SCHEMA, batch.op, batch.vs, batch.ve, batch.vnew, filled, batch.promises)
    data, codec = arrived(made), RowCodec(SCHEMA, Interner())
    rows = codec.encode(data.columns, len(data), data.gaps)
    assert codec.column(rows, 0).to_pylist() == [None, 2]


def test_the_message_names_the_element_and_its_values() -> None:
    guard = Guard("S", RowCodec(SCHEMA, Interner()), insert_only=True)
    row = {"k": 3, "x": None, "s": "a", "b": True}
    listed = [Punct(Punctuation({"b": OneOf((True, None))})), Insert(2, 5, row)]
    with pytest.raises(InputError) as told:
        guard.step(batch_of(listed, SCHEMA, "S"))
    assert str(told.value).startswith(
        "S:2: an element that an earlier promise of the source has ruled out: punct b in (true, null); "
        "it is insert [2, 5) k=3 x=null s='a' b=true ("
    )


def test_less_than_nothing_is_no_duration() -> None:
    with pytest.raises(ew.QueryError, match=r"^--block: -3 is less than nothing; write a duration such as"):
        length_of("-3", "--block")
