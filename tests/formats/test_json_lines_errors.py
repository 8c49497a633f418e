"""Every kind of bad line is an error with its file, its line, what is wrong and a remedy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.formats.json.lines import infer_schema, read_jsonlines

SCHEMA = Schema.of([("item", pa.int64()), ("price", pa.float64()), ("name", pa.string()), ("ok", pa.bool_())])
MORE = Schema.of([("small", pa.int8()), ("day", pa.date32()), ("at", pa.timestamp("ms")), ("raw", pa.binary())])
GOOD = '{"vs":1,"row":{"item":1,"price":2.5,"name":"x","ok":true}}\n{"op":"cti","t":1}\n'


def error(tmp_path: Path, content: str | bytes, schema: Schema | None = SCHEMA, batch: int = 10_000) -> InputError:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        list(read_jsonlines(path, schema, batch))
    assert caught.value.source == str(path)
    assert f"{path}:{caught.value.line}: " in str(caught.value)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"vs":1,"row":{}', "not JSON"),
        ('{"vs":1,"row":{}} {"vs":2,"row":{}}', "not JSON"),
        ('{"vs":1,"row":{}},{"vs":2,"row":{}}', "not JSON"),
        ('{"vs":1,"row":{"price":NaN}}', "NaN is no JSON number"),
        ('{"vs":1,"row":{"price":-Infinity}}', "-Infinity is no JSON number"),
        ('{"vs":1,"vs":2,"row":{}}', "'vs' is there twice"),
        ('{"vs":1,"row":{"item":1,"item":2}}', "'item' is there twice"),
        ("[1]", "no element"),
        ("7", "no element"),
        ("null", "no element"),
        ('{"row":{}}', '"vs" is missing'),
        ("{}", '"vs" is missing'),
        ('{"vs":1}', '"row" is missing'),
        ('{"op":"adjust","vs":1,"ve":5,"row":{}}', '"vnew" is missing'),
        ('{"op":"cti"}', '"t" is missing'),
        ('{"op":"punct"}', '"match" is missing'),
        ('{"op":"external_cti","vs":1,"count":3}', '"ve" is missing'),
        ('{"op":"external_cti","vs":1,"ve":2}', '"count" is missing'),
        ('{"op":"external_cti","vs":1,"ve":2,"count":-1}', '"count" must be'),
        ('{"op":"external_cti","vs":2,"ve":2,"count":1}', "empty"),
        ('{"op":"delete","vs":1,"row":{}}', 'unknown "op" the text "delete"'),
        ('{"op":null,"vs":1,"row":{}}', 'unknown "op" null'),
        ('{"op":["insert"],"vs":1,"row":{}}', 'unknown "op" the array'),
        ('{"vs":1,"vend":5,"row":{}}', "unknown field 'vend' in insert"),
        ('{"op":"insert","vs":1,"vnew":5,"row":{}}', "unknown field 'vnew' in insert"),
        ('{"op":"insert","vs":1,"vnew":null,"row":{}}', "unknown field 'vnew' in insert"),
        ('{"op":"cti","t":3,"ve":null}', "unknown field 've' in cti"),
        ('{"op":"cti","vs":3}', "unknown field 'vs' in cti"),
        ('{"vs":1,"row":[1]}', '"row" must be an object'),
        ('{"vs":1,"row":null}', '"row" must be an object'),
        ('{"vs":5,"ve":5,"row":{}}', "[5, 5) is empty"),
        ('{"vs":5,"ve":4,"row":{}}', "[5, 4) is empty"),
        ('{"op":"adjust","vs":5,"ve":8,"vnew":4,"row":{}}', "before the start 5"),
        ('{"vs":1.0,"row":{}}', '"vs" must be a whole number'),
        ('{"vs":"1","row":{}}', '"vs" must be a whole number'),
        ('{"vs":true,"row":{}}', '"vs" must be a whole number'),
        ('{"vs":null,"row":{}}', '"vs" must be a whole number'),
        ('{"vs":1,"ve":2.5,"row":{}}', '"ve" must be a whole number'),
        ('{"vs":4611686018427387904,"ve":null,"row":{}}', "out of range"),
        ('{"vs":-4611686018427387904,"row":{}}', "out of range"),
        ('{"vs":1,"ve":9223372036854775807,"row":{}}', "out of range"),
        ('{"vs":1,"ve":99999999999999999999,"row":{}}', "out of range"),
        ('{"vs":4611686018427387903,"row":{}}', "out of range"),
        ('{"op":"cti","t":4611686018427387904}', "out of range"),
        ('{"op":"cti","t":"x"}', '"t" must be a whole number'),
        ('{"vs":1,"row":{},"at":1.5}', '"at" must be a whole number'),
        ('{"vs":1,"row":{},"at":null}', '"at" must be a whole number'),
        ('{"vs":1,"row":{},"at":3}', 'some elements have "at"'),
        ('{"vs":1,"row":{"item":true}}', "attribute 'item': true is not of type INT"),
        ('{"vs":1,"row":{"item":1.0}}', "not of type INT"),
        ('{"vs":1,"row":{"item":"1"}}', "not of type INT"),
        ('{"vs":1,"row":{"item":9223372036854775808}}', "not of type INT"),
        ('{"vs":1,"row":{"item":[1]}}', "not of type INT"),
        ('{"vs":1,"row":{"item":{"a":1}}}', "the object"),
        ('{"vs":1,"row":{"price":"1.5"}}', "not of type DOUBLE"),
        ('{"vs":1,"row":{"price":true}}', "not of type DOUBLE"),
        ('{"vs":1,"row":{"price":9007199254740993}}', "not of type DOUBLE"),
        ('{"vs":1,"row":{"price":1e400}}', "not of type DOUBLE"),
        ('{"vs":1,"row":{"name":5}}', "not of type TEXT"),
        ('{"vs":1,"row":{"name":"\\ud800"}}', "not of type TEXT"),
        ('{"vs":1,"row":{"ok":1}}', "not of type BOOLEAN"),
        ('{"vs":1,"row":{"ok":"true"}}', "not of type BOOLEAN"),
        ('{"op":"punct","match":[1]}', '"match" must be an object'),
        ('{"op":"punct","match":{"itm":1}}', "attribute 'itm', which no row has"),
        ('{"op":"punct","match":{"item":"x"}}', "in the pattern of 'item'"),
        ('{"op":"punct","match":{"item":{"in":7}}}', "no pattern"),
        ('{"op":"punct","match":{"item":{"in":["7"]}}}', "in the pattern of 'item'"),
        ('{"op":"punct","match":{"item":{}}}', "no pattern"),
        ('{"op":"punct","match":{"item":{"from":7}}}', "no pattern"),
        ('{"op":"punct","match":{"item":{"ge":1,"in":[2]}}}', "no pattern"),
        ('{"op":"punct","match":{"item":{"ge":null}}}', "is null"),
        ('{"op":"punct","match":{"item":{"none":false}}}', "no pattern"),
        ('{"op":"punct","match":{"item":{"ge":"5"}}}', "in the pattern of 'item': the text \"5\" is not of type INT"),
        ('{"op":"punct","match":{"item":{"in":[1,2,2.5]}}}', "in the pattern of 'item': the number 2.5"),
        ('{"op":"punct","match":{"item":{"ge":5,"lt":5}}}', """the range {"ge":5,"lt":5} of 'item' holds no value"""),
        ('{"op":"punct","match":{"item":{"ge":6,"le":5}}}', "of 'item' holds no value"),
        ('{"op":"punct","match":{"item":{"gt":3,"lt":4}}}', "of 'item' holds no value"),
        ('{"op":"punct","match":{"item":{"gt":9223372036854775807}}}', "of 'item' holds no value"),
        ('{"op":"punct","match":{"price":{"gt":1,"lt":1.0000000000000002}}}', "of 'price' holds no value"),
        ('{"op":"punct","match":{"name":{"ge":"b","lt":"a"}}}', "of 'name' holds no value"),
        ('{"op":"punct","match":{"item":1},"t":"x"}', '"t" must be'),
        (b'{"vs":1,"row":{"name":"\xff"}}', "not UTF-8"),
        ('{"vs":1,"row":{"item":' + "9" * 5000 + "}}", "not JSON that can be read"),
        ('{"vs":1,"row":{"item":' + "[" * 100_000, "nested more than 100 levels deep"),
    ],
)
@pytest.mark.parametrize("batch", [1, 10_000])
def test_a_bad_line(line: str | bytes, problem: str, batch: int, tmp_path: Path) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    found = error(tmp_path, GOOD.encode() + raw + b"\n" + GOOD.encode(), batch=batch)
    assert problem in found.problem
    assert found.line == 3


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{"small":128}', "not of type TINYINT"),
        ('{"day":"2024-13-01"}', "not of type DATE"),
        ('{"day":19000}', "not of type DATE"),
        ('{"at":"yesterday"}', "not of type TIMESTAMP"),
        ('{"at":"2024-01-01T00:00:00.0001"}', "not of type TIMESTAMP"),
        ('{"raw":"%%%"}', "not of type BINARY"),
        ('{"raw":"ä"}', "not of type BINARY"),
    ],
)
def test_a_value_that_its_type_refuses(row: str, problem: str, tmp_path: Path) -> None:
    found = error(tmp_path, f'{{"vs":1,"row":{{}}}}\n\n{{"vs":1,"row":{row}}}\n', MORE)
    assert problem in found.problem and found.line == 3


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("1", '"x"', 'the text "x", but a whole number before'),
        ('"x"', "2.5", "the number 2.5, but text before"),
        ("true", "1", "the number 1, but true or false before"),
        ("1", "false", "false, but a whole number before"),
        ("[1]", "1", "the number 1, but an array before"),
        ("[1]", '["x"]', 'the text "x", but a whole number before'),
        ("1", '{"a":1}', 'the object {"a":1} is no scalar'),
        ("[1]", "[[1]]", "has arrays within"),
        ("1", "9223372036854775808", "does not fit 64 bits"),
    ],
)
@pytest.mark.parametrize("between", [0, 9_999])
def test_types_that_do_not_go_together(first: str, second: str, problem: str, between: int, tmp_path: Path) -> None:
    filler = '{"op":"cti","t":0}\n' * between
    found = error(tmp_path, f'{{"vs":1,"row":{{"a":{first}}}}}\n{filler}{{"vs":1,"row":{{"a":{second}}}}}\n', None)
    assert problem in found.problem
    assert found.problem.startswith("attribute 'a': ")
    assert found.line == between + 2


def test_a_number_among_fractions_that_a_float_cannot_hold(tmp_path: Path) -> None:
    found = error(tmp_path, '{"vs":1,"row":{"a":0.5}}\n{"vs":1,"row":{"a":9007199254740993}}\n', None)
    assert found.line == 2 and "9007199254740993" in found.problem


def test_the_first_of_several_bad_lines_is_named(tmp_path: Path) -> None:
    lines = ['{"vs":1,"row":{}}', '{"vs":1,"row":{"ok":1}}', '{"vs":1,"row":{"item":"x"}}', '{"vs":0}', "{"]
    for start in (1, 2, 3):
        found = error(tmp_path, "\n".join([lines[0], *lines[start:-1]]))
        assert found.line == 2


def test_a_value_spread_over_two_lines_is_broken_even_if_the_count_comes_out_right(tmp_path: Path) -> None:
    assert error(tmp_path, '{"vs":1\n"row":{}},{"vs":1,"row":{}}\n').line == 1
    assert error(tmp_path, '{"vs":1,"row":\n{}}{"vs":1,"row":{}}\n').line == 1
    assert error(tmp_path, '{"vs":1,"row":{"name":"x}\n{y"}},{"vs":1,"row":{}}\n').line == 1
    assert error(tmp_path, '{"vs":1,"row":{"item":[{"a":1}\n{"b":2}]}},{"vs":1,"row":{}}\n').line == 1


def test_at_is_on_all_elements_or_none_over_batches_too(tmp_path: Path) -> None:
    numbered = '{"vs":1,"row":{"item":1},"at":1}\n'
    assert error(tmp_path, numbered + GOOD, batch=1).line == 2
    assert error(tmp_path, GOOD + numbered, batch=1).line == 3


def test_inference_complains_with_the_line_as_well(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(GOOD + "{")
    with pytest.raises(InputError, match=r"in\.jsonl:3: not JSON"):
        infer_schema(path)
