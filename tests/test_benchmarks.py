from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.plan.captured import Captured
from cordwood.configs.log_config import LogConfig
from cordwood.format.record_batch import RecordBatch, iter_batches
from support.class_archive import ASKED_BY as QUICK_START_ASKED_BY
from support.compare import dump_files

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

SAID = """\
[2026-11-21 11:16:54,205] INFO Cleaner 0: Beginning cleaning of log bench-0 (org.apache.kafka.storage.internals.log.Cleaner)
[2026-11-21 11:16:54,205] INFO Cleaner 0: Building offset map for bench-0... (org.apache.kafka.storage.internals.log.Cleaner)
[2026-11-21 11:17:02,999] INFO [kafka-log-cleaner-thread-0]: 
	Log cleaner thread 0 cleaned log bench-0 (dirty section = [0, 5800000])
	1,465.6 MB of log processed in 8.8 seconds (166.6 MB/sec).
	Indexed 1,465.5 MB in 3.3 seconds (441.1 MB/sec, 37.8% of total time)
	Buffer utilization: 8.9%
	Cleaned 1,465.6 MB in 5.5 seconds (268.0 MB/sec, 62.2% of total time)
	Start size: 1,465.6 MB (5,800,000 messages)
	End size: 256.6 MB (996,984 messages)
	82.5% size reduction (82.8% fewer messages)
 (org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread)
"""  # noqa: E501, W291


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks, for one test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        path = getattr(sys.modules[name], "__file__", None)
        if path is not None and Path(path).parent == BENCHMARKS:
            del sys.modules[name]


def test_what_kafka_says_of_a_pass_is_understood(load: Callable[[str], ModuleType]) -> None:
    kafka_side = load("kafka_side")
    (found,) = kafka_side.parse_passes(SAID)
    assert found.log == "bench-0"
    assert (found.first_dirty, found.end) == (0, 5_800_000)
    assert (found.seconds, found.index_seconds, found.clean_seconds) == (8.8, 3.3, 5.5)
    assert found.megabytes == 1465.6
    assert found.buffer_percent == 8.9
    assert (found.records_before, found.records_after) == (5_800_000, 996_984)
    ((log, begun),) = kafka_side.parse_beginnings(SAID)
    assert log == "bench-0"
    assert (found.at - begun).total_seconds() == 8.794


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize(("codec", "steady"), [("none", False), ("lz4", True)])
def test_a_generated_log_is_one_that_kafka_reads(
    load: Callable[[str], ModuleType], tmp_path: Path, codec: str, steady: bool
) -> None:
    loggen = load("loggen")
    shape = loggen.Shape(
        codec=codec, steady=steady, partitions=2, records=20_000, keys=3_000, hot_keys=100,
        segment_bytes=1 << 20,
    )  # fmt: skip
    out = tmp_path / "logs"
    written = loggen.generate(out, shape)
    assert sum(w.records for w in written) == 20_000 + 2 * 300
    for number, partition in enumerate(written):
        directory = out / f"bench-{number}"
        captured = _captured(out, directory)
        assert captured.view.log_end_offset == partition.end_offset == partition.records
        assert len(captured.sources) == partition.segments >= 2
        assert captured.warnings == ()
        checkpoint = captured.view.cleaner_checkpoint
        assert checkpoint == (9_000 if steady else None)
        assert not steady or checkpoint in {s.base_offset for s in captured.sources}
        _require_sound(directory, partition.records)
    logs = [
        p for p in sorted(out.glob("bench-*/*")) if p.suffix in {".log", ".index", ".timeindex"}
    ]
    dump = dump_files(logs)
    assert dump.complaints == {}
    lines = [line for path in logs for line in dump.lines[path]]
    assert not any("isvalid: false" in line for line in lines)
    assert sum(line.startswith("| offset: ") for line in lines) == 20_000 + 2 * 300


