"""Files and folders in: the same elements again from any position; growing, new, late, shorter, gone."""

from __future__ import annotations

import json
import random
from contextlib import closing
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everwhen.connectors.options import OptionError
from everwhen.connectors.registry import SourcePlace, source_connector, source_options
from everwhen.core.schema import Schema
from everwhen.engine.epochs import joined
from everwhen.errors import InputError, StateError

SCHEMA = Schema.of([("x", pa.int64())])
PLACE = SourcePlace("S", SCHEMA)
TWO = SourcePlace("S", Schema.of([("x", pa.int64()), ("k", pa.string())]))


def opened(name, *arguments, place=PLACE, **named):
    connector = source_connector(name)
    return connector.open(source_options(connector, arguments, named), place)


def rows(*values):
    return "".join(json.dumps({"vs": v, "row": {"x": v}}) + "\n" for v in values)


def xs(batch):
    return [] if batch is None else batch.columns[0].to_pylist()


def test_a_file_of_lines_is_followed_as_it_grows(tmp_path):
    file = tmp_path / "s.jsonl"
    found = opened("file", str(file))
    assert not found.is_there and found.take(10) is None
    file.write_text(rows(1, 2))
    assert xs(found.take(10)) == [1, 2]
    with open(file, "a") as out:
        out.write(rows(3)[:-4])
    assert found.take(10) is None
    with open(file, "a") as out:
        out.write(rows(3)[-4:])
    assert xs(found.take(10)) == [3]
    found.close()


def test_files_of_all_kinds_in_a_folder_in_the_order_of_names(tmp_path):
    found = opened("folder", str(tmp_path / "in"))
    assert not found.is_there and found.take(10) is None
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"vs": [5], "x": [5]}), folder / "b.parquet")
    (folder / "a.jsonl").write_text(rows(1, 2, 3))
    (folder / "c.csv").write_text("vs,x\n7,7\n")
    (folder / ".hidden").write_text("no")
    (folder / "_aside").write_text("no")
    (folder / "empty.jsonl").write_text("")
    assert found.lag == 4
    assert xs(found.take(2)) == [1, 2]
    assert xs(found.take(100)) == [3, 5, 7]
    assert found.take(10) is None and found.lag == 0
    (folder / "f.jsonl").write_text(rows(9))
    assert xs(found.take(10)) == [9]


def test_a_pattern_chooses_files_and_a_time_column_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("at,x\n2020-01-01 00:00:00,1\n")
    (tmp_path / "a.txt").write_text("no")
    place = SourcePlace("S", SCHEMA, time="at", types={"at": pa.timestamp("us")})
    batch = opened("folder", str(tmp_path), files="*.csv", place=place).take(10)
    assert batch.vs.tolist() == [1577836800000] and xs(batch) == [1]


@pytest.mark.parametrize("seed", range(10))
def test_from_any_position_the_same_again(tmp_path, seed):
    rng = random.Random(seed)
    names = [f"{n:03d}.jsonl" for n in range(8)]
    at = 0
    for name in names:
        count = rng.randint(0, 5)
        (tmp_path / name).write_text(rows(*range(at, at + count)))
        at += count
    found = opened("folder", str(tmp_path))
    positions, taken = [found.position], [[]]
    for _ in range(100):
        batch = found.take(rng.randint(1, 6))
        positions.append(json.loads(json.dumps(found.position)))
        taken.append(xs(batch))
    assert list(chain(*taken)) == list(range(at))
    for _ in range(20):
        i, j = sorted(rng.sample(range(len(positions)), 2))
        again = opened("folder", str(tmp_path))
        again.seek(positions[i])
        parts = [again.take_to(positions[k]) for k in sorted({rng.randint(i, j), j})]
        whole = joined([p for p in parts if p is not None]) if any(p is not None for p in parts) else None
        assert xs(whole) == list(chain(*taken[i + 1 : j + 1]))
        rest = again.take(10**6)
        assert xs(rest) == list(chain(*taken[j + 1 :]))


