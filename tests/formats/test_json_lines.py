"""The rules of the JSON-lines format, one by one, and that files appear whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from everwhen.core.punctuation import Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import InputError
from everwhen.formats.json.lines import infer_schema, jsonlines, read_jsonlines, write_jsonlines
from everwhen.stream.element import Adjust, Cti, Element, ExternalCti, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of

ITEM = Schema.of([("item", pa.int64()), ("price", pa.float64())])


def read(text: str, schema: Schema | None = None, batch: int = 10_000) -> list[Element]:
    return [e for found in read_jsonlines(io.StringIO(text), schema, batch) for e in found.elements()]


def inferred(text: str) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in infer_schema(io.StringIO(text))]


@pytest.mark.parametrize(
    ("line", "element"),
    [
        ('{"vs":1,"ve":5,"row":{"item":7,"price":2.5}}', Insert(1, 5, {"item": 7, "price": 2.5})),
        ('{"op":"insert","vs":1,"row":{"item":7,"price":2.5}}', Insert(1, 2, {"item": 7, "price": 2.5})),
        ('{"op":"insert","vs":-1,"ve":null,"row":{"item":7}}', Insert(-1, INF, {"item": 7, "price": None})),
        ('{"op":"adjust","vs":1,"ve":5,"vnew":3,"row":{}}', Adjust(1, 5, 3, {"item": None, "price": None})),
        ('{"op":"adjust","vs":1,"ve":5,"vnew":1,"row":{"item":1}}', Adjust(1, 5, 1, {"item": 1, "price": None})),
        ('{"op":"adjust","vs":1,"vnew":null,"row":{"item":1}}', Adjust(1, 2, INF, {"item": 1, "price": None})),
        ('{"op":"cti","t":10}', Cti(10)),
        ('{"op":"cti","t":null}', Cti(INF)),
        ('{"op":"external_cti","vs":0,"ve":8,"count":5}', ExternalCti(0, 8, 5)),
        ('{"op":"punct","match":{"item":7}}', Punct(Punctuation({"item": OneOf((7,))}))),
        ('{"op":"punct","match":{"item":null},"t":null}', Punct(Punctuation({"item": OneOf((None,))}))),
        ('{"op":"punct","match":{"item":{"in":[7,null]}},"t":4}', Punct(Punctuation({"item": OneOf((7, None))}, 4))),
        ('{"op":"punct","match":{"item":{"in":[]}}}', Punct(Punctuation({"item": OneOf(())}))),
        ('{"op":"punct","match":{"price":{"ge":0,"lt":4.5}}}', Punct(Punctuation({"price": Range(ge=0.0, lt=4.5)}))),
        ('{"op":"punct","match":{"item":{"gt":0,"le":4}}}', Punct(Punctuation({"item": Range(gt=0, le=4)}))),
        ('{"op":"punct","match":{"item":{"none":true}}}', Punct(Punctuation({"item": Nothing()}))),
        ('{"op":"punct","match":{}}', Punct(Punctuation({}))),
        ('  {"vs" : 1 , "row" : { "item" : 2 } }  \r', Insert(1, 2, {"item": 2, "price": None})),
        ('{"vs":1,"row":{"price":3}}', Insert(1, 2, {"item": None, "price": 3.0})),
        ('{"vs":1,"row":{"price":"NaN"}}', None),
        ('{"vs":1,"row":{"price":"-Infinity"}}', Insert(1, 2, {"item": None, "price": float("-inf")})),
        ('{"vs":1,"row":{"item":9007199254740993}}', Insert(1, 2, {"item": 2**53 + 1, "price": None})),
        ('{"vs":1,"row":{"price":1152921504606846976}}', Insert(1, 2, {"item": None, "price": 2.0**60})),
    ],
)
def test_a_line_is_an_element(line: str, element: Element | None) -> None:
    (found,) = read(line, ITEM)
    if element is None:
        assert isinstance(found, Insert) and found.row["price"] != found.row["price"]
    else:
        assert found == element
        assert [str(type(v)) for v in getattr(found, "row", {}).values()] == [
            str(type(v)) for v in getattr(element, "row", {}).values()
        ]


def test_the_lines_of_the_contract() -> None:
    text = (
        '{"op":"insert","vs":1,"ve":5,"row":{"item":7,"price":2.5}}\n'
        '{"op":"adjust","vs":1,"ve":5,"vnew":3,"row":{"item":7,"price":2.5}}\n'
        '{"op":"cti","t":10}\n'
        '{"op":"punct","match":{"item":{"in":[7,9]},"price":{"ge":0.0,"lt":4.0}}}\n'
        '{"op":"external_cti","vs":0,"ve":8,"count":5}\n'
    )
    (batch,) = read_jsonlines(io.StringIO(text))
    assert "".join(line + "\n" for line in jsonlines(batch)) == text
    assert batch.schema == ITEM


def test_decimals_are_read_from_short_numbers_and_text() -> None:
    schema = Schema.of([("x", pa.decimal128(20, 2))])
    found = read('{"vs":1,"row":{"x":2.5}}\n{"vs":1,"row":{"x":"2.50"}}\n{"vs":1,"row":{"x":-7}}', schema)
    assert [str(e.row["x"]) for e in found if isinstance(e, Insert)] == ["2.50", "2.50", "-7.00"]
    with pytest.raises(InputError, match=r"DECIMAL\(20, 2\)"):
        read('{"vs":1,"row":{"x":1234567890123456.25}}', schema)


def test_batches_keep_line_numbers_over_blank_lines() -> None:
    text = '\n{"vs":1,"row":{}}\n\n{"vs":2,"row":{}}\n{"vs":3,"row":{}}\n\n\n'
    batches = list(read_jsonlines(io.StringIO(text), Schema(()), 3))
    assert [[batch.line(i) for i in range(len(batch))] for batch in batches] == [[2], [4, 5]]


def test_at_is_carried_through_slices() -> None:
    text = '{"vs":1,"row":{"x":1},"at":5}\n{"op":"cti","t":3,"at":-7}\n'
    (batch,) = read_jsonlines(io.StringIO(text))
    assert batch.at is not None and batch.at.tolist() == [5, -7]
    assert batch.slice(1, 1).at.tolist() == [-7]  # type: ignore[union-attr]
    assert next(iter(jsonlines(batch.slice(1, 1)))) == '{"op":"cti","t":3,"at":-7}'


@pytest.mark.parametrize(
    ("rows", "schema"),
    [
        (['{"a":1}', '{"a":null}'], [("a", "int64")]),
        (['{"a":1}', '{"a":2.5}'], [("a", "double")]),
        (['{"a":2.5}', '{"a":1,"b":"x"}'], [("a", "double"), ("b", "string")]),
        (['{"a":true,"b":null}'], [("a", "bool"), ("b", "string")]),
        (['{"a":"NaN"}', '{"a":1}'], [("a", "double")]),
        (['{"a":"NaN"}', '{"a":"Infinity"}'], [("a", "string")]),
        (['{"a":"NaN"}', '{"a":"x"}'], [("a", "string")]),
        (['{"a":"2024-01-01T00:00:00"}'], [("a", "string")]),
        (['{"a":[]}', '{"a":[1,2]}', '{"a":[null,2.5]}'], [("a", "list<item: double>")]),
        (['{"b":1}', '{"a":1}'], [("b", "int64"), ("a", "int64")]),
        ([], []),
        (["{}"], []),
    ],
)
@pytest.mark.parametrize("spread", [1, 20_000])
def test_types_are_found_in_all_rows(rows: list[str], schema: list[tuple[str, str]], spread: int) -> None:
    text = "".join(f'{{"vs":1,"row":{row}}}\n' + '{"op":"cti","t":0}\n' * (spread - 1) for row in rows)
    assert inferred(text) == schema


def test_patterns_tell_types_but_name_attributes_only_if_there_are_no_rows() -> None:
    punct = '{"op":"punct","match":{"a":{"in":[1,null]},"b":{"ge":0,"lt":2.5},"c":"x","d":{"none":true}}}\n'
    assert inferred(punct) == [("a", "int64"), ("b", "double"), ("c", "string"), ("d", "string")]
    assert inferred(punct + '{"vs":1,"row":{"a":1}}') == [("a", "int64")]
    assert inferred('{"vs":1,"row":{"b":1,"a":null}}\n' + punct) == [("b", "double"), ("a", "int64")]


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as file:
        file.write('{"vs":1,"row":{"x":1}}\n{"vs":2,"row":{"x":0.5}}\n')
    with open(reader, "rb") as pipe:
        found = [e for b in read_jsonlines(f"/dev/fd/{pipe.fileno()}") for e in b.elements()]
    assert found == [Insert(1, 2, {"x": 1.0}), Insert(2, 3, {"x": 0.5})]


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "bom.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"vs":1,"row":{"x":"\xc3\xa4"}}\n')
    assert [e for b in read_jsonlines(path) for e in b.elements()] == [Insert(1, 2, {"x": "ä"})]


def broken() -> Iterator[ElementBatch]:
    yield batch_of([Insert(1, 2, {"item": 1, "price": 0.5})], ITEM)
    raise InputError("no more")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(InputError):
        write_jsonlines(broken(), path)
    assert path.read_text() == "old"
    write_jsonlines([batch_of([Cti(3)], ITEM)], path)
    assert path.read_text() == '{"op":"cti","t":3}\n'
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    path, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    path.write_text("old")
    link.symlink_to(path)
    write_jsonlines([], link)
    assert link.is_symlink() and path.read_text() == ""
    assert write_jsonlines([batch_of([Cti(3)], ITEM)], os.devnull) == 1


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the directory to write to does not exist"):
        write_jsonlines([], tmp_path / "no" / "out.jsonl")
    with pytest.raises(IsADirectoryError):
        write_jsonlines([], tmp_path)
