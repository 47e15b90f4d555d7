"""Segments with offsets over 2^31 apart: archived, cleaned, restored, and served by a Kafka."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.storage.archives.mount import mount_archive
from support.archives import archive_in, archived, contents, restored
from support.in_process_engine import clean_in_process
from support.kafka import RealKafka
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.table_rows import rows_of
from support.wire_client import WireClient

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

BASES = (0, 2_147_483_000, 4_294_967_000)
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
SEGMENT_FILES = (".log", ".index", ".timeindex")


def sparse_log() -> LogBuilder:
    """Each segment has a record of its own, and one of the key that all have."""
    log = LogBuilder("sparse-0")
    for number, base in enumerate(BASES):
        if number:
            log.skip(base - log.next_offset)
            log.roll()
        log.batch([(b"all", b"%d" % number), (b"of %d" % number, b"value")])
    log.roll()
    return log


def test_a_kafka_serves_a_sparse_log_that_was_cleaned_in_an_archive(tmp_path: Path) -> None:
    source = write_log_dir(tmp_path / "data", [sparse_log()])
    archive = archive_in(tmp_path / "objects")
    archived(archive, source, has_active=True)
    for place in (mount_archive(archive.url), source):
        report = clean_in_process(place, {"sparse": COMPACT}, now_ms=NOW_MS, force=True)
        assert report.partitions[0].discarded.superseded == 2
    assert restored(archive, tmp_path / "restored").is_complete
    found, expected = contents(tmp_path / "restored"), contents(source)
    segments = {name for name in expected if name.endswith(SEGMENT_FILES)}
    assert {name: found[name] for name in segments} == {name: expected[name] for name in segments}
    kept = [1, BASES[1] + 1, BASES[2], BASES[2] + 1]
    for log_dir in (mount_archive(archive.url), tmp_path / "restored"):
        assert [row["offset"] for row in rows_of("records", log_dir)] == kept

    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        with WireClient(kafka.port) as wire:
            wire.create("sparse", cleanup_policy="compact")
        kafka.stop()
        partition = kafka.log_dirs[0] / "sparse-0"
        for path in [*partition.glob("0*"), kafka.log_dirs[0] / ".kafka_cleanshutdown"]:
            path.unlink()
        for path in (tmp_path / "restored" / "sparse-0").iterdir():
            if path.name.endswith(SEGMENT_FILES):
                shutil.copy(path, partition)
        kafka.start_without_cleaning()
        with WireClient(kafka.port) as wire:
            read = [each.offset for each in wire.records("sparse")]
        assert read == kept
