"""WAITING's law over many random runs: `python -m engine.observe.waiting_law RUNS [SEED]`, with `tests` on the path.

A run is a random plan of the test suite at a random level and policy, some random epochs, and the law for the silence
that follows (`test_find_waiting.py`); each fourth is a recursion (`test_waiting_recursion.py`).  Prints how many runs
there were by reason; the first that breaks the law raises.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from engine.observe.test_find_waiting import LEVELS, Silence, assert_law
from engine.observe.test_waiting_recursion import LOOPS, STRATEGIES, law_holds
from everwhen.engine.observe.silence.waiting import Waiting
from operators.differential import EMITS
from plans import PLANS, Plan


def runs(count: int, seed: int) -> Counter[str]:
    """The reasons of so many silences."""
    rng, found = random.Random(seed), Counter[str]()
    began = time.monotonic()
    for number in range(count):
        case = rng.randrange(2**32)
        loops = number % 4 == 3
        plan, strategy = rng.choice(LOOPS if loops else PLANS), rng.choice(STRATEGIES)
        try:
            waiting = law_holds(plan, strategy, str(case)) if loops else _of_a_plan(plan, case)
        except Exception as bad:
            how = f" with progress {strategy}" if loops else ""
            raise AssertionError(f"plan {plan.name}{how}, case {case}: {bad}") from bad
        found[waiting.reason] += 1
        found["needs two or more sources"] += len(waiting.needs) > 1
        if (number + 1) % 200 == 0:
            print(number + 1, f"{time.monotonic() - began:.0f} s", dict(found), flush=True)
    return found


def _of_a_plan(plan: Plan, case: int) -> Waiting:
    rng = random.Random(case)
    silence = Silence(plan.build(), rng.choice(LEVELS), rng.choice(EMITS))
    for _ in range(rng.randrange(1, 5)):
        silence.push(rng, plan.infinite)
    return assert_law(silence)


if __name__ == "__main__":
    print(dict(runs(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 19)))
