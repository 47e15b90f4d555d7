"""Topics of a cluster, and what was done to some: the answers of `cordwood topics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cordwood.client.admin import PartitionFacts, TopicFacts
from cordwood.client.configs import ConfigFacts
from cordwood.model.documents import CamelCase
from cordwood.model.uuids import uuid_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The names of topics."""

    topics: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """The name of a topic that was created; None if it was there already."""

    created: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTopics:
    """Topics that now have so many partitions."""

    altered: Sequence[str]
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopics:
    """The names of topics that were deleted."""

    deleted: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition(CamelCase):
    """A partition and the brokers that have its replicas.

    `leader` is None without one; `elr` and `last_known_elr` are None if the broker returns none.
    """

    partition: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] | None
    last_known_elr: Sequence[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic(CamelCase):
    """A topic, the settings that are not defaults, and its partitions.

    `topic_id` is in Kafka's Base64, None if the broker returns none.
    """

    topic: str
    topic_id: str | None
    configs: Mapping[str, str | None]
    partitions: Sequence[DescribedPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopics:
    """Topics and their partitions, as far as asked for."""

    topics: Sequence[DescribedTopic]


def described_topic(
    topic: TopicFacts, configs: Iterable[ConfigFacts], partitions: Iterable[PartitionFacts]
) -> DescribedTopic:
    """A topic with all its settings, and with those of its partitions."""
    return DescribedTopic(
        topic=topic.name,
        topic_id=None if topic.topic_id is None else uuid_text(topic.topic_id),
        configs={each.name: each.value for each in configs if not each.is_default},
        partitions=[
            DescribedPartition(
                partition=each.partition,
                leader=each.leader if each.leader >= 0 else None,
                replicas=each.replicas,
                isr=each.isr,
                elr=each.elr,
                last_known_elr=each.last_known_elr,
            )
            for each in partitions
        ],
    )
