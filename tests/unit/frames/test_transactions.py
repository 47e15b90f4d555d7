"""Transactional ids as rows."""

from __future__ import annotations

import json
from pathlib import Path

from cordwood.format.record_batch import iter_batches
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from cordwood.surfaces.dump.decoders import decode_transaction_log
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir
from support.table_rows import rows_of


def latest(log_dir: Path) -> dict[str, dict[str, object]]:
    """The newest value of each transactional id, as `dump-log` decodes it."""
    found = {}
    for path in sorted(log_dir.glob("__transaction_state-*/*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                key, value = decode_transaction_log(record)
                assert key is not None
                assert value is not None
                found[json.loads(key)["data"]["transactionalId"]] = json.loads(value)["data"]
    return found


def test_the_rows_of_a_kafkas_directory_are_the_newest_values(golden_a: Golden) -> None:
    log_dir = golden_a.root / "before-2"
    rows = rows_of("transactions", log_dir)
    expected = latest(log_dir)
    assert len(expected) == len(rows) > 5
    for row in rows:
        value = expected[row["transactionalId"]]
        topics: dict[str, list[int]] = {}
        for each in row["partitions"]:
            topics.setdefault(each["topic"], []).append(each["partition"])
        assert value == {
            "producerId": row["producerId"],
            "previousProducerId": row["previousProducerId"],
            "producerEpoch": row["producerEpoch"],
            "transactionTimeoutMs": row["timeoutMs"],
            "transactionStatus": row["state"],
            "transactionPartitions": [
                {"topic": topic, "partitionIds": numbers} for topic, numbers in topics.items()
            ],
            "transactionLastUpdateTimestampMs": row["updateTimestamp"],
            "transactionStartTimestampMs": row["startTimestamp"],
        }
    assert {row["state"] for row in rows} >= {"Ongoing", "CompleteCommit", "CompleteAbort"}


def test_the_newest_record_of_an_id_counts_and_a_tombstone_removes_it(tmp_path: Path) -> None:
    def record(name: str, status: int | None, start_ms: int = 1000) -> tuple[bytes, bytes | None]:
        key = TRANSACTION_RECORDS.encode_key(0, {"transactionalId": name})
        if status is None:
            return key, None
        topics = [
            {"topic": "b", "partitionIds": [1]},
            {"topic": "a", "partitionIds": [2, 0]},
        ]
        fields = {
            "producerId": 5,
            "previousProducerId": 4,
            "nextProducerId": 6,
            "producerEpoch": 3,
            "transactionTimeoutMs": 60_000,
            "transactionStatus": status,
            "transactionPartitions": topics if status else None,
            "transactionLastUpdateTimestampMs": 2000,
            "transactionStartTimestampMs": start_ms,
            "clientTransactionVersion": 2,
        }
        return key, TRANSACTION_RECORDS.encode_value(0, 1, fields)

    log = LogBuilder("__transaction_state-2")
    log.batch([record("t", 0), record("gone", 1), record("new", 0, -1)])
    log.roll()
    log.batch([record("t", 1), record("gone", None)])
    found = {
        row["transactionalId"]: row
        for row in rows_of("transactions", write_log_dir(tmp_path, [log]))
    }
    assert found.keys() == {"t", "new"}
    partitions = found["t"].pop("partitions")
    assert sorted((each["topic"], each["partition"]) for each in partitions) == [
        ("a", 0),
        ("a", 2),
        ("b", 1),
    ]
    assert found["t"] == {
        "transactionalId": "t",
        "producerId": 5,
        "producerEpoch": 3,
        "state": "Ongoing",
        "timeoutMs": 60_000,
        "startTimestamp": 1000,
        "updateTimestamp": 2000,
        "previousProducerId": 4,
        "nextProducerId": 6,
        "clientTransactionVersion": 2,
        "recordPartition": 2,
    }
    assert (found["new"]["startTimestamp"], found["new"]["partitions"]) == (None, [])
