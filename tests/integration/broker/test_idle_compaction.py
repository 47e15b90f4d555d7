"""A running broker removes from an idle topic what has become removable, and explains when."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.testing.broker import RunningBroker
from support.clean import digest_tree
from support.in_process_engine import CompiledEngine
from support.running_logs import read_records

HOUR_MS = 3_600_000
CHECK_MS = 15_000
IDLE = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(2 * HOUR_MS),
    "cordwood.tombstone.cleanup": "true",
    "cordwood.record.ttl.header": "ttl",
}


def append(broker: Broker, at_ms: int, key: bytes, value: bytes | None, *headers: Header) -> None:
    record = Record(0, at_ms, key, value, headers)
    broker.replicas.append("idle", 0, build_batch([record], base_offset=0))


def keys(broker: Broker) -> list[bytes | None]:
    return [record.key for record in read_records(broker.replicas.log("idle", 0))]


@pytest.mark.parametrize("form", [b"%d" % HOUR_MS, HOUR_MS.to_bytes(8, "big")], ids=["10", "be"])
def test_an_idle_topic_loses_what_has_expired_and_its_tombstones(
    tmp_path: Path, form: bytes
) -> None:
    settings = {"node.id": "1", "log.cleaner.backoff.ms": str(CHECK_MS)}
    with RunningBroker(settings, log_dir=tmp_path, engine=CompiledEngine) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for made in admin.create_topics([NewTopic("idle", 1, 1, config=IDLE)]).values():
            made.result()
        now_ms = running.now_ms()
        running.call(lambda broker: append(broker, now_ms, b"stays", b"v"))
        running.call(lambda broker: append(broker, now_ms, b"short", b"v", Header("ttl", form)))
        running.call(lambda broker: append(broker, now_ms, b"gone", None))
        running.advance(milliseconds=HOUR_MS - CHECK_MS)
        assert running.call(keys) == [b"stays", b"short", b"gone"]
        running.advance(milliseconds=CHECK_MS + CHECK_MS)
        assert running.call(keys) == [b"stays", b"gone"], "its segment was rolled"
        running.advance(milliseconds=2 * HOUR_MS - CHECK_MS)
        assert running.call(keys) == [b"stays", b"gone"]
        running.advance(milliseconds=2 * CHECK_MS)
        assert running.call(keys) == [b"stays"]
        running.advance(milliseconds=CHECK_MS + HOUR_MS)  # replaced files are deleted
        before = digest_tree(tmp_path / "idle-0")
        running.advance(days=40)
        assert digest_tree(tmp_path / "idle-0") == before
        assert running.call(keys) == [b"stays"]
