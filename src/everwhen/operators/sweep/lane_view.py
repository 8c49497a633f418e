"""The lanes of pieces, by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Lane = tuple[str, int]
"""What a lane adds up, and of which argument column."""

Coded = tuple[np.ndarray, np.ndarray | None]
"""Codes and which of them are valid (None: all)."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of some pieces, as columns by name."""

    words: np.ndarray
    int_at: dict[Lane, int]
    float_at: dict[Lane, int]
    ints: int

    def int_(self, what: str, column: int) -> np.ndarray:
        return self.words[:, self.int_at[what, column]]

    def float_(self, what: str, column: int) -> tuple[np.ndarray, np.ndarray]:
        at = self.ints + 2 * self.float_at[what, column]
        floats = self.words.view(np.float64)
        return floats[:, at], floats[:, at + 1]

    def evaluated(self, lane: int) -> np.ndarray:
        return self.words[:, self.ints + 2 * len(self.float_at) + lane]
