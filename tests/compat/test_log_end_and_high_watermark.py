"""The log end offsets and the high watermark of a partition with three replicas, step by step.

A follower that is suspended fetches nothing, and is in sync until replica.lag.time.max.ms is over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.format.record_batch import Record, build_batch, iter_batches
from support.cluster_broker import ClusterBroker
from support.kafka import poll_until
from support.kafka_cluster import KafkaController
from support.wire import Wire

TOPIC = "t"
ALL = -1
LEADER, SECOND, THIRD = 1, 2, 3
WAIT_S = 60
#: The followers are suspended for less than this, and fetch at least as often.
_PROPERTIES = {
    "replica.lag.time.max.ms": "120000",
    "broker.session.timeout.ms": "120000",
    "broker.heartbeat.interval.ms": "500",
    "replica.fetch.wait.max.ms": "100",
}


class Replicas:
    """Three brokers, each with a replica."""

    def __init__(self, brokers: dict[int, ClusterBroker]) -> None:
        self.brokers = brokers
        self._settings = {
            "bootstrap.servers": brokers[LEADER].bootstrap_servers,
            "log_level": 0,
        }
        self.admin = AdminClient(self._settings)

    def make_topic(self) -> None:
        topic = NewTopic(TOPIC, 1, replica_assignment=[[LEADER, SECOND, THIRD]])
        self.admin.create_topics([topic])[TOPIC].result()
        poll_until(lambda: self.isr() == {1, 2, 3}, timeout_s=WAIT_S, what="all are in sync")

    def isr(self) -> set[int]:
        topic = self.admin.list_topics(timeout=10).topics.get(TOPIC)
        return set(topic.partitions[0].isrs) if topic and topic.partitions else set()

    def write(self, count: int, acks: int) -> str:
        """Writes so many records in one batch; the error, or "none"."""
        records = [Record(number, 1, b"k", b"v") for number in range(count)]
        partition = {"index": 0, "records": build_batch(records, base_offset=0)}
        fields = {
            "acks": acks,
            "timeout": 2_000,
            "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
        }
        with Wire(self.brokers[LEADER].port) as wire:
            answer = wire.ask("produce", 9, fields)
        return str(answer["responses"][0]["partition_responses"][0]["error_code"])

    def log_end_offsets(self) -> dict[int, int]:
        """Of each replica, by what is in its log."""
        found = {}
        for node_id, broker in self.brokers.items():
            log = broker.log_dirs[0] / f"{TOPIC}-0" / f"{0:020}.log"
            data = log.read_bytes() if log.exists() else b""
            found[node_id] = max((b.next_offset for _, b in iter_batches(data)), default=0)
        return found

    def high_watermark(self) -> int:
        """As the leader says it to consumers."""
        consumer = Consumer({**self._settings, "group.id": "g"})
        _, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S)
        consumer.close()
        return int(high)

    def visible(self) -> int:
        """How many records a consumer reads."""
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
        pid = self.brokers[node_id].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def test_records_are_visible_when_all_replicas_in_sync_have_them(tmp_path: Path) -> None:
    session = {"broker.session.timeout.ms": "120000"}
    with (
        KafkaController(tmp_path / "controller", properties=session) as controller,
        ExitStack() as stack,
    ):
        controller.start()
        replicas = Replicas(
            {
                node_id: stack.enter_context(
                    ClusterBroker(
                        tmp_path / str(node_id), controller, node_id, properties=_PROPERTIES
                    )
                )
                for node_id in (LEADER, SECOND, THIRD)
            }
        )
        replicas.make_topic()

        # All three have what is acknowledged by all.
        assert replicas.write(3, ALL) == "none"
        replicas.until(_1=3, _2=3, _3=3)
        assert (replicas.high_watermark(), replicas.visible()) == (3, 3)

        with replicas.suspended(THIRD):
            # The second has the new records, and the third has not: they are not committed.
            assert replicas.write(2, 1) == "none"
            replicas.until(_1=5, _2=5, _3=3)
            assert (replicas.high_watermark(), replicas.visible()) == (3, 3)
            assert replicas.write(1, ALL) == "request_timed_out"
            replicas.until(_1=6, _2=6, _3=3)
            assert (replicas.high_watermark(), replicas.visible()) == (3, 3)
            assert replicas.isr() == {LEADER, SECOND, THIRD}

        # The third fetches the rest, and the high watermark moves to the end.
        replicas.until(_1=6, _2=6, _3=6)
        poll_until(lambda: replicas.high_watermark() == 6, timeout_s=WAIT_S, what="all committed")
        assert replicas.visible() == 6
