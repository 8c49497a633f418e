"""What `make test` leaves to `make test-all`, so that it takes about a quarter of an hour on two cores.

* Cases of large families.  A test over some dozens of plans or texts runs with every other one, chosen by name.  There
  are more than thirty such tests, so every plan is in about half of them; `test_operators_oracle.py` has all plans
  under all policies.
* Tests that take long and whose subject another one has, too: most of them on Spark, where `tests/parity` has the same
  without it.

`slow` is something else: tests that take many minutes, or systems that are not everywhere, and are asked for by name.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest

LARGE: Final = 40
"""So many cases make a large family."""
WHOLE: Final = ("papers", "docs", "newuser", "examples", "reference")
"""Folders in which every case is one of its own."""

LONG: Final = (
    "test_attach.py::test_a_copy_leaves_and_another_one_takes_its_place",
    "test_bad_input.py::test_a_checkpoint_of_another_query_or_none",
    "test_bad_input.py::test_a_sink_that_fails_for_three_epochs_and_then_works",
    "test_bad_input.py::test_an_adjust_of_an_event_that_was_dropped_is_left_out_and_counted",
    "test_bad_input.py::test_columns_that_do_not_fit_are_named_before_anything_is_written",
    "test_bad_input.py::test_inputs_and_sinks_that_do_not_fit",
    "test_bad_input.py::test_late_rows_moved_are_counted",
    "test_connectors_bad_input.py::test_an_iceberg_table_whose_columns_change_or_whose_catalogue_is_locked",
    "test_connectors_on_spark.py::test_the_feed_of_a_table_brings_its_adjusts",
    "test_declared_progress.py::test_the_command_line_does_it_on_spark_as_in_process",
    "test_demo_spark.py::test_the_program_that_compiles_runs_the_queries",
    "test_exactly_once.py::test_a_log_that_is_needed_and_cannot_be_read_is_named[1-is missing]",
    "test_exactly_once.py::test_a_truncated_snapshot_is_rebuilt_from_the_one_before",
    "test_exactly_once.py::test_killed_at_any_moment_and_restarted",
    "test_expressions.py::test_named_cases[arithmetic with constants]",
    "test_expressions.py::test_named_cases[arithmetic]",
    "test_expressions.py::test_named_cases[casts]",
    "test_expressions.py::test_named_cases[comparisons with constants]",
    "test_expressions.py::test_named_cases[comparisons]",
    "test_expressions.py::test_named_cases[functions of numbers]",
    "test_killed_jobs.py::test_from_delta_to_delta",
    "test_late_totals.py::test_files_read_out_of_order_are_noticed_and_the_count_survives_a_restart",
    "test_late_totals.py::test_what_comes_too_late_for_a_level_is_counted_too",
    "test_merge_on_spark.py::test_the_end_of_a_file_is_a_leave",
    "test_merged_logs.py::test_as_with_logs_of_their_own",
    "test_migrate.py::test_plans_texts_and_partitions_change_and_the_answer_does_not",
    "test_migrate.py::test_state_moves_where_nobody_can_tell_the_past",
    "test_nexmark_parity.py::test_a_bounded_run_gives_the_same_history",
    "test_nexmark_parity.py::test_spark_answers_as_the_local_runtime_does",
    "test_nexmark_source.py::test_a_frame_holds_the_stream",
    "test_owner_rpc.py::test_an_owner_that_hangs_up_is_asked_again",
    "test_owner_rpc.py::test_partitions_stay_although_spark_moves_their_tasks",
    "test_plain_rows.py::test_plain_rows[12]",
    "test_plain_rows.py::test_plain_rows[13]",
    "test_plain_rows.py::test_plain_rows[5]",
    "test_plain_rows.py::test_plain_rows[7]",
    "test_plain_rows.py::test_plain_rows[9]",
    "test_plan_cache.py::test_a_row_without_a_time_is_told_of",
    "test_plan_cache.py::test_what_is_planned_once_serves_every_epoch",
    "test_recursion_on_spark.py::test_a_loop_that_is_alone_at_its_first_level",
    "test_recursion_on_spark.py::test_all_ways_say_the_same",
    "test_replace.py::test_the_past_that_nobody_keeps_is_named",
    "test_replace.py::test_what_cannot_take_over_is_refused_by_name",
    "test_replace_faults.py::test_whoever_dies_the_same_is_said",
    "test_resumption.py::test_a_changelog_that_vanishes_between_two_runs_is_not_begun_anew",
    "test_resumption.py::test_a_changelog_that_vanishes_while_the_query_runs_stops_it",
    "test_resumption.py::test_spark_with_an_older_copy_of_its_offsets_is_refused",
    "test_run_bounded.py::test_an_adjust_of_nothing_is_an_error",
    "test_source.py::test_timestamps_become_exact_ticks[Europe/Berlin-false]",
    "test_source.py::test_timestamps_become_exact_ticks[UTC-false]",
    "test_source_constraints.py::test_declarations_hold_in_a_bounded_pass",
    "test_spark_files.py::test_spark_says_what_the_local_engine_says[final-True-out.parquet]",
    "test_spark_job.py::test_another_text_takes_over_from_that_of_the_checkpoint",
    "test_spark_levels.py::test_a_running_query_is_moved",
    "test_spark_levels.py::test_an_intake_that_fails_in_the_middle_is_begun_anew",
    "test_spark_levels.py::test_spark_answers_as_the_local_runtime_does",
    "test_spark_levels.py::test_who_waits_does_not_wait_for_ever_for_a_source_that_rests",
    "test_spark_punctuation.py::test_a_level_tells_what_is_wrong_with_a_promise",
    "test_spark_punctuation.py::test_a_level_watches_what_is_declared",
    "test_spark_punctuation.py::test_closing_prices_are_those_of_one_process_also_over_a_restart",
    "test_spark_punctuation.py::test_levels_that_wait_or_forget_use_promises",
    "test_spark_punctuation.py::test_over_files_the_answer_and_its_promises_are_those_of_one_process",
    "test_spark_punctuation.py::test_schemes_are_watched_by_each_partition",
    "test_spark_punctuation.py::test_what_all_buckets_promise_holds_in_the_next_stage",
    "test_spark_session.py::test_it_starts_without_a_word[machine]",
    "test_spark_session.py::test_what_spark_submit_says_wins",
)
"""Tests by file and name, with or without the name of a case."""


def mark_seldom(items: Sequence[pytest.Item]) -> None:
    """Mark what only `make test-all` runs."""
    sizes = Counter(_family(item) for item in items)
    for item in items:
        file, _, name = item.nodeid.rpartition("/")[2].partition("::")
        function = name.partition("[")[0]
        if {f"{file}::{name}", f"{file}::{function}"} & _LISTED or (
            sizes[_family(item)] >= LARGE
            and not (file == "test_operators_oracle.py" or set(item.path.parts) & set(WHOLE))
            and zlib.crc32(item.nodeid.encode()) % 2
        ):
            item.add_marker("seldom")


_LISTED: Final = frozenset(LONG)


def _family(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
