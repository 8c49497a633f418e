"""WITH RECURSIVE as plans: which names are loops, and their fixed points.

Names that use each other are one loop.  Those with UNION, MIN or MAX are its variables; others are put in where they
are read.  Branches that read none of them are the base, all others the step.  A loop of one variable is a fixed point
over that variable's rows; one of several is a fixed point over tagged rows (`tagged`).

A variable's columns are those of its first branch that can be bound without it.  Types are the common ones of all
branches, as in UNION; since the step's depend on the variable's own, branches are bound again until nothing changes.

What may stand on the loop is checked after rewriting, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Column, col, lit
from everwhen.algebra.unrolled import unrolled
from everwhen.core.kinds import common
from everwhen.core.loop_options import LoopOptions
from everwhen.core.schema import Field, Schema
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding, Names
from everwhen.language.binding.loops.forms import Form, Kind, form_of
from everwhen.language.binding.loops.reads import reads, strongly_connected
from everwhen.language.binding.loops.tagged import Tagged, Variable, united
from everwhen.language.binding.sources import named

_PASSES: Final = 12
"""So often types may widen: from an integer over decimals to a float is less."""

_STRONGEST: Final[tuple[Kind, ...]] = ("min", "max", "union all")
"""What a loop of several variables is if one of them is that."""

_FORMS: Final = "base UNION step, or SELECT keys, MIN(x) FROM (base UNION ALL step) u GROUP BY keys"


def recursive_names(query: s.With, binding: Binding) -> Names:
    """The names that can be read behind WITH RECURSIVE: those around it, and its own."""
    by_name = {each.name.text: each for each in query.queries}
    read = {name: reads(each.query, by_name) for name, each in by_name.items()}
    found = binding.names
    for group in strongly_connected(list(by_name), read):
        with binding.naming(found):
            first = by_name[group[0]]
            if len(group) > 1 or group[0] in read[group[0]]:
                found = (*found, *_Loop([by_name[name] for name in group], binding).names())
                continue
            if first.loop is not None:
                raise binding.error(
                    f"{first.name.text} does not read itself, so it has no rounds; leave this out", first.loop.span
                )
            found = (*found, (first.name.text, named(binding.query(first.query), first.columns, binding)))
    return found


class _Loop:
    """Names that use each other, or one that uses itself."""

    def __init__(self, group: Sequence[s.Common], binding: Binding) -> None:
        self.binding = binding
        self.around = binding.names
        self.group = [each.name.text for each in group]
        self.forms = {each.name.text: form_of(each, self.group, binding) for each in group}
        self.variables = self._chosen()
        self.options = self._merged_options()
        self.columns: dict[str, Schema] = {}
        self.values: dict[str, int] = {}  # where the value of a MIN or MAX stands
        self.tokens = {form.name: n.LoopToken(form.name) for form in self.variables}
        self.tagged: Tagged | None = None
        self._token = n.LoopToken(", ".join(form.name for form in self.variables))
        self._unions: dict[str, tuple[str, ...]] = {}
        self._put_in: dict[str, n.Node] = {}

    def names(self) -> Names:
        """The group's names and their plans, as they are read outside of the loop."""
        branches = self._typed_branches()
        if len(self.variables) == 1:
            (form,) = self.variables
            plans = {form.name: self._fixpoint(form, self._fitted(form, branches[form.name]))}
        else:
            plans = self._tagged_plans()
        found: Names = tuple(plans.items())
        rest = [name for name in self.group if name not in plans]
        read = {name: reads(self.forms[name].common.query, rest) for name in rest}
        for (name,) in strongly_connected(rest, read):
            written = self.forms[name].common
            with self.binding.naming((*self.around, *found)):
                found = (*found, (name, named(self.binding.query(written.query), written.columns, self.binding)))
        return found

    # -- which names are variables ---------------------------------------------------------------------------------

    def _chosen(self) -> list[Form]:
        sets = [form for form in self.forms.values() if form.kind in ("union", "min", "max")]
        every = [form for form in self.forms.values() if form.kind == "union all"]
        if not sets and not every:
            self._fail_without_base(list(self.forms.values()))
        for form in every if sets else ():
            if form.name in reads(form.common.query, [form.name]):
                raise self.binding.error(
                    f"{form.name} reads itself with UNION ALL, and {sets[0].name}, which it uses and which uses it, is "
                    f"a set: copies cannot be counted through a set; write UNION in {form.name}, or UNION ALL in all",
                    form.common.name.span,
                )
        extremes = [form for form in sets if form.kind != "union"]
        for form in extremes[1:]:
            if form.kind != extremes[0].kind:
                raise self.binding.error(
                    f"{extremes[0].name} takes a {extremes[0].kind.upper()} and {form.name} a {form.kind.upper()}, and "
                    "they use each other; in one loop all values get smaller or all get larger",
                    form.common.name.span,
                )
        chosen = sets or every
        self._require_no_cycle([form for form in self.forms.values() if form not in chosen])
        return chosen

    def _require_no_cycle(self, rest: list[Form]) -> None:
        """What is put in where it is read must end."""
        names = [form.name for form in rest]
        read = {form.name: reads(form.common.query, names) for form in rest}
        for group in strongly_connected(names, read):
            if len(group) > 1 or group[0] in read[group[0]]:
                form = self.forms[group[0]]
                raise self.binding.error(
                    f"{' and '.join(group)} {'use each other' if len(group) > 1 else 'uses itself'} without UNION, in "
                    f"a loop with one; write {_FORMS}",
                    form.common.name.span,
                )

    def _fail_without_base(self, forms: list[Form]) -> NoReturn:
        form = forms[0]
        if len(self.group) > 1:
            problem = (
                f"{', '.join(self.group[:-1])} and {self.group[-1]} use each other, and none has a part that reads "
                f"none of them, so there is nothing to begin with; write {_FORMS} in one of them"
            )
        elif any(isinstance(each, s.SetQuery) and each.kind == "union" for each in form.branches):
            problem = (
                f"{form.name} mixes UNION and UNION ALL, and reads itself under UNION, which stands below UNION ALL: "
                "copies cannot be counted through a set; write UNION everywhere, or UNION ALL everywhere"
            )
        elif isinstance(form.common.query, s.SetQuery) and form.common.query.kind != "union":
            what = form.common.query.kind.upper()
            problem = (
                f"{form.name} reads itself, and is an {what} as a whole; write base UNION step, and put parentheses "
                f"around a part that is an {what}"
            )
        else:
            problem = (
                f"{form.name} reads itself, and has no part that does not, so there is nothing to begin with; write "
                f"{_FORMS}"
            )
        raise self.binding.error(problem, form.common.name.span)

    def _merged_options(self) -> LoopOptions:
        given: dict[str, int | str] = {}
        for form in self.forms.values():
            clause = form.common.loop
            if clause is None:
                continue
            for what in ("max_level", "max_rows", "rounds", "progress", "across"):
                value = getattr(clause, what)
                if value is not None and given.setdefault(what, value) != value:
                    raise self.binding.error(
                        f"names that use each other are one loop, and {', '.join(self.group)} ask for different ones; "
                        "say it once",
                        clause.span,
                    )
        return LoopOptions(**given)  # type: ignore[arg-type]

    # -- names on the loop -----------------------------------------------------------------------------------------

    def _inside(self) -> Names:
        return tuple((name, partial(self._read, name)) for name in self.group)

    def _read(self, name: str, written: s.Ident) -> n.Node:
        """What a name stands for where a branch reads it."""
        if name not in self.tokens:
            if name not in self._put_in:
                query = self.forms[name].common
                with self.binding.naming((*self.around, *self._inside())):
                    self._put_in[name] = named(self.binding.query(query.query), query.columns, self.binding)
            return self._put_in[name]
        place = _place(self.binding.text, written.span.start)
        if self.tagged is not None:
            at = [form.name for form in self.variables].index(name)
            return self.tagged.untag(at, n.Recursion(self._token, self.tagged.schema, place))
        assert name in self.columns, f"{name} is read before it is known"
        return n.Recursion(self.tokens[name], self.columns[name], place)

    def _needs(self, query: s.Query) -> set[str]:
        """The variables that must be known before the query can be bound."""
        found: set[str] = set()
        waiting = list(reads(query, self.group))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                if name not in self.tokens:
                    waiting += reads(self.forms[name].common.query, self.group)
        return found & self.tokens.keys()

    # -- branches and their types ----------------------------------------------------------------------------------

    def _typed_branches(self) -> dict[str, list[n.Node]]:
        """The branches of every variable, once its types are such that all of them fit."""
        left = list(self.variables)
        while left:
            ready = [
                (form, each) for form in left for each in form.branches if self._needs(each) <= self.columns.keys()
            ]
            if not ready:
                self._fail_without_base(left)
            form, branch = ready[0]
            self._begin(form, branch)
            left.remove(form)
        for _ in range(_PASSES):
            self._put_in.clear()
            branches = {form.name: [self._bound(form, each) for each in form.branches] for form in self.variables}
            wider = {form.name: self._wider(form, branches[form.name]) for form in self.variables}
            if wider == self.columns:
                return branches
            self.columns = wider
        raise self.binding.error(
            f"the types of {', '.join(self.tokens)} get wider in every round; CAST the columns of the step to a type "
            "that stays",
            self.variables[0].common.name.span,
        )

    def _begin(self, form: Form, branch: s.Query) -> None:
        """The columns as the first branch that can be bound has them."""
        node = self._bound(form, branch)
        written = form.common.columns
        if written and len(written) != len(node.schema):
            span = s.Span(written[0].span.start, written[-1].span.end)
            raise self.binding.error(f"{len(written)} names for a query of {len(node.schema)} columns", span)
        names = [each.text for each in written] or node.schema.names
        try:
            self.columns[form.name] = Schema(tuple(map(Field, names, node.schema.types)))
        except QueryError as error:
            raise self.binding.error(str(error), form.common.name.span) from None

    def _bound(self, form: Form, branch: s.Query) -> n.Node:
        with self.binding.naming((*self.around, *self._inside())):
            node = self.binding.query(branch).node
            return node if form.grouping is None else self._candidates(form, node, branch)

    def _candidates(self, form: Form, node: n.Node, branch: s.Query) -> n.Node:
        """The rows of a branch from which MIN or MAX takes the best: the columns of the grouping, before it."""
        assert form.grouping is not None
        grouping = form.grouping
        written = grouping.union.columns
        names = self._unions.setdefault(form.name, tuple(each.text for each in written) or node.schema.names)
        if len(names) != len(node.schema):
            raise self.binding.error(_other_width(form.name, len(names), len(node.schema)), branch.span)
        whole = s.Ident(self.binding.name("union"), True, grouping.union.span)
        with self.binding.naming((*self.binding.names, (whole.text, _renamed(node, names)))):
            found = self.binding.query(grouping.over(whole)).node
        outputs = [(name, col(name)) for name in found.schema.names]
        grouped = found
        if isinstance(found, n.Map):
            grouped, outputs = found.input, list(found.columns)
        picked = [expr.name for _, expr in outputs if isinstance(expr, Column)]
        if not isinstance(grouped, n.Aggregate) or sorted(picked) != sorted(grouped.schema.names):
            raise self.binding.error(
                "over a recursion, the columns of SELECT are those of GROUP BY, each once, and one MIN or MAX; compute "
                "others behind it, or in its branches",
                grouping.select.span,
            )
        (best,) = grouped.aggregations
        self.values[form.name] = picked.index(best.name)
        taken = [best.columns[0] if name == best.name else name for name in picked]
        columns = zip((name for name, _ in outputs), taken, strict=True)
        return n.Map(grouped.input, tuple((name, col(source)) for name, source in columns))

    def _wider(self, form: Form, branches: Sequence[n.Node]) -> Schema:
        """The variable's columns, in types that hold those of all branches."""
        known = self.columns[form.name]
        types = list(known.types)
        for branch, node in zip(form.branches, branches, strict=True):
            if len(node.schema) != len(known):
                raise self.binding.error(_other_width(form.name, len(known), len(node.schema)), branch.span)
            for at, field in enumerate(node.schema):
                try:
                    types[at] = common(types[at], field.type, f"column {known.names[at]} of {form.name}")
                except QueryError as error:
                    raise self.binding.error(str(error), branch.span) from None
        return Schema(tuple(map(Field, known.names, types)))

    # -- fixed points ----------------------------------------------------------------------------------------------

    def _fitted(self, form: Form, branches: Sequence[n.Node]) -> list[n.Node]:
        columns = self.columns[form.name]
        return [_fitted(node, columns) for node in branches]

    def _fixpoint(self, form: Form, branches: Sequence[n.Node]) -> n.Node:
        value = self.columns[form.name].names[self.values[form.name]] if form.name in self.values else None
        return self._closed(branches, self.tokens[form.name], form.kind, value)

    def _tagged_plans(self) -> dict[str, n.Node]:
        """One fixed point for all variables, and of each its own rows."""
        variables = []
        for form in self.variables:
            columns = self.columns[form.name]
            value = columns.names[self.values[form.name]] if form.name in self.values else None
            variables.append(Variable(form.name, columns, value))
        types = [(each, each.columns.field(each.value).type) for each in variables if each.value is not None]
        for each, type_ in types[1:]:
            if type_ != types[0][1]:
                raise self.binding.error(
                    f"{types[0][0].name} and {each.name} use each other, and their values are of the types "
                    f"{types[0][1]} and {type_}; CAST them to one type",
                    self.forms[each.name].common.name.span,
                )
        self.tagged = Tagged(tuple(variables))
        self._put_in.clear()
        branches: list[n.Node] = []
        for at, form in enumerate(self.variables):
            bound = [self._bound(form, each) for each in form.branches]
            branches += [self.tagged.tag(at, node) for node in self._fitted(form, bound)]
        kinds = {form.kind for form in self.variables}
        kind: Kind = next((each for each in _STRONGEST if each in kinds), "union")
        whole = self._closed(branches, self._token, kind, self.tagged.value)
        return {form.name: self.tagged.untag(at, whole) for at, form in enumerate(self.variables)}

    def _closed(self, branches: Sequence[n.Node], token: n.LoopToken, kind: Kind, value: str | None) -> n.Node:
        steps = [node for node in branches if n.reads_recursion(node, token)]
        bases = [node for node in branches if node not in steps]
        assert kind != "plain", "these are put in"
        try:
            if not steps:  # what reads the name is not part of any plan, as in EXISTS (SELECT COUNT(*) FROM r)
                return unrolled(united(bases), _nothing(bases[0]), kind, value)
            base = united(bases) if bases else _nothing(steps[0], token)
            return n.Fixpoint(base, united(steps), token, kind, value, self.options)
        except QueryError as error:
            raise self.binding.error(str(error), self.variables[0].common.name.span) from None


def _other_width(name: str, wanted: int, found: int) -> str:
    return f"all parts of a recursion have as many columns: {name} has {wanted}, this one has {found}"


def _renamed(node: n.Node, names: Sequence[str]) -> n.Node:
    if node.schema.names == tuple(names):
        return node
    return n.Map(node, tuple((new, col(old)) for new, old in zip(names, node.schema.names, strict=True)))


def _fitted(node: n.Node, columns: Schema) -> n.Node:
    """The node in the columns of a variable."""
    if node.schema == columns:
        return node
    pairs = zip(columns, node.schema, strict=True)
    return n.Map(
        node,
        tuple(
            (new.name, col(old.name) if old.type == new.type else col(old.name).cast(new.type)) for new, old in pairs
        ),
    )


def _nothing(like: n.Node, token: n.LoopToken | None = None) -> n.Node:
    """A plan without rows, in the columns of another one, that does not read the loop."""
    outside = next(each for each in n.walk(like) if token is None or not n.reads_recursion(each, token))
    columns = tuple((field.name, lit(None, field.type)) for field in like.schema)
    return n.Map(n.Filter(outside, lit(False)), columns)


def _place(text: str, start: int) -> tuple[int, int]:
    return text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1) + 1
