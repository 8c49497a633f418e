"""The stages that a query over files will have on Spark, told before there is a Spark.

Whether an expression stays in the JVM is decided by translating it, for which a JVM must run.  Without one it is judged
by what it is made of; so an expression in one of the rare forms that `expressions` refuses may be shown one step too
early.  The stages themselves are the same.
"""

from __future__ import annotations

from typing import Final

from everwhen.algebra.expressions.nodes import Call, Expr
from everwhen.algebra.expressions.udf import Udf
from everwhen.algebra.nodes import Node, Source, walk
from everwhen.core.schema import Schema
from everwhen.plan.stages.model import StagePlan, Trait
from everwhen.plan.stages.prune_columns import narrow
from everwhen.plan.stages.stages import cut
from everwhen.spark.translate.expressions import spark_type

_OTHERWISE_IN_JAVA: Final = frozenset(
    {
        *("exp", "ln", "log10", "power", "strftime", "repeat", "lpad", "rpad"),
        *("regexp_matches", "regexp_extract", "regexp_replace"),
    }
)  # see `expressions`


def stages_over_files(node: Node) -> StagePlan:
    """The stages of a query whose inputs are files of elements."""
    promising = {each.name: Trait(promising=True) for each in walk(node) if isinstance(each, Source) and each.schemes}
    return cut({"out": narrow(node)}, promising, _looks_native)


def _looks_native(expr: Expr, schema: Schema) -> bool:
    if any(spark_type(schema.field(name).type) is None for name in expr.columns()):
        return False
    return spark_type(expr.bind(schema)) is not None and _translates(expr)


def _translates(expr: Expr) -> bool:
    match expr:
        case Udf():
            return False
        case Call(name, _) if name in _OTHERWISE_IN_JAVA:
            return False
    return all(map(_translates, expr.operands))