def _run_benchmark(name: str, *options: str, work: Path) -> tuple[str, dict[str, Any]]:
    """Runs a benchmark: its output, and the document that it writes; nothing else is left of it."""
    scratch, out = work / "work", work / "figures.json"
    scratch.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, str(BENCHMARKS / name), *options),
            *("--work-dir", str(scratch), "--json", str(out)),
        ],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        # What is measured is a Kafka that starts as it does for its users.
        env={name: value for name, value in os.environ.items() if name != QUICK_START_ASKED_BY},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(scratch.iterdir()) == []
    document: dict[str, Any] = json.loads(out.read_text())
    return done.stdout, document


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_the_cleaning_benchmark_runs_and_both_sides_agree(tmp_path: Path) -> None:
    options = ["--scale", "0.01", "--repetitions", "1", "--cases", "none-1", "--patience", "0"]
    printed, document = _run_benchmark("bench_clean.py", *options, work=tmp_path)
    assert "no difference record by record" in printed
    assert "where the time goes (none-1" in printed
    assert "plain PySpark" in printed
    (row,) = _table_of(printed)
    assert re.fullmatch(
        r"\| 1\d MB plain, one partition \| [\d.]+ s, [\d,]+ MB/s \| [\d.]+ s, [\d,]+ MB/s \| "
        r"[\d.]+ \| [\d.]+ s \|",
        row,
    )
    (case,) = document["cases"]
    assert case["ours_cold"] > case["ours"][0]["seconds"] > 0
    assert {"clean", "put in place"} <= set(case["ours"][0]["detail"]["steps"])


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_the_broker_benchmark_measures_every_section_on_both_sides(tmp_path: Path) -> None:
    printed, document = _run_benchmark("bench_broker.py", "--quick", work=tmp_path)
    assert all(row["ours"] and row["other"] for row in document["rows"])
    assert len(_table_of(printed)) == len(_table_of_the_page("| | Kafka | Cordwood | ratio |"))


