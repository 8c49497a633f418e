"""Files as inputs: elements, rows with a time column, constant and temporal relations; JSON lines, Parquet, CSV."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everwhen.core.schema import Schema
from everwhen.errors import InputError, QueryError
from everwhen.formats.input_file import InputFile, read_input, schema_in_file

ITEM = Schema.of([("item", pa.int64()), ("name", pa.string())])
INF_ROWS = ["insert [0, ∞) item=1 name='x'", "insert [0, ∞) item=2 name=null"]


def text(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def table(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def read(file: str, batch: int = 100, skip: int = 0, **how: Any) -> list[str]:
    given = InputFile(file, **{"schema": ITEM, **how})
    return [str(element) for found in read_input(given, batch, skip) for element in found.elements()]


def test_a_constant_relation_in_every_form(tmp_path: Path) -> None:
    bare = text(tmp_path / "a.jsonl", '{"item":1,"name":"x"}', "", '{"item":2,"name":null}')
    rows = text(tmp_path / "b.jsonl", '{"row":{"item":1,"name":"x"},"at":7}', '{"op":"insert","row":{"item":2}}')
    csv = text(tmp_path / "c.csv", "item,name", "1,x", "2,")
    tsv = text(tmp_path / "c.tsv", "name\titem", "x\t1", "\t2")
    parquet = table(tmp_path / "d.parquet", item=[1, 2], name=["x", None])
    for file in (bare, rows, csv, tsv, parquet):
        assert read(file, kind="constant") == INF_ROWS
        assert read(file, kind="constant", batch=1, skip=1) == INF_ROWS[1:]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"vs":1,"row":{"item":1}}', r":2: a row with 'vs' \(a constant relation holds plain rows"),
        ('{"op":"cti","t":1}', r":2: a row with 't'"),
        ('{"item":"one"}', r":2: attribute 'item'"),
    ],
)
def test_what_is_no_constant_row(tmp_path: Path, line: str, said: str) -> None:
    file = text(tmp_path / "a.jsonl", '{"item":1,"name":"x"}', line)
    with pytest.raises(InputError, match=said):
        read(file, kind="constant")


def test_a_constant_relation_in_a_table_has_no_times(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is a column 'vs'"):
        read(table(tmp_path / "d.parquet", vs=[1], item=[1]), kind="constant")
    with pytest.raises(InputError, match=r"c\.csv:3: 'two' in column 'item'"):
        read(text(tmp_path / "c.csv", "item,name", "1,x", "two,y"), kind="constant")
    with pytest.raises(InputError, match=r"'item' is not of type INT \(declare the column as DOUBLE, or mend the row"):
        read(text(tmp_path / "c.csv", "item,name", "1,x", "11.5,y"), kind="constant")
    with pytest.raises(InputError, match="the declared column 'name' is not in the file"):
        read(text(tmp_path / "c.csv", "item,colour", "1,x"), kind="constant")


def test_a_temporal_relation_has_a_period_or_elements(tmp_path: Path) -> None:
    how: dict[str, Any] = {"kind": "temporal", "period": ("born", "died")}
    bare = text(tmp_path / "a.jsonl", '{"item":1,"name":"x","born":3,"died":9}', '{"item":2,"born":4,"died":null}')
    mixed = text(tmp_path / "b.jsonl", '{"vs":3,"ve":9,"row":{"item":1,"name":"x"}}', '{"row":{"item":2,"born":4}}')
    parquet = table(tmp_path / "d.parquet", item=[1, 2], name=["x", None], born=[3, 4], died=[9, None])
    csv = text(tmp_path / "c.csv", "born,died,item,name", "3,9,1,x", "4,,2,")
    for file in (bare, mixed, parquet, csv):
        assert read(file, **how) == ["insert [3, 9) item=1 name='x'", "insert [4, ∞) item=2 name=null"]
    with pytest.raises(InputError, match=r"a\.jsonl:1: the lifetime \[5, 5\) is empty"):
        read(text(tmp_path / "a.jsonl", '{"item":1,"born":5,"died":5}'), **how)
    with pytest.raises(InputError, match=r"a\.jsonl:1: the row has no time.*'born'"):
        read(text(tmp_path / "a.jsonl", '{"item":1,"died":5}'), **how)


def test_a_stream_that_is_ordered_by_a_column(tmp_path: Path) -> None:
    file = text(
        tmp_path / "a.jsonl",
        '{"item":1,"name":"x","ts":5}',
        '{"row":{"item":2,"ts":6}}',
        '{"vs":7,"ve":9,"row":{"item":3}}',
        '{"vs":8,"row":{"item":4,"ts":1000}}',
        '{"op":"adjust","ve":9,"vnew":7,"row":{"item":3,"ts":7}}',
        '{"op":"cti","t":9}',
    )
    assert read(file, time="ts") == [
        "insert [5, 6) item=1 name='x'",
        "insert [6, 7) item=2 name=null",
        "insert [7, 9) item=3 name=null",
        "insert [8, 9) item=4 name=null",
        "adjust [7, 9 -> 7) item=3 name=null",
        "cti 9",
    ]
    wide = Schema.of([("item", pa.int64()), ("ts", pa.int64())])
    file = text(tmp_path / "b.jsonl", '{"item":1,"ts":5}')
    assert read(file, time="ts", schema=wide) == ["insert [5, 6) item=1 ts=5"]  # kept where the payload has it


def test_timestamps_with_a_zone_are_in_utc_in_any_column(tmp_path: Path) -> None:
    stamps = ["2024-05-01T12:30:00+02:00", "2024-05-01 10:30:00", "2024-05-01T10:30:00Z"]
    schema = Schema.of([("item", pa.int64()), ("at", pa.timestamp("us"))])
    lines = text(tmp_path / "a.jsonl", *(f'{{"item":{n},"at":"{stamp}","ts":1}}' for n, stamp in enumerate(stamps)))
    csv = text(tmp_path / "c.csv", "item,at,ts", *(f"{n},{stamp},1" for n, stamp in enumerate(stamps)))
    for file in (lines, csv):
        found = read(file, time="ts", schema=schema)
        assert found == [f"insert [1, 2) item={n} at='2024-05-01T10:30:00'" for n in range(3)]


def test_timestamps_become_ticks(tmp_path: Path) -> None:
    stamps = ["1970-01-01T00:00:01.999", "1970-01-01T01:00:02+01:00", "1969-12-31T23:59:59.5Z", "1970-01-02"]
    file = text(tmp_path / "a.jsonl", *(f'{{"item":1,"name":"x","ts":"{stamp}"}}' for stamp in stamps))
    csv = text(tmp_path / "c.csv", "item,ts,name", *(f"1,{stamp},x" for stamp in stamps))
    starts = ["1999", "2000", "-500", "86400000"]
    for found in (read(file, time="ts"), read(csv, time="ts")):
        assert [element[8:].partition(",")[0] for element in found] == starts
    moments = [datetime(1970, 1, 1, 0, 0, 1, 999_000), datetime(1969, 12, 31, 23, 59, 59, 500_000)]
    for unit in ("ms", "us", "ns"):
        parquet = table(
            tmp_path / f"{unit}.parquet", item=[1, 2], name=["a", "b"], ts=pa.array(moments, pa.timestamp(unit))
        )
        assert [e[8:].partition(",")[0] for e in read(parquet, time="ts")] == ["1999", "-500"]
        with pytest.raises(InputError, match=r"parquet:1: the time in 'ts' is no whole number of ticks of 1 s: "):
            read(parquet, time="ts", tick="1s")
    days = table(tmp_path / "d.parquet", item=[1], name=[None], ts=pa.array([date(1970, 1, 3)]))
    assert read(days, time="ts", tick="1h") == ["insert [48, 49) item=1 name=null"]


@pytest.mark.parametrize("value", ["1.5", "true", '"yesterday"', "null", "[1]"])
def test_what_is_no_time(tmp_path: Path, value: str) -> None:
    file = text(tmp_path / "a.jsonl", '{"item":1,"ts":1}', f'{{"item":1,"ts":{value}}}')
    with pytest.raises(InputError, match=r"a\.jsonl:2: .*'ts'.* \(a whole number of ticks, or a timestamp"):
        read(file, time="ts")


def test_times_out_of_range_and_null_times_in_tables(tmp_path: Path) -> None:
    far = table(tmp_path / "a.parquet", item=[1, 1], ts=pa.array([0, 2**61], pa.timestamp("ms")))
    with pytest.raises(InputError, match=r"a\.parquet:2: the time in 'ts' is out of range"):
        read(far, time="ts", tick="1us")
    with pytest.raises(InputError, match=r"b\.parquet:2: the time in column 'ts' is null"):
        read(table(tmp_path / "b.parquet", item=[1, 1], ts=[1, None]), time="ts")
    with pytest.raises(InputError, match=r"neither a column 'vs' nor 'ts'"):
        read(table(tmp_path / "c.parquet", item=[1]), time="ts")
    with pytest.raises(InputError, match=r"d\.parquet:2: the time in 'ts' is 1\.5 \(a whole number of ticks"):
        read(table(tmp_path / "d.parquet", item=[1, 1], ts=[1.0, 1.5]), time="ts")
    with pytest.raises(InputError, match=r"of times is of type bool"):
        read(table(tmp_path / "e.parquet", item=[1], ts=[True]), time="ts")
    with pytest.raises(InputError, match=r"f\.parquet:1: the time in 'ts' is 18446744073709551615"):
        read(table(tmp_path / "f.parquet", item=[1], ts=pa.array([2**64 - 1], pa.uint64())), time="ts")


def test_elements_after_the_first_keep_their_lines(tmp_path: Path) -> None:
    file = text(tmp_path / "a.jsonl", '{"vs":1,"row":{"item":1}}', "", '{"vs":2,"row":{"item":2}}', '{"vs":3,"row":{}}')
    assert read(file, skip=1) == ["insert [2, 3) item=2 name=null", "insert [3, 4) item=null name=null"]
    (found,) = read_input(InputFile(file, ITEM), 10, 2)
    assert found.line(0) == 4
    csv = text(tmp_path / "b.csv", "op,vs,ve,item,name", "insert,1,5,1,", "cti,4,,,")
    assert read(csv) == ["insert [1, 5) item=1 name=null", "cti 4"]
    (found,) = read_input(InputFile(csv, ITEM), 10, 1)
    assert found.line(0) == 3


def test_json_rows_may_have_more_than_is_declared_and_not_less(tmp_path: Path) -> None:
    more = text(tmp_path / "a.jsonl", *(f'{{"vs":{i},"row":{{"item":{i},"name":"x","more":{i}.5}}}}' for i in range(3)))
    assert read(more)[2] == "insert [2, 3) item=2 name='x'"
    mixed = text(
        tmp_path / "b.jsonl", '{"vs":1,"row":{"item":1,"name":"x","o":1}}', '{"vs":2,"row":{"item":2,"o":"?"}}'
    )
    assert read(mixed) == ["insert [1, 2) item=1 name='x'", "insert [2, 3) item=2 name=null"]
    bare = text(tmp_path / "c.jsonl", '{"ts":1,"item":1,"name":"x","more":[1]}')
    assert read(bare, time="ts") == ["insert [1, 2) item=1 name='x'"]
    less = text(tmp_path / "d.jsonl", '{"vs":1,"row":{"item":1}}', '{"vs":2,"row":{"item":1}}')
    with pytest.raises(InputError, match=r"d\.jsonl: the declared column 'name' is in no row of the file"):
        read(less)
    null = text(tmp_path / "e.jsonl", '{"vs":1,"row":{"item":1}}', '{"vs":2,"row":{"item":1,"name":null}}')
    assert read(null)[1] == "insert [2, 3) item=1 name=null"
    assert read(text(tmp_path / "f.jsonl", '{"op":"cti","t":3}')) == ["cti 3"]


def test_nulls_of_attributes_that_are_not_declared_are_not_taken_for_others(tmp_path: Path) -> None:
    lines = [
        '{"vs":1,"ve":5,"row":{"item":1,"name":"x","ve":null}}',
        '{"vs":2,"ve":null,"row":{"item":1,"name":"y","ve":3}}',
    ]
    assert read(text(tmp_path / "a.jsonl", *lines)) == [
        "insert [1, 5) item=1 name='x'",
        "insert [2, ∞) item=1 name='y'",
    ]


def test_lifetimes_as_timestamps_and_as_floats(tmp_path: Path) -> None:
    moment, later = datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1, 0, 0, 2)
    dated = table(tmp_path / "a.parquet", vs=[moment, moment], ve=[later, None], item=[1, 2], name=["a", "b"])
    assert read(dated) == ["insert [1000, 2000) item=1 name='a'", "insert [1000, ∞) item=2 name='b'"]
    floats = table(tmp_path / "b.parquet", vs=[1, 2], ve=[5.0, None], item=[1, 2], name=["a", "b"])
    assert read(floats) == ["insert [1, 5) item=1 name='a'", "insert [2, ∞) item=2 name='b'"]


def test_what_comes_before_a_wrong_line_is_read(tmp_path: Path) -> None:
    good = [f'{{"vs":{i},"row":{{"item":{i}}}}}' for i in range(5)]
    file = text(tmp_path / "a.jsonl", *good, '{"vs":"x","row":{}}', "not JSON")
    found = []
    with pytest.raises(InputError, match=r"a\.jsonl:6: \"vs\" must be"):
        for batch in read_input(InputFile(file, ITEM), 100):
            found += batch.vs.tolist()
    assert found == [0, 1, 2, 3, 4]


def test_the_schema_of_an_undeclared_stream(tmp_path: Path) -> None:
    csv = text(tmp_path / "a.csv", "vs,ve,item,price,name", "1,2,3,4.5,x")
    assert str(schema_in_file(csv)) == "(item int64, price double, name string)"
    lines = text(tmp_path / "a.jsonl", '{"vs":1,"row":{"item":3,"ok":true}}')
    assert str(schema_in_file(lines)) == "(item int64, ok bool)"
    assert len(schema_in_file(text(tmp_path / "b.jsonl", '{"op":"cti","t":1}', '{"vs":1,"row":{}}'))) == 0
    with pytest.raises(InputError, match=r"c\.jsonl:1: unknown field 'item' in insert"):
        schema_in_file(text(tmp_path / "c.jsonl", '{"item":3}'))


def test_a_row_with_other_fields_than_the_header_is_told_by_its_line(tmp_path: Path) -> None:
    rows = [f"{i},{i}" for i in range(5_000)]
    for bad, said in (("1,2,3", "3 fields where the header has 2"), ("7", "1 field where the header has 2")):
        broken = text(tmp_path / "a.csv", "item,b", *rows, "", bad, *rows)
        with pytest.raises(InputError, match=rf"a\.csv:5002: {said} \(item, b\): {bad}"):
            read(broken, kind="constant")


def test_a_quotation_mark_that_nothing_closes_does_not_swallow_the_rows_behind_it(tmp_path: Path) -> None:
    for end in ('x"y"\n', '"x', '"', '"""', '"a ""b"" c\n3,z\n'):
        opened = tmp_path / "a.csv"
        opened.write_text(f"item,name\n1,x\n2,{end}")
        if end == 'x"y"\n':  # a mark inside of a field is text
            assert len(read(str(opened), kind="constant")) == 2
            continue
        with pytest.raises(InputError, match=r"a\.csv:3: a quotation mark is opened in this row, and the file ends"):
            read(str(opened), kind="constant")
    for end in ('"x"', '""', '""""', '""\n', '"a\nb"\n', '"a ""b"""'):
        opened.write_text(f"item,name\n1,x\n2,{end}")
        assert len(read(str(opened), kind="constant")) == 2, end


def test_files_that_are_not_what_their_names_say(tmp_path: Path) -> None:
    broken = tmp_path / "a.parquet"
    broken.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="not a Parquet file"):
        read(str(broken))
    with pytest.raises(QueryError, match="an input is one of"):
        InputFile("x", ITEM, "relation")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="a tick is longer than nothing"):
        InputFile("x", ITEM, tick="0 s")
