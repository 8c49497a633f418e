"""Elements on an axis of timestamps survive both file formats, and are read quickly as they are read carefully."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.core.time import MAX_TIME
from everwhen.core.time_axis import TimeAxis
from everwhen.errors import QueryError
from everwhen.formats.dated import shows_dates
from everwhen.formats.input_file import InputFile
from everwhen.formats.json.arrow_reader import FastReader
from everwhen.formats.json.lines import jsonlines, open_jsonlines, read_jsonlines, write_jsonlines
from everwhen.formats.json.python_reader import decode_lines, elements_of_objects
from everwhen.formats.parquet import contents_of, open_elements, read_parquet, write_parquet
from everwhen.stream.element import Element, Insert
from everwhen.stream.element_batch import batch_of
from stream.element_strategies import PLAIN, plain, streams

TICKS = st.sampled_from([1, 100, 10**3, 10**6, 10**7, 10**9, 60 * 10**9])


@given(stream=streams(), tick=TICKS)
def test_elements_survive_json_lines(stream: tuple[Schema, list[Element]], tick: int) -> None:
    schema, elements = stream
    batch, file = batch_of(elements, schema), io.BytesIO()
    write_jsonlines([batch], file, TimeAxis(tick, dated=True))
    file.seek(0)
    assert plain(read_jsonlines(file, schema, tick=tick)) == plain([batch])


@given(stream=streams(), tick=TICKS)
def test_elements_survive_parquet(stream: tuple[Schema, list[Element]], tick: int) -> None:
    schema, elements = stream
    assume("ve" not in schema)
    batch, axis = batch_of(elements, schema), TimeAxis(tick, dated=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stream.parquet"
        try:
            write_parquet([batch], path, schema, axis)
        except QueryError as error:
            assert axis.scale > 1 and "too large for a timestamp" in str(error)
            return
        assert contents_of(path).axis == axis
        assert plain(read_parquet(path)) == plain([batch])
        found, batches = open_elements(path)
        assert found == axis and plain(batches) == plain([batch])


@given(stream=streams(PLAIN), tick=st.sampled_from([10**3, 10**6, 10**9]))
def test_what_is_read_quickly_is_read_right(stream: tuple[Schema, list[Element]], tick: int) -> None:
    schema, elements = stream
    piece = [line.encode() + b"\n" for line in jsonlines(batch_of(elements, schema), TimeAxis(tick, dated=True))]
    if piece and (quick := FastReader(schema, "x", tick).read(piece, 1)) is not None:
        assert plain([quick]) == plain([elements_of_objects(*decode_lines(piece, 1, "x"), schema, "x", tick)])


def test_timestamps_are_read_quickly() -> None:
    schema = Schema.of([("x", PLAIN[0])])
    elements = [Insert(t, t + 1, {"x": t}) for t in (0, 5, 1_424_986_973_123)]
    piece = [line.encode() + b"\n" for line in jsonlines(batch_of(elements, schema), TimeAxis(dated=True))]
    reader = FastReader(schema, "x")
    for _ in range(2):
        quick = reader.read(piece, 1)
        assert quick is not None and quick.vs.tolist() == [0, 5, 1_424_986_973_123]
    numbers = [line.encode() + b"\n" for line in jsonlines(batch_of(elements, schema))]
    assert reader.read(numbers, 1) is not None


@pytest.mark.parametrize(("stamp", "tick"), [("00:00:01Z", "1ms"), ("00:00:01.5", "1ms"), ("00:00:01.000001Z", "1us")])
def test_a_file_of_lines_tells_the_tick_that_it_needs(tmp_path: Path, stamp: str, tick: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"vs":"2015-01-01T{stamp}","row":{{"x":1}}}}\n{{"op":"cti","t":null}}\n')
    axis, batches = open_jsonlines(file)
    assert axis.dated and axis.tick_text == tick
    (batch,) = batches
    assert batch.ve[0] == batch.vs[0] + 1


def test_what_an_input_shows(tmp_path: Path) -> None:
    schema = Schema.of([("x", PLAIN[0])])

    def shown(name: str, text: str, time: str | None = None) -> bool | None:
        (tmp_path / name).write_text(text)
        return shows_dates(InputFile(str(tmp_path / name), schema, time=time))

    assert shown("a.jsonl", '\nnot JSON\n{"vs":"2015-01-01","row":{"x":1}}\n') is True
    assert shown("a.jsonl", '{"row":{"x":1,"t":"2015-01-01"},"vs":1}\n') is False
    assert shown("a.jsonl", '{"op":"cti","t":"2015-01-01"}\n') is True
    assert shown("a.jsonl", '{"at":"2015-01-01","x":1}\n', "at") is True
    assert shown("a.jsonl", '{"at":7,"x":1}\n', "at") is False
    assert shown("a.jsonl", "") is None
    assert shown("a.csv", "at,x\n2015-01-01,1\n", "at") is True
    assert shown("a.csv", "at,x\n-7,1\n", "at") is False
    assert shown("a.csv", "") is None
    assert shows_dates(InputFile("-", schema)) is None
    assert shows_dates(InputFile(str(tmp_path / "none.jsonl"), schema)) is None


def test_a_time_too_large_for_a_timestamp_is_refused_in_parquet(tmp_path: Path) -> None:
    schema = Schema.of([("x", PLAIN[0])])
    batch = batch_of([Insert(0, MAX_TIME, {"x": 1})], schema)
    with pytest.raises(QueryError, match="--times ticks"):
        write_parquet([batch], tmp_path / "a.parquet", schema, TimeAxis(10**10, dated=True))
    assert not list(tmp_path.iterdir())
