"""The log end offsets and the high watermark of a partition with three replicas, step by step.

A follower that is suspended fetches nothing, and is in sync until replica.lag.time.max.ms is over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from cordwood.format.record_batch import Record, build_batch, iter_batches
from support.kafka import poll_until
from support.mixed_cluster import MixedCluster
from support.wire import Wire

TOPIC = "t"
ALL = -1
LEADER, SECOND, THIRD = 1, 2, 3
WAIT_S = 60
#: The followers are suspended for less than this, and fetch at least as often.
_PATIENCE_MS = 120_000
_PROPERTIES = {
    "replica.lag.time.max.ms": str(_PATIENCE_MS),
    "replica.fetch.wait.max.ms": "100",
}


class Replicas:
    """Three brokers, each with a replica."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self._settings = cluster.client(node_id=LEADER)
        # The records are old.
        cluster.create_topic(TOPIC, [[LEADER, SECOND, THIRD]], {"retention.ms": "-1"})

    def isr(self) -> set[int]:
        return self.cluster.isr(TOPIC, node_id=LEADER)

    def write(self, count: int, acks: int, *, timeout_ms: int = WAIT_S * 1000) -> str:
        """Writes so many records in one batch; the error, or "none"."""
        records = [Record(number, 1, b"k", b"v") for number in range(count)]
        partition = {"index": 0, "records": build_batch(records, base_offset=0)}
        fields = {
            "acks": acks,
            "timeout_ms": timeout_ms,
            "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
        }
        with Wire(self.cluster.brokers[LEADER].port) as wire:
            answer = wire.ask("produce", 9, fields)
        return str(answer["responses"][0]["partition_responses"][0]["error_code"])

    def log_end_offsets(self) -> dict[int, int]:
        """Of each replica, by what is in its log."""
        found = {}
        for node_id, broker in self.cluster.brokers.items():
            log = broker.log_dirs[0] / f"{TOPIC}-0" / f"{0:020}.log"
            data = log.read_bytes() if log.exists() else b""
            found[node_id] = max((b.next_offset for _, b in iter_batches(data)), default=0)
        return found

    def high_watermark(self) -> int:
        """The high watermark that the leader returns to consumers."""
        consumer = Consumer({**self._settings, "group.id": "g"})
        _, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S)
        consumer.close()
        return int(high)

    def visible(self) -> int:
        """The number of records that a consumer reads."""
        consumer = Consumer({**self._settings, "group.id": "g", "enable.partition.eof": True})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found = 0
        while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
            found += 1
        consumer.close()
        return found

    def until(self, **log_ends: int) -> None:
        wanted = {int(name[1:]): offset for name, offset in log_ends.items()}
        poll_until(
            lambda: self.log_end_offsets() == wanted,
            timeout_s=WAIT_S,
            what=f"the log end offsets {wanted}",
        )

    @contextmanager
    def suspended(self, node_id: int) -> Iterator[None]:
        """Meanwhile a broker does nothing."""
        pid = self.cluster.brokers[node_id].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def test_records_are_visible_when_all_replicas_in_sync_have_them(tmp_path: Path) -> None:
    with MixedCluster(
        tmp_path,
        cordwood=(LEADER, SECOND, THIRD),
        properties=_PROPERTIES,
        session_timeout_ms=_PATIENCE_MS,
    ) as cluster:
        replicas = Replicas(cluster)
        assert replicas.high_watermark() == 0, "asked for until the leader leads"

        # All three have what is acknowledged by all.
        assert replicas.write(3, ALL) == "none"
        replicas.until(_1=3, _2=3, _3=3)
        assert (replicas.high_watermark(), replicas.visible()) == (3, 3)

        with replicas.suspended(THIRD):
            # The second has the new records, and the third has not: they are not committed.
            assert replicas.write(2, 1) == "none"
            replicas.until(_1=5, _2=5, _3=3)
            assert (replicas.high_watermark(), replicas.visible()) == (3, 3)
            assert replicas.write(1, ALL, timeout_ms=2_000) == "request_timed_out"
            replicas.until(_1=6, _2=6, _3=3)
            assert (replicas.high_watermark(), replicas.visible()) == (3, 3)
            assert replicas.isr() == {LEADER, SECOND, THIRD}

        # The third fetches the rest, and the high watermark moves to the end.
        replicas.until(_1=6, _2=6, _3=6)
        poll_until(lambda: replicas.high_watermark() == 6, timeout_s=WAIT_S, what="all committed")
        assert replicas.visible() == 6
