"""The verdicts of `cordwood doctor`, of facts that no machine has to have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cordwood.model.extras import LAKE, NATIVE, SIGN, SPARK, TABLES
from cordwood.surfaces.doctor import checks
from cordwood.surfaces.doctor.checks import Finding, Verdict, examine
from cordwood.surfaces.doctor.facts import (
    Facts,
    Installation,
    Java,
    LogDirectory,
    Machine,
    Port,
    Space,
)

GIB = 1 << 30
JAVA = Java(path="/usr/bin/java", version="17.0.12")
MACHINE = Machine(
    memory_bytes=8 * GIB,
    available_bytes=6 * GIB,
    cpus=4,
    heap_bytes=GIB,
    python_bytes=2 * GIB,
    open_files_max=65_536,
    open_files_hard=65_536,
    max_map_count=65_530,
    clock_synchronized=True,
)
DISK = Space(
    path="/data",
    is_writable=True,
    size_bytes=100 * GIB,
    free_bytes=50 * GIB,
    type="ext4",
    options=("rw", "noatime"),
)
LOGS = LogDirectory(
    path="/data",
    owner="kafka",
    user="kafka",
    mode="drwxr-x---, group kafka",
    space=DISK,
    partitions=3,
    segments=10,
    files=40,
    node="node 1 of cluster abc",
    topics=2,
)
FACTS = Facts(
    java=JAVA,
    installation=Installation(
        version="0.2.0", python="3.12.1", kernels="compiled", request_path="compiled"
    ),
    machine=MACHINE,
    temporary=replace(DISK, path="/tmp"),
    ports=(Port(number=9092, use="Kafka's protocol", is_free=True),),
    log_dir=LOGS,
)


def one(found: Finding | Iterable[Finding]) -> Finding:
    if isinstance(found, Finding):
        return found
    (only,) = found
    return only


def test_of_a_machine_that_lacks_nothing_every_line_is_ok_and_needs_no_remedy() -> None:
    findings = examine(FACTS)
    assert {each.verdict for each in findings} == {Verdict.OK}
    assert {each.remedy for each in findings} == {""}
    subjects = [each.subject for each in findings]
    assert len(subjects) == len(set(subjects))
    assert {"Java", "memory", "disk", "clock", "port 9092", "topic settings"} <= set(subjects)


def test_without_a_directory_only_the_machine_is_judged() -> None:
    subjects = {each.subject for each in examine(replace(FACTS, log_dir=None))}
    assert "Java" in subjects
    assert not subjects & {"disk", "log directory", "lock", "memory maps"}


@pytest.mark.parametrize(
    ("java", "has_spark", "verdict", "words"),
    [
        (Java(path=None), True, Verdict.PROBLEM, "none on the PATH"),
        (Java(path=None), False, Verdict.WARNING, "none on the PATH"),
        (Java(path=None, by="JAVA_HOME", error="/x"), True, Verdict.PROBLEM, "bin/java: /x"),
        (Java(path="/j", version="11.0.2"), True, Verdict.PROBLEM, "11.0.2 at /j"),
        (Java(path="/j", version="1.8.0_402"), True, Verdict.PROBLEM, "needs 17"),
        (Java(path="/j", error="no JVM"), True, Verdict.PROBLEM, "its version: no JVM"),
        (Java(path="/j", version="17.0.12"), True, Verdict.OK, "17.0.12"),
        (Java(path="/j", version="25-ea"), True, Verdict.OK, "25-ea"),
    ],
)
def test_java_hinders_where_compaction_is_installed(
    java: Java, verdict: Verdict, words: str, *, has_spark: bool
) -> None:
    found = checks.check_java(java, has_spark=has_spark)
    assert (found.verdict, bool(found.remedy)) == (verdict, verdict is not Verdict.OK)
    assert words in found.found


def test_an_extra_that_is_missing_names_its_packages_and_how_to_install_it() -> None:
    lacks = {NATIVE: ("numba",), SPARK: ("numba", "pyspark"), SIGN: (), LAKE: ("obstore",)}
    lacks[TABLES] = ("deltalake",)
    installed = replace(FACTS.installation, missing=lacks)
    _, native, spark, sign, lake, tables = checks.check_installation(installed)
    assert [each.verdict for each in (native, spark, sign, lake, tables)] == [
        Verdict.WARNING,
        Verdict.WARNING,
        Verdict.OK,
        Verdict.WARNING,
        Verdict.WARNING,
    ]
    assert spark.remedy == "pip install 'cordwood[spark]'"
    assert "numba, pyspark" in spark.found


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.OK),
        ({"memory_bytes": 2 * GIB}, Verdict.PROBLEM),
        ({"group_memory_bytes": 2 * GIB}, Verdict.PROBLEM),
        ({"group_memory_bytes": 1 << 62}, Verdict.OK),
        ({"available_bytes": GIB}, Verdict.WARNING),
        ({"available_bytes": None}, Verdict.OK),
    ],
)
def test_memory_has_to_hold_the_heap_and_the_python_processes(
    changes: dict[str, int], verdict: Verdict
) -> None:
    assert checks.check_memory(replace(MACHINE, **changes), has_spark=True).verdict is verdict  # type: ignore[arg-type]


def test_too_little_memory_for_a_compaction_hinders_only_where_one_could_run() -> None:
    small = replace(MACHINE, memory_bytes=2 * GIB)
    assert checks.check_memory(small, has_spark=False).verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("cpus", "verdict"), [(None, Verdict.OK), (0.5, Verdict.WARNING), (2.0, Verdict.OK)]
)
def test_less_than_a_processor_is_little(cpus: float | None, verdict: Verdict) -> None:
    assert checks.check_processors(replace(MACHINE, group_cpus=cpus)).verdict is verdict


def test_the_limit_of_open_files_is_judged_by_the_files_of_the_directory() -> None:
    small = replace(MACHINE, open_files_max=2000, open_files_hard=4096)
    assert checks.check_open_files(small, None).verdict is Verdict.OK
    assert checks.check_open_files(small, LOGS).verdict is Verdict.OK
    found = checks.check_open_files(small, replace(LOGS, files=100_000))
    assert found.verdict is Verdict.WARNING
    assert "ulimit -n 101024" in found.remedy
    assert "its hard limit is 4096" in found.remedy
    unlimited = replace(MACHINE, open_files_max=None)
    assert checks.check_open_files(unlimited, replace(LOGS, files=10**9)).verdict is Verdict.OK


def test_a_kafka_maps_two_indexes_of_each_segment() -> None:
    assert one(checks.check_maps(MACHINE, LOGS)).verdict is Verdict.OK
    found = one(checks.check_maps(MACHINE, replace(LOGS, segments=40_000)))
    assert (found.verdict, found.remedy) == (
        Verdict.WARNING,
        "sysctl -w vm.max_map_count=320000",
    )
    assert list(checks.check_maps(replace(MACHINE, max_map_count=None), LOGS)) == []


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"is_writable": False}, Verdict.PROBLEM),
        ({"free_bytes": GIB - 1}, Verdict.WARNING),
        ({"free_bytes": GIB, "type": "tmpfs"}, Verdict.OK),
    ],
)
def test_temporary_files_need_a_writable_gigabyte(
    changes: dict[str, object], verdict: Verdict
) -> None:
    assert checks.check_temporary(replace(DISK, **changes)).verdict is verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "verdict"), [(True, Verdict.OK), (False, Verdict.WARNING), (None, Verdict.OK)]
)
def test_a_clock_should_be_synchronized(verdict: Verdict, *, state: bool | None) -> None:
    assert checks.check_clock(replace(MACHINE, clock_synchronized=state)).verdict is verdict


def test_a_port_in_use_names_the_process_and_is_as_it_should_be_for_the_directorys_broker() -> None:
    used = Port(number=9092, use="Kafka's protocol", is_free=False, user="java (77)")
    found = checks.check_port(used, LOGS)
    assert (found.verdict, found.found) == (Verdict.WARNING, "in use by java (77)")
    assert "cordwood serve --port 0" in found.remedy
    assert checks.check_port(used, replace(LOGS, holder=77)).verdict is Verdict.OK
    hidden = checks.check_port(replace(used, number=9464, user=""), None)
    assert "that only root sees" in hidden.found
    assert "--http-port" in hidden.remedy


def test_what_is_no_log_directory_is_one_problem() -> None:
    found = list(checks.check_log_dir(LogDirectory(path="/x", error="/x: No such file")))
    assert [(each.verdict, each.found) for each in found] == [(Verdict.PROBLEM, "/x: No such file")]


def test_a_directory_of_another_user_names_what_may_not_be_done_and_as_whom_it_may() -> None:
    directory = replace(LOGS, user="ann", is_writable=False, is_lockable=False)
    found = checks.check_permissions(directory)
    assert found.verdict is Verdict.PROBLEM
    assert found.found.endswith("; ann cannot write, lock it")
    assert found.remedy == "sudo -u kafka cordwood doctor /data"


def test_of_a_directory_that_cannot_be_listed_only_that_and_its_disk_are_judged() -> None:
    closed = replace(LOGS, is_listed=False, is_readable=False)
    subjects = [each.subject for each in examine(replace(FACTS, log_dir=closed))]
    of_directory = subjects[subjects.index("log directory") :]
    assert of_directory == ["log directory", "disk"]
    assert "memory maps" not in subjects
    assert "partitions" not in checks.check_permissions(closed).found
    assert "files" not in checks.check_open_files(MACHINE, closed).found


def test_partitions_that_cannot_be_read_are_a_problem() -> None:
    found = checks.check_permissions(replace(LOGS, user="ann", unreadable=("a-0", "a-1")))
    assert found.verdict is Verdict.PROBLEM
    assert found.found.endswith("ann cannot read 2 of the partitions, such as a-0")


def test_a_directory_in_use_names_who_uses_it() -> None:
    kafka = checks.check_use(replace(LOGS, holder=77, holder_name="java"))
    assert kafka.verdict is Verdict.WARNING
    assert "process 77, java" in kafka.found
    assert "clean /data --dry-run" in kafka.remedy
    own = checks.check_use(replace(LOGS, holder=77, broker="broker 1 (process 77)"))
    assert (own.verdict, own.remedy) == (Verdict.OK, "")
    assert "another machine" in checks.check_use(replace(LOGS, holder=0)).found


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"options": ("ro",)}, Verdict.PROBLEM, "mounted read-only"),
        ({"free_bytes": 0}, Verdict.PROBLEM, "full"),
        ({"free_bytes": 4 * GIB}, Verdict.WARNING, "nearly full"),
        ({"type": "nfs4"}, Verdict.WARNING, "network file system"),
        ({"type": "tmpfs"}, Verdict.WARNING, "lost at a restart"),
        ({"type": ""}, Verdict.OK, "50.0G of 100.0G free (50%)"),
    ],
)
def test_the_disk_is_writable_local_and_has_space(
    changes: dict[str, object], verdict: Verdict, words: str
) -> None:
    found = checks.check_disk(replace(DISK, **changes))  # type: ignore[arg-type]
    assert (found.verdict, bool(found.remedy)) == (verdict, verdict is not Verdict.OK)
    assert words in found.found


def test_meta_properties_is_readable_or_missing_in_a_copy() -> None:
    broken = checks.check_meta(replace(LOGS, node="", meta_error="version 9"))
    assert (broken.verdict, broken.found) == (Verdict.PROBLEM, "version 9")
    assert checks.check_meta(replace(LOGS, node="")).verdict is Verdict.WARNING


def test_the_metadata_log_is_readable_or_elsewhere() -> None:
    broken = checks.check_settings(replace(LOGS, topics=None, settings_error="bad CRC"))
    assert (broken.verdict, broken.found) == (Verdict.PROBLEM, "bad CRC")
    assert checks.check_settings(replace(LOGS, topics=None)).verdict is Verdict.WARNING


def test_an_unclean_stop_is_a_warning_unless_the_broker_runs() -> None:
    unclean = replace(LOGS, is_whole=False)
    found = one(checks.check_stop(unclean))
    assert (found.verdict, found.remedy) == (Verdict.WARNING, "cordwood verify /data")
    assert one(checks.check_stop(replace(unclean, holder=1))).verdict is Verdict.OK


def test_records_of_the_future_are_counted_and_the_furthest_is_named() -> None:
    found = one(checks.check_future(replace(LOGS, future=(("a-0 at 0", 10), ("b-0 at 7", 99)))))
    assert found.verdict is Verdict.WARNING
    assert found.found.startswith(
        "2 segments have some of the future, b-0 at 7 the furthest, by 99"
    )
