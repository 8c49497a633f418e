"""Who keeps an answer from ever becoming final: sources that promise nothing, and what to write.

>>> print(never_promised(["Tweets"], final=True))  # doctest: +NORMALIZE_WHITESPACE
Tweets has promised nothing yet, so nothing is final and STRONG says nothing; let it promise: ORDERED BY column
WITHIN 30 MINUTES behind CREATE STREAM Tweets (…), --within Tweets=30m, or CTI elements in the input
"""

from __future__ import annotations

from collections.abc import Sequence

from everwhen.algebra.nodes import Node, Source, walk
from everwhen.core.emit import Emit


def never_promised(names: Sequence[str], final: bool, on_spark: bool = False) -> str:
    """What is said of sources that have promised nothing; `final`: only what is final is said."""
    has, it = ("has", "it") if len(names) == 1 else ("have", "them")
    first = names[0]
    then = "nothing is final and STRONG says nothing" if final else "nothing is final, and what may change is kept"
    where = (
        f"sources={{{first!r}: SparkSource(…, progress=Disorder('30 minutes'))}}, or rows with op = 'cti'"
        if on_spark
        else f"--within {first}=30m, or CTI elements in the input"
    )
    return (
        f"{', '.join(names)} {has} promised nothing yet, so {then}; let {it} promise: ORDERED BY column WITHIN 30 "
        f"MINUTES behind CREATE STREAM {first} (…), {where}"
    )


def needs_promises(node: Node, emit: Emit) -> str | None:
    """What EXPLAIN says of a query that says only what is final: which of its sources derive no promise; None if all
    do, or if more is said."""
    if emit is not Emit.FINAL:
        return None
    sources = {each.name: each for each in walk(node) if isinstance(each, Source) and not each.is_finite}
    mute = sorted(name for name, each in sources.items() if each.policy.within is None)
    if not mute:
        return None
    return (
        f"an answer is said when it is final: when {', '.join(mute)} {'has' if len(mute) == 1 else 'have'} promised "
        f"it, by CTI elements or by its end; to let it promise as rows come: ORDERED BY column WITHIN 30 MINUTES "
        f"behind CREATE STREAM {mute[0]} (…)"
    )
