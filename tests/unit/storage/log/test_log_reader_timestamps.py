"""Look-ups of a log's ends and of timestamps below its start (UnifiedLogTest)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.kafka_errors import InvalidRecordError
from cordwood.storage.log.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
    ListedOffset,
)
from cordwood.storage.log.partition_log import PartitionLog
from support.log_under_test import catch_up, new_log
from support.stored_log import put


def listed(log: PartitionLog, timestamp: int) -> ListedOffset | None:
    return log.reader.list_offset(timestamp, isolation=Isolation.LOG_END)


def test_the_ends_of_a_log_come_with_their_epochs(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a", timestamp=1000, leader_epoch=0)
    put(log, b"b", timestamp=2000, leader_epoch=1)
    log.assign_epoch(2)
    assert listed(log, EARLIEST_TIMESTAMP) == ListedOffset(-1, 0, 0)
    assert listed(log, EARLIEST_LOCAL_TIMESTAMP) == ListedOffset(-1, 0, 0)
    assert listed(log, LATEST_TIMESTAMP) == ListedOffset(-1, 2, 2), "the latest, though unused"
    catch_up(log)
    log.delete_records(1)
    assert listed(log, EARLIEST_TIMESTAMP) == ListedOffset(-1, 1, 1)


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(4):
        put(log, b"v", timestamp=1000 + number)
    catch_up(log)
    log.delete_records(2)
    found = listed(log, 1000)
    assert found is not None
    assert (found.timestamp, found.offset) == (1002, 2)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_record_over_the_decompressed_bound_ends_a_lookup_that_reads_it(
    tmp_path: Path, codec: Codec
) -> None:
    log = new_log(tmp_path)
    put(log, b"v", timestamp=1000)
    records = [Record(0, 1001, None, b"v"), Record(1, 1003, None, bytes(5_000))]
    records.append(Record(2, 1002, None, b"v"))
    log.append_as_leader(build_batch(records, base_offset=0, codec=codec))
    catch_up(log)
    assert listed(log, 1002) == listed(log, MAX_TIMESTAMP) == ListedOffset(1003, 2, 0)
    log.update_config(replace(log.config, max_decompressed_message_bytes=4_000))
    rebuilds = log.context.resources.rebuilds
    for timestamp in (1002, 1003, MAX_TIMESTAMP):
        with pytest.raises(InvalidRecordError, match="exceeds the configured maximum record size"):
            listed(log, timestamp)
    assert log.context.resources.rebuilds == rebuilds, "no index is at fault"
    assert listed(log, 1000) == ListedOffset(1000, 0, 0)
    assert listed(log, 1001) == ListedOffset(1001, 1, 0), "it is before the record"
    assert listed(log, LATEST_TIMESTAMP) == ListedOffset(-1, 4, 0)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_record_before_one_far_over_the_decompressed_bound_is_found(
    tmp_path: Path, codec: Codec
) -> None:
    log = new_log(tmp_path)
    records = [Record(0, 1001, None, b"v"), Record(1, 1003, None, bytes(500_000))]
    log.append_as_leader(build_batch(records, base_offset=0, codec=codec))
    catch_up(log)
    log.update_config(replace(log.config, max_decompressed_message_bytes=40_000))
    assert listed(log, 1001) == ListedOffset(1001, 0, 0)
    for timestamp in (1002, MAX_TIMESTAMP):
        with pytest.raises(InvalidRecordError, match="exceeds the configured maximum record size"):
            listed(log, timestamp)
