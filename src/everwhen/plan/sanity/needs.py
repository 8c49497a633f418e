"""Which punctuation bounds an operator's state: the rules of the operators (`keys_covered`), asked backwards.

    needs(root)       per node: what it keeps, and the ways to free it
    Way               says of several sources that free it together
    Say               a source says, again and again, what is over: it binds some of these columns and no others
    meets(scheme, say)     whether a declared scheme does

The question is the last one that Tucker et al. leave open (section 9).

An operator frees a key when a promise reaches it that binds columns of the key only.  So the question goes down from
the operator to the sources: which columns of the inputs are these columns (`carried`), and who has to speak.  A map
passes on what it does not compute, a grouping its keys, a rows window its partition.  A union and the set operations
ask both inputs.  A join passes on what one side says once no row of that side is kept, and the other side frees those
by speaking of the key; or what both sides say together.  A relation says everything by itself, because it ends.

What is asked for is that in the end everything that comes is promised.  What this is not: a proof that it will be, or
soon; and promises that only together cover a column that is projected away are not thought of here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.nodes import Column
from everwhen.punctuation.schemes import (
    Bounds,
    ClusteredBy,
    Complete,
    Given,
    Scheme,
    Selection,
    SortedBy,
    Unique,
)

_MOST: Final = 12
"""So many ways are looked at, not more: nobody reads them."""


First = tuple[str, bool] | None
"""The first column of an order, and whether it falls."""


@dataclass(frozen=True, slots=True)
class Say:
    """Punctuation of a source, or of schemes inside the plan, that binds some of these columns and no others.

    `first`: a column that has to be among them, because a sort can only go on from its beginning, and whether that is
    its upper end.
    """

    name: str
    columns: frozenset[str]
    first: First = None
    origin: n.Source | n.Punctuate = field(compare=False, kw_only=True)

    @property
    def listed(self) -> tuple[str, ...]:
        """The columns in the source's order, the one that must be there before all."""
        found = sorted(self.columns, key=self.origin.schema.index)
        return tuple(sorted(found, key=lambda name: self.first is None or name != self.first[0]))


Way = frozenset[Say]
"""All of them have to be said; nothing has to be said where it is empty."""


@dataclass(frozen=True, slots=True)
class Need:
    """What an operator keeps or holds back, and the ways to free it; none: no punctuation does.

    `side` is "left" or "right" for what a join keeps of one input.
    """

    what: str
    ways: tuple[Way, ...]
    side: str = ""

    def met(self) -> Way | None:
        """A way of which everything is declared, or nothing is left to say."""
        return next((way for way in self.ways if all(spoken(say) for say in way)), None)


def needs(root: n.Node) -> dict[int, tuple[Need, ...]]:
    """What the nodes of a plan need, by id; those that keep nothing are left out, and relations need nothing."""
    asked = _Asked(root)
    found = {id(node): asked.needs(node) for node in n.walk(root)}
    return {key: some for key, some in found.items() if some}


def answer_need(root: n.Node) -> Need:
    """What frees the answer itself: it is held back until it is final, or kept to be corrected."""
    what = "what it has said (to correct it) or holds back (until it is final)"
    return Need(what, _Asked(root).ways(root, root.schema.names))


def spoken(say: Say) -> tuple[Scheme, ...]:
    """The declared schemes that say it."""
    return tuple(scheme for scheme in say.origin.schemes if meets(scheme, say))


def meets(scheme: Scheme, say: Say) -> bool:
    """Whether a scheme speaks of these columns alone, and in the end of everything that comes."""
    found = [form for form in forms(scheme) if form <= say.columns]
    if say.first is None:
        return bool(found)
    first, falling = say.first
    return _reaches(scheme, falling) and any(first in form for form in found)


def forms(scheme: Scheme) -> list[frozenset[str]]:
    """Which columns the promises of a scheme bind; none where they speak of nothing that comes."""
    match scheme:
        case SortedBy(column) | ClusteredBy(column):
            return [frozenset({column})]
        case Unique(key):
            return [frozenset(key)]
        case Given(columns):
            return [frozenset(columns)]
        case Complete(group, each=None):  # everything before a group, column by column
            return [frozenset(group[: i + 1]) for i in range(len(group))]
        case Complete(group):
            return [frozenset(group)]
        case Bounds() | Selection():
            return []


