"""Every name that becomes a path is one part of it, whatever it is called, and no two names meet."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.sinks.changelog import ChangelogSink, read_changelog
from everwhen.spark.driver.ingress_stage import IngressStage
from everwhen.spark.driver.late_rows import LateRows
from everwhen.storage.folder import path_name
from everwhen.stream.element import Insert
from everwhen.stream.element_batch import batch_of

NAMES = (
    "bid", "Bid", "BID", "bID", "..", ".", "", "/", "../../../outside", "/etc/passwd", "a/b", "a_b", "a b", "a\\b",
    "a\x00b", "a" * 40, "a" * 41, "a" * 5000, "A" * 41, "b" * 40 + "c", "b" * 40 + "d", "é", "e\u0301", "\u212b",
    "\u00c5", "~", "-", "--help", "_bid", ".bid", "bid.", "bid ", " bid", "epoch=1", "a%2fb", "a%2Fb",
    path_name("Bid"), path_name(".."), "\ud800", "ß", "ss", "1", "con", "name", "a:b", "s3://x", "$HOME", "*", "a\nb",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_one_part_of_a_path(name: str, tmp_path: Path) -> None:
    found = path_name(name)
    assert found.isascii() and 0 < len(found) <= 60 and found[0].isalnum()
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    (tmp_path / found).mkdir()
    assert (tmp_path / found).resolve().parent == tmp_path.resolve()


def test_names_never_meet_also_where_case_does_not_count() -> None:
    assert len({path_name(name).lower() for name in NAMES}) == len(set(NAMES))


@given(st.text(), st.text())
def test_two_names_are_two_paths(one: str, other: str) -> None:
    assert (path_name(one).lower() == path_name(other).lower()) == (one == other)


def test_short_names_stay_as_they_are() -> None:
    assert [path_name(name) for name in ("bid", "a", "bid_2", "a" * 40)] == ["bid", "a", "bid_2", "a" * 40]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_what_a_source_leaves_behind_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    root = str(tmp_path / "everwhen" / "late")
    dropped = object.__new__(IngressStage)
    object.__setattr__(dropped, "root", root)
    for place in (LateRows(root).place(name), dropped.place(name)):
        assert Path(place).parent == Path(root) and Path(place).resolve().parent == Path(root).resolve()


@pytest.mark.parametrize(
    "part", ["../secret.jsonl", "/secret.jsonl", "epoch=0/../../secret.jsonl", "epoch=0/part-0.csv", 7, None]
)
def test_a_manifest_names_files_of_its_changelog_only(part: object, tmp_path: Path) -> None:
    schema = Schema.of([("x", pa.int64())])
    sink = ChangelogSink(tmp_path / "log", format="jsonl")
    sink.prepare(schema)
    sink.commit(0, batch_of([Insert(1, 2, {"x": 3})], schema))
    (tmp_path / "secret.jsonl").write_text('{"vs": 1, "row": {"x": 42}}\n')
    assert sum(map(len, read_changelog(tmp_path / "log"))) == 1
    manifest = tmp_path / "log" / "_epochs" / "0.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"parts": [part]}))
    with pytest.raises(InputError, match="its parts are no files of a changelog"):
        list(read_changelog(tmp_path / "log"))
