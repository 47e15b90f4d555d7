"""Topic and partition names, as Kafka allows them in directory names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import topic_name_fault


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_internal(self) -> bool:
        """True for names that begin with two underscores, Kafka's own topics."""
        return self.topic.startswith("__")

    @classmethod
    def parse(cls, name: str) -> TopicPartition:
        """The partition a directory called `name` holds.

        Raises:
            CordwoodError: `name` is not `<topic>-<partition>`.

        Source: org.apache.kafka.storage.internals.log.UnifiedLog.parseTopicPartitionName.
        """
        topic, separator, number = name.rpartition("-")
        if not separator or not number.isascii() or not number.isdigit():
            raise CordwoodError(f"{name!r} is not of the form topic-partition")
        if topic_name_fault(topic) is not None:
            raise CordwoodError(f"{topic!r} is not a legal topic name")
        return cls(topic, int(number))

    @classmethod
    def is_name(cls, name: str) -> bool:
        """Whether a directory called `name` holds a partition."""
        try:
            cls.parse(name)
        except CordwoodError:
            return False
        return True


class TopicIdPartition(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: UUID
    partition: int
