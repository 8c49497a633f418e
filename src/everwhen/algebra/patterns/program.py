"""Conditions of a pattern as loops run them.

What reads one row only is computed for all rows at once, by columns, and kept beside the row: a condition as a bit of
its variable, anything else as a *slot*.  What reads several rows, or the match so far, is a short list of instructions
for a stack machine (`instructions.py`) over slots and *registers*.  A register is what a match carries along: the
position of a row (FIRST, LAST, MIN, MAX), a count, or a sum with the count of what was added.

    price > 5 AND price < PREV(price)      bit: price > 5     code: ROW price, PREV price, CMP <
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Cast, Column, Expr, Literal, conjunction, conjuncts, lit
from everwhen.algebra.expressions.compute import unify
from everwhen.algebra.expressions.nodes import walk
from everwhen.algebra.patterns import instructions as i
from everwhen.algebra.patterns.automaton import Automaton, automaton
from everwhen.algebra.patterns.pattern import Pattern, variables
from everwhen.algebra.patterns.terms import Term, terms
from everwhen.core.kinds import kind
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.rows.codec import encode_plain
from everwhen.rows.interner import is_pooled

_MOST: Final = 60
"""Bits of a word that are used for variables, and for nulls of slots."""

_RELATIONS: Final = {"=": i.EQ, "<>": i.NE, "<": i.LT, "<=": i.LE, ">": i.GT, ">=": i.GE}
_INTEGER: Final = {"+": i.ADD, "-": i.SUB, "*": i.MUL, "//": i.FLOOR, "%": i.MOD}
_FLOAT: Final = {"+": i.F_ADD, "-": i.F_SUB, "*": i.F_MUL, "/": i.F_DIV, "//": i.F_FLOOR, "%": i.F_MOD}

Navigation = tuple[str, str | None]
"""Which row a value is read from: ("row", None), ("prev", None), ("first", "A"), ("min SUM…", "A"), …"""
_ROW: Final[Navigation] = ("row", None)


@dataclass(frozen=True, slots=True)
class Register:
    """What a match carries along: `word` is its first word, `variable` the number of the one it is about (-1: any),
    `slot` what it reads (-1: nothing), `order` how that compares."""

    kind: int
    variable: int
    slot: int
    word: int
    order: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """How a term of a measure is read when a match ends: an opcode, a register's word, a slot, the type."""

    op: int
    word: int
    slot: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Program:
    """See the module.  A slot is an expression over one row; `ranked` are the types that are compared by rank."""

    variables: tuple[str, ...]
    automaton: Automaton
    bits: tuple[Expr | None, ...]
    slots: tuple[Expr, ...]
    slot_types: tuple[pa.DataType, ...]
    code: tuple[tuple[int, ...], ...]
    constants: tuple[tuple[int, bool], ...]
    registers: tuple[Register, ...]
    words: int
    """Words of all registers; the first `carried` of them are read by conditions."""
    carried: int
    depth: int
    ranked: tuple[pa.DataType, ...]
    looks_back: bool
    """Whether the first row of a match is compared with the one before."""
    readings: Mapping[str, Reading]


def compile_program(
    pattern: Pattern, define: Mapping[str, Expr], measures: Sequence[tuple[str, Expr]], schema: Schema
) -> Program:
    """The program of a pattern over rows of the schema; QueryError where a condition cannot be computed."""
    names = variables(pattern)
    if len(names) > _MOST:
        raise QueryError(f"a pattern has at most {_MOST} variables, not {len(names)}")
    found = automaton(pattern)
    compiler = _Compiler(names, schema)
    bits: list[Expr | None] = []
    code: list[tuple[int, ...]] = []
    back = set()
    for number, name in enumerate(names):
        parts = conjuncts(define[name]) if name in define else []
        alone = [part for part in parts if not terms(part)]
        rest = [part for part in parts if terms(part)]
        bits.append(conjunction(alone) if alone else None)
        code.append(tuple(compiler.condition(conjunction(rest))) if rest else ())
        if any(each.function == "prev" for part in rest for each in terms(part)):
            back.add(number)
    carried = compiler.words
    readings = {each.name: compiler.reading(each) for _, measure in measures for each in terms(measure)}
    return Program(
        names, found, tuple(bits), tuple(compiler.slots), tuple(compiler.slot_types), tuple(code),
        tuple(compiler.constants), tuple(compiler.registers), compiler.words, carried, compiler.depth,
        tuple(compiler.ranked), any(found.labels[place] in back for place in found.first), readings,
    )  # fmt: skip


