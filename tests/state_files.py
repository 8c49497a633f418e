"""Snapshots as they lie on disk: every restore of a test can take this way, and then finds what is no plain data."""

from __future__ import annotations

import io
import math
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from everwhen.storage.framed_file import SNAPSHOT, read_frames, write_frames
from everwhen.storage.state_format import decode, encode


def stored(state: object) -> bytes:
    """The file of a state."""
    return b"".join(bytes(memoryview(chunk)) for chunk in write_frames(SNAPSHOT, encode(state)))


def loaded(data: bytes) -> Any:
    """The state of a file."""
    return decode(read_frames(io.BytesIO(data), SNAPSHOT))


def through_file(state: Any) -> Any:
    """The state, written and read, and equal to what it was."""
    found = loaded(stored(state))
    assert_same(state, found)
    return found


def assert_same(a: Any, b: Any, place: str = "state") -> None:
    """Equal in all types and values, floats bit by bit."""
    assert type(a) is type(b), f"{place}: {type(a)} became {type(b)}"
    if isinstance(a, dict):
        assert list(a) == list(b) or all(map(_same_key, a, b)), place
        for one, (name, other) in zip(a.values(), b.items(), strict=True):
            assert_same(one, other, f"{place}.{name}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), place
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_same(one, other, f"{place}[{i}]")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), place
    elif isinstance(a, pa.Array):
        assert a.type == b.type and len(a) == len(b), place
        assert [str(each) for each in a] == [str(each) for each in b], place
    elif isinstance(a, float):
        assert a.hex() == b.hex() and math.copysign(1, a) == math.copysign(1, b), place
    else:
        assert a == b, place
        assert not isinstance(a, datetime) or (a.tzinfo is None) == (b.tzinfo is None), place


def _same_key(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)
