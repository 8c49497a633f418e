"""Application time as a function of the slot: integer, monotone, periodic, with an exact inverse.

In every period of `length` ticks there are `slots` events; the first `burst_slots` of them share `burst_length`
ticks, the others the rest, evenly.  Nothing is rounded twice, so the times do not depend on where one starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everwhen.demo.nexmark.config import TICKS_PER_SECOND, NexmarkConfig
from everwhen.errors import QueryError


@dataclass(frozen=True, slots=True)
class Clock:
    """`T(slot)`, its inverse, and the multiples of the CTI interval."""

    origin: int
    length: int
    slots: int
    burst_length: int
    burst_slots: int
    interval: int

    @classmethod
    def of(cls, config: NexmarkConfig) -> Clock:
        slots = config.rate * config.burst_period // TICKS_PER_SECOND
        if slots < 2 or config.burst_period < 2:
            raise QueryError(
                f"NEXMark: a burst period of {config.burst_period} ticks has {slots} events at {config.rate} events "
                f"per second; it needs two or more: make burst_period longer"
            )
        burst_slots = min(max(round(slots * config.burst_share), 1), slots - 1)
        burst_length = round(burst_slots * config.burst_period / slots / config.burst)
        burst_length = min(max(burst_length, 1), config.burst_period - 1)
        return cls(config.origin, config.burst_period, slots, burst_length, burst_slots, config.cti_interval)

    @property
    def _calm(self) -> tuple[int, int]:
        return self.length - self.burst_length, self.slots - self.burst_slots

    def times(self, slots: np.ndarray) -> np.ndarray:
        """The time of each slot.

        >>> Clock(0, 10, 4, 2, 2, 5).times(np.arange(9)).tolist()
        [0, 1, 2, 6, 10, 11, 12, 16, 20]
        """
        period = slots // self.slots
        place = slots - period * self.slots
        ticks, calm = self._calm
        slow = self.burst_length + (place - self.burst_slots) * ticks // calm
        fast = place * self.burst_length // self.burst_slots
        return self.origin + period * self.length + np.where(place < self.burst_slots, fast, slow)

    def slots_at(self, times: np.ndarray) -> np.ndarray:
        """The first slot that is not before each time.

        >>> Clock(0, 10, 4, 2, 2, 5).slots_at(np.array([0, 2, 3, 7, 10])).tolist()
        [0, 2, 3, 4, 4]
        """
        times = times - self.origin
        period = times // self.length
        rest = times - period * self.length
        ticks, calm = self._calm
        fast = -(-rest * self.burst_slots // self.burst_length)
        slow = self.burst_slots + np.maximum(-(-(rest - self.burst_length) * calm // ticks), 0)
        place = np.where(fast < self.burst_slots, fast, slow)
        return period * self.slots + np.minimum(place, self.slots)

    def slot_at(self, time: int) -> int:
        """The first slot that is not before a time."""
        return int(self.slots_at(np.array([time]))[0])

    def slots_within(self, duration: int) -> int:
        """So many consecutive slots never take longer than `duration`, wherever they start."""
        ticks, calm = self._calm
        return duration // self.length * self.slots + max(duration % self.length * calm // ticks - 1, 0)

    def steps(self, slots: np.ndarray) -> np.ndarray:
        """How many whole CTI intervals have passed at each slot."""
        return (self.times(slots) - self.origin) // self.interval

    def step_before(self, slots: np.ndarray) -> np.ndarray:
        """The last multiple of the CTI interval that is not after each slot."""
        return self.origin + self.steps(slots) * self.interval
