"""A topic at a broker, with segments of chosen ages and groups that have read a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.kafka import poll_until

HOUR_MS: Final = 3_600_000
PARTITIONS: Final = 2
RECORDS: Final = 5


class AgedTopic:
    """Any broker's topic of two partitions; a segment has five records.

    `committed` has what groups have committed, by group and number of the partition.
    """

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self.name = name
        self.committed: dict[tuple[str, int], int] = {}
        self._servers = {"bootstrap.servers": bootstrap_servers}
        self._admin = AdminClient(self._servers)

    def create(self, config: Mapping[str, str]) -> None:
        """Makes it; each segment takes the records of one second."""
        new = NewTopic(self.name, PARTITIONS, 1, config={"segment.ms": "1000", **config})
        self._admin.create_topics([new])[self.name].result(30)

    def fill(self, ages_ms: Sequence[int], *, now_ms: int) -> None:
        """Appends a segment to each partition for each age (ms); the ages descend."""
        producer = Producer({**self._servers, "linger.ms": 5, "log_level": 0})
        for age_ms in ages_ms:
            for number in range(PARTITIONS * RECORDS):
                producer.produce(
                    self.name,
                    b"v" * (100 + number),
                    key=b"%d" % number,
                    partition=number % PARTITIONS,
                    timestamp=now_ms - age_ms,
                )
            assert producer.flush(30) == 0

    def commit(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commits offsets for a group, by the number of the partition.

        It is tried again until the coordinator has loaded the group.
        """
        wanted = [TopicPartition(self.name, number, at) for number, at in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, wanted)

        def is_committed() -> bool:
            (done,) = self._admin.alter_consumer_group_offsets([asked]).values()
            return all(each.error is None for each in done.result(30).topic_partitions)

        poll_until(is_committed, timeout_s=60, what=f"{group} commits")
        self.committed |= {(group, number): at for number, at in offsets.items()}

    def set(self, changes: Mapping[str, str]) -> None:
        """Changes its settings, by IncrementalAlterConfigs."""
        self._alter(ConfigResource(ResourceType.TOPIC, self.name), changes)

    def set_of_broker(self, node_id: int, changes: Mapping[str, str]) -> None:
        """Changes settings of a broker."""
        self._alter(ConfigResource(ResourceType.BROKER, str(node_id)), changes)

    def _alter(self, resource: ConfigResource, changes: Mapping[str, str]) -> None:
        for name, value in changes.items():
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
        (done,) = self._admin.incremental_alter_configs([resource]).values()
        done.result(30)

    def unread(
        self, before: Mapping[int, int], after: Mapping[int, int]
    ) -> dict[tuple[str, str], int]:
        """The number of offsets that groups have lost, by group and partition.

        Args:
            before: log start offsets by the number of the partition.
            after: the same after segments went.
        """
        found = {}
        for (group, number), at in self.committed.items():
            lost = after[number] - max(at, before[number])
            if lost > 0:
                found[group, f"{self.name}-{number}"] = lost
        return found
