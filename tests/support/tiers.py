"""Tiers of tests: those of `make test`, `make compat` and `make nightly`; see tests/README.md.

A test belongs to exactly one tier, the first of these that holds:

1. `nightly`: it has the mark `nightly`. The mark stands at the test or at one of its parameters.
2. `test`: an entry of `SMALL_FORMS` names it.
3. `compat`: an entry of `COMPAT` names it. `tests/conftest.py` then gives it the mark `compat`, and
   no test file does.
4. `both`: an entry of `BOTH` names it. `make test` runs it, and `make compat` over the compiled
   form. `tests/conftest.py` gives it the mark `both`.
5. `test`: every other test.

An entry names a directory (it ends with `/`), a file, a test with all its parameters, a test with
these parameters, or the tests whose parameters start with it (it ends with `-`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import pytest

Tier = Literal["test", "both", "compat", "nightly"]

#: What `make compat` runs: comparisons with a real Kafka and real clients, Spark, and what takes
#: long. It runs over the compiled form, where no class of the request path can have a subclass that
#: is not compiled: what needs one, as the simulated cluster, belongs to another tier.
COMPAT: Final[Sequence[str]] = (
    "tests/compat/",
    "tests/spark/",
    "tests/crash/test_chaos.py",
    "tests/crash/test_kill_archive_clean.py",
    "tests/crash/test_table_kill.py",
    "tests/crash/test_cluster_soak.py",
    "tests/crash/test_cluster_up.py",
    "tests/crash/test_local_cluster.py",
    "tests/crash/test_transaction_crash.py::"
    "test_a_broker_that_is_lost_while_it_completes_what_it_has_found_is_followed_by_one_that_does[first-",
    "tests/crash/test_transaction_soak.py",
    "tests/crash/test_trash_kill.py",
    "tests/crash/test_kill_clean.py::"
    "test_killed_again_while_recovering_the_third_run_ends_as_an_undisturbed_one",
    "tests/hostile/test_lengths.py::"
    "test_a_broker_and_a_kafka_start_after_requests_with_fields_of_all_lengths",
    "tests/hostile/test_values.py::"
    "test_a_kafka_broker_starts_after_numbers_of_no_enum_and_no_range[few]",
    "tests/hostile/test_values.py::"
    "test_a_kafka_controller_reads_what_was_written_after_numbers_of_no_enum_and_no_range[few]",
    "tests/properties/test_log_corruption.py::"
    "test_damaged_files_give_typed_errors_and_never_a_record_that_was_not_written[100]",
    "tests/properties/test_log_corruption.py::"
    "test_damaged_files_give_typed_errors_and_never_a_record_that_was_not_written[200]",
    "tests/properties/test_log_corruption.py::"
    "test_damaged_files_give_typed_errors_and_never_a_record_that_was_not_written[300]",
    "tests/properties/test_log_corruption.py::"
    "test_damaged_files_give_typed_errors_and_never_a_record_that_was_not_written[400]",
    "tests/test_first_record.py",
    "tests/test_pages.py::test_a_page_that_compacts_prints_what_it_shows",
    "tests/test_pages.py::test_one_of_the_other_pages_prints_what_it_shows",
    "tests/test_readme.py::test_the_demonstration_prints_what_is_shown_and_proves_the_result",
    "tests/test_ways_in.py::test_a_developer_has_a_test_with_a_moved_clock_after_two_commands",
    "tests/integration/broker/test_compliance.py::"
    "test_records_are_deleted_at_the_ages_that_the_settings_promise[1 day and 5 days 23 h 55 min]",
    "tests/unit/storage/test_log_manager_many_logs.py",
    "tests/unit/cleanup/access/offline/test_trash_restore.py::"
    "test_a_restoration_that_is_killed_is_finished_by_the_next[False-compact in groups]",
    "tests/unit/cleanup/access/offline/test_trash_restore.py::"
    "test_a_restoration_that_is_killed_is_finished_by_the_next[False-compact]",
    "tests/unit/cleanup/access/offline/test_trash_restore.py::"
    "test_a_restoration_that_is_killed_is_finished_by_the_next[True-compact]",
    "tests/unit/cleanup/access/offline/test_trash_restore.py::"
    "test_a_restoration_that_is_killed_is_finished_by_the_next[True-compact in groups]",
    "tests/unit/cleanup/access/offline/test_trash_restore.py::"
    "test_a_restoration_that_is_killed_is_finished_by_the_next[True-both]",
    "tests/unit/format/native/test_kernels_of_numba.py",
    "tests/test_compiled_form.py",
    "tests/test_benchmarks.py::test_a_generated_log_is_one_that_kafka_reads",
    "tests/test_benchmarks.py::test_a_warm_session_says_how_long_each_step_took",
    "tests/test_benchmarks.py::test_the_broker_benchmark_runs_without_kafka_too",
    "tests/test_benchmarks.py::test_the_benchmark_of_data_frames_measures_all_sides",
)

#: What `make test` runs over the request path as Python, and `make compat` over its compiled form:
#: tests of the modules that are compiled.
BOTH: Final[Sequence[str]] = (
    "tests/hostile/",
    "tests/integration/broker/",
    "tests/properties/test_log_model.py",
    "tests/properties/test_record_walk.py",
    "tests/properties/test_validator.py",
    "tests/unit/broker/",
    "tests/unit/coordinator/",
    "tests/unit/format/",
    "tests/unit/protocol/",
    "tests/unit/purgatory/",
    "tests/unit/serving/",
    "tests/unit/storage/",
)

#: What `make test` runs of `COMPAT`: for each comparison, by its name in tests/README.md, a form
#: of it that takes seconds.
SMALL_FORMS: Final[Mapping[str, Sequence[str]]] = {
    "golden": ("tests/compat/test_clean_golden.py::test_each_golden_topic_agrees_with_kafka[1]",),
    "replay": ("tests/compat/test_replay.py",),
    "tiered storage": ("tests/integration/surfaces/test_tiered_log_dir.py",),
    "walkthrough": (
        "tests/compat/test_walkthrough.py::"
        "test_cordwoods_tools_show_what_kafkas_showed_at_kafka[one broker]",
    ),
    "differential": ("tests/compat/test_differential.py::test_random_requests_are_answered_alike",),
    "tools": (
        "tests/compat/test_tools_kafka.py::test_tools_answer_as_kafkas_do[4.4.0-topics]",
        "tests/compat/test_tools_kafka.py::test_tools_answer_as_kafkas_do[4.4.0-offsets]",
    ),
    "storage tool": ("tests/compat/test_storage_kafka.py",),
    "dump-log": (
        "tests/compat/test_dump_log.py::test_batches_of_every_kind",
        "tests/compat/test_dump_log.py::test_producer_snapshots",
    ),
    "clients": (
        "tests/compat/test_clients_python.py::"
        "test_a_client_in_python_does[cordwood-confluent-kafka-",
    ),
    "trash": ("tests/compat/test_trash_kafka.py",),
    "recovery": ("tests/compat/test_recovery_kafka.py",),
    "error codes": ("tests/compat/test_error_codes.py",),
    "schemas of messages": ("tests/compat/test_message_schemas.py",),
    "client": ("tests/integration/client/test_node_connection.py",),
    "directories": (
        "tests/compat/test_groups_kafka.py::test_kafka_takes_over_a_directory_that_was_served_here",
    ),
    "controller": (
        "tests/unit/metadata/test_loader_golden.py",
        "tests/compat/test_controller_requests_kafka.py::"
        "test_controllers_answer_and_write_alike[few]",
    ),
    "metadata quorum": (
        "tests/compat/test_quorum_kafka.py::test_image_of_an_observer_is_the_controllers[dynamic]",
    ),
    "cluster": (
        "tests/compat/test_cluster_kafka.py::"
        "test_records_and_groups_pass_from_either_broker_to_the_other",
    ),
    "replication": ("tests/compat/test_replication_kafka.py",),
    "settings": (
        "tests/unit/configs/test_describe_as_recorded.py",
        "tests/unit/configs/test_value_as_recorded.py",
    ),
    "groups": ("tests/integration/broker/groups/test_as_recorded.py",),
    "consumer groups": (
        "tests/compat/test_consumer_groups_kafka.py::"
        "test_members_of_both_protocols_are_answered_as_by_kafka",
    ),
    "transactions": (
        "tests/compat/test_transactions_kafka.py::"
        "test_a_script_of_transactions_is_answered_as_by_kafka",
    ),
    "assignors": (
        "tests/compat/test_assignors_kafka.py::"
        "test_random_groups_get_the_assignments_of_kafka[1200]",
    ),
    "metrics": ("tests/integration/surfaces/metrics/test_served.py",),
    "DataFrames": (
        "tests/spark/test_frames.py::"
        "test_filters_give_the_same_rows_whether_spark_passes_them_on_or_not",
    ),
    "tables": (
        "tests/crash/test_table_kill.py::"
        "test_a_killed_run_leaves_the_table_before_or_after[8-state]",
    ),
    "Spark": (
        "tests/spark/test_engines.py::"
        "test_logs_split_over_tasks_have_the_bytes_of_the_reference[local[2]]",
        "tests/spark/test_engines.py::"
        "test_logs_done_by_one_task_each_have_the_bytes_of_the_reference[local[2]]",
        "tests/spark/test_engines.py::"
        "test_logs_done_by_one_task_on_several_cores_have_the_bytes_of_the_reference[local[2]]",
        "tests/spark/test_spark_process.py::"
        "test_a_warm_child_cleans_a_log_beside_appends_and_reads",
    ),
    "chaos": ("tests/crash/test_broker_kill.py",),
    "interruption": (
        "tests/crash/test_interrupt_clean.py",
        "tests/crash/test_kill_clean.py::"
        "test_killed_at_a_step_the_next_run_ends_as_an_undisturbed_one",
        "tests/crash/test_kill_clean.py::"
        "test_a_dry_run_after_a_kill_plans_on_what_the_next_run_finds",
    ),
}

#: Files that take longest, the longest first: they are started first, so that no worker is left
#: with one of them at the end.
LONGEST: Final[Sequence[str]] = (
    "tests/crash/test_chaos.py",  # an hour
    "tests/crash/test_simulation.py",
    "tests/compat/test_clean_golden.py",  # an hour, too
    "tests/crash/test_group_soak.py",
    "tests/crash/test_cluster_soak.py",
    "tests/crash/test_transaction_soak.py",
    "tests/crash/test_transaction_crash.py",
    "tests/compat/test_clean_live.py",
    "tests/compat/test_clients_sarama.py",
    "tests/spark/test_stop_signals.py",
    "tests/spark/test_spark_process.py",
    "tests/crash/test_kill_clean.py",
    "tests/spark/test_interrupted.py",
    "tests/spark/test_engines.py",
    "tests/spark/test_bounds.py",
    "tests/compat/test_tools_kafka.py",
    "tests/crash/test_failing_operations.py",
    "tests/properties/test_log_corruption.py",
    "tests/properties/test_online_cleaner.py",
    "tests/properties/test_reference_cleaner.py",
    "tests/properties/test_log_model.py",
    "tests/crash/test_log_crash.py",
    "tests/test_benchmarks.py",
    "tests/compat/test_cluster_failures.py",
    "tests/spark/test_masters.py",
    "tests/test_pages.py",
    "tests/crash/test_local_cluster.py",
    "tests/compat/test_cluster_replacement.py",
    "tests/compat/test_rolling_upgrade.py",
    "tests/compat/test_dump_log.py",
    "tests/compat/test_walkthrough.py",
    "tests/unit/format/native/test_kernels_of_numba.py",
    "tests/spark/test_cold_start.py",
    "tests/compat/test_clients_transactions.py",
    "tests/compat/test_kafka_goes_on.py",
    "tests/compat/test_log_kafka.py",
)

#: The marks by which `make compat` selects, as in the Makefile.
MARKS_OF_COMPAT: Final = "compat or both"

#: The tier of each collected test by its node id, before any is deselected.
COLLECTED: Final = pytest.StashKey[dict[str, Tier]]()


def tier_of(node_id: str, *, is_nightly: bool) -> Tier:
    """The tier of a test, by its node id and whether it has the mark `nightly`."""
    if is_nightly:
        return "nightly"
    if any(names(entry, node_id) for entries in SMALL_FORMS.values() for entry in entries):
        return "test"
    if any(names(entry, node_id) for entry in COMPAT):
        return "compat"
    return "both" if any(names(entry, node_id) for entry in BOTH) else "test"


def names(entry: str, node_id: str) -> bool:
    """Whether an entry names this test."""
    if not node_id.startswith(entry):
        return False
    return entry[-1] in "/-" or node_id[len(entry) :][:1] in {"", ":", "["}


def may_run_in_compat(file: str) -> bool:
    """Whether `make compat` runs tests of a file."""
    return any(names(each, file) or each.startswith(f"{file}::") for each in (*COMPAT, *BOTH))


def place_of(node_id: str) -> int:
    """The position of the test's file in `LONGEST`; the number of its entries if it has none."""
    file = node_id.partition("::")[0]
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)