@dataclass
class _Compiler:
    names: tuple[str, ...]
    schema: Schema
    slots: list[Expr] = field(default_factory=list)
    slot_types: list[pa.DataType] = field(default_factory=list)
    constants: list[tuple[int, bool]] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    ranked: list[pa.DataType] = field(default_factory=list)
    words: int = 0
    depth: int = 1

    def condition(self, expr: Expr) -> list[int]:
        code = self._code(expr)
        self.depth = max(self.depth, len(code) // i.WIDTH + 1)  # no instruction leaves more than one value
        return code

    def _type(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    def _type_of(self, expr: Expr) -> pa.DataType:
        known = {each.name: each for each in terms(expr)}
        return expr.compile(lambda name: known[name].type(self.schema) if name in known else self._type(name)).type

    # -- values -------------------------------------------------------------------------------------------------------

    def _code(self, expr: Expr) -> list[int]:
        if isinstance(expr, Literal) and not is_pooled(expr.type):
            return [i.CONST, self._constant(expr.constant, expr.type), 0, 0]
        alone = self._alone(expr)
        if alone is not None:
            return alone
        if isinstance(expr, Term):
            return self._register_value(expr)
        if isinstance(expr, Call):
            return self._call(expr)
        if isinstance(expr, Cast):
            return self._as(expr.operand, expr.type)
        raise self._refused(expr)

    def _alone(self, expr: Expr) -> list[int] | None:
        """The value if all of it is read from one row: a slot there."""
        reads = {_navigation(each) for each in walk(expr) if isinstance(each, Column)}
        if len(reads) > 1 or (reads and None in reads):
            return None
        where = next(iter(reads), _ROW)
        assert where is not None
        plain = expr.substitute({each.name: each.argument for each in terms(expr) if each.argument is not None})
        type_ = plain.bind(self.schema)
        if where == _ROW:
            return [i.ROW, self._slot(plain, type_), 0, 0]
        missing = expr.value({each.name: None for each in terms(expr)})
        if missing is not None and is_pooled(type_):
            return None
        constant = self._constant(missing, type_)
        if where[0] == "prev":
            return [i.PREV, self._slot(plain, type_), constant, 0]
        (one, *_) = terms(expr)
        return [i.AT, self._register(one).word, self._slot(plain, type_), constant]

    def _register_value(self, each: Term) -> list[int]:
        found = self._register(each)
        return [_reads(each.function, found), found.word, 0, 0]

    def _slot(self, expr: Expr, type_: pa.DataType) -> int:
        for at, known in enumerate(self.slots):
            if known.equals(expr):
                return at
        self.slots.append(expr)
        self.slot_types.append(type_)
        if sum(not isinstance(each, Column) for each in self.slots) > _MOST:
            raise QueryError(f"the conditions and measures of a pattern compute more than {_MOST} values of a row")
        return len(self.slots) - 1

    def _constant(self, value: Any, type_: pa.DataType) -> int:
        word = 0 if value is None else int(encode_plain(pa.array([value], type_), type_)[0])
        if (word, value is None) not in self.constants:
            self.constants.append((word, value is None))
        return self.constants.index((word, value is None))

    def reading(self, each: Term) -> Reading:
        """How a measure reads a term."""
        found = self._register(each)
        type_ = each.type(self.schema)
        if found.kind in (i.FIRST, i.LAST, i.MIN, i.MAX):
            assert each.argument is not None
            return Reading(i.AT, found.word, self._slot(each.argument, type_), type_)
        return Reading(_reads(each.function, found), found.word, -1, type_)

    def _register(self, each: Term) -> Register:
        variable = -1 if each.variable is None else self.names.index(each.variable)
        slot, order = -1, 0
        kind_ = {"first": i.FIRST, "last": i.LAST, "min": i.MIN, "max": i.MAX, "count": i.COUNT}.get(each.function)
        if each.argument is not None and each.function not in ("first", "last"):
            type_ = each.argument.bind(self.schema)
            slot = self._slot(each.argument, type_)
            if kind_ is None:
                kind_ = i.SUM_F if kind(type_) == "float" else i.SUM_I
            elif each.function in ("min", "max"):
                order = self._order(type_)
        assert kind_ is not None
        for known in self.registers:
            if (known.kind, known.variable, known.slot) == (kind_, variable, slot):
                return known
        found = Register(kind_, variable, slot, self.words, order)
        self.registers.append(found)
        self.words += 2 if kind_ in (i.SUM_I, i.SUM_F) else 1
        return found

    def _order(self, type_: pa.DataType) -> int:
        """How values of a type compare."""
        if is_pooled(type_):
            if type_ not in self.ranked:
                self.ranked.append(type_)
            return i.RANKED + self.ranked.index(type_)
        return i.FLOATS if kind(type_) == "float" else i.UNSIGNED if type_ == pa.uint64() else i.SIGNED

    # -- operators ----------------------------------------------------------------------------------------------------

    def _call(self, expr: Call) -> list[int]:
        name, args = expr.name, expr.args
        if name in _RELATIONS:
            return self._compared(expr, _RELATIONS[name])
        if name in ("and", "or"):
            op = i.AND if name == "and" else i.OR
            code = self._as(args[0], pa.bool_())
            for arg in args[1:]:
                code += [*self._as(arg, pa.bool_()), op, 0, 0, 0]
            return code
        if name in ("not", "is_null", "not_null"):
            return [*self._code(args[0]), {"not": i.NOT, "is_null": i.IS_NULL, "not_null": i.NOT_NULL}[name], 0, 0, 0]
        if name == "in":
            tests = [Call("=", (args[0], value)) for value in args[1:]]
            return self._code(Call("or", tuple(tests)) if len(tests) > 1 else tests[0] if tests else lit(False))
        type_ = self._type_of(expr)
        if name == "coalesce":
            code = self._as(args[-1], type_)
            for arg in reversed(args[:-1]):
                code = [*self._as(arg, type_), *code, i.COALESCE, 0, 0, 0]
            return code
        if name == "case":
            code = self._as(args[-1], type_)
            for at in range(len(args) - 3, -1, -2):
                code = [*self._as(args[at], pa.bool_()), *self._as(args[at + 1], type_), *code, i.CASE, 0, 0, 0]
            return code
        return self._computed(expr, type_)

    def _computed(self, expr: Call, type_: pa.DataType) -> list[int]:
        """Arithmetic: integers in 64 bits, floats, times of one unit."""
        name, args = expr.name, expr.args
        if name == "negate" and kind(type_) in ("integer", "float", "duration"):
            return [*self._as(args[0], type_), i.F_NEG if kind(type_) == "float" else i.NEG, 0, 0, 0]
        if kind(type_) == "float" and name in _FLOAT:
            return [*self._as(args[0], type_), *self._as(args[1], type_), _FLOAT[name], 0, 0, 0]
        if kind(type_) == "integer" and name in _INTEGER:
            return [*self._as(args[0], type_), *self._as(args[1], type_), _INTEGER[name], 0, 0, 0]
        kinds = [kind(self._type_of(arg)) for arg in args]
        if kind(type_) in ("timestamp", "duration") and name in ("+", "-") and "date" not in kinds:
            wanted = [
                pa.duration(type_.unit) if each == "duration" else type_
                if kind(type_) == "timestamp" else pa.timestamp(type_.unit, self._type_of(arg).tz)
                for each, arg in zip(kinds, args, strict=True)
            ]  # fmt: skip
            return [*self._as(args[0], wanted[0]), *self._as(args[1], wanted[1]), _INTEGER[name], 0, 0, 0]
        raise self._refused(expr)

    def _compared(self, expr: Call, relation: int) -> list[int]:
        known = {each.name: each for each in terms(expr)}

        def types(name: str) -> pa.DataType:
            return known[name].type(self.schema) if name in known else self._type(name)

        target, _ = unify([arg.compile(types) for arg in expr.args], str(expr))
        if kind(target) == "null":
            return [i.CONST, self._constant(None, pa.bool_()), 0, 0]
        order = self._order(target) if relation not in (i.EQ, i.NE) or not is_pooled(target) else i.SIGNED
        return [*self._as(expr.args[0], target), *self._as(expr.args[1], target), i.CMP, order, relation, 0]

    def _as(self, expr: Expr, target: pa.DataType) -> list[int]:
        """The value in a type that its own is a part of."""
        own = self._type_of(expr)
        same = own == target or (kind(own) == kind(target) == "float") or (
            kind(own) == kind(target) == "integer" and pa.uint64() not in (own, target)
        )  # fmt: skip
        if same:
            return self._code(expr)
        if kind(own) == "null":
            return [i.CONST, self._constant(None, target), 0, 0]
        cast = self._alone(expr.cast(target))
        if cast is not None:
            return cast
        if kind(own) == "integer" and kind(target) == "float" and own != pa.uint64():
            return [*self._code(expr), i.TO_FLOAT, 0, 0, 0]
        raise self._refused(expr.cast(target))

    def _refused(self, expr: Expr) -> QueryError:
        return QueryError(
            f"{expr} combines values of several rows, which a pattern does with + - * / // %, comparisons, AND, OR, "
            "NOT, IN, IS NULL, CASE and COALESCE on integers, floats, and times of one unit; cast decimals to float64, "
            "and apply other functions to one row at a time"
        )


def _navigation(column: Column) -> Navigation | None:
    """Which row a column is read from; None: it is read from no row."""
    if not isinstance(column, Term):
        return _ROW
    match column.function:
        case "prev":
            return "prev", None
        case "first" | "last":
            return column.function, column.variable
        case "min" | "max":
            return column.name, column.variable
    return None


def _reads(function: str, register: Register) -> int:
    if register.kind == i.COUNT:
        return i.COUNTED
    if function == "avg":
        return i.AVG_F if register.kind == i.SUM_F else i.AVG_I
    return i.SUMMED
