"""Many random recursive runs: python -m operators.loop.fuzz RUNS [FIRST_SEED]."""

from __future__ import annotations

import random
import sys
import traceback

from everwhen.core.time import INF
from operators.loop.recursive_runs import QUERIES, run


def main(runs: int, first: int) -> int:
    failed = 0
    for seed in range(first, first + runs):
        rng = random.Random(seed)
        name = rng.choice(sorted(QUERIES))
        flying = rng.random() < 0.3
        options = {"rounds": rng.choice((1, 2, 3))} if flying else {}
        if rng.random() < 0.3:
            options["progress"] = rng.choice(("probing", "hybrid", "high water mark"))
        prompt = options.get("progress") != "high water mark"
        block = rng.choice((0, 0, 0, 2, 5, INF))
        remember = rng.choice((INF, INF, *(m for m in (0, 2, 5, 9) if m >= block)))
        emit = rng.choice(("all", "all", "current", "ended", "final"))
        try:
            epochs = rng.randrange(2, 12)
            run(QUERIES[name](**options), rng, epochs, emit, not flying, prompt=prompt, block=block, remember=remember)
        except Exception:
            failed += 1
            print(f"seed {seed}: {name} {options} {emit} {block} {remember}")
            traceback.print_exc(limit=-3)
            if failed > 3:
                break
    print(f"{seed - first + 1} runs, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
