"""WAITING's law over many random runs: `python -m engine.observe.waiting_law RUNS [SEED]`, with `tests` on the path.

A run is a random plan of the test suite at a random level and policy, some random epochs, and the law for the silence
that follows (`test_find_waiting.py`).  Prints how many runs there were by reason; the first that breaks the law raises.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from engine.observe.test_find_waiting import LEVELS, Silence, assert_law
from operators.differential import EMITS
from plans import PLANS


def runs(count: int, seed: int) -> Counter[str]:
    """The reasons of so many silences."""
    rng, found = random.Random(seed), Counter[str]()
    began = time.monotonic()
    for number in range(count):
        plan = PLANS[number % len(PLANS)]
        case = rng.randrange(2**32)
        mine = random.Random(case)
        silence = Silence(plan.build(), mine.choice(LEVELS), mine.choice(EMITS))
        try:
            for _ in range(mine.randrange(1, 5)):
                silence.push(mine, plan.infinite)
            waiting = assert_law(silence)
        except Exception as bad:
            raise AssertionError(f"plan {plan.name}, case {case}: {bad}") from bad
        found[waiting.reason] += 1
        found["needs two or more sources"] += len(waiting.needs) > 1
        if (number + 1) % 200 == 0:
            print(number + 1, f"{time.monotonic() - began:.0f} s", dict(found), flush=True)
    return found


if __name__ == "__main__":
    print(dict(runs(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 19)))
