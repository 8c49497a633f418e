"""How a source makes progress, and what becomes of rows that come behind it.

    within   rows start at most so many ticks before the latest start: a bound of the disorder
    idle     after so many seconds without a row the source no longer holds others back
    late     what becomes of a row that changes something before what its source had promised

With `within` every batch ends with a promise: nothing before the largest start so far minus the bound changes any more.
A row is late if it breaks a promise that was given before its batch came, or by a CTI before it within the batch.  What
becomes of it is defined in `reference/late_rows.py`.

    >>> SourcePolicy(within=1_800_000, late="drop").words()
    'within 1800000, late rows dropped'
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, get_args

from everwhen.core.time import MAX_TIME
from everwhen.errors import QueryError

Late = Literal["error", "drop", "adjust"]
_DONE: Final = {"drop": "late rows dropped", "adjust": "late rows adjusted"}


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """Progress and late rows of a source.  `time` is the column of ORDERED BY, where there is one.

    >>> SourcePolicy(within=-1)
    Traceback (most recent call last):
    ...
    everwhen.errors.QueryError: rows are late by 0 ticks or more, not by -1 (within)
    """

    within: int | None = None
    idle: float | None = None
    late: Late = "error"
    time: str | None = None

    def __post_init__(self) -> None:
        if self.within is not None and not 0 <= self.within <= MAX_TIME:
            raise QueryError(f"rows are late by 0 ticks or more, not by {self.within} (within)")
        if self.idle is not None and (isinstance(self.idle, bool) or not isfinite(self.idle) or self.idle <= 0):
            raise QueryError(f"a source counts as idle after more than 0 seconds, not after {self.idle!r} (idle)")
        if self.late not in get_args(Late):
            raise QueryError(f"late rows are one of {', '.join(get_args(Late))}, not {self.late!r} (late)")

    @property
    def says_something(self) -> bool:
        """Whether there is anything to do for it while elements come in."""
        return self.within is not None or self.idle is not None or self.late != "error"

    def words(self) -> str:
        """What it says, for plans; "" if nothing."""
        said = [] if self.within is None else [f"within {self.within}"]
        said += [] if self.idle is None else [f"idle after {self.idle:g} s"]
        return ", ".join([*said, _DONE[self.late]] if self.late != "error" else said)


NO_POLICY: Final = SourcePolicy()
