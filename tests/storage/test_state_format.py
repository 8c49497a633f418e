"""State as data: what comes back is what was written, and nothing that anybody writes runs code or fails otherwise."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.errors import StateError
from everwhen.storage.framed_file import PICKLED, SNAPSHOT, CorruptFile, OtherVersion, read_frames, write_frames
from everwhen.storage.state_format import FORMAT, MAX_DEPTH, decode, encode, software
from state_files import assert_same, loaded, stored, through_file

NAN = struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]
EVERYTHING: dict[Any, Any] = {
    "plain": [None, True, False, 0, -1, 2**63 - 1, -(2**63), "", "ä\ud800\x00", 0.1, -0.0, 5e-324],
    "large": [2**63, -(2**64), 10**5000],
    "floats": [float("inf"), float("-inf"), NAN],
    "nested": ([], (), {}, ([()],), {"d": {"t": [1]}}, {"a": 1, "b": 2}),
    "bytes": [b"", b"\x00\xff", b"x" * 100_000],
    "times": [dt.date(1, 1, 1), dt.datetime(2024, 5, 1, 12, 30, 0, 1), dt.time(23, 59, 59, 9), dt.timedelta(-1, 5)],
    "zone": dt.datetime(2024, 5, 1, tzinfo=dt.UTC),
    "decimals": [Decimal("1.50"), Decimal("-0"), Decimal("1E+30")],
    ("a", 1): "by a tuple", 7: "by a number", None: "by nothing", b"k": "by bytes", -0.5: "by a float",
    "arrays": [
        np.arange(6).reshape(2, 3), np.empty((0, 3), np.float32), np.array(5, np.uint8), np.array([True, False]),
        np.array([NAN, -0.0]), np.arange(10)[::3], np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    ],
    "numbers": [np.int64(-5), np.float64(NAN), np.bool_(True), np.uint8(255)],
    "arrow": [
        pa.array([1, None, 3]), pa.array(["a", None, ""]), pa.array([], pa.string()), pa.nulls(3),
        pa.array([b"x", b""]), pa.array([b"0" * 16, None], pa.uuid()),
        pa.array([[1, None], [], None]), pa.array([{"a": [1]}, None]), pa.array(["x", "y", "x"]).dictionary_encode(),
        pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)), pa.array([1, None], pa.timestamp("ns", "UTC")),
        pa.array(list(range(100))).slice(7, 5), pa.array([True, None]),
        pa.array([], pa.dictionary(pa.int8(), pa.utf8())),
    ],
    "long lists": [
        list(range(1000)), [*range(1000), None], [*range(999), 2**64], ["a"] * 500, ["\ud800"] * 500, [0.5] * 300,
        [True] * 300, [b"k"] * 300, [(i, None if i == 999 else i + 1) for i in range(1000)], [(b"a", "b", 1.5)] * 300,
        [()] * 300, [(1,), (1, 2)] * 200, [(1, "x"), ("x", 1)] * 200, [None] * 300,
    ],
}  # fmt: skip


def test_everything_comes_back_as_it_was() -> None:
    found = through_file(EVERYTHING)
    assert_same(found, through_file(found))
    assert found["floats"][2].hex() == "nan" and struct.pack("<d", found["floats"][2]).hex() == "010000000000f87f"
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    assert loaded(stored([table, table.slice(0, 0)])) == [table, table.slice(0, 0)]
    two = pa.concat_tables([table, table])
    assert loaded(stored(two)).to_pylist() == two.to_pylist()


def test_arrays_can_be_written_to_and_are_not_copied_on_the_way_out() -> None:
    array = np.arange(100_000)
    pieces = [piece for frame in encode([array]) for piece in frame]
    assert any(np.shares_memory(np.asarray(piece), array) for piece in pieces if isinstance(piece, memoryview))
    found = loaded(stored([array]))[0]
    found[0] = 5
    assert found[0] == 5 and found[1] == 1


def test_a_time_with_a_zone_is_the_same_instant() -> None:
    berlin = dt.datetime(2024, 5, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    found = loaded(stored(berlin))
    assert found == berlin and found.tzinfo is dt.UTC and hash(found) == hash(berlin)


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals(allow_nan=False)
    | st.dates() | st.times() | st.datetimes() | st.timedeltas()
    | st.lists(st.integers(-9, 9)).map(lambda x: np.array(x, np.int64)) | st.lists(st.text()).map(pa.array)
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers() | st.text() | st.tuples(st.text(), st.integers()), inner)
    ),
)  # fmt: skip


@given(TREES)
def test_any_tree_comes_back(tree: Any) -> None:
    through_file(tree)


class Own(pa.ExtensionType):  # type: ignore[misc]
    """A type of somebody's own."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Own:
        return cls()


