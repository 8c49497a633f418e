"""Advice: which punctuation would bound a plan's state and let its answers out, and which declared one does nothing.

    advise(root) -> Advice            advise(root, {"Bid": [ew.punctuation.given("item")]})
    str(advice)                       for people: `everwhen explain --punctuation`

That question is the last one that Tucker et al. leave open (section 9).  For every operator that keeps state or holds
answers back it lists the ways to free it, from the rules of `plan/sanity/needs.py`: who has to speak of which
columns, and a line of input to imitate.  A declared scheme is idle if no operator is freed by it, alone or together
with the others; the reason says where its columns are lost, or who else would have to speak.

Schemes handed to `advise` are tried as if the sources declared them.  What this is not: a cost model.  It does not say
how much state there would be, nor how soon punctuation comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream, node_of
from everwhen.algebra.explain import WIDTH, describe, tree, wrapped
from everwhen.errors import QueryError
from everwhen.plan.sanity.bounded import unbounded
from everwhen.plan.sanity.needs import Need, Way, answer_need, carried, forms, meets, needs, spoken
from everwhen.plan.sanity.wording import example, listed, named, ordered, together
from everwhen.punctuation.schemes import Bounds, Scheme, Selection, Unique, described

_INSIDE: Final = WIDTH - 2
_SHOWN: Final = 3
"""So many ways of an operator are written out."""
_LEGEND: Final = (
    "Punctuation says what is over: no more rows like these.  It frees what an operator keeps of them, and what waits "
    "for them comes out.  A source sends it (a line such as those below), or it follows from what is declared "
    "(PUNCTUATE).  It counts where it binds the columns named here, and no others."
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that an operator keeps: whether it would grow for ever, and how declared schemes free it, if so."""

    need: Need
    endless: bool
    freed_by: Way | None

    @property
    def by_itself(self) -> bool:
        """Its inputs end: nothing has to be said."""
        return self.freed_by is not None and not self.freed_by


@dataclass(frozen=True, slots=True)
class OperatorAdvice:
    """An operator, or the answer (which has no line)."""

    operator: str
    line: int | None
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """A declaration that frees nothing, and why."""

    source: str
    declared: str
    why: str

    def __str__(self) -> str:
        return f"{self.source}: {self.declared} {self.why}"


@dataclass(frozen=True, slots=True)
class Advice:
    """What punctuation does for a plan, and could do."""

    operators: tuple[OperatorAdvice, ...]
    idle: tuple[Idle, ...]

    @property
    def missing(self) -> tuple[OperatorAdvice, ...]:
        """The operators that some punctuation would free and nothing declared does."""
        return tuple(
            each for each in self.operators if any(kept.freed_by is None and kept.need.ways for kept in each.kept)
        )

    def lines(self) -> list[str]:
        found = wrapped(_LEGEND, "", "", _INSIDE)
        for each in self.operators:
            found += ["", *_about(each)]
        if self.idle:
            found += ["", "Declared, but no use to this query"]
            for idle in self.idle:
                found += wrapped(str(idle), "- ", "  ", _INSIDE)
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())


def advise(query: Stream | n.Node, declared: Mapping[str, Iterable[Scheme]] | None = None) -> Advice:
    """Which punctuation would free the state of a query, given what its sources declare.

    `declared` adds declarations, by source.

    >>> import everwhen as ew
    >>> s = ew.source("S", {"k": "string", "x": "int64"})
    >>> sums = s.unbounded().group_by("k").agg(total=ew.sum("x"))
    >>> [each.operator for each in advise(sums).missing]
    ['Aggregate by k: total = sum(x)', 'the answer']
    >>> advise(sums, {"S": [ew.punctuation.given("k")]}).missing
    ()
    """
    root = _declaring(node_of(query), declared or {})
    needed = needs(root)
    endless = {(id(entry.node), entry.side) for entry in unbounded(root, punctuated=False)}
    found = []
    seen: set[int] = set()
    for number, line in enumerate(tree(root), 1):
        if id(line.node) in needed and id(line.node) not in seen:
            seen.add(id(line.node))
            kept = tuple(
                Kept(need, (id(line.node), need.side) in endless, need.met()) for need in needed[id(line.node)]
            )
            found.append(OperatorAdvice(describe(line.node), number, kept))
    if not isinstance(root, n.Sort):
        answer = answer_need(root)
        found.append(OperatorAdvice("the answer", None, (Kept(answer, bool(endless), answer.met()),)))
    return Advice(tuple(found), tuple(_idle(root, [kept.need for each in found for kept in each.kept])))


def _declaring(root: n.Node, declared: Mapping[str, Iterable[Scheme]]) -> n.Node:
    """The plan over sources that declare more."""
    names = sorted(each.name for each in n.walk(root) if isinstance(each, n.Source))
    unknown = next((name for name in declared if name not in names), None)
    if unknown is not None:
        raise QueryError(f"the plan has no source {unknown!r}; it reads {', '.join(names)}")

    def declaring(node: n.Node) -> n.Node | None:
        if not isinstance(node, n.Source) or node.name not in declared:
            return None
        return replace(node, schemes=(*node.schemes, *declared[node.name]))

    return n.rebuilt(declaring, root)[0]


# -- declared in vain --------------------------------------------------------------------------------------------------


