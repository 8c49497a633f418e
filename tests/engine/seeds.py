"""Random runs by their seeds, from a command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


def run_seeds(run_once: Callable[[int], Counter[str]], first: int, last: int) -> int:
    """Run them, and print what is wrong and how often what was done; how many are wrong."""
    counts, failed = Counter[str](), 0
    for seed in range(first, last):
        try:
            counts += run_once(seed)
        except AssertionError as wrong:
            failed += 1
            print(f"WRONG {wrong}", flush=True)
    print(f"seeds {first} to {last - 1}: {failed} wrong; {dict(counts)}")
    return failed
