"""Instructions of a pattern's conditions: an opcode and three operands each, for a stack of values that may be null."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 4

# what is put on the stack
CONST: Final = 0
"""a: a constant"""
ROW: Final = 1
"""a: a slot of the row"""
PREV: Final = 2
"""a: a slot of the row before, b: the constant if there is none"""
AT: Final = 3
"""a: a register with a row, b: a slot of that row, c: the constant if there is none"""
COUNTED: Final = 4
SUMMED: Final = 5
AVG_I: Final = 6
AVG_F: Final = 7
"""a: a register"""

# what is made of it
TO_FLOAT: Final = 10
ADD: Final = 11
SUB: Final = 12
MUL: Final = 13
FLOOR: Final = 14
MOD: Final = 15
NEG: Final = 16
F_ADD: Final = 21
F_SUB: Final = 22
F_MUL: Final = 23
F_DIV: Final = 24
F_FLOOR: Final = 25
F_MOD: Final = 26
F_NEG: Final = 27
CMP: Final = 30
"""a: an order, b: a relation"""
AND: Final = 31
OR: Final = 32
NOT: Final = 33
IS_NULL: Final = 34
NOT_NULL: Final = 35
COALESCE: Final = 36
CASE: Final = 37

# orders
SIGNED: Final = 0
FLOATS: Final = 1
UNSIGNED: Final = 2
RANKED: Final = 3
"""This and higher: by the ranks of a type's values."""

# relations
EQ: Final = 0
NE: Final = 1
LT: Final = 2
LE: Final = 3
GT: Final = 4
GE: Final = 5

# registers
FIRST: Final = 0
LAST: Final = 1
MIN: Final = 2
MAX: Final = 3
COUNT: Final = 4
SUM_I: Final = 5
SUM_F: Final = 6
