"""Warehouse: the highest temperature of each hour, from two sensors, without doubles.

    python examples/warehouse.py [--hours N]

Reports have no time of their own here; they live for ever.  So nothing is ever final, and duplicate elimination keeps
everything, unless the sensors say "no more reports of hour 7".  Then the maximum of that hour comes out at once, and
nothing of it is kept (Tucker et al., sections 1 and 7).
"""

from __future__ import annotations

from collections.abc import Sequence

import everwhen as ew
from punctuation_table import Watched, asked_for, show, watch
from scenarios.warehouse import WAREHOUSE, warehouse

REPORTS, BATCH = 600, 300
PER_HOUR = {"none": 0, "1 an hour": 1, "6 an hour": 6, "30 an hour": 30}


def main(words: Sequence[str] | None = None) -> dict[str, Watched]:
    hours = asked_for(words, "hours", 60, "hours of reports")
    # As it is written: rewriting sees that doubles do not change a maximum, and leaves duplicate elimination out.
    query = ew.sql(WAREHOUSE, optimize=False)
    watch(query, warehouse(2, REPORTS, 1, BATCH))  # compiles or loads the kernels
    found = {name: watch(query, warehouse(hours, REPORTS, rate, BATCH)) for name, rate in PER_HOUR.items()}
    show(
        "Two sensors, the hottest report of each hour", WAREHOUSE, found,
        "Punctuation about single minutes helps nobody here, because the query drops the minutes.",
    )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
