"""The three scenarios of the CEDR report's introduction: seeded streams that arrive late and are corrected, each with a
query, and each for another corner of the triangle of consistency."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from everwhen.connectors.scenarios.account import Account, Comparison, Runs, compare, follow
from everwhen.connectors.scenarios.arrivals import Epoch, Scenario
from everwhen.connectors.scenarios.machines import MACHINES
from everwhen.connectors.scenarios.stocks import STOCKS
from everwhen.connectors.scenarios.web import WEB

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
