"""Errors of the system as ours: where, what was wanted, what came, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everwhen.errors import StateError
from everwhen.storage.folder import blame


@contextmanager
def blamed(place: str, wanted: str) -> Iterator[None]:
    """What the system refuses in the block is a `StateError`, for people.

    >>> with blamed("/state", "keep its state"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    everwhen.errors.StateError: /state: cannot keep its state: no space is left (free some space there, or choose ...
    """
    try:
        yield
    except OSError as bad:
        raise StateError(blame(bad, place, wanted)) from bad
