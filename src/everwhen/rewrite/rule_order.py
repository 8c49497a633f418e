"""The rules, in the order in which the driver tries them at a node, with a word on why in this order.

`SHARING_RULES` are for many queries in one graph, of which more may come: without the rules that push a filter into a
grouping, a set operation or a recursion, where each of a hundred filters would need one of its own.
"""

from __future__ import annotations

from typing import Final

from everwhen.rewrite.filters.filter_to_join import FILTER_TO_JOIN
from everwhen.rewrite.filters.limit_rank import LIMIT_RANK
from everwhen.rewrite.filters.merge_filters import MERGE_FILTERS
from everwhen.rewrite.filters.push_filter import PUSH_FILTER
from everwhen.rewrite.filters.push_filter_aggregate import PUSH_FILTER_AGGREGATE
from everwhen.rewrite.filters.push_filter_fixpoint import PUSH_FILTER_FIXPOINT
from everwhen.rewrite.filters.push_filter_join import PUSH_FILTER_JOIN
from everwhen.rewrite.filters.push_filter_sets import PUSH_FILTER_SETS
from everwhen.rewrite.filters.push_residual import PUSH_RESIDUAL
from everwhen.rewrite.joins.distinct_join import DISTINCT_JOIN
from everwhen.rewrite.joins.flatten_subquery import FLATTEN_SUBQUERY
from everwhen.rewrite.joins.group_by_pushdown import GROUP_BY_PUSHDOWN
from everwhen.rewrite.joins.join_order import JOIN_ORDER
from everwhen.rewrite.joins.outer_to_inner import OUTER_TO_INNER
from everwhen.rewrite.plans.distinct import DROP_DISTINCT
from everwhen.rewrite.plans.fold_constants import FOLD_CONSTANTS
from everwhen.rewrite.plans.merge_maps import MERGE_MAPS
from everwhen.rewrite.plans.prune_columns import PRUNE_COLUMNS
from everwhen.rewrite.plans.share_common import SHARE_COMMON
from everwhen.rewrite.rule import AnyRule
from everwhen.rewrite.windows.drop_now_window import DROP_NOW_WINDOW
from everwhen.rewrite.windows.rows_map import ROWS_MAP
from everwhen.rewrite.windows.window_map import WINDOW_MAP
from everwhen.rewrite.windows.window_union import WINDOW_UNION

RULES: Final[tuple[AnyRule, ...]] = (
    FOLD_CONSTANTS,  # first: later rules then see TRUE, IS NULL and plain constants
    MERGE_FILTERS,  # conjuncts side by side, so that the rules below can part them as they need
    MERGE_MAPS,  # fewer maps in the way of the patterns below
    DROP_NOW_WINDOW,  # likewise
    OUTER_TO_INNER,  # before the filter that proves it is moved or split
    PUSH_FILTER,  # downwards before joins are built: what reads one side is then out of the way
    LIMIT_RANK,  # once the filter has come down to the rank
    PUSH_FILTER_SETS,
    PUSH_FILTER_AGGREGATE,
    PUSH_FILTER_FIXPOINT,
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
    rule for rule in RULES if rule not in (PUSH_FILTER_AGGREGATE, PUSH_FILTER_FIXPOINT, PUSH_FILTER_SETS)
)
