"""The topics of the cluster as groups see them, and hashes that tell whether they have changed.

Source: org.apache.kafka.coordinator.group.Utils.computeTopicHash, computeGroupHash; hash4j's
XXH3 of 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

import xxhash

_MAGIC = 0
_SIGN = 1 << 63

T = TypeVar("T")


class TopicFacts(NamedTuple):
    """A topic; `racks` has for each partition the racks of its replicas."""

    name: str
    topic_id: UUID
    racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        """The number of its partitions."""
        return len(self.racks)


class Topics(Protocol):
    """The topics of a metadata image."""

    @property
    def version(self) -> int:
        """The offset of the image in the metadata log."""

    @property
    def newest_topics_version(self) -> int:
        """The version of the last image that had a new topic."""

    def names(self) -> Collection[str]:
        """The names of all topics."""

    def by_name(self, name: str) -> TopicFacts | None:
        """The topic of a name."""

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        """The topic of an id."""


class CoordinatorMetadata(Protocol):
    """The cluster's metadata that groups use: topics, and settings of groups."""

    @property
    def topics(self) -> Topics:
        """The topics, at present."""

    def group_setting(self, group_id: str, name: str, default: T, /) -> int | T:
        """A whole number that a group has of its own for a setting, or `default`."""


@lru_cache(maxsize=1 << 15)
def topic_hash(topic: TopicFacts) -> int:
    """A hash of its id, name, partitions and racks, as a signed number of 64 bits.

    Cached, as in Kafka: a group whose expression matches all topics has them hashed at each change.
    """
    parts = [struct.pack("<b", _MAGIC)]
    parts += [struct.pack("<Q", half) for half in struct.unpack(">QQ", topic.topic_id.bytes)]
    parts += [*_text(topic.name), struct.pack("<i", topic.partition_count)]
    for partition, racks in enumerate(topic.racks):
        parts.append(struct.pack("<i", partition))
        for rack in sorted(racks, key=_java_order):
            parts += [struct.pack("<i", _length(rack)), *_text(rack)]
    return _hash(parts)


def group_hash(topics: Iterable[TopicFacts]) -> int:
    """A hash of the topics that a group subscribes to, as a signed number; 0 without topics."""
    by_name = sorted(topics, key=lambda topic: _java_order(topic.name))
    if not by_name:
        return 0
    return _hash([struct.pack("<q", topic_hash(topic)) for topic in by_name])


def _text(text: str) -> list[bytes]:
    return [_java_order(text, "utf-16-le"), struct.pack("<i", _length(text))]


def _length(text: str) -> int:
    """The number of UTF-16 code units of a text."""
    return len(_java_order(text)) // 2


def _java_order(text: str, encoding: str = "utf-16-be") -> bytes:
    return text.encode(encoding, "surrogatepass")


def _hash(parts: Iterable[bytes]) -> int:
    value = xxhash.xxh3_64_intdigest(b"".join(parts))
    return value - 2 * _SIGN if value >= _SIGN else value