def test_a_file_whose_name_comes_too_late_is_told(tmp_path):
    (tmp_path / "b.jsonl").write_text(rows(1))
    found = opened("folder", str(tmp_path))
    found.take(10)
    (tmp_path / "a.jsonl").write_text(rows(2))
    with pytest.raises(
        InputError, match=r"before b\.jsonl, which was read: one of a\.jsonl, b\.jsonl \(names must incr"
    ):
        found.take(10)
    (tmp_path / "a.jsonl").rename(tmp_path / "c.jsonl")
    assert xs(found.take(10)) == [2]


def test_files_that_were_read_may_go_and_those_to_be_read_again_must_not(tmp_path):
    for name, x in (("a", 1), ("b", 2), ("c", 3)):
        (tmp_path / f"{name}.jsonl").write_text(rows(x))
    found = opened("folder", str(tmp_path))
    found.take(1)
    begin = found.position
    found.take(1)
    middle = found.position
    (tmp_path / "a.jsonl").unlink()
    assert xs(found.take(10)) == [3]
    again = opened("folder", str(tmp_path))
    again.seek(begin)
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(StateError, match=r"b\.jsonl was read and is gone"):
        again.take_to(middle)


def test_csv_that_grows(tmp_path):
    file = tmp_path / "s.csv"
    file.write_text("vs,x\n1,1\n2,2\n3,")
    found = opened("file", str(file), follow=True)
    assert xs(found.take(10)) == [1, 2]
    begin = found.position
    with open(file, "a") as out:
        out.write("3\n\n4,4\n")
    batch = found.take(10)
    assert xs(batch) == [3, 4] and not found.ended
    again = opened("file", str(file), follow=True)
    again.seek(begin)
    assert xs(again.take_to(found.position)) == [3, 4]
    with open(file, "a") as out:
        out.write("5,no\n")
    with pytest.raises(InputError, match=r"s\.csv:7: 'no' in column 'x' is not of type INT"):
        found.take(10)
    with open(file, "a") as out:
        out.write('6,"6\n')
    with pytest.raises(InputError, match=r"s\.csv:8: a quotation mark is opened in this line and not closed in it"):
        again.take(10)
    found.close()
    again.close()


@pytest.mark.parametrize(
    ("text", "line"),
    [('vs,x,k\n1,1,"a"\n2,2,"b\n3,3,c\n4,4,d"\n', 3), ('vs,x,"k\n1,1,a"\n', 1), ('vs,x,k\n1,1,5","\n', 2)],
)
def test_no_row_of_csv_that_grows_gets_lost_in_a_field(tmp_path, text, line):
    """A field that is closed in a later line only: the rows between would be text of it."""
    (tmp_path / "s.csv").write_text(text)
    said = rf"s\.csv:{line}: a quotation mark is opened .* \(close it, or take it out"
    with (
        closing(opened("file", str(tmp_path / "s.csv"), place=TWO, follow=True)) as found,
        pytest.raises(InputError, match=said),
    ):
        found.take(10)


def test_quotation_marks_in_csv_that_grows(tmp_path):
    (tmp_path / "s.csv").write_text('vs,x,k\n1,1,"a, ""b"""\n2,2,5" wide\n3,3,c\n')
    with closing(opened("file", str(tmp_path / "s.csv"), place=TWO, follow=True)) as found:
        assert [element.row["k"] for element in found.take(10).elements()] == ['a, "b"', '5" wide', "c"]


def test_what_cannot_grow_is_refused_by_name(tmp_path):
    with pytest.raises(OptionError, match="a Parquet file cannot grow") as bad:
        opened("file", str(tmp_path / "s.parquet"), follow=True)
    assert bad.value.option == "follow"


@pytest.mark.parametrize(
    ("name", "path", "problem"),
    [("file", "-", "can be read again"), ("file", "in/", "for a folder write folder")],
)
def test_what_is_no_file_is_refused_by_name(name, path, problem):
    with pytest.raises(OptionError, match=problem) as bad:
        opened(name, path)
    assert bad.value.option == "path"


def test_a_relation_is_no_folder(tmp_path):
    with pytest.raises(OptionError, match="known whole is one file"):
        opened("folder", str(tmp_path), place=SourcePlace("R", SCHEMA, "constant"))