def _reaches(scheme: Scheme, falling: bool) -> bool:
    """Whether it speaks of everything from the beginning of an order on."""
    match scheme:
        case SortedBy(_, descending):
            return descending == falling
        case Complete():
            return not falling
    return isinstance(scheme, Given)


def carried(node: n.Node) -> tuple[Mapping[str, str], ...]:
    """For each input: which output columns are which columns of it, so that a promise about one is about the other."""
    match node:
        case n.Map(_, columns):
            return ({name: expr.name for name, expr in columns if isinstance(expr, Column)},)
        case n.Aggregate(_, keys):
            return ({key: key for key in keys},)
        case (
            n.RowsWindow(partition=partition)
            | n.MatchRecognize(partition=partition)
            | n.Rank(partition=partition)
            | n.Over(partition=partition)
        ):
            return ({key: key for key in partition},)
        case n.Union(left, right) | n.SetOperation(left, right):
            return {name: name for name in left.schema.names}, dict(
                zip(left.schema.names, right.schema.names, strict=True)
            )
        case n.Join():
            return _of_join(node)
        case n.Fixpoint():  # a row may follow from rows with any values
            return {}, {}
    return tuple({name: name for name in child.schema.names} for child in node.inputs)


def _of_join(node: n.Join) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Both keys have one value in every pair.  Columns of a side that may be padded with nulls are nobody's."""
    left = {name: name for name in node.left.schema.names}
    to_right = dict(zip(node.left_keys, node.right_keys, strict=True))
    if node.kind in ("semi", "anti", "left"):
        return left, to_right
    if node.kind == "full":
        return {}, {}
    names = dict(zip(node.right.schema.names, node.pair_schema.names[len(left) :], strict=True))
    right = {names[name]: name for name in node.right.schema.names}
    to_left = {names[b]: a for a, b in zip(node.left_keys, node.right_keys, strict=True)}
    return {**left, **to_left}, {**right, **to_right}


