"""The changelog folder as a wire: starts of its writer, readers' word, which epochs are kept, reading as it grows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.errors import InputError, QueryError, SinkLostError
from everwhen.formats.changelog.layout import epochs_there, first_kept, read_header, read_manifest
from everwhen.formats.changelog.readers import Word, cared_from, leave_word, unread_from, words
from everwhen.formats.changelog.reading import FolderTail, read_changelog
from everwhen.sinks.changelog import ChangelogSink
from everwhen.storage.folder import LocalFolder, RemoteFolder
from everwhen.stream.element_batch import ElementBatch

S = ew.source("S", {"x": "int64"})


def batch(x: int) -> ElementBatch:
    return ew.ElementBatch.of([ew.Insert(x, x + 5, {"x": x}), ew.Cti(x)], S.schema)


def sink_at(path: Path, **options: str) -> ChangelogSink:
    sink = ChangelogSink(path, **options)  # type: ignore[arg-type]
    sink.prepare(S.schema)
    return sink


def told(path: Path) -> list[int]:
    return [e.row["x"] for b in read_changelog(path) for e in b.elements() if isinstance(e, ew.Insert)]


def followed(tail: FolderTail) -> list[str]:
    """The parts that come now."""
    found = []
    while tail.look() is not None:
        if part := tail.take():
            found.append(part)
    return found


def test_a_writer_that_goes_on_has_one_start(tmp_path: Path) -> None:
    first = sink_at(tmp_path)
    first.commit(0, batch(0))
    again = sink_at(tmp_path)
    again.commit(1, batch(1))
    folder = LocalFolder(str(tmp_path))
    starts = {read_manifest(folder, epoch).start for epoch in epochs_there(folder)}
    assert starts == {read_header(folder).start} and first.start.id == again.start.id != ""
    assert first.start.since == NEVER and first.start.first == 0


def test_a_writer_that_begins_anew_is_another_stream(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.commit(0, batch(0))
    sink.commit(1, batch(1))
    before = sink.start.id
    sink.begin_anew(since=40)
    folder = LocalFolder(str(tmp_path))
    assert read_header(folder).start.id == before and told(tmp_path) == [0, 1]  # nothing is said before its first epoch
    sink.commit(2, batch(7))
    start = read_header(folder).start
    assert (start.since, start.first) == (40, 2) and start.id not in (before, "")
    assert told(tmp_path) == [7]
    sink.commit(3, batch(8))
    assert told(tmp_path) == [7, 8] and read_manifest(folder, 3).start == start


def test_a_header_that_was_not_written_any_more_is_mended(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.commit(0, batch(0))
    header = (tmp_path / "_changelog.json").read_bytes()
    sink.begin_anew(since=40)
    sink.commit(1, batch(7))
    (tmp_path / "_changelog.json").write_bytes(header)  # killed between the manifest and the header
    assert told(tmp_path) == [7]
    again = sink_at(tmp_path)
    assert again.start == sink.start == read_header(LocalFolder(str(tmp_path))).start


def test_a_folder_of_an_earlier_version_is_read_and_added_to(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.commit(0, batch(0))
    for name in ("_changelog.json", "_epochs/0.json"):
        found = json.loads((tmp_path / name).read_text())
        for key in ("id", "since", "first", "start"):
            found.pop(key, None)
        (tmp_path / name).write_text(json.dumps(found))
    again = sink_at(tmp_path)
    again.commit(1, batch(1))
    assert told(tmp_path) == [0, 1] and again.start.id == "" and again.start.since == NEVER


def test_who_follows_sees_epochs_as_they_come(tmp_path: Path) -> None:
    tail = FolderTail(LocalFolder(str(tmp_path)))
    assert tail.look() is None
    sink = sink_at(tmp_path)
    assert tail.look() is None
    sink.commit(0, batch(0))
    sink.commit(1, ElementBatch.of([], S.schema))
    assert followed(tail) == ["epoch=0/part-00000.parquet"]
    sink.commit(2, batch(2))
    sink.write_part(3, 0, batch(3))
    assert followed(tail) == ["epoch=2/part-00000.parquet"] and (tail.epoch, tail.part) == (3, 0)


def test_who_follows_notices_a_new_start(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.commit(0, batch(0))
    tail = FolderTail(LocalFolder(str(tmp_path)))
    followed(tail)
    before = tail.start
    sink.begin_anew(since=40)
    sink.commit(1, batch(7))
    manifest = tail.look()
    assert manifest is not None and tail.start != before and tail.start == sink.start and tail.epoch == 1
    assert followed(tail) == ["epoch=1/part-00000.parquet"]
    # a new reader begins with the present start
    late = FolderTail(LocalFolder(str(tmp_path)))
    assert followed(late) == ["epoch=1/part-00000.parquet"]


def test_who_follows_notices_a_folder_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everwhen.formats.changelog.reading._HEADER_PAUSE", 0.0)
    sink = sink_at(tmp_path / "log")
    for epoch in range(3):
        sink.commit(epoch, batch(epoch))
    tail = FolderTail(LocalFolder(str(tmp_path / "log")))
    followed(tail)
    shutil.rmtree(tmp_path / "log")
    assert tail.look() is None
    again = sink_at(tmp_path / "log")
    again.commit(0, batch(9))
    for _ in range(2):
        manifest = tail.look()
    assert manifest is not None and tail.start == again.start and (tail.epoch, tail.part) == (0, 0)


def test_readers_leave_word(tmp_path: Path) -> None:
    for folder in (LocalFolder(str(tmp_path / "a")), RemoteFolder(_local(), str(tmp_path / "b"), str(tmp_path / "b"))):
        assert words(folder) == [] and unread_from([]) is None and cared_from([]) == NEVER
        leave_word(folder, Word("merge", 3, 40))
        leave_word(folder, Word("Another one/../x", 5))
        leave_word(folder, Word("merge", 4, 50))
        found = sorted(words(folder), key=lambda word: word.read)
        assert found == [Word("merge", 4, 50), Word("Another one/../x", 5, NEVER)]
        assert unread_from(found) == 4 and cared_from(found) == NEVER
        assert cared_from([Word("a", 0, INF), Word("b", 0, 7)]) == 7
    (tmp_path / "a" / "_readers" / "odd.json").write_text("{")
    assert unread_from(words(LocalFolder(str(tmp_path / "a")))) == 0  # who knows what it has read


def _local() -> object:
    from pyarrow import fs

    return fs.LocalFileSystem()


def test_only_what_is_unread_is_kept_if_asked_for(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, keep="unread")
    folder = LocalFolder(str(tmp_path))
    for epoch in range(6):
        sink.commit(epoch, batch(epoch))
    sink.tidy()
    assert epochs_there(folder) == list(range(6))  # nobody reads: all are kept
    leave_word(folder, Word("a", 4))
    leave_word(folder, Word("b", 2))
    sink.tidy()
    assert epochs_there(folder) == [2, 3, 4, 5] and first_kept(folder) == 2
    assert not (tmp_path / "epoch=1").exists() and (tmp_path / "epoch=2").exists()
    leave_word(folder, Word("b", 99))
    sink.tidy(needed=3)  # the writer itself needs those from 3 on
    assert epochs_there(folder) == [3, 4, 5]
    leave_word(folder, Word("a", 99))
    sink.tidy()
    assert epochs_there(folder) == [5]  # the last one tells where to go on
    again = sink_at(tmp_path, keep="unread")
    again.resume(5)
    assert again.committed() == 5
    again.commit(6, batch(6))
    with pytest.raises(InputError, match="the epochs before 5 are gone"):
        told(tmp_path)


def test_all_epochs_are_kept_by_default(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.commit(0, batch(0))
    sink.commit(1, batch(1))
    leave_word(LocalFolder(str(tmp_path)), Word("a", 2))
    assert sink.tidy() == [Word("a", 2)] and told(tmp_path) == [0, 1]
    with pytest.raises(QueryError, match="keeps all or unread epochs, not 'some'"):
        ChangelogSink(tmp_path, keep="some")


def test_an_epoch_that_is_gone_is_not_taken_for_one_that_was_removed(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, keep="unread")
    for epoch in range(4):
        sink.commit(epoch, batch(epoch))
    leave_word(LocalFolder(str(tmp_path)), Word("a", 2))
    sink.tidy()
    sink_at(tmp_path).resume(3)
    (tmp_path / "_epochs" / "2.json").unlink()
    with pytest.raises(SinkLostError, match="epoch 2 of the changelog is gone"):
        sink_at(tmp_path).resume(3)


def test_a_reader_that_comes_too_late_is_told(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, keep="unread")
    for epoch in range(4):
        sink.commit(epoch, batch(epoch))
    leave_word(LocalFolder(str(tmp_path)), Word("a", 3))
    sink.tidy()
    with pytest.raises(InputError, match="epoch 0 is gone: the folder keeps those from 3 on"):
        FolderTail(LocalFolder(str(tmp_path))).look()


def test_a_manifest_carries_what_its_run_notes(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.commit(0, batch(0), {"steps": [{"inputs": {"S": {"offset": 7}}}]})
    assert read_manifest(LocalFolder(str(tmp_path)), 0).run == {"steps": [{"inputs": {"S": {"offset": 7}}}]}
    for text in (
        '{"version":1,"parts":["../x"]}',
        '{"version":1,"parts":[],"run":3}',
        '{"version":1,"parts":[],"start":{"since":"x"}}',
    ):
        (tmp_path / "_epochs" / "0.json").write_text(text)
        with pytest.raises(InputError, match="not a file of a changelog"):
            told(tmp_path)
