"""The three scenarios of the CEDR report's introduction: seeded streams that arrive late and are corrected, each with a
query, and each for another corner of the triangle of consistency."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from scenarios.account import Account, Comparison, Runs, compare, follow
from scenarios.arrivals import Epoch, Scenario
from scenarios.machines import MACHINES
from scenarios.stocks import STOCKS
from scenarios.web import WEB

__all__ = [
    "MACHINES",
    "SCENARIOS",
    "STOCKS",
    "WEB",
    "Account",
    "Comparison",
    "Epoch",
    "Runs",
    "Scenario",
    "compare",
    "follow",
]

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({each.name: each for each in (MACHINES, WEB, STOCKS)})
