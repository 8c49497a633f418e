"""Lifetimes of one key as a tree by start, in which each entry knows the latest end below it: an interval tree.

An entry is a line of a log, `[lo, hi, links, last, weight, key, row codes…]`; what walks read stands together.  `heads`
has for each key the *newest* entry, which is the one that starts last (-1: none), the latest end of all, the newest
one's start, and the newest entry that is settled.  A walk leaves out what ends before it begins and what starts after
it ends, so it touches what it meets and, for each of these, the way down to it.

The tree is a treap: entries with higher priority stand higher, and the priority of an entry is a hash of its position
in the log, so that depth is logarithmic in the mean, in whichever order entries come.  It hangs by its newest entry:
from there upwards stands the *spine*, the entries that no later one stands above.  `links` has the root of what starts
earlier and lies below the entry, and of what starts later; for an entry of the spine, below which nothing starts later,
the next entry of the spine, which starts earlier than all of these.  `last` is the latest end among the entry and all
that its links lead to.

What comes in order is put before the spine without a look at anything else, whatever its priority.  Only who has to
find a way between entries, something late, lets them *settle* where they belong, each one once.  So a stream in order
is kept as a mere chain.

Entries that start together stand in the order of their positions.  Nothing is taken out: an entry that is dead has an
early end, and the tree is built anew when the log is tidied.  `last` may be too late, never too early: a walk that goes
too far finds nothing.

`touched` counts, in its one word, the entries that are looked at: the work that is done, whatever the time it takes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.compiled.hashing import mixed
from everwhen.compiled.njit import loop, njit
from everwhen.core.time import NEVER

LO: Final = 0
HI: Final = 1
LINKS: Final = 2
LAST: Final = 3
WEIGHT: Final = 4
KEY: Final = 5
ROW: Final = 6
MOST: Final = 2**31 - 1
"""Positions in a log lie below this, so that links can name two of them, or nothing."""
DEPTH: Final = 128
"""A path that is longer, which is as good as impossible, is not followed back: `last` stays too late above its end."""
NEWEST: Final = 0
END: Final = 1
START: Final = 2
SETTLED: Final = 3
NO_ENTRY: Final = (-1, NEVER, NEVER, -1)
"""The head of a key that has no entries."""
_NEVER: Final = np.int64(NEVER)
_HALF: Final = 32
_LOW: Final = np.int64(2**_HALF - 1)
_HIGH: Final = np.int64(2**31 - 1)
_SPINE: Final = np.int64(-(2**63))
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_EVERY_OTHER: Final = np.uint64(0x5555555555555555)


@njit(cache=True, inline="always")
def on_spine(links):
    """Whether the entry with these links is one of the spine."""
    return links < 0


@njit(cache=True, inline="always")
def earlier(links):
    """The root of what starts earlier and lies below (-1: nothing)."""
    return ((links >> _HALF) & _HIGH) - 1


@njit(cache=True, inline="always")
def other(links):
    """The root of what starts later; on the spine the next entry of the spine, which starts earlier (-1: nothing)."""
    return (links & _LOW) - 1


@njit(cache=True, inline="always")
def _linked(a, b):
    return ((a + 1) << _HALF) | (b + 1)


@njit(cache=True, inline="always")
def _set_earlier(log, at, to):
    log[at, LINKS] = (log[at, LINKS] & (_SPINE | _LOW)) | ((to + 1) << _HALF)


@njit(cache=True, inline="always")
def _set_other(log, at, to):
    log[at, LINKS] = (log[at, LINKS] & ~_LOW) | (to + 1)


@njit(cache=True, inline="always")
def _priority(at):
    """A power of four: 1 for three of four entries, 4 for three of four of the others, and so on."""
    h = mixed(mixed(_MIX, np.uint64(at)), _MIX)
    h = (h | (h >> np.uint64(1))) & _EVERY_OTHER
    return h & (~h + np.uint64(1))


@njit(cache=True, inline="always")
def _look_below(log, at):
    """The latest end of an entry and of what its links lead to."""
    last = log[at, HI]
    a = earlier(log[at, LINKS])
    b = other(log[at, LINKS])
    if a >= 0:
        last = max(last, log[a, LAST])
    if b >= 0:
        last = max(last, log[b, LAST])
    return last


@njit(cache=True, inline="always")
def clear(heads, k):
    """Let a key have no entries."""
    heads[k, NEWEST] = -1
    heads[k, END] = _NEVER
    heads[k, START] = _NEVER
    heads[k, SETTLED] = -1


@njit(cache=True, inline="always")
def put(heads, log, k, at, path, touched):
    """Put an entry, the last one of the log, into the tree of its key."""
    lo = log[at, LO]
    touched[0] += 1
    heads[k, END] = max(heads[k, END], log[at, HI])
    if lo >= heads[k, START]:
        log[at, LINKS] = _SPINE | _linked(np.int64(-1), heads[k, NEWEST])
        log[at, LAST] = heads[k, END]
        heads[k, NEWEST] = at
        heads[k, START] = lo
    else:
        settle(heads, log, k, touched)
        _put_late(log, at, heads[k, NEWEST], path, touched)


@loop
def settle(heads, log, k, touched):
    """Give the entries that came in order their places by priority."""
    spine = heads[k, SETTLED]
    node = heads[k, NEWEST]
    newer = np.int64(-1)
    while node != spine:  # turn the chain round: the oldest comes first
        older = other(log[node, LINKS])
        log[node, LINKS] = _linked(np.int64(-1), newer)
        newer = node
        node = older
        touched[0] += 1
    while newer >= 0:
        node = newer
        newer = other(log[node, LINKS])
        _put_on_spine(log, node, np.int64(-1), spine, touched)
        spine = node
    heads[k, SETTLED] = spine


@loop
def _put_late(log, at, above, path, touched):
    """Put an entry behind one of the spine, which starts later."""
    lo = log[at, LO]
    hi = log[at, HI]
    log[above, LAST] = max(log[above, LAST], hi)
    following = other(log[above, LINKS])
    while following >= 0 and log[following, LO] > lo:
        above = following
        log[above, LAST] = max(log[above, LAST], hi)
        following = other(log[above, LINKS])
        touched[0] += 1
    if _priority(above) <= _priority(at):
        low, high = _parts(log, earlier(log[above, LINKS]), lo, path, touched)
        _set_earlier(log, above, high)
        _put_on_spine(log, at, low, following, touched)
        _set_other(log, above, at)
        log[at, LAST] = _look_below(log, at)
    else:
        _put_below(log, at, above, path, touched)


@njit(cache=True, inline="always")
def _put_on_spine(log, at, below, following, touched):
    """Make an entry one of the spine: `below` starts earlier, the spine that follows earlier still.  What of that has a
    lower priority comes to lie below the entry."""
    mine = _priority(at)
    while following >= 0 and _priority(following) < mine:
        node = following
        following = other(log[node, LINKS])
        log[node, LINKS] = _linked(earlier(log[node, LINKS]), below)
        log[node, LAST] = _look_below(log, node)
        below = node
        touched[0] += 1
    log[at, LINKS] = _SPINE | _linked(below, following)


@njit(cache=True, inline="always")
def _put_below(log, at, above, path, touched):
    """Put an entry below one of the spine that starts later."""
    lo = log[at, LO]
    hi = log[at, HI]
    mine = _priority(at)
    goes_earlier = True
    node = earlier(log[above, LINKS])
    while node >= 0:
        comes_first = lo < log[node, LO]
        if _priority(node) < mine or (comes_first and _priority(node) == mine):
            break
        above = node
        log[above, LAST] = max(log[above, LAST], hi)
        goes_earlier = comes_first
        touched[0] += 1
        node = earlier(log[above, LINKS]) if goes_earlier else other(log[above, LINKS])
    low, high = _parts(log, node, lo, path, touched)
    log[at, LINKS] = _linked(low, high)
    log[at, LAST] = _look_below(log, at)
    if goes_earlier:
        _set_earlier(log, above, at)
    else:
        _set_other(log, above, at)


@njit(cache=True, inline="always")
def _parts(log, node, lo, path, touched):
    """Part a tree: the roots of what starts by `lo` and of what starts later."""
    low = np.int64(-1)
    high = np.int64(-1)
    last_low = np.int64(-1)
    last_high = np.int64(-1)
    n = 0
    while node >= 0:
        touched[0] += 1
        if n < len(path):
            path[n] = node
            n += 1
        if log[node, LO] <= lo:
            if last_low < 0:
                low = node
            else:
                _set_other(log, last_low, node)
            last_low = node
            node = other(log[node, LINKS])
        else:
            if last_high < 0:
                high = node
            else:
                _set_earlier(log, last_high, node)
            last_high = node
            node = earlier(log[node, LINKS])
    if last_low >= 0:
        _set_other(log, last_low, np.int64(-1))
    if last_high >= 0:
        _set_earlier(log, last_high, np.int64(-1))
    while n > 0:
        n -= 1
        log[path[n], LAST] = _look_below(log, path[n])
    return low, high


@njit(cache=True, inline="always")
def _before(log, a, b):
    return log[a, LO] < log[b, LO] or (log[a, LO] == log[b, LO] and a < b)


@loop
def shorten(heads, log, k, at, path, touched):
    """Let the entries above one that ends earlier now know it; all of the key are settled."""
    node = heads[k, NEWEST]
    n = 0
    while node != at:
        if n + 1 == len(path):
            return
        path[n] = node
        n += 1
        touched[0] += 1
        links = log[node, LINKS]
        following = other(links)
        if not on_spine(links):
            node = earlier(links) if _before(log, at, node) else following
        else:
            node = earlier(links) if following < 0 or _before(log, following, at) else following
    path[n] = at
    while n >= 0:
        last = _look_below(log, path[n])
        if log[path[n], LAST] == last:
            return
        log[path[n], LAST] = last
        n -= 1
    heads[k, END] = last


@njit(cache=True)
def doubled(array):
    more = np.empty(2 * len(array), np.int64)
    more[: len(array)] = array
    return more
