"""The rules, in the order in which the driver tries them at a node, with a word on why in this order.

`SHARING_RULES` are for many queries in one graph, of which more may come: without the rules that push a filter into a
grouping or a set operation, where each of a hundred filters would need a grouping of its own.
"""

from __future__ import annotations

from typing import Final

from everwhen.rewrite.distinct import DROP_DISTINCT
from everwhen.rewrite.distinct_join import DISTINCT_JOIN
from everwhen.rewrite.drop_now_window import DROP_NOW_WINDOW
from everwhen.rewrite.filter_to_join import FILTER_TO_JOIN
from everwhen.rewrite.flatten_subquery import FLATTEN_SUBQUERY
from everwhen.rewrite.fold_constants import FOLD_CONSTANTS
from everwhen.rewrite.group_by_pushdown import GROUP_BY_PUSHDOWN
from everwhen.rewrite.join_order import JOIN_ORDER
from everwhen.rewrite.merge_filters import MERGE_FILTERS
from everwhen.rewrite.merge_maps import MERGE_MAPS
from everwhen.rewrite.outer_to_inner import OUTER_TO_INNER
from everwhen.rewrite.prune_columns import PRUNE_COLUMNS
from everwhen.rewrite.push_filter import PUSH_FILTER
from everwhen.rewrite.push_filter_aggregate import PUSH_FILTER_AGGREGATE
from everwhen.rewrite.push_filter_join import PUSH_FILTER_JOIN
from everwhen.rewrite.push_filter_sets import PUSH_FILTER_SETS
from everwhen.rewrite.push_residual import PUSH_RESIDUAL
from everwhen.rewrite.rows_map import ROWS_MAP
from everwhen.rewrite.rule import AnyRule
from everwhen.rewrite.share_common import SHARE_COMMON
from everwhen.rewrite.window_map import WINDOW_MAP
from everwhen.rewrite.window_union import WINDOW_UNION

RULES: Final[tuple[AnyRule, ...]] = (
    FOLD_CONSTANTS,  # first: later rules then see TRUE, IS NULL and plain constants
    MERGE_FILTERS,  # conjuncts side by side, so that the rules below can part them as they need
    MERGE_MAPS,  # fewer maps in the way of the patterns below
    DROP_NOW_WINDOW,  # likewise
    OUTER_TO_INNER,  # before the filter that proves it is moved or split
    PUSH_FILTER,  # downwards before joins are built: what reads one side is then out of the way
    PUSH_FILTER_SETS,
    PUSH_FILTER_AGGREGATE,
    PUSH_FILTER_JOIN,
    GROUP_BY_PUSHDOWN,  # while joins still are as written: it goes from join to join, downwards
    FLATTEN_SUBQUERY,  # conditions on marks are what is left above an outer join
    FILTER_TO_JOIN,  # what is left reads both sides
    PUSH_RESIDUAL,  # what was written in ON goes the same way
    DROP_DISTINCT,  # after flattening: semi-joins need no duplicate elimination
    DISTINCT_JOIN,  # only where it could not be dropped
    WINDOW_MAP,  # maps below windows, so that windows meet unions
    WINDOW_UNION,
    ROWS_MAP,
    JOIN_ORDER,  # last: it needs all keys and conditions in place
    PRUNE_COLUMNS,  # whole plans, once nothing moves; what it frees is tried again
    SHARE_COMMON,  # equal plans are equal only after all the others
)
SHARING_RULES: Final[tuple[AnyRule, ...]] = tuple(
    rule for rule in RULES if rule not in (PUSH_FILTER_AGGREGATE, PUSH_FILTER_SETS)
)
