"""The comparison of two cleanings sees what it should; so does the wait for Kafka's cleaner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.compare import compare_log_dirs, partition_names
from support.golden import Golden
from support.kafka import cleaner_is_quiet, read_checkpoint

CopyOf = Callable[[Path], Path]


def kinds(cleaned: Path, golden: Golden, *topics: str) -> set[tuple[str, str]]:
    found = compare_log_dirs(cleaned, golden.root / "after", topics or None, include_internal=True)
    return {(difference.partition, difference.kind) for difference in found}


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
class TestCompare:
    def test_what_kafka_left_agrees_with_itself(self, golden_a: Golden) -> None:
        for name in ("after", "after-2"):
            side = golden_a.root / name
            assert compare_log_dirs(side, side, include_internal=True) == []

    def test_an_uncleaned_directory_differs_in_batches_segments_and_checkpoints(
        self, golden_a: Golden
    ) -> None:
        found = kinds(golden_a.root / "before", golden_a)
        assert ("codec-zstd-0", "batches") in found
        assert ("codec-zstd-0", "cleaner-offset-checkpoint") in found
        assert ("retention-bytes-0", "segments") in found
        assert not any(partition == "keep-forever-0" for partition, _ in found)

    def test_one_changed_byte_of_a_record_is_found(self, golden_a: Golden, copy_of: CopyOf) -> None:
        cleaned = copy_of(golden_a.root / "after")
        *_, log = sorted((cleaned / "codec-none-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        data[-3] ^= 1
        log.write_bytes(data)
        assert {partition for partition, _ in kinds(cleaned, golden_a)} == {"codec-none-0"}

    def test_an_unsound_index_a_missing_one_and_leftovers_are_found(
        self, golden_a: Golden, copy_of: CopyOf
    ) -> None:
        cleaned = copy_of(golden_a.root / "after")
        index = max(
            (cleaned / "codec-none-0").glob("*.index"), key=lambda path: path.stat().st_size
        )
        data = bytearray(index.read_bytes())
        assert len(data) >= 8
        data[3] ^= 1
        index.write_bytes(data)
        next((cleaned / "headers-0").glob("*.timeindex")).unlink()
        (cleaned / "one-key-0" / "00000000000000000000.log.deleted").touch()
        assert kinds(cleaned, golden_a) == {
            ("codec-none-0", "index"),
            ("headers-0", "index"),
            ("one-key-0", "left over"),
        }

    def test_a_lost_partition_snapshot_or_aborted_transaction_is_found(
        self, golden_a: Golden, copy_of: CopyOf
    ) -> None:
        cleaned = copy_of(golden_a.root / "after")
        (cleaned / "empty-0").rename(cleaned / "other-0")
        next((cleaned / "headers-0").glob("*.snapshot")).unlink()
        sorted((cleaned / "transactions-0").glob("*.txnindex"))[0].unlink()
        assert kinds(cleaned, golden_a) == {
            ("empty-0", "partition"),
            ("other-0", "partition"),
            ("headers-0", "snapshots"),
            ("transactions-0", "aborted transactions"),
        }


def test_internal_topics_are_named_only_when_asked_for(golden_a: Golden) -> None:
    after = golden_a.root / "after"
    assert len(partition_names(after)) == 26
    internal = set(partition_names(after, include_internal=True)) - set(partition_names(after))
    assert internal == {
        f"__{t}-{p}" for t in ("consumer_offsets", "transaction_state") for p in (0, 1)
    }


def test_a_checkpoint_is_read_by_partition(golden_a: Golden) -> None:
    offsets = read_checkpoint(golden_a.root / "after" / "log-start-offset-checkpoint")
    assert offsets["delete-records-0"] == 1111
    assert read_checkpoint(golden_a.root / "no-such-file") == {}


LOOKED = "DEBUG Finding range of cleanable offsets for log=t-0. Last clean offset=Optional.empty"
RETAINED = "DEBUG Log cleanup completed. 0 files deleted in 0 seconds (kafka.log.LogManager)"
STARTED = "INFO [KafkaRaftServer nodeId=1] Kafka Server started (kafka.server.KafkaRaftServer)"
CLEANED = "INFO Cleaner 0: Beginning cleaning of log t-0"
REST = [LOOKED, RETAINED] * 3


@pytest.mark.parametrize(
    ("lines", "quiet"),
    [
        ([STARTED, *REST], True),
        (REST, False),
        ([STARTED, *REST[:-1]], False),
        ([STARTED, *REST, CLEANED], False),
        ([STARTED, CLEANED, *REST], True),
        ([STARTED, *REST, "INFO Deleting segment files LogSegment(baseOffset=0"], False),
        ([STARTED, *REST, "DEBUG Log cleanup completed. 2 files deleted in 0 seconds"], True),
        ([*REST, STARTED, *REST[:2]], False),
    ],
)
def test_the_cleaner_rests_when_three_passes_found_nothing(lines: list[str], quiet: bool) -> None:
    assert cleaner_is_quiet("\n".join(lines)) is quiet
