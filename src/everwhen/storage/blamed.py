"""Errors of the system as ours: where, what was wanted, what came, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everwhen.errors import EverwhenError
from everwhen.storage.folder import blame


@contextmanager
def blamed(error: type[EverwhenError], place: str, wanted: str) -> Iterator[None]:
    """What the system refuses in the block is an error of that type, for people.

    >>> from everwhen.errors import StateError
    >>> with blamed(StateError, "/state", "keep its state"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    everwhen.errors.StateError: /state: cannot keep its state: no space is left (free some space there, or choose ...
    """
    try:
        yield
    except OSError as bad:
        raise error(blame(bad, place, wanted)) from bad
