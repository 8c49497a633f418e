"""A head alone: derivations told as plain rows with the birth of their youngest premise behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from everwhen.operators.loop.bag import BagHead
from everwhen.operators.loop.best import BestHead
from everwhen.operators.loop.head import LoopHead, with_birth
from everwhen.operators.loop.support import SetHead
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from operators.stepping import Said, Segment, changes, codec_of, said
from state_files import through_file


class Headed:
    """A head that `make` builds, and its three ways of taking derivations."""

    def __init__(self, make: Callable[[], LoopHead]) -> None:
        self._make = make
        self.head = make()

    def retract(self, *derived: Segment) -> Said:
        return said(self.head.retract(changes(self.head.sent, *derived)))

    def insert(self, *derived: Segment) -> Said:
        return said(self.head.insert(changes(self.head.sent, *derived) if derived else None))

    def hold(self, *derived: Segment) -> None:
        self.head.hold(changes(self.head.sent, *derived))

    def standing(self) -> Said:
        found = self.head.standing()
        assert found is not None
        return said(found)

    def restart(self) -> None:
        state = through_file(self.head.snapshot())
        self.head = self._make()
        self.head.restore(state)

    @property
    def rows(self) -> int:
        return self.head.state_size().rows


def set_head(columns: dict[str, pa.DataType] | None = None, births: bool = True) -> Headed:
    pool = Interner()
    codec = codec_of(columns or {"n": pa.string()}, pool)
    sent = RowCodec(with_birth(codec.schema), pool) if births else codec
    return Headed(lambda: SetHead(codec, sent))


def bag_head() -> Headed:
    codec = codec_of({"n": pa.string()})
    return Headed(lambda: BagHead(codec))


def best_head(largest: bool = False, type_: Any = None) -> Headed:
    """Rows (n, d): the least or largest d of each n."""
    pool = Interner()
    codec = codec_of({"n": pa.string(), "d": type_ or pa.int64()}, pool)
    sent = RowCodec(with_birth(codec.schema), pool)
    keys = codec_of({"n": pa.string()}, pool)
    return Headed(lambda: BestHead(codec, sent, keys, "d", largest))
