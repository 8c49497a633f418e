"""Words for people and places; every city stands beside its state."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_FIRST: Final = (
    "Ada", "Alan", "Barbara", "Donald", "Edgar", "Edsger", "Frances", "Grace", "Jim", "John",
    "Katherine", "Leslie", "Margaret", "Michael", "Niklaus", "Pat", "Radia", "Shafi", "Tony", "Vint",
)  # fmt: skip
_LAST: Final = (
    "Abbott", "Brook", "Carter", "Dale", "Ellis", "Fisher", "Gray", "Hale", "Irwin", "Jones",
    "Keller", "Lane", "Moss", "North", "Owens", "Price", "Quinn", "Reed", "Stone", "Wood",
)  # fmt: skip
_PLACES: Final = (
    ("Portland", "OR"), ("Salem", "OR"), ("Bend", "OR"), ("Boise", "ID"), ("Moscow", "ID"), ("Seattle", "WA"),
    ("Spokane", "WA"), ("Kent", "WA"), ("Oakland", "CA"), ("Fresno", "CA"), ("San Diego", "CA"), ("Reno", "NV"),
    ("Phoenix", "AZ"), ("Tucson", "AZ"), ("Denver", "CO"), ("Cheyenne", "WY"),
)  # fmt: skip

PEOPLE: Final = pa.array([f"{first} {last}" for first in _FIRST for last in _LAST])
CITIES: Final = pa.array([city for city, _ in _PLACES])
STATES: Final = pa.array([state for _, state in _PLACES])
