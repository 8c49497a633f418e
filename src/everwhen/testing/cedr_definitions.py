"""Definitions 1 to 11 of the CEDR paper (Goldstein/Hong, section 2) as functions over sequences of elements.

Streams: concatenation and prefix (1, 2), ordered (3), perfect (4), closed (5).  Operators: a physical operator is a
function from streams to streams, a logical one a function of their histories; order and perfectness preserving
(6), consistent (7), progressive (8), strongly and ultra consistent (9), output watermark (10), latency (11).

The paper quantifies over all streams.  A checker of an operator here takes one stream and says whether the definition
holds there; a property test quantifies.  An answer is a `Verdict`: true or false, and why not.  `physical` and
`logical` make both operators of a query with one input.  All of this is for tests: nothing here is fast.

It is not the checker of a stream that goes by (`everwhen.stream.validity`), on which it stands.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> consistent(physical(query, "ended"), logical(query), stream)
    Verdict(holds=True, why='')
    >>> preserves_perfectness(physical(query, "all"), stream)
    Verdict(holds=False, why='the output is not perfect: line 2: adjust [0, 9 -> 4) n=1')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from everwhen.algebra.builder import Stream
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER, show
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError, QueryError
from everwhen.reference import evaluate
from everwhen.reference.order import canonical
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import Event, History, first_difference
from everwhen.stream.validity import Report, check

Elements: TypeAlias = Sequence[Element]
Physical: TypeAlias = Callable[[Elements], list[Element]]
"""An operator as an algorithm: a stream in, a stream out."""
Logical: TypeAlias = Callable[[Elements], History]
"""An operator as its definition: the answer to the history of a stream."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a definition holds, and if not, why.

    >>> bool(Verdict(False, "line 2: late")), Verdict(False, "line 2: late").why
    (False, 'line 2: late')
    """

    holds: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.holds


_YES = Verdict(True)

# --- streams ------------------------------------------------------------------------------------------------------


def is_valid(stream: Elements) -> Verdict:
    """No element changes what an earlier promise covers; every adjust names an event that is there (section 2.2).

    >>> is_valid([Cti(5), Insert(3, 4, {"x": 1})])
    Verdict(holds=False, why='line 2: insert [3, 4) x=1 changes instant 3, but cti 5 came before')
    """
    return _property(check(stream), "valid")


def is_shrink_only(stream: Elements) -> Verdict:
    """No adjust makes a lifetime longer.  The paper asks this of every stream; here it is a property.

    >>> bool(is_shrink_only([Insert(0, 5, {"x": 1}), Adjust(0, 5, 3, {"x": 1})]))
    True
    """
    return _property(check(stream), "shrink_only")


def is_ordered(stream: Elements) -> Verdict:
    """Definition 3: sync times never decrease.

    >>> bool(is_ordered([Insert(5, 6, {"x": 1}), Insert(3, 4, {"x": 1})]))
    False
    """
    return _property(check(stream), "ordered")


def is_perfect(stream: Elements) -> Verdict:
    """Definition 4: ordered, and without adjusts.

    >>> bool(is_perfect([Insert(0, 5, {"x": 1}), Adjust(0, 5, 3, {"x": 1})]))
    False
    """
    return _property(check(stream), "perfect")


def _property(report: Report, name: str) -> Verdict:
    return _YES if getattr(report, name) else Verdict(False, str(report.offences[name]))


def concatenated(first: Elements, second: Elements) -> list[Element]:
    """Definition 1: one stream after the other, if that is a valid stream (else `InputError`).

    >>> concatenated([Cti(5)], [Insert(3, 4, {"x": 1})])
    Traceback (most recent call last):
    ...
    everwhen.errors.InputError: no concatenation: line 2: insert [3, 4) x=1 changes instant 3, but cti 5 came before
    """
    both = [*first, *second]
    if not (verdict := is_valid(both)):
        raise InputError(f"no concatenation: {verdict.why}")
    return both


def is_prefix(first: Elements, stream: Elements) -> bool:
    """Definition 2: the stream begins with the elements of the first one.

    >>> is_prefix([Cti(1)], [Cti(1), Cti(2)])
    True
    """
    return list(stream[: len(first)]) == list(first)


def closed_up_to(stream: Elements) -> int:
    """Definition 5: the t up to which a stream is closed, that is closed at t and not at t + 1 (-∞: nowhere).

    >>> closed_up_to([Cti(3), Cti(7)])
    7
    """
    return max((element.t for element in stream if isinstance(element, Cti)), default=NEVER)


def is_closed_at(stream: Elements, t: int) -> bool:
    """Definition 5: some CTI has promised everything before t.

    >>> is_closed_at([Cti(7)], 5), is_closed_at([Cti(7)], 8)
    (True, False)
    """
    return any(isinstance(element, Cti) and element.t >= t for element in stream)


def is_closed(stream: Elements) -> Verdict:
    """Definition 5: the last element is a CTI, beyond all that came before.

    >>> bool(is_closed([Insert(0, 3, {"x": 1}), Cti(9)]))
    True
    """
    if check(stream).closed:
        return _YES
    return Verdict(False, f"the last element is {stream[-1]}" if stream else "the stream is empty")


def up_to(stream: Elements, t: int) -> list[Element]:
    """S ↑ t: the elements whose sync time is before t.

    Leaving one adjust of a chain out would orphan the next one, which names the end that it left: the paper's S ↑ t
    need not be a valid stream.  Here the next one names the end that its event has in S ↑ t.

    >>> one = {"x": 1}
    >>> for element in up_to([Insert(0, 20, one), Adjust(0, 20, 10, one), Adjust(0, 10, 3, one), Cti(5)], 5):
    ...     print(element)
    insert [0, 20) x=1
    adjust [0, 20 -> 3) x=1
    """
    kept: list[Element] = []
    ends: dict[tuple[int, int, tuple[object, ...]], list[int]] = {}  # of events whose last adjusts were left out
    for element in stream:
        if not isinstance(element, Insert | Adjust | Cti):
            raise QueryError(f"S ↑ t is defined for inserts, adjusts and CTIs; there is {element}")
        if isinstance(element, Adjust):
            row = tuple(canonical(value) for value in element.row.values())
            named = ends.get((element.vs, element.ve, row))
            end = named.pop() if named else element.ve
            if element.sync >= t:
                ends.setdefault((element.vs, element.vnew, row), []).append(end)
            elif end != element.vnew:
                kept.append(Adjust(element.vs, end, element.vnew, element.row))
        elif element.sync < t:
            kept.append(element)
    return kept


# --- operators ----------------------------------------------------------------------------------------------------


def physical(query: Stream, emit: str | Emit, batch: int = 1) -> Physical:
    """A query with one input as an algorithm: elements in, `batch` at a time, elements out.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> print(*physical(query, "final")(stream), sep=chr(10))
    insert [0, 4) n=1
    insert [4, 6) n=2
    insert [6, 9) n=1
    cti ∞
    """
    name, schema = _input(query)

    def run(stream: Elements) -> list[Element]:
        runtime = LocalRuntime(query, emit=emit)
        out: list[Element] = []
        for at in range(0, len(stream), batch):
            out += runtime.push({name: batch_of(list(stream[at : at + batch]), schema, name)})["out"].elements()
        return out

    return run


def logical(query: Stream) -> Logical:
    """A query with one input as its definition: the oracle's answer to the stream's history, in level form.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> print(logical(query)(stream))
    [0, 4) n=1
    [4, 6) n=2
    [6, 9) n=1
    """
    name, schema = _input(query)

    def answer(stream: Elements) -> History:
        levels = evaluate(query.node, {name: History.of(stream, schema)}).levels()
        return History(query.schema, MappingProxyType(dict(Counter(levels))))

    return answer


def _input(query: Stream) -> tuple[str, Schema]:
    runtime = LocalRuntime(query)
    if len(runtime.inputs) != 1:
        raise QueryError(f"definitions 6 to 11 are about operators with one input; this query has {runtime.inputs}")
    return runtime.inputs[0], runtime.schema_of(runtime.inputs[0])


def preserves_order(operator: Physical, stream: Elements) -> Verdict:
    """Definition 6: of an ordered stream the output is ordered, of a closed one it is closed.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> bool(preserves_order(physical(query, "ended"), stream))
    True
    """
    return _preserves(operator, stream, "ordered")


def preserves_perfectness(operator: Physical, stream: Elements) -> Verdict:
    """Definition 6: of a perfect stream the output is perfect, of a closed one it is closed.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> preserves_perfectness(physical(query, "all"), stream).why
    'the output is not perfect: line 2: adjust [0, 9 -> 4) n=1'
    """
    return _preserves(operator, stream, "perfect")


def _preserves(operator: Physical, stream: Elements, name: str) -> Verdict:
    given = check(stream)
    if not getattr(given, name):
        return _YES
    out = operator(stream)
    report = check(out)
    if not getattr(report, name):
        return Verdict(False, f"the output is not {name}: {report.offences[name]}")
    return _YES if report.closed or not given.closed else Verdict(False, "the input is closed, the output is not")


def consistent(operator: Physical, definition: Logical, stream: Elements) -> Verdict:
    """Definition 7: of a closed stream the output's history is the definition's answer.

    A stream that ends with a finite CTI has said all there is before it, and nothing about later instants, at which
    events may still be alive.  So then the two are compared before the output's own CTI.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> bool(consistent(physical(query, "ended"), logical(query), stream))
    True
    """
    if not check(stream).closed:
        return _YES
    out = operator(stream)
    return _answers(out, definition(stream), INF if closed_up_to(stream) == INF else closed_up_to(out))


def progressive(operator: Physical, definition: Logical, stream: Elements) -> Verdict:
    """Definition 8: of what a stream closed up to t says before t, the operator makes the definition's answer.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> bool(progressive(physical(query, "ended"), logical(query), stream))
    True
    """
    before = [*up_to(stream, closed_up_to(stream)), Cti(INF)]
    return _answers(operator(before), definition(before), INF)


def _answers(out: Elements, expected: History, before: int) -> Verdict:
    found = History.of(out, expected.schema)
    difference = first_difference(_clipped(expected, before), _clipped(found, before))
    return _YES if difference is None else Verdict(False, f"the answer and its definition {difference}")


def _clipped(history: History, before: int) -> History:
    """The instants before a time."""
    events: Counter[Event] = Counter()
    for vs, ve, row in history.events():
        if vs < before:
            events[vs, min(ve, before), row] += 1
    return History(history.schema, MappingProxyType(dict(events)))


def strongly_consistent(operator: Physical, definition: Logical, stream: Elements) -> Verdict:
    """Definition 9: progressive, and of any stream the output is ordered.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> bool(strongly_consistent(physical(query, "final"), logical(query), stream))
    True
    """
    return progressive(operator, definition, stream) and _always(operator, stream, "ordered")


def ultra_consistent(operator: Physical, definition: Logical, stream: Elements) -> Verdict:
    """Definition 9: progressive, and of any stream the output is perfect.  (`consistency=STRONG` is this one.)

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> bool(ultra_consistent(physical(query, "final"), logical(query), stream))
    True
    """
    return progressive(operator, definition, stream) and _always(operator, stream, "perfect")


def _always(operator: Physical, stream: Elements, name: str) -> Verdict:
    report = check(operator(stream))
    if getattr(report, name):
        return _YES
    return Verdict(False, f"the output is not {name}: {report.offences[name]}")


def output_watermark(operator: Physical, stream: Elements) -> int:
    """Definition 10: the largest end of all events in the output's history (-∞: there are none).

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> output_watermark(physical(query, "final"), stream)
    9
    """
    return max((ve for _, ve, _ in History.of(operator(stream)).events()), default=NEVER)


def latency_no_greater(first: Physical, second: Physical, stream: Elements) -> Verdict:
    """Definition 11: the output watermark of the first operator is nowhere behind that of the second.

    >>> import everwhen as ew
    >>> query = ew.source("S", {"x": "int64"}).aggregate(n=ew.count())
    >>> stream = [ew.Insert(0, 9, {"x": 1}), ew.Insert(4, 6, {"x": 1}), ew.Cti(ew.INF)]
    >>> bool(latency_no_greater(physical(query, "all"), physical(query, "final"), stream[:2]))
    True
    """
    a, b = output_watermark(first, stream), output_watermark(second, stream)
    return _YES if a >= b else Verdict(False, f"the output watermarks are {show(a)} and {show(b)}")