def test_the_broker_benchmark_runs_without_kafka_too(tmp_path: Path) -> None:
    options = ["--no-kafka", "--sections", "start,connections", "--turns", "1"]
    printed, document = _run_benchmark(
        "bench_broker.py", *options, "--load-seconds", "0.2", work=tmp_path
    )
    assert [row["what"] for row in document["rows"]] == [
        "start to serving",
        *(
            f"raw produce, {size} batches, {n} connections{what}"
            for size in ("16 KiB", "1 KiB")
            for n in (1, 10, 100, 1000)
            for what in ("", ": CPU")
        ),
    ]
    assert all(row["ours"][0] > 0 for row in document["rows"])
    assert len(_table_of(printed)) == 4


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The log directory that ships with the project."""
    with tarfile.open(BENCHMARKS.parent / "examples" / "kafka-logs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "kafka-logs"


@pytest.mark.spark
def test_a_warm_session_says_how_long_each_step_took(
    load: Callable[[str], ModuleType], example: Path, tmp_path: Path
) -> None:
    our_side = load("our_side")
    split = shutil.copytree(example, tmp_path / "split")
    with our_side.WarmSession() as session:
        answer = session.clean(example, topic="carts")
        assert answer["steps"].keys() == answer["step_counts"].keys() == {"clean", "put in place"}
        answer = session.clean(split, topic="carts", split=True)
    assert {"index", "rewrite", "put in place"} <= answer["steps"].keys()
    assert all(seconds > 0 for seconds in answer["steps"].values())
    assert sum(answer["steps"].values()) < 2 * answer["timing_s"]["total"]


def test_the_same_work_without_spark_is_timed_step_by_step(
    load: Callable[[str], ModuleType], example: Path
) -> None:
    costs = load("phases").costs_of(example, "carts")
    assert costs.keys() == {"read and check", "index", "clean"}
    assert all(cost.wall > 0 and cost.cpu > 0 for cost in costs.values())


def test_the_command_is_timed_from_its_start_to_its_exit(
    load: Callable[[str], ModuleType], example: Path
) -> None:
    seconds, report = load("our_side").run_cold(
        example, topic="clicks", options=["--retention-only"]
    )
    assert seconds > report["timing_s"]["total"] > 0


# ---- the tables of benchmarks/README.md


def _table_of(printed: str) -> list[str]:
    """The rows of the table that a benchmark prints for a page."""
    lines = printed.partition("README.md:\n")[2].splitlines()
    return [line for line in lines[2:] if line.startswith("| ")]


def _table_of_the_page(heading: str) -> list[str]:
    page = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert heading in page, heading
    rows = []
    for line in page.partition(f"{heading}\n")[2].splitlines()[1:]:
        if not line.startswith("| "):
            break
        rows.append(line)
    return rows


def test_the_broker_table_of_the_page_has_the_rows_that_the_benchmark_prints(
    load: Callable[[str], ModuleType],
) -> None:
    rows = _table_of_the_page("| | Kafka | Cordwood | ratio |")
    assert [row.split(" | ")[0][2:] for row in rows] == list(
        load("bench_broker").SHORT_ROWS.values()
    )


def test_the_cleaning_table_of_the_page_has_the_rows_that_the_benchmark_prints(
    load: Callable[[str], ModuleType],
) -> None:
    bench_clean = load("bench_clean")
    assert bench_clean.LABELS.keys() == bench_clean.SHAPES.keys()
    rows = _table_of_the_page(bench_clean.MARKDOWN[0])
    labels = [re.sub(r"^\| [\d,]+ MB ", "", row.split(" | ")[0]) for row in rows]
    assert labels == [label for label in bench_clean.LABELS.values() if label in labels]
    assert len(labels) >= 6
    assert all(row.count(" | ") == 4 for row in rows)


def test_a_row_for_a_page_names_both_sides_with_their_unit(
    load: Callable[[str], ModuleType],
) -> None:
    row = load("log_rows").Row(what="a", unit="MB/s", ours=[30, 20], other=[10, 10])
    assert row.markdown("b", ours_first=False) == (
        "| b | 10.00 MB/s | 25.00 MB/s | 2.50 (2.00 to 3.00) |"
    )
    alone = load("log_rows").Row(what="a", unit="us", ours=[300])
    assert alone.markdown(ours_first=True) == "| a | 300 us |  |  |"


# ---- the log


def _run_log_benchmark(tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    """The lines of its table, from what it writes down."""
    printed, document = _run_benchmark("bench_log.py", "--quick", *options, work=tmp_path)
    assert "targets missed: " in printed
    rows: list[dict[str, Any]] = document["rows"]
    assert len(_table_of(printed)) == len(rows)
    assert all(figure > 0 for row in rows for figure in [*row["ours"], *row["other"]])
    return rows


@pytest.mark.nightly
def test_the_benchmark_of_the_log_measures_every_line_in_its_quick_form(tmp_path: Path) -> None:
    rows = _run_log_benchmark(tmp_path, "--no-kafka")
    measured = {row["section"] for row in rows}
    assert measured == {
        "idle", "append", "read", "segments", "partitions", "recovery", "retention",
    }  # fmt: skip
    names = [row["what"] for row in rows]
    for wanted in ("append 16 KiB none", "append 1 MiB none", "read, 1 MiB fetches, pread"):
        assert wanted in names
    for part in ("look up offset, median", "look up timestamp, median", "recover ", "half go"):
        assert any(part in name for name in names), part
    beside = [row for row in rows if row["other"]]
    assert {row["section"] for row in beside} == {"append", "read"}
    assert all(len(row["ours"]) == len(row["other"]) == 2 for row in beside)
    (opened,) = [row for row in rows if row["section"] == "partitions"]
    assert opened["large_modules"] == []
    assert opened["descriptors"] < 20, "twenty logs of forty segments"


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_the_log_benchmark_opens_and_recovers_what_kafka_does(tmp_path: Path) -> None:
    rows = _run_log_benchmark(tmp_path, "--sections", "partitions,recovery")
    assert [row["other_name"] for row in rows] == ["Kafka", "Kafka"]
    assert all(row["ratio"] is not None for row in rows)


def test_a_ratio_says_how_many_times_as_fast_ours_is(load: Callable[[str], ModuleType]) -> None:
    log_rows = load("log_rows")
    fast = log_rows.Row(what="a", unit="MB/s", ours=[30, 20, 10], other=[10, 10, 10], ratio_min=2)
    assert fast.ratio == 2
    assert fast.is_met is True
    slow = log_rows.Row(what="b", unit="s", ours=[4], other=[2], ratio_min=1, at_most=5)
    assert slow.ratio == 0.5
    assert slow.is_met is False
    assert slow.target == ">= 1x <= 5 NO"
    alone = log_rows.Row(what="c", unit="us", ours=[3, 9, 4], ratio_min=1, at_most=4)
    assert alone.ratio is None
    assert alone.is_met is True
    assert log_rows.Row(what="d", unit="us", ours=[1]).is_met is None


def test_sides_take_turns_and_so_does_who_goes_first(load: Callable[[str], ModuleType]) -> None:
    row = load("log_rows").Row(what="a", unit="s")
    order: list[str] = []

    def side(name: str, figure: float) -> Callable[[], float]:
        def run() -> float:
            order.append(name)
            return figure

        return run

    for _ in range(3):
        row.turn(side("ours", 1), side("other", 2))
    assert order == ["ours", "other", "other", "ours", "ours", "other"]
    assert (row.ours, row.other) == ([1, 1, 1], [2, 2, 2])


def _captured(out: Path, directory: Path) -> Captured:
    log_dir = OfflineLogDirectory(out)
    place = next(p for p in log_dir.partitions() if p.path == directory)
    checkpoints = log_dir.checkpoints()[0]
    offline = load_offline_log(
        directory,
        place.topic_partition,
        config=LogConfig(cleanup_policy=frozenset({"compact"})),
        checkpoints=checkpoints,
        clean_shutdown=log_dir.has_clean_shutdown_file(),
        producer_expiration_ms=86_400_000,
        now_ms=0,
    )
    line = checkpoints.cleaner.get(place.topic_partition)
    return capture_offline(offline, cleaner_checkpoint=line)


def _require_sound(directory: Path, records: int) -> None:
    offset = 0
    for path in sorted(directory.glob("*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch)
            batch.require_valid()
            for record in batch.iter_records():
                assert record.offset == offset
                assert record.key is not None
                assert len(record.key) == 10
                assert record.value is None or len(record.value) == 250
                offset += 1
    assert offset == records


@pytest.mark.nightly
def test_the_stall_benchmark_runs(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    names = "create-2500,invalid-9000,metadata-names,bomb-zstd"
    sizes = ["--scale", "0.002", "--cases", names, "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "bench_stalls.py"), "--no-kafka", *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(out.read_text())
    assert [each["case"] for each in figures] == names.split(",")
    assert all(each["evicted"] == 0 and each["requests"] > 10 for each in figures)


def quick_rows(program: str, work: Path) -> list[dict[str, Any]]:
    """The rows of a benchmark beside a Kafka, in its small form."""
    out = work / "figures.json"
    done = subprocess.run(
        [
            *(sys.executable, str(BENCHMARKS / program), "--quick"),
            *("--work-dir", str(work), "--json", str(out)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    assert all(len(row["ours"]) == len(row["other"]) >= 1 for row in rows)
    return rows


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_groups_runs(tmp_path: Path) -> None:
    assert len(quick_rows("bench_groups.py", tmp_path)) >= 8 + 4 + 4


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_transactions_runs(tmp_path: Path) -> None:
    assert len(quick_rows("bench_transactions.py", tmp_path)) == 6 + 2 + 2


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_replication_runs(tmp_path: Path) -> None:
    assert len(quick_rows("bench_replication.py", tmp_path)) == 2 + 1 + 1


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_a_controller_runs(tmp_path: Path) -> None:
    assert len(quick_rows("bench_controller.py", tmp_path)) == 3 + 2


# ---- single commands


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_single_commands_measures_both_sides(tmp_path: Path) -> None:
    _, document = _run_benchmark("bench_cold.py", "--quick", work=tmp_path)
    first, whole, cleaner, demo, trivial = document["rows"]
    assert first["what"] == f"{whole['what']}, first run ever"
    assert first["archive_s"] >= 0
    assert [row["other_name"] for row in (whole, cleaner)] == ["Kafka", "cleaner"]
    assert whole["other"] > cleaner["other"], "the start of Kafka is counted"
    assert all(figure > 0 for row in (demo, trivial) for figure in row["ours"])


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_a_large_log_measures_memory_and_both_sides(tmp_path: Path) -> None:
    _, document = _run_benchmark("bench_large.py", "--quick", work=tmp_path)
    seconds, speed = document["rows"]
    assert seconds["other_name"] == "plain"
    assert seconds["ours"] > seconds["other"] > [0.0]
    assert speed["ours"][0] * seconds["ours"][0] == pytest.approx(400, rel=0.1), "MB"
    assert document["peak_bytes"]["together"] >= document["peak_bytes"]["workers"] > 0


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.usefixtures("kafka_jars")
def test_the_benchmark_of_data_frames_measures_all_sides(tmp_path: Path) -> None:
    printed, document = _run_benchmark("bench_frames.py", "--quick", work=tmp_path)
    rows = document["rows"]
    assert [row["other_name"] for row in rows] == ["Kafka", "Parquet"] * 3
    assert all(figure > 0 for row in rows for figure in [*row["ours"], *row["other"]])
    assert [bool(row["target"]) for row in rows] == [False, False, True, True, False, False]
    assert len(_table_of(printed)) == 6


@pytest.mark.nightly
@pytest.mark.spark
def test_the_benchmark_of_estimates_measures_both_sides(tmp_path: Path) -> None:
    printed, document = _run_benchmark(
        "bench_estimate.py", "--quick", "--logs", "lz4", work=tmp_path
    )
    (row,) = document["rows"]
    assert row["other_name"] == "--exact"
    assert all(figure > 0 for figure in [*row["ours"], *row["other"], *row["memory"]])
    assert row["errors"] == [0.0], "a small log is looked at as a whole"
    assert "error +0.00%" in printed


@pytest.mark.nightly
@pytest.mark.spark
def test_the_benchmark_of_what_is_said_of_a_cleaning_measures_both_sides(tmp_path: Path) -> None:
    _, document = _run_benchmark("bench_whatif.py", "--quick", work=tmp_path)
    (row,) = document["rows"]
    assert row["other_name"] == "clean"
    assert all(figure > 0 for figure in [*row["ours"], *row["other"]])


@pytest.mark.nightly
def test_the_benchmark_of_orders_counts_both_sides(tmp_path: Path) -> None:
    printed, document = _run_benchmark("bench_order.py", "--quick", work=tmp_path)
    assert [row["share"] for row in document["rows"]] == [0.5, 0.8, 0.95]
    assert all(0 < row["freed"] < row["ratio"] for row in document["rows"])
    assert "80% freed with at most 60% of the reads: met" in printed


def test_what_a_terminal_shows_of_the_time_left_is_understood(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_large = load("bench_large")
    monkeypatch.setattr(bench_large, "time", SimpleNamespace(monotonic=lambda: 30.0))
    screen = bench_large.Screen(10.0)
    row = b"\r\x1b[2Kall compactions  \x1b[35m\xe2\x94\x81 21% 1.8 GB/s 0:00:02 0:01:07 left\r\n"
    for piece in (row[:20], row[20:]):
        screen.take(piece)
    assert "complete_s=None" in repr(screen)
    screen.take(row.replace(b" 0:01:07 left", b"").replace(b" 21%", b"100%"))
    assert screen.complete_s == 20.0
    said = bench_large.Said(at_s=20.0, percent=21, left_s=67)
    assert screen.said == [said]
    watched = bench_large.Watched(seconds=102.0, compacted_s=100.0, said=[said], peaks=None)
    assert list(bench_large.misses(watched)) == [(said, pytest.approx(13 / 80))]
