"""The first element that breaks a promise of its own batch, for a few promises."""

from __future__ import annotations

from everwhen.model.loops import loop


@loop
def first_broken(ranks, sync, gaps, places, lows, highs, times):
    """The first element behind a promise with a rank in its range and an instant before its time; if none, how many
    there are.  What stands in the gaps is no element.
    """
    first = len(ranks)
    for p in range(len(places)):
        low, high, t = lows[p], highs[p], times[p]
        start = places[p] + 1
        if start >= first:
            continue
        behind, instants = ranks[start:first], sync[start:first]
        hits = 0
        for i in range(len(behind)):
            hits += (behind[i] >= low) & (behind[i] <= high) & (instants[i] < t)
        if not hits:
            continue
        g = 0
        for i in range(len(behind)):
            if low <= behind[i] <= high and instants[i] < t:
                while g < len(gaps) and gaps[g] < start + i:
                    g += 1
                if g == len(gaps) or gaps[g] != start + i:
                    first = start + i
                    break
    return first
