"""Keys: sets of columns on which no two rows agree, and what conditions, renaming and joins make of them.

Every superset of a key is a key, so only minimal ones are written down.  Conditions shorten keys: a column that they
hold to one constant says nothing, and of columns that they make equal any one will do.  Only comparisons that mean
"the same value" count: of one type, and not of floating-point numbers, which compare equal across spellings (0.0 and
-0.0).  What is not found here may still be so; what is found is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import pyarrow as pa

from everwhen.algebra.expressions.build import Call, Column, Expr, Literal, conjuncts
from everwhen.core.schema import Schema

Key = frozenset[str]
Keys = frozenset[Key]

MOST_KEYS: Final = 24
"""Keys kept per node, the shortest first: joins on many columns have many equivalent ones."""


@dataclass(frozen=True)
class Equalities:
    """`constant`: columns with one value; `classes`: sets of columns with equal values."""

    constant: frozenset[str] = frozenset()
    classes: tuple[frozenset[str], ...] = field(default=())

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str]], constant: Iterable[str] = ()) -> Equalities:
        """The classes that pairs of equal columns make; what equals a constant is constant."""
        classes: list[frozenset[str]] = []
        for pair in pairs:
            joined = frozenset(pair).union(*(each for each in classes if each & set(pair)))
            classes = [each for each in classes if not each & joined] + [joined]
        fixed = frozenset(constant)
        return cls(fixed.union(*(each for each in classes if each & fixed)), tuple(classes))

    def like(self, column: str) -> list[str]:
        """The columns that equal this one, itself included."""
        return sorted({column}.union(*(each for each in self.classes if column in each)))


def forced(condition: Expr, schema: Schema) -> Equalities:
    """What holds for every row that makes the condition true.

    >>> from everwhen.algebra.expressions.build import col
    >>> schema = Schema.of([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
    >>> forced((col("a") == col("b")) & (col("c") == 3) & (col("a") > 0), schema).constant
    frozenset({'c'})
    """
    pairs, constant = [], []
    for each in conjuncts(condition):
        match each:
            case Call("=", (Column(a), Column(b))) if a != b and schema.field(a).type == schema.field(b).type:
                if _exact(schema.field(a).type):
                    pairs.append((a, b))
            case Call("=", (Column(a), Literal(value))) | Call("=", (Literal(value), Column(a))):
                if value is not None and not isinstance(value, float) and _exact(schema.field(a).type):
                    constant.append(a)
            case Call("is_null", (Column(a),)):
                constant.append(a)
    return Equalities.of_pairs(pairs, constant)


def _exact(type_: pa.DataType) -> bool:
    """Whether equal means the same value, bit by bit."""
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_temporal(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_decimal(type_)
    )


def minimal(keys: Iterable[Key]) -> Keys:
    """The keys that hold no other, the shortest ones if there are many: every superset of a key is a key anyway."""
    found: list[Key] = []
    for key in sorted(set(keys), key=lambda key: (len(key), sorted(key))):
        if len(found) < MOST_KEYS and not any(known <= key for known in found):
            found.append(key)
    return frozenset(found)


def renamed(keys: Keys, names: Mapping[str, list[str]]) -> Keys:
    """The keys all of whose columns have a name, by each of their names."""
    found: list[Key] = []
    for key in keys:
        if all(column in names for column in key):
            some = 2 if len(key) <= 4 else 1  # of a long key one name will do
            found += (frozenset(chosen) for chosen in product(*(names[column][:some] for column in sorted(key))))
    return frozenset(found)


def renamed_one(keys: Keys, names: Mapping[str, str]) -> Keys:
    """The keys by the one new name that every column has."""
    return frozenset(frozenset(names[column] for column in key) for key in keys)


def reduced(keys: Keys, equal: Equalities) -> Keys:
    """Keys without constant columns, and with any of several equal columns."""
    found: set[Key] = set()
    for key in minimal(keys):
        choices = [equal.like(column) for column in sorted(key - equal.constant)]
        if len(choices) > 6:  # as it is: there would be too many ways to say the same
            found.add(key - equal.constant)
            continue
        found |= {frozenset(chosen) for chosen in product(*choices)}
    return frozenset(found)


def beside(first: Keys, second: Keys, joined: Key, names: Mapping[str, str]) -> Keys:
    """Keys of pairs: one of the first side's, and of the second side's what the join does not fix."""
    return frozenset(a | {names[column] for column in b - joined} for a in first for b in second)


def met(keys: Keys, once: Keys, on: Sequence[str], partner_on: Sequence[str]) -> Keys:
    """Keys over all of time of rows that are left where an instant meets them.

    `keys` are the rows' keys per instant, `once` the instants' keys over all of time.  Rows that agree on the columns
    of such a key have met the same instant, if the join compares all of them; so they are alive together, and agree on
    all the columns that are joined.
    """
    names = dict(zip(partner_on, on, strict=True))
    whole = frozenset(key for key in once if key <= names.keys())
    return frozenset(a | (b - set(on)) for a in renamed_one(whole, names) for b in keys)