class _Asked:
    """Questions that were asked already have their answers here."""

    def __init__(self, root: n.Node) -> None:
        loops = [node for node in n.walk(root) if isinstance(node, n.Fixpoint)]
        self._ending = {loop.token for loop in loops if relations_only(loop)}
        self._known: dict[tuple[int, frozenset[str], First], tuple[Way, ...]] = {}

    def needs(self, node: n.Node) -> tuple[Need, ...]:
        match node:
            case n.Aggregate(input, keys):
                what = f"every {', '.join(keys)} that has rows" if keys else "the rows of its only group"
                return (Need(what, self.ways(input, keys)),)
            case n.Distinct(input) | n.Coalesce(input):
                return (Need("every different row", self.ways(input, input.schema.names)),)
            case n.RelationToStream(input, "istream" | "dstream"):
                return (Need("every row that may still go", self.ways(input, input.schema.names)),)
            case n.RowsWindow(input, _, _, partition) if partition:
                return (Need(f"the last rows of every {', '.join(partition)}", self.ways(input, partition)),)
            case n.Fixpoint(kind="union" | "min" | "max"):
                return (Need("every row that follows, and from what", self.ways(node, node.schema.names)),)
            case n.MatchRecognize(input, _, partition) | n.Rank(input, partition) | n.Over(input, partition) if (
                partition
            ):
                return (Need(f"the rows of every {', '.join(partition)}", self.ways(input, partition)),)
            case n.SetOperation():
                ways = self.ways(node, node.schema.names)
                return (Need("how often every different row is there", ways),)
            case n.Sort(input, by):
                columns = [name for name, _ in by]
                return (Need("rows that wait for those before them", self.ways(input, columns, by[0])),)
            case n.Join():
                return self._join(node)
        return ()

    def _join(self, node: n.Join) -> tuple[Need, ...]:
        left, right = self.ways(node.left, node.left_keys), self.ways(node.right, node.right_keys)
        of_left, of_right = right, left
        if node.kind in ("anti", "left", "full"):  # rows are also counted until it is known that no partner comes
            of_left = _both(right, self.ways(node.left, node.left.schema.names))
        if node.kind in ("semi", "anti", "left"):  # partners are counted, too
            of_right = _both(left, right)
        if node.kind == "full":
            of_right = _both(left, self.ways(node.right, node.right.schema.names))
        return Need("its left rows", of_left, "left"), Need("its right rows", of_right, "right")

    def ways(self, node: n.Node, columns: Collection[str], first: First = None) -> tuple[Way, ...]:
        """Who has to say what, so that promises about some of these columns, and no others, come out of a node."""
        key = id(node), frozenset(columns), first
        if key not in self._known:
            self._known[key] = _easiest(self._ways(node, *key[1:]))
        return self._known[key]

    def _ways(self, node: n.Node, columns: frozenset[str], first: First) -> Sequence[Way]:
        match node:
            case n.Source(kind="constant" | "temporal") | n.Values():
                return [frozenset()]
            case n.Source(name):
                return [frozenset({Say(name, columns, first, origin=node)})] if columns else []
            case n.Exchange():
                return []
            case n.Fixpoint(token=token) | n.Recursion(token=token):  # promises about columns end in a loop
                return [frozenset()] if token in self._ending else []
        below = self._below(node, columns, first)
        match node:
            case n.Join(left, right, left_keys, right_keys, kind=kind):
                frees = self.ways(left, left_keys), self.ways(right, right_keys)
                found = _both(below[0], frees[1])
                if kind == "inner":
                    found = (*found, *_both(below[1], frees[0]), *_both(*below))
                return found if kind != "full" else _both(*below)
            case n.Union() | n.SetOperation():
                alone = [self._below(node, frozenset({name}), None) for name in sorted(columns)]
                if first is None and any(map(_crossed, alone)):
                    return [way for each in alone for way in _both(*each)]
                return _both(*below)
            case n.Punctuate(_, schemes):
                say = Say(f"punctuate() {id(node)}", columns, first, origin=node)
                here = [frozenset({say})] if any(meets(scheme, say) for scheme in schemes) else []
                return [*here, *below[0]]
        return below[0]

    def _below(self, node: n.Node, columns: frozenset[str], first: First) -> list[tuple[Way, ...]]:
        """The same for each input of a node, in its own columns."""
        below = []
        for child, names in zip(node.inputs, carried(node), strict=True):
            kept = [names[name] for name in columns if name in names]
            if first is None:
                below.append(self.ways(child, kept))
            elif first[0] in names:
                below.append(self.ways(child, kept, (names[first[0]], first[1])))
            else:
                below.append(self.ways(child, ()))
        return below


def relations_only(loop: n.Fixpoint) -> bool:
    """Whether all that a loop reads is known whole before anything else comes."""
    read = [node for node in n.walk(loop) if not node.inputs and not isinstance(node, n.Recursion)]
    return all(isinstance(node, n.Values) or (isinstance(node, n.Source) and node.is_finite) for node in read)


def _crossed(below: Sequence[Sequence[Way]]) -> bool:
    """Whether one column of a union is different columns of one source.

    Then `k = 7` of the source is `k = 7` on one side and `v = 7` on the other: together they are about few rows, if
    any.  So the source must speak of each of them, and several columns do not help more than one.
    """
    one, other = ({say for way in ways for say in way} for ways in below)
    return any(a.name == b.name and a != b for a in one for b in other)


def _both(one: Iterable[Way], other: Sequence[Way]) -> tuple[Way, ...]:
    return _easiest([a | b for a in one for b in other])


def _easiest(ways: Sequence[Way]) -> tuple[Way, ...]:
    """Without those that ask for more than another one does, the shortest first."""
    found: list[Way] = []
    for way in sorted(dict.fromkeys(map(_once, ways)), key=len):
        if not any(_asks_less(other, way) for other in found):
            found.append(way)
    return tuple(found[:_MOST])


def _once(way: Way) -> Way:
    """Without says that another one of the same source includes."""
    return frozenset(say for say in way if not any(_harder(other, say) and other != say for other in way))


def _asks_less(one: Way, other: Way) -> bool:
    return all(any(_harder(theirs, say) for theirs in other) for say in one)


def _harder(one: Say, other: Say) -> bool:
    """Whether whoever says the first has said the second."""
    return one.name == other.name and one.columns <= other.columns and other.first in (None, one.first)