@pytest.fixture(autouse=True)
def own_type_is_known() -> Iterator[None]:
    pa.register_extension_type(Own())
    yield
    pa.unregister_extension_type("own")


class Text(str):
    """Text of a class of its own."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Punctuation(), "everwhen.core.punctuation.Punctuation"),
        (Frontier(), "everwhen.core.punctuation.Frontier"),
        (Emit.FINAL, "everwhen.core.emit.Emit"),
        (Text("a"), "Text"),
        (lambda: None, "function"),
        ({1}, "builtins.set"),
        (np.array([object()]), "a NumPy array of type object"),
        (np.array(["a"]), "a NumPy array of type"),
        (pa.chunked_array([[1]]), "ChunkedArray"),
        (pa.ExtensionArray.from_storage(Own(), pa.array([1])), "an Arrow array of type"),
        (pa.nulls(1, pa.list_(Own())), "an Arrow array of type"),
        (pa.schema([("a", Own())]).empty_table(), "an Arrow table of"),
        (dt.time(1, tzinfo=dt.UTC), "a time with a zone"),
    ],
    ids=lambda value: value if isinstance(value, str) and type(value) is str else "",
)
def test_what_is_no_plain_data_is_named_with_its_place(value: object, said: str) -> None:
    with pytest.raises(StateError, match=r"graph\.operators\[1\]\[\('q', 1\)\] is .*" + said):
        encode({"graph": {"operators": [1, {("q", 1): value}]}})


def test_trees_that_never_end_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(StateError, match="more than 100 levels deep"):
        encode(endless)
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = (deep,)
    through_file(deep)


# -- files from outside ------------------------------------------------------------------------------------------------


def frames_of(tree: Any, *frames: bytes, **head: Any) -> list[memoryview]:
    """Frames with a tree that nobody has checked."""
    about = {"format": FORMAT, "software": "everwhen 9", "frames": 1 + len(frames), "groups": [], "state": tree} | head
    return [memoryview(json.dumps(about).encode()), *map(memoryview, frames)]


def arrow(*arrays: pa.Array, **options: Any) -> bytes:
    batch = pa.RecordBatch.from_arrays(list(arrays), [str(i) for i in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def bad_offsets() -> bytes:
    """Text whose offsets lead out of its memory."""
    before, found, after = arrow(pa.array(["x" * 77])).rpartition(np.array([0, 77], np.int32).tobytes())
    assert found
    return before + np.array([0, 2_000_000_000], np.int32).tobytes() + after


def many_rows() -> bytes:
    """Nulls, which need no memory: far more than were written."""
    return arrow(pa.nulls(12_345)).replace((12_345).to_bytes(8, "little"), (2**40).to_bytes(8, "little"))


EIGHT = np.arange(1).tobytes()
DEEP = b"[" * 200_000 + b"]" * 200_000
HOSTILE: dict[str, Callable[[], list[memoryview]]] = {
    "nothing": list,
    "no JSON": lambda: [memoryview(b"\x80\x05")],
    "no text": lambda: [memoryview(b"\xff" * 9)],
    "a list": lambda: [memoryview(b"[1]")],
    "no format": lambda: [memoryview(b"{}")],
    "a format that is text": lambda: frames_of(1, format="1"),
    "deep": lambda: [memoryview(b'{"format": 1, "frames": 1, "groups": [], "state": ' + DEEP + b"}")],
    "deep groups": lambda: [memoryview(DEEP)],
    "too deep": lambda: frames_of(json.loads("[" * 150 + "]" * 150)),
    "too deep tuples": lambda: frames_of(json.loads('{"t":[' * 150 + "]}" * 150)),
    "a long number": lambda: [memoryview(b'{"format": ' + b"9" * 5000 + b"}")],
    "NaN": lambda: [memoryview(b'{"format": 1, "frames": 1, "groups": [], "state": NaN}')],
    "no state": lambda: [memoryview(b'{"format": 1, "frames": 1, "groups": []}')],
    "other frames": lambda: frames_of(1, frames=7),
    "a tag that is none": lambda: frames_of({"__reduce__": ["os.system", "true"]}),
    "two tags": lambda: frames_of({"t": [], "d": {}}),
    "no tag": lambda: frames_of({}),
    "a tuple of text": lambda: frames_of({"t": "abc"}),
    "a dict of a list": lambda: frames_of({"d": []}),
    "pairs of three": lambda: frames_of({"m": [[1, 2, 3]]}),
    "a key that cannot be one": lambda: frames_of({"m": [[[1], 2]]}),
    "an integer of words": lambda: frames_of({"i": "import"}),
    "a float of nine bytes": lambda: frames_of({"f": "00" * 9}),
    "no base64": lambda: frames_of({"b": "%%%"}),
    "a decimal of words": lambda: frames_of({"z": "one"}),
    "a decimal beyond all": lambda: frames_of({"z": "1e999999999999999999999"}),
    "a date of words": lambda: frames_of({"y": "tomorrow"}),
    "a date of a number": lambda: frames_of({"y": 5}),
    "a duration beyond all": lambda: frames_of({"u": [10**30, 0, 0]}),
    "a duration of text": lambda: frames_of({"u": ["1", 0, 0]}),
    "an array of objects": lambda: frames_of({"x": ["|O", [1], 1]}, EIGHT),
    "an array of records": lambda: frames_of({"x": ["i8,i8", [1], 1]}, EIGHT * 2),
    "an array of a list": lambda: frames_of({"x": [["<i8"], [1], 1]}, EIGHT),
    "an array that is larger": lambda: frames_of({"x": ["<i8", [2**40], 1]}, EIGHT),
    "an array with a hole": lambda: frames_of({"x": ["<i8", [0, 2**62, 2**62], 1]}, b""),
    "an array of minus one": lambda: frames_of({"x": ["<i8", [-1], 1]}, EIGHT),
    "an array of half a row": lambda: frames_of({"x": ["<i8", [0.5, 2], 1]}, EIGHT),
    "an array of many dimensions": lambda: frames_of({"x": ["<i8", [1] * 70, 1]}, EIGHT),
    "a frame that is not there": lambda: frames_of({"x": ["<i8", [1], 2]}, EIGHT),
    "the tree's own frame": lambda: frames_of({"o": 0}),
    "a frame before the first": lambda: frames_of({"o": -1}, EIGHT),
    "a frame that is true": lambda: frames_of({"o": True}, EIGHT),
    "a number of two": lambda: frames_of({"n": ["<i8", "00" * 16]}),
    "a group that is not there": lambda: frames_of({"a": [0, 0]}),
    "a column that is not there": lambda: frames_of({"a": [0, 1]}, arrow(pa.array([1])), groups=[1]),
    "a column before the first": lambda: frames_of({"a": [0, -1]}, arrow(pa.array([1])), groups=[1]),
    "no Arrow": lambda: frames_of({"a": [0, 0]}, b"x" * 100, groups=[1]),
    "nothing for Arrow": lambda: frames_of({"a": [0, 0]}, b"", groups=[1]),
    "Arrow that is cut": lambda: frames_of({"a": [0, 0]}, arrow(pa.array([1] * 99))[:-300], groups=[1]),
    "compressed": lambda: frames_of({"p": 1}, arrow(pa.array([0] * 99_999), compression="zstd")),
    "compressed words": lambda: frames_of({"p": 1}, arrow(pa.array(["a"]).dictionary_encode(), compression="lz4")),
    "bad offsets": lambda: frames_of({"p": 1}, bad_offsets()),
    "an extension type": lambda: frames_of({"p": 1}, arrow(pa.ExtensionArray.from_storage(Own(), pa.array([1])))),
    "too many rows": lambda: frames_of({"p": 1}, many_rows()),
    "a list of times": lambda: frames_of({"l": [0, 0]}, arrow(pa.array([1], pa.timestamp("ns"))), groups=[1]),
    "columns of two lengths": lambda: frames_of(
        {"r": [[0, 0], [1, 0]]}, arrow(pa.array([1])), arrow(pa.array([1, 2])), groups=[1, 2]
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_from_outside_is_damaged_and_nothing_else(name: str) -> None:
    with pytest.raises(CorruptFile):
        decode(HOSTILE[name]())


def test_the_frames_of_these_tests_can_be_read() -> None:
    assert decode(frames_of({"t": [{"x": ["<i8", [1], 1]}]}, EIGHT)) == (np.arange(1),)
    assert decode(frames_of({"p": 1}, arrow(pa.array([1])))).num_rows == 1
    assert decode(frames_of({"p": 1}, arrow(pa.nulls(12_345)))).num_rows == 12_345


@given(st.data())
@settings(max_examples=300)
def test_bytes_that_were_changed_never_raise_anything_else(data: st.DataObject) -> None:
    frames = [bytearray(b"".join(bytes(memoryview(piece)) for piece in frame)) for frame in encode(EVERYTHING)]
    frame = frames[0] if data.draw(st.booleans()) else data.draw(st.sampled_from([f for f in frames if len(f)]))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptFile):
        decode([memoryview(frame) for frame in frames])


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


@pytest.mark.parametrize("kind", [PICKLED, SNAPSHOT])
def test_a_pickle_is_refused_and_runs_nothing(kind: int, tmp_path: Path) -> None:
    bomb = pickle.dumps({"state": Bomb(tmp_path / "it ran")}, protocol=5)
    data = b"".join(write_frames(kind, [[bomb]]))
    with pytest.raises(OtherVersion if kind == PICKLED else CorruptFile) as refused:
        loaded(data)
    assert kind != PICKLED or "Everwhen 0.4" in str(refused.value)
    for form in ({"b": base64.b64encode(bomb).decode()}, {"d": {"state": {"b": base64.b64encode(bomb).decode()}}}):
        decode(frames_of(form))
    assert not (tmp_path / "it ran").exists()
    pickle.loads(bomb)
    assert (tmp_path / "it ran").exists(), "it would have"


def test_another_format_is_named_with_its_writer() -> None:
    with pytest.raises(OtherVersion, match=rf"everwhen 9 has written it, in format 7, and {software()} reads format 1"):
        decode(frames_of(1, format=7))
    with pytest.raises(OtherVersion, match="another program has written it"):
        decode(frames_of(1, format=7, software="\x1b[2J"))


def test_lengths_that_are_forged_ask_for_no_memory() -> None:
    """The checksums fit: anybody can compute them."""
    whole = b"".join(write_frames(SNAPSHOT, [[b"x" * 10]]))

    def forged(count: int, length: int) -> bytes:
        head = struct.pack("<8sHHI", b"EVERWHEN", 1, SNAPSHOT, count) + struct.pack("<QI", length, 0)
        head += struct.pack("<I", zlib.crc32(head))
        return head + bytes(64 - len(head)) + bytes(64)

    assert len(read_frames(io.BytesIO(whole), SNAPSHOT)) == 1
    for count, length, said in ((1, 2**62, "frame 0"), (1, 2**40, "frame 0"), (9_000_000, 1, "the header")):
        with pytest.raises(CorruptFile, match=f"it ends within {said}"):
            read_frames(io.BytesIO(forged(count, length)), SNAPSHOT)
