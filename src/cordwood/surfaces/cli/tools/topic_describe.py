"""The action `--describe` of `cordwood topics`.

Source: org.apache.kafka.tools.TopicCommand (4.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from cordwood.client.admin import Admin, PartitionFacts, Reassignment, TopicFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.configs import ConfigFacts, Configs
from cordwood.configs.resource import ConfigResource
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID, parse_uuid, uuid_text
from cordwood.queries.topics import DescribedTopics, described_topic
from cordwood.surfaces.cli.tools.filters import existing_topics
from cordwood.surfaces.cli.tools.java_order import java_order
from cordwood.surfaces.cli.tools.options import INT_MAX, Options
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError

REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
_PARTITIONS_PER_ANSWER = 2000


class _View(NamedTuple):
    """The parts of the topics to show; settings by topic and name, brokers that are `live`."""

    options: Options
    live: frozenset[int]
    configs: Mapping[str, Mapping[str, ConfigFacts]]
    reassignments: Mapping[TopicPartition, Reassignment]

    @property
    def reports(self) -> list[str]:
        return [name for name in REPORTS if self.options.has(name)]

    def reassignment(self, topic: TopicFacts, partition: PartitionFacts) -> Reassignment | None:
        """The reassignment of a partition that is under way."""
        return self.reassignments.get(TopicPartition(topic.name, partition.partition))

    def partitions(self, topic: TopicFacts) -> list[PartitionFacts]:
        """The partitions of a topic to show."""
        return [each for each in topic.partitions if self._shows(topic, each)]

    def _shows(self, topic: TopicFacts, partition: PartitionFacts) -> bool:
        if not self.reports:
            return True
        min_isr = int(self.configs[topic.name]["min.insync.replicas"].value or 1)
        has_leader = partition.leader >= 0
        judged = {
            "under-replicated-partitions": (
                _replication_factor(partition, self.reassignment(topic, partition))
                > len(partition.isr)
            ),
            "unavailable-partitions": not has_leader or partition.leader not in self.live,
            "under-min-isr-partitions": not has_leader or len(partition.isr) < min_isr,
            "at-min-isr-partitions": len(partition.isr) == min_isr,
        }
        return any(judged[name] for name in self.reports)


def describe(options: Options, cluster: ClusterClient, terminal: Terminal) -> None:
    """Shows topics and their partitions, as far as the options select them."""
    admin = Admin(cluster)
    topics = _described(options, admin)
    described = Configs(cluster).describe_all(
        ConfigResource.TOPIC, [topic.name for topic in topics], include_synonyms=False
    )
    configs = {name: {config.name: config for config in found} for name, found in described.items()}
    live = frozenset(node.id for node in admin.describe_cluster().nodes)
    reassignments = admin.reassignments(
        TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions
    )
    view = _View(options, live, configs, reassignments)
    if options.has("json"):
        found = [described_topic(t, configs[t.name].values(), view.partitions(t)) for t in topics]
        terminal.document(DescribedTopics(topics=found))
        return
    for topic in topics:
        _show_topic(topic, view, terminal)


def _described(options: Options, admin: Admin) -> list[TopicFacts]:
    topic_id = parse_topic_id(options.value("topic-id"))
    if topic_id is not None:
        known = {topic.topic_id for topic in admin.topics()}
        if topic_id in known:
            return admin.topics_by_id([topic_id])
        if options.has("if-exists"):
            return []
        raise ToolError(f"TopicId '{uuid_text(topic_id)}' does not exist as expected")
    names = existing_topics(options, admin)
    if not names:
        return []
    limit = options.number("partition-size-limit-per-response", bound=INT_MAX)
    found = {
        topic.name: topic
        for topic in admin.describe_topics(names, partitions_max=limit or _PARTITIONS_PER_ANSWER)
    }
    ordered = names
    for _ in range(2):
        ordered = java_order(ordered, lambda name: name, capacity=len(names))
    return [found[name] for name in ordered]


def parse_topic_id(text: str | None) -> UUID | None:
    """The id that Kafka writes in Base64; None for none and for zero.

    Raises:
        ToolError: it is not of that form.
    """
    if text is None:
        return None
    try:
        found = parse_uuid(text)
    except CorruptError as error:
        raise ToolError(str(error)) from error
    return None if found == ZERO_UUID else found


def _replication_factor(partition: PartitionFacts, reassignment: Reassignment | None) -> int:
    if reassignment is None:
        return len(partition.replicas)
    changing = {*reassignment.adding, *reassignment.removing}
    if not changing & set(partition.replicas):
        return len(partition.replicas)
    return len(reassignment.replicas) - len(reassignment.adding)


def _show_topic(topic: TopicFacts, view: _View, terminal: Terminal) -> None:
    own = [config for config in view.configs[topic.name].values() if not config.is_default]
    with_overrides = view.options.has("topics-with-overrides")
    if not view.reports and (own or not with_overrides):
        first = topic.partitions[0]
        factor = _replication_factor(first, view.reassignment(topic, first))
        shown = ",".join(f"{config.name}={_text(config.value)}" for config in own)
        parts = [f"Topic: {topic.name}"]
        if topic.topic_id is not None:
            parts.append(f"TopicId: {uuid_text(topic.topic_id)}")
        parts += [
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {factor}",
            f"Configs: {shown}",
        ]
        terminal.line("\t".join(parts))
    if with_overrides:
        return
    for partition in view.partitions(topic):
        _show_partition(topic.name, partition, view.reassignment(topic, partition), terminal)


def _show_partition(
    topic: str, facts: PartitionFacts, reassignment: Reassignment | None, terminal: Terminal
) -> None:
    parts = [
        f"\tTopic: {topic}",
        f"Partition: {facts.partition}",
        f"Leader: {facts.leader if facts.leader >= 0 else 'none'}",
        f"Replicas: {_ids(facts.replicas)}",
        f"Isr: {_ids(facts.isr)}",
    ]
    if reassignment is not None:
        parts += [
            f"Adding Replicas: {_ids(reassignment.adding)}",
            f"Removing Replicas: {_ids(reassignment.removing)}",
        ]
    parts += [
        f"Elr: {'N/A' if facts.elr is None else _ids(facts.elr)}",
        f"LastKnownElr: {'N/A' if facts.last_known_elr is None else _ids(facts.last_known_elr)}",
    ]
    terminal.line("\t".join(parts))


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _text(value: str | None) -> str:
    return "null" if value is None else value