def _idle(root: n.Node, needed: Sequence[Need]) -> Iterable[Idle]:
    """Declarations that free nothing, source by source."""
    done: set[str] = set()
    for node in n.walk(root):
        if not isinstance(node, n.Source | n.Punctuate) or named(node) in done:
            continue
        if isinstance(node, n.Source):
            done.add(node.name)
        for scheme in node.schemes:
            why = _why_idle(root, node, scheme, needed)
            if why is not None:
                yield Idle(named(node), str(scheme), why)
        for key in node.keys if isinstance(node, n.Source) else ():
            unique = Unique(key)
            if unique not in node.schemes:
                use = "" if _why_idle(root, node, unique, needed) else f"; {described([unique])} would, and free state"
                yield Idle(
                    named(node), f"KEY ({', '.join(key)})", f"is used to plan, and promises nothing by itself{use}"
                )


def _why_idle(root: n.Node, origin: n.Source | n.Punctuate, scheme: Scheme, needed: Sequence[Need]) -> str | None:
    """Why a scheme frees nothing; None if it does."""
    if not forms(scheme):
        sorts = isinstance(root, n.Sort) and any(name in scheme.columns for name, _ in root.by)
        if sorts:
            return None  # where an order begins and ends
        said = "the filter leaves out" if isinstance(scheme, Selection) else "lie outside of it"
        extra = "; it helps where a column is projected away, or sorted by" if isinstance(scheme, Bounds) else ""
        return f"speaks only of values that never come, those that {said}, so no state is about them{extra}"
    where = named(origin)
    partners: list[Way] = []
    for need in needed:
        for way in need.ways:
            says = [say for say in way if named(say.origin) == where and meets(scheme, say)]
            if not says:
                continue
            missing = frozenset(say for say in way if say not in says and not spoken(say))
            if not missing:
                return None
            partners.append(missing)
    if partners:
        fewest = min(partners, key=len)
        return f"frees nothing alone: it also takes punctuation from {together(fewest)}"
    return _lost(root, origin, scheme)


def _lost(root: n.Node, origin: n.Source | n.Punctuate, scheme: Scheme) -> str:
    """Where the columns of a scheme are lost on their way up."""
    line = {id(each.node): number for number, each in reversed(list(enumerate(tree(root), 1)))}
    readers: dict[int, list[tuple[n.Node, int]]] = {}
    for node in n.walk(root):
        for port, child in enumerate(node.inputs):
            readers.setdefault(id(child), []).append((node, port))
    form = min(forms(scheme), key=len)
    about: list[tuple[n.Node, frozenset[str]]] = [(origin, form)]
    while about:
        node, columns = about.pop()
        for reader, port in readers.get(id(node), ()):
            names = carried(reader)[port]
            kept = {inside: outside for outside, inside in names.items() if inside in columns}
            gone = sorted(columns - set(kept))
            if gone:
                return f"goes no further than '{describe(reader)}' (line {line[id(reader)]}): {_reason(reader, gone)}"
            about.append((reader, frozenset(kept.values())))
    return f"reaches the answer, but nothing on the way is kept by {listed(sorted(form), 'and')}"


def _reason(reader: n.Node, gone: Sequence[str]) -> str:
    columns, are = listed(gone, "and"), "are" if len(gone) > 1 else "is"
    match reader:
        case n.Map(_, exprs):
            computed = any(set(gone) & expr.columns() for _, expr in exprs)
            return (
                f"{columns} {are} only used to compute others there" if computed else f"{columns} {are} projected away"
            )
        case n.Aggregate(_, keys):
            by = f"it groups by {', '.join(keys)}" if keys else "all rows are one group"
            return f"{by}, and a group is only over when nothing of it comes, whatever its {columns}"
        case n.RowsWindow() | n.MatchRecognize() | n.Rank() | n.Over():
            return f"{columns} {are} not what it is partitioned by"
        case n.Join():
            return f"{columns} {are} no part of what it passes on"
        case n.Fixpoint():
            return "a row of a recursion may follow from rows with any values"
    return f"{columns} {are} not passed on"


# -- in words ----------------------------------------------------------------------------------------------------------


def _about(advice: OperatorAdvice) -> list[str]:
    head = advice.operator if advice.line is None else f"{advice.operator} (line {advice.line})"
    found = wrapped(head, "", "    ", _INSIDE)
    for kept in advice.kept:
        if kept.by_itself:
            found += wrapped(f"keeps {kept.need.what}: its input ends, nothing has to be said", "  ", "    ", _INSIDE)
            continue
        until = "for ever, if nothing is promised" if kept.endless else "until time has passed them"
        found += wrapped(f"keeps {kept.need.what}, {until}", "  ", "    ", _INSIDE)
        if kept.freed_by is not None:
            said = ", and ".join(f"{spoken(say)[0]} of {named(say.origin)}" for say in ordered(kept.freed_by))
            found += wrapped(f"freed by what is declared: {said}", "  + ", "    ", _INSIDE)
            continue
        if not kept.need.ways:
            found += wrapped("no punctuation frees it: only time does (a CTI, or the end of the input)", "  ! ", "    ")
        for number, way in enumerate(kept.need.ways[:_SHOWN]):
            words = f"{'would be freed' if not number else 'or'} by punctuation from {together(way)}"
            found += wrapped(words, "  - ", "    ", _INSIDE)
            if not number:
                found += [f"      {named(say.origin)}: {example(say)}" for say in ordered(way)]
    return found
