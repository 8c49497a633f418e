"""Two readers of JSON lines agree: what Arrow reads quickly is what the careful reader reads."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import FastReader
from everwhen.formats.json.inference import Inference
from everwhen.formats.json.lines import jsonlines
from everwhen.formats.json.python_reader import decode_lines, elements_of_objects
from everwhen.stream.element import Element
from everwhen.stream.element_batch import batch_of
from stream.element_strategies import PLAIN, plain, streams

SCHEMA = Schema.of([("item", pa.int64()), ("price", pa.float64()), ("name", pa.string()), ("ok", pa.bool_())])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, 2**62, 2**62 - 1, 2**63 - 1, 2**63, -(2**62), -(2**63), 1.0, 1e400, 0.1, -0.0]),
    st.floats(allow_nan=False),
    st.sampled_from(["", "x", "NaN", "Infinity", "ve", "null", '"ve":null', "ä", "\ud800", "2024-01-01", "\u2028"]),
)
fields = st.dictionaries(
    st.sampled_from(["op", "vs", "ve", "vnew", "t", "at", "match", "other"]),
    st.one_of(scalars, st.sampled_from(["insert", "adjust", "cti", "punct"]), st.integers(0, 9)),
    max_size=5,
)
payloads = st.dictionaries(st.sampled_from(["item", "price", "name", "ok", "other", "ve"]), scalars, max_size=3)
likely = st.fixed_dictionaries(
    {"vs": st.integers(0, 5)},
    optional={
        "op": st.sampled_from(["insert", "adjust"]),
        "ve": st.none() | st.integers(3, 9),
        "vnew": st.none() | st.integers(3, 9),
        "row": st.fixed_dictionaries(
            {},
            optional={
                "item": st.none() | st.integers(),
                "price": st.none() | st.floats(allow_nan=False),
                "ok": st.booleans(),
            },
        ),
    },
)
ctis = st.fixed_dictionaries({"op": st.just("cti")}, optional={"t": st.none() | st.integers(0, 9), "ve": st.none()})


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    element: dict[str, Any] = draw(st.one_of(fields, likely, likely, ctis))
    if "row" not in element and draw(st.integers(0, 3)):
        element["row"] = draw(payloads | scalars)
    text = json.dumps(
        element, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([(",", ":"), (" , ", " : ")]))
    )
    return text.encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b" \n", b"}\n"]))


def careful(piece: list[bytes]) -> list[tuple[Any, ...]] | None:
    try:
        return plain([elements_of_objects(*decode_lines(piece, 1, "x"), SCHEMA, "x")])
    except InputError:
        return None


@given(piece=st.lists(lines(), min_size=1, max_size=4))
def test_what_is_read_quickly_is_read_right(piece: list[bytes]) -> None:
    quick = FastReader(SCHEMA, "x").read(piece, 1)
    if quick is not None:
        assert plain([quick]) == careful(piece)


@given(stream=streams(PLAIN))
def test_our_own_output_is_read_alike(stream: tuple[Schema, list[Element]]) -> None:
    schema, elements = stream
    piece = [line.encode() + b"\n" for line in jsonlines(batch_of(elements, schema))]
    if piece and (quick := FastReader(schema, "x").read(piece, 1)) is not None:
        assert plain([quick]) == plain([elements_of_objects(*decode_lines(piece, 1, "x"), schema, "x")])


@given(pieces=st.lists(st.lists(lines(), min_size=1, max_size=3), max_size=3))
def test_types_are_found_alike(pieces: list[list[bytes]]) -> None:
    outcomes = []
    for quickly in (True, False):
        inference = Inference("x")
        try:
            for piece in pieces:
                if not (quickly and inference.take_fast(piece, 1)):
                    inference.take(*decode_lines(piece, 1, "x"))
            outcomes.append(str(inference.schema()))
        except InputError as error:
            outcomes.append(str(error))
    # What is wrong outside rows is not always seen here: the reader, which comes next, says it.
    assert outcomes[0] == outcomes[1] or (outcomes[1].startswith("x:") and "attribute" not in outcomes[1])


@pytest.mark.parametrize(
    "piece",
    [
        [b'{"op":"insert","vs":1,"ve":5,"row":{"item":1,"price":2,"name":"a","ok":true}}\n', b'{"op":"cti","t":2}\n'],
        [b'{"vs":1,"row":{"item":null}}\n', b'{"vs":1,"ve":null,"row":{}}\n', b'{"op":"cti","t":null}'],
        [b'{"op":"adjust","vs":1,"ve":null,"vnew":null,"row":{"name":"\xc3\xa4"},"at":4}\n'],
        [b'{"op":"adjust","vs":1,"vnew":1,"row":{"name":"\\u00e4"}}\n', b'{"vs":2,"row":{"name":"\\"ve\\":"}}\n'],
        [b'{"vs":1,"row":{"name":"null"}}\n', b'{"vs":1,"row":{"name":"ve"}}\n', b'{"vs":2,"ve":null,"row":{}}\n'],
    ],
)
def test_the_quick_way_is_taken_where_it_is_safe(piece: list[bytes]) -> None:
    quick = FastReader(SCHEMA, "x").read(piece, 1)
    assert quick is not None
    assert plain([quick]) == careful(piece)


@pytest.mark.parametrize(
    "piece",
    [
        [b'{"vs":1,"v\\u0065":null,"row":{}}\n'],
        [b'{"vs":1,"row":{}}\r\n'],
        [b'{"op":"punct","match":{}}\n'],
        [b"\n", b'{"vs":1,"row":{}}\n'],
        [b'{"vs":1,"row":{"price":9007199254740992}}\n'],
    ],
)
def test_rare_lines_go_theelements_of_objects_way(piece: list[bytes]) -> None:
    assert FastReader(SCHEMA, "x").read(piece, 1) is None
    assert careful(piece) is not None


@pytest.mark.parametrize("name", ["ve", "t", "op"])
def test_an_attribute_named_like_a_field_does_not_confuse(name: str) -> None:
    schema = Schema.of([(name, pa.int64())])
    piece = [b'{"vs":1,"row":{"%s":null}}\n' % name.encode(), b'{"vs":1,"ve":null,"row":{"%s":1}}\n' % name.encode()]
    assert FastReader(schema, "x").read(piece, 1) is None
    assert plain([elements_of_objects(*decode_lines(piece, 1, "x"), schema, "x")])[0][2] == 2


def test_attributes_that_are_not_declared_do_not_make_it_slow() -> None:
    reader = FastReader(SCHEMA, "f")
    plain_lines = [b'{"vs":1,"row":{"item":1,"price":0.5,"name":"a","ok":true}}\n']
    wide = [b'{"vs":2,"ve":null,"row":{"item":2,"extra":{"deep":[1]},"other":"x"}}\n']
    for lines, item in ((plain_lines, 1), (wide, 2), (plain_lines, 1)):
        found = reader.read(lines, 1)
        assert found is not None and found.columns[0].to_pylist() == [item]
    assert reader.read([b'{"vs":1,"more":2,"row":{"item":1}}\n'], 1) is None  # an element has no such field
    assert reader.read([b'{"vs":1,"row":{"item":1,"extra":1}}\n', b'{"vs":1,"row":{"extra":"x"}}\n'], 1) is None
    assert reader.read(plain_lines, 1) is not None
