"""Which promises a plan may pass on, by the rules of Tables 3 and 4 with times in them: the definition.

A promise is `(pattern, t)`: no later change touches a row that matches the pattern at an instant before `t`.  Given
what each source has promised so far and its history so far, `promises` lists what follows for the output of a plan,
node by node, and `promised` gives `F(x)` for a row, the largest time that is promised for it.  A rule per kind of node:

* identity: filter, distinct, coalesce, split, Istream, Dstream, Rstream, Deletes;
* time windows, granularity and AlterLifetime map `t` as they map a CTI;
* map, grouping and windows of rows pass on what binds kept columns only, columns of the key, of the partition;
* union and the set operations combine a promise of each input, with the smaller time;
* an inner join passes on a promise of one side if no row of that side is kept that matches it and is alive before its
  time; a row is kept while it ends after what the other side has promised for its key (`kept`).  CTIs give their
  minimum, as everywhere: that one of them could go on alone while its side is empty is not asked;
* semi-, anti- and outer joins are what they are composed of.

The rules look at promises one by one.  Several may say more together (they may cover a column that is dropped): an
operator may pass on more than this list, if it is true, and never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.nodes import Column
from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.reference.evaluation import evaluate
from everwhen.reference.logical import Event
from everwhen.reference.punctuation import ANY, Anything, Pattern, Patterns, Row, combine, match
from everwhen.stream.history import History


@dataclass(frozen=True, slots=True)
class Said:
    """A promise by position: it needs no names, which the inputs of a union may have different ones of."""

    pattern: Patterns
    t: int


Given = Mapping[str, Sequence[Punctuation]]
Histories = Mapping[str, History]


def by_position(promise: Punctuation, schema: Schema) -> Said:
    return Said(Patterns(tuple(promise.match.get(name, ANY) for name in schema.names)), promise.t)


def promised(said: Iterable[Said], row: Row) -> int:
    """`F(x)`: `NEVER` if nothing is promised."""
    return max((each.t for each in said if match(row, each.pattern)), default=NEVER)


def promises(node: n.Node, given: Given, histories: Histories, horizon: int) -> list[Said]:
    """What holds for the output of a plan.

    `histories` is what the sources have said by now; only joins look at it, and only at instants before `horizon`:
    what is alive there is taken to live for ever.
    """
    found: dict[int, list[Said]] = {}
    inside = {id(part) for loop in n.walk(node) if isinstance(loop, n.Fixpoint) for part in _on_loop(loop)}
    for each in n.walk(node):
        if id(each) in inside:  # what goes round a loop promises nothing outside
            continue
        if isinstance(each, n.Fixpoint):
            found[id(each)] = _of_everything([found[id(part)] for part in _outside(each)], each.schema)
            continue
        below = [found[id(child)] for child in each.inputs]
        found[id(each)] = strongest(_of(each, below, given, lambda child: _rows(child, histories, horizon)))
    return found[id(node)]


def _on_loop(loop: n.Fixpoint) -> list[n.Node]:
    return [each for each in n.walk(loop.step) if n.reads_recursion(each, loop.token)]


def _outside(loop: n.Fixpoint) -> list[n.Node]:
    """What a loop reads: its base, and the largest parts of its step that do not read the recursion."""
    on_loop = _on_loop(loop)
    read = [child for each in on_loop for child in each.inputs if not n.reads_recursion(child, loop.token)]
    return [loop.base, *read]


def _of_everything(parts: Iterable[Sequence[Said]], schema: Schema) -> list[Said]:
    """Promises about data end in a loop; about everything, it promises what all that it reads have promised."""
    reached = min(max((each.t for each in said if not _binds(each.pattern)), default=NEVER) for said in parts)
    return [Said(Patterns((ANY,) * len(schema)), reached)] if reached > NEVER else []


def strongest(said: Iterable[Said]) -> list[Said]:
    """The promises without those that another one includes: `q` says nothing beside `p` if what both say is `q`."""
    found: list[Said] = []
    for each in sorted(dict.fromkeys(said), key=lambda each: (-each.t, len(_binds(each.pattern)))):
        if not any(combine(each.pattern, other.pattern) == each.pattern for other in found):
            found.append(each)
    return found


def _rows(node: n.Node, histories: Histories, horizon: int) -> list[Event]:
    levels = evaluate(node, histories).levels(None, horizon)
    return [(vs, INF if ve >= horizon else ve, row) for vs, ve, row in levels]


def _of(node: n.Node, below: list[list[Said]], given: Given, rows: Callable[[n.Node], list[Event]]) -> list[Said]:
    match node:
        case n.Source(name):
            return [by_position(promise, node.schema) for promise in given.get(name, ())]
        case n.Values():
            return [Said(Patterns((ANY,) * len(node.schema)), INF)]
        case n.TimeWindow(_, _, slide):
            return _moved(below[0], lambda t: -(-(t + 1) // slide) * slide - 1)
        case n.Granularity(_, granule):
            return _moved(below[0], lambda t: -(-t // granule) * granule)
        case n.AlterLifetime(_, hop, shift, _):
            return _moved(below[0], lambda t: t // hop * hop + shift)
        case n.Stamp(input, _, end):
            return _projected(below[0], input.schema, [*input.schema.names, None, *[None] * (end is not None)])
        case n.Unnest(input, place=place):
            return _projected(below[0], input.schema, [*input.schema.names, None, *[None] * (place is not None)])
        case n.Map(input, columns):
            kept = [expr.name if isinstance(expr, Column) else None for _, expr in columns]
            return _projected(below[0], input.schema, kept)
        case n.Aggregate(input, keys, aggregations):
            return _projected(below[0], input.schema, [*keys, *[None] * len(aggregations)])
        case n.Rank(input, partition) | n.Over(input, partition):
            return _projected(below[0], input.schema, [c if c in partition else None for c in node.schema.names])
        case n.RowsWindow(input, _, _, partition):
            return _projected(below[0], input.schema, [c if c in partition else None for c in input.schema.names])
        case n.MatchRecognize(input, _, partition, measures=measures):
            return _projected(below[0], input.schema, [*partition, *[None] * len(measures)])
        case n.Union() | n.SetOperation():
            return combined(*below)
        case n.Join():
            return _join(node, below[0], below[1], rows)
        case _:
            return below[0]


def _moved(said: list[Said], f: Callable[[int], int]) -> list[Said]:
    return [each if each.t in (INF, NEVER) else replace(each, t=f(each.t)) for each in said]


def _projected(said: list[Said], schema: Schema, columns: Sequence[str | None]) -> list[Said]:
    """projPs and groupPs: `columns` names for each output column the one that it is, if it is one."""
    kept = {schema.index(name) for name in columns if name is not None}
    found = []
    for each in said:
        patterns = each.pattern.patterns
        if all(isinstance(pattern, Anything) for i, pattern in enumerate(patterns) if i not in kept):
            cut = tuple(ANY if name is None else patterns[schema.index(name)] for name in columns)
            found.append(Said(Patterns(cut), each.t))
    return found


def combined(left: Iterable[Said], right: Sequence[Said]) -> list[Said]:
    """What both sides promise."""
    pairs = ((a, b, combine(a.pattern, b.pattern)) for a in left for b in right)
    return strongest(Said(both, min(a.t, b.t)) for a, b, both in pairs if both is not None)


# --- joins ------------------------------------------------------------------------------------------------------------


def kept(node: n.Join, events: Iterable[Event], theirs: Sequence[Said]) -> list[Event]:
    """The left side's rows that changes of the right may still meet: they end after what it has promised for their key.

    That is the keep invariant (Table 4) with times; `theirs` is what the right side has promised.  A null key meets
    nothing, unless nulls are equal.
    """
    keys = [node.left.schema.index(key) for key in node.left_keys]
    on_key = _on_key(theirs, [node.right.schema.index(key) for key in node.right_keys])
    found = []
    for event in events:
        key = tuple(event[2][i] for i in keys)
        if (node.null_safe or None not in key) and event[1] > promised(on_key, key):
            found.append(event)
    return found


def _on_key(said: Sequence[Said], keys: Sequence[int]) -> list[Said]:
    """joinPs."""
    free = [each for each in said if _binds(each.pattern) <= set(keys)]
    return [Said(Patterns(tuple(each.pattern.patterns[i] for i in keys)), each.t) for each in free]


def _binds(pattern: Patterns) -> set[int]:
    return {i for i, each in enumerate(pattern.patterns) if not isinstance(each, Anything)}


def _join(node: n.Join, left: list[Said], right: list[Said], rows: Callable[[n.Node], list[Event]]) -> list[Said]:
    mine = _unblocked(node, left, right, rows)
    if node.kind == "semi":
        return [*mine, *_anywhere(left, right, len(node.left.schema))]
    if node.kind == "anti":  # the left side minus the semi-join
        return combined(left, strongest([*mine, *_anywhere(left, right, len(node.left.schema))]))
    theirs = _unblocked(mirrored(node), right, left, rows)
    widths = len(node.left.schema), len(node.right.schema)
    inner = [*_padded(mine, 0, widths[1]), *_padded(theirs, widths[0], 0), *_anywhere(left, right, sum(widths))]
    if node.kind == "inner":
        return inner
    # a padded row is a left row without partner: what holds for the anti-join holds for it, whatever the rest
    lonely = combined(left, strongest([*mine, *_anywhere(left, right, widths[0])]))
    found = combined(inner, _padded(lonely, 0, widths[1]))
    if node.kind == "full":
        lonely = combined(right, strongest([*theirs, *_anywhere(right, left, widths[1])]))
        found = combined(found, _padded(lonely, widths[0], 0))
    return found


def _unblocked(node: n.Join, mine: list[Said], theirs: list[Said], rows: Callable[[n.Node], list[Event]]) -> list[Said]:
    """The left side's promises that no kept left row matches while it is alive before their time."""
    waiting = kept(node, rows(node.left), theirs)
    about_some = [each for each in mine if _binds(each.pattern)]
    return [each for each in about_some if not any(vs < each.t and match(row, each.pattern) for vs, _, row in waiting)]


def mirrored(node: n.Join) -> n.Join:
    """The other side's view; only the keys count here."""
    return n.Join(node.right, node.left, node.right_keys, node.left_keys, null_safe=node.null_safe)


def _anywhere(left: Sequence[Said], right: Sequence[Said], width: int) -> list[Said]:
    """What both sides promise for all rows: the smaller of the CTIs."""
    times = [max((each.t for each in side if not _binds(each.pattern)), default=NEVER) for side in (left, right)]
    everything: tuple[Pattern, ...] = (ANY,) * width
    return [Said(Patterns(everything), min(times))] if min(times) > NEVER else []


def _padded(said: list[Said], before: int, behind: int) -> list[Said]:
    """modPs."""
    return [replace(each, pattern=Patterns((ANY,) * before + each.pattern.patterns + (ANY,) * behind)) for each in said]
