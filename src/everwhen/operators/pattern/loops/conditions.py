"""The stack machine of conditions, and registers."""

from __future__ import annotations

from typing import Final

import numpy as np

from everwhen.algebra.patterns import instructions
from everwhen.compiled.njit import njit
from everwhen.operators.pattern.loops.order import compared

_CONST: Final = instructions.CONST
_ROW: Final = instructions.ROW
_PREV: Final = instructions.PREV
_AT: Final = instructions.AT
_COUNTED: Final = instructions.COUNTED
_SUMMED: Final = instructions.SUMMED
_AVG_I: Final = instructions.AVG_I
_AVG_F: Final = instructions.AVG_F
_TO_FLOAT: Final = instructions.TO_FLOAT
_NEG: Final = instructions.NEG
_F_NEG: Final = instructions.F_NEG
_ADD: Final = instructions.ADD
_SUB: Final = instructions.SUB
_MUL: Final = instructions.MUL
_FLOOR: Final = instructions.FLOOR
_MOD: Final = instructions.MOD
_F_ADD: Final = instructions.F_ADD
_F_SUB: Final = instructions.F_SUB
_F_MUL: Final = instructions.F_MUL
_F_DIV: Final = instructions.F_DIV
_F_FLOOR: Final = instructions.F_FLOOR
_CMP: Final = instructions.CMP
_AND: Final = instructions.AND
_OR: Final = instructions.OR
_NOT: Final = instructions.NOT
_IS_NULL: Final = instructions.IS_NULL
_NOT_NULL: Final = instructions.NOT_NULL
_COALESCE: Final = instructions.COALESCE
_CASE: Final = instructions.CASE
_FLOATS: Final = instructions.FLOATS
_EQ: Final = instructions.EQ
_NE: Final = instructions.NE
_LT: Final = instructions.LT
_LE: Final = instructions.LE
_GT: Final = instructions.GT
_FIRST: Final = instructions.FIRST
_LAST: Final = instructions.LAST
_MIN: Final = instructions.MIN
_MAX: Final = instructions.MAX
_COUNT: Final = instructions.COUNT
_SUM_I: Final = instructions.SUM_I
_SUM_F: Final = instructions.SUM_F

_LEAST: Final = np.int64(-(2**63))

NULL: Final = 1
WRONG: Final = 2
"""A value that could not be computed: an error if it is what the condition comes to."""

FALSE: Final = 0
TRUE: Final = 1
FAILED: Final = 2


@njit(cache=True, inline="always")
def _less_float(a, b):
    """-1, 0 or 1; NaN is equal to itself and above every number."""
    if a != a or b != b:
        return np.int64(a != a) - np.int64(b != b)
    return np.int64(a > b) - np.int64(a < b)


