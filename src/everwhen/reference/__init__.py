"""The oracle: the algebra evaluated per instant, straight from the formulas.

Everything that runs is tested against it.  It is short rather than fast, and public, because users have results to
check too: `evaluate(plan, histories).at(t)` is the answer at the instant `t`, by definition.
"""

from __future__ import annotations

from everwhen.reference.evaluation import evaluate, events, history, snapshot
from everwhen.reference.logical import Event, LogicalStream, Snapshot, stream_of

__all__ = ["Event", "LogicalStream", "Snapshot", "evaluate", "events", "history", "snapshot", "stream_of"]
