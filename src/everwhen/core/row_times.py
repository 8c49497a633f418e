"""Which columns of an input's rows tell their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RowTimes:
    """A row lives from its `start` to its `end`; without `end` one tick, without `start` it brings `vs` and `ve`.

    >>> RowTimes("ts").columns
    ('ts',)
    """

    start: str | None = None
    end: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tell times."""
        return tuple(name for name in (self.start, self.end) if name is not None)


NO_TIMES: Final = RowTimes()
"""Rows bring `vs` and `ve`."""