@njit(cache=True, inline="always")
def _integers(op, a, b):
    """Value and null of arithmetic on integers."""
    zero = np.int64(0)
    if op == _ADD:
        r = a + b
        return r, (WRONG if ((a ^ r) & (b ^ r)) < 0 else 0)
    if op == _SUB:
        r = a - b
        return r, (WRONG if ((a ^ b) & (a ^ r)) < 0 else 0)
    if op == _MUL:
        if a == 0 or b == 0:
            return zero, 0
        if (a == -1 and b == _LEAST) or (b == -1 and a == _LEAST):
            return zero, WRONG
        r = a * b
        return r, (0 if r // b == a and r % b == 0 else WRONG)
    if b == 0:
        return zero, NULL
    if op == _FLOOR:
        if b == -1:
            return -a, (WRONG if a == _LEAST else 0)
        return a // b, 0
    return (zero if b == -1 else a % b), 0


@njit(cache=True, inline="always")
def _decimals(op, a, b):
    """Value and null of arithmetic on floats."""
    if op == _F_ADD:
        return a + b, 0
    if op == _F_SUB:
        return a - b, 0
    if op == _F_MUL:
        return a * b, 0
    if b == 0.0:
        return 0.0, NULL
    if op == _F_DIV:
        return a / b, 0
    if op == _F_FLOOR:
        return np.floor_divide(a, b), 0
    return np.mod(a, b), 0


@njit(cache=True, inline="always")
def _both(op, a, a_null, b, b_null):
    """AND and OR, from left to right."""
    decides = np.int64(0) if op == _AND else np.int64(1)
    if a_null == 0 and a == decides:
        return decides, 0
    if a_null == WRONG:
        return decides, WRONG
    if b_null == 0 and b == decides:
        return decides, 0
    if b_null == WRONG:
        return decides, WRONG
    return np.int64(1) - decides, (NULL if a_null == NULL or b_null == NULL else 0)


@njit(cache=True, inline="always")
def holds(machine, variable, pool, pool_floats, row, previous, side, c, first_word, scratch, order):
    """Whether the condition of a variable holds for a row, with the registers of a configuration.

    Returns FALSE (also for null), TRUE or FAILED.
    """
    code = machine.code
    slots = machine.slots
    registers = scratch.configurations
    value = scratch.values
    number = scratch.value_floats
    null = scratch.value_nulls
    top = 0
    for x in range(machine.code_at[variable], machine.code_at[variable + 1]):
        op = code[x, 0]
        if op <= _AT:
            at = row
            slot = code[x, 1]
            missing = code[x, 1]
            if op == _PREV:
                at = previous
                missing = code[x, 2]
            elif op == _AT:
                at = registers[side, c, first_word + code[x, 1]]
                slot = code[x, 2]
                missing = code[x, 3]
            if op == _CONST or at < 0:
                value[top] = machine.constants[missing]
                number[top] = machine.floats[missing]
                null[top] = machine.nulls[missing]
            else:
                value[top] = pool[at, slots[slot, 0]]
                number[top] = pool_floats[at, slots[slot, 0]]
                null[top] = (pool[at, slots[slot, 1]] >> slots[slot, 2]) & 1
            top += 1
        elif op <= _AVG_F:
            word = first_word + code[x, 1]
            value[top] = registers[side, c, word]
            number[top] = scratch.floats[side, c, word]
            null[top] = 0
            if op != _COUNTED:
                count = registers[side, c, word + 1]
                null[top] = NULL if count == 0 else 0
                if op == _AVG_I and count > 0:
                    number[top] = np.float64(value[top]) / np.float64(count)
                elif op == _AVG_F and count > 0:
                    number[top] = number[top] / np.float64(count)
            top += 1
        elif op == _TO_FLOAT:
            number[top - 1] = np.float64(value[top - 1])
        elif op == _NEG:
            if value[top - 1] == _LEAST and null[top - 1] == 0:
                null[top - 1] = WRONG
            value[top - 1] = -value[top - 1]
        elif op == _F_NEG:
            number[top - 1] = -number[top - 1]
        elif op == _NOT:
            value[top - 1] = 1 - value[top - 1]
        elif op in (_IS_NULL, _NOT_NULL):
            if null[top - 1] != WRONG:
                value[top - 1] = np.int64((null[top - 1] == NULL) == (op == _IS_NULL))
                null[top - 1] = 0
        elif op == _CASE:
            top -= 2
            if null[top - 1] == WRONG:
                continue
            taken = top if null[top - 1] == 0 and value[top - 1] == 1 else top + 1
            value[top - 1] = value[taken]
            number[top - 1] = number[taken]
            null[top - 1] = null[taken]
        else:
            top -= 1
            a = top - 1
            b = top
            if op == _COALESCE:
                if null[a] == NULL:
                    value[a] = value[b]
                    number[a] = number[b]
                    null[a] = null[b]
            elif op in (_AND, _OR):
                value[a], null[a] = _both(op, value[a], null[a], value[b], null[b])
            elif null[a] != 0 or null[b] != 0:
                null[a] = max(null[a], null[b])
            elif op == _CMP:
                if code[x, 1] == _FLOATS:
                    found = _less_float(number[a], number[b])
                else:
                    found = np.int64(compared(code[x, 1], value[a], value[b], order.ranks, order.ranks_at))
                relation = code[x, 2]
                if relation == _EQ:
                    met = found == 0
                elif relation == _NE:
                    met = found != 0
                elif relation == _LT:
                    met = found < 0
                elif relation == _LE:
                    met = found <= 0
                elif relation == _GT:
                    met = found > 0
                else:
                    met = found >= 0
                value[a] = np.int64(met)
            elif op <= _MOD:
                value[a], null[a] = _integers(op, value[a], value[b])
            else:
                number[a], null[a] = _decimals(op, number[a], number[b])
    if null[0] == WRONG:
        return FAILED
    return TRUE if null[0] == 0 and value[0] == 1 else FALSE


@njit(cache=True, inline="always")
def carry(machine, variable, pool, pool_floats, row, side, c, first_word, scratch, order):
    """Let the registers of a configuration take in a row that is mapped to a variable.  Returns whether that was
    possible."""
    registers = machine.registers
    words = scratch.configurations
    slots = machine.slots
    for r in range(len(registers)):
        if registers[r, 1] >= 0 and registers[r, 1] != variable:
            continue
        kind = registers[r, 0]
        word = first_word + registers[r, 3]
        slot = registers[r, 2]
        if slot >= 0 and (pool[row, slots[slot, 1]] >> slots[slot, 2]) & 1 == 1:
            continue
        if kind == _COUNT:
            words[side, c, word] += 1
        elif kind == _LAST:
            words[side, c, word] = row
        elif kind == _SUM_I:
            a = words[side, c, word]
            b = pool[row, slots[slot, 0]]
            total = a + b
            if ((a ^ total) & (b ^ total)) < 0:
                return False
            words[side, c, word] = total
            words[side, c, word + 1] += 1
        elif kind == _SUM_F:
            scratch.floats[side, c, word] += pool_floats[row, slots[slot, 0]]
            words[side, c, word + 1] += 1
        else:
            held = words[side, c, word]
            if held < 0:
                words[side, c, word] = row
            elif kind != _FIRST:
                found = compared(
                    registers[r, 4], pool[row, slots[slot, 0]], pool[held, slots[slot, 0]], order.ranks, order.ranks_at
                )
                if (kind == _MIN and found < 0) or (kind == _MAX and found > 0):
                    words[side, c, word] = row
    return True
