"""Forecast of the expiry of committed offsets.

The groups are read from their partition of `__consumer_offsets`, and judged by the rules that the
coordinator applies. So it works with any broker of Kafka, too. What an open transaction may change
is not read.

Source: KIP-211; org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import GROUP, ClusterClient, Coordinator
from cordwood.client.configs import ConfigFacts, Configs
from cordwood.client.consumer import READ_COMMITTED, Consumer
from cordwood.client.errors import RefusedError
from cordwood.client.offsets import EARLIEST, LATEST, Offsets
from cordwood.configs.resource import ConfigResource
from cordwood.configs.table import GROUP_OFFSETS_RETENTION
from cordwood.coordinator.group import records
from cordwood.coordinator.group.expiry import Expiry, Reason, forecast
from cordwood.coordinator.group.settings import retention_ms_of
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.timeline import Timeline
from cordwood.format.java_map import absolute_hash
from cordwood.model.documents import CamelCase
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition

_RETENTION = "offsets.retention.minutes"
_MS_PER_MINUTE = 60_000
_POLL_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetExpiry(CamelCase):
    """A committed offset, and why it expires at a time, or does not.

    `committed` and `expires` are in ms since the epoch; `expires` is None if it does not while
    things stay as they are.
    """

    topic: str
    partition: int
    current_offset: int
    committed: int
    expires: int | None
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExpiry:
    """A group and its committed offsets, by partition."""

    group: str
    offsets: Sequence[OffsetExpiry]


def expiry_of(cluster: ClusterClient, group_id: str) -> GroupExpiry:
    """Forecast of when each committed offset of a group expires if nothing changes, and why.

    Raises:
        RefusedError: the group is not there.
    """
    shard = _shard_of(cluster, group_id)
    group = shard.groups.get(group_id)
    if group is None or not group.expires:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    expiries = forecast(shard, group, retention_ms=_retention_ms(cluster, group_id))
    ordered = sorted(expiries, key=lambda each: (each.key.topic, each.key.partition))
    return GroupExpiry(group=group_id, offsets=[_answer(each) for each in ordered])


def _answer(expiry: Expiry) -> OffsetExpiry:
    return OffsetExpiry(
        topic=expiry.key.topic,
        partition=expiry.key.partition,
        current_offset=expiry.offset.offset,
        committed=expiry.offset.commit_timestamp_ms,
        expires=expiry.expires_at_ms,
        reason=expiry.reason,
    )


def _retention_ms(cluster: ClusterClient, group_id: str) -> int | None:
    configs = Configs(cluster)
    broker_id = str(cluster.find_coordinator(Coordinator(GROUP, group_id)).id)
    of_broker = _minutes(configs.describe(ConfigResource.BROKER, broker_id), _RETENTION)
    of_group = _minutes(configs.describe(ConfigResource.GROUP, group_id), GROUP_OFFSETS_RETENTION)
    return retention_ms_of(of_group, (of_broker or 0) * _MS_PER_MINUTE)


def _minutes(configs: Iterable[ConfigFacts], name: str) -> int | None:
    return next((int(each.value) for each in configs if each.name == name and each.value), None)


def _shard_of(cluster: ClusterClient, group_id: str) -> GroupShard:
    """The groups of the partition that a group belongs to, as its log has them now."""
    (topic,) = Admin(cluster).topics([GROUP_METADATA_TOPIC])
    number = absolute_hash(group_id) % len(topic.partitions)
    partition = TopicPartition(GROUP_METADATA_TOPIC, number)
    end = Offsets(cluster).list_offsets({partition: LATEST})[partition]
    if isinstance(end, RefusedError):
        raise end
    consumer = Consumer(cluster=cluster, isolation=READ_COMMITTED, reset=EARLIEST)
    consumer.assign({partition: EARLIEST})
    shard = GroupShard(number, Timeline())
    while end is not None and consumer.positions[partition] < end:
        before = consumer.positions[partition]
        for consumed in consumer.poll(_POLL_MS):
            record = consumed.record
            try:
                known = records.decode(record.key, record.value)
            except records.UnknownRecordTypeError:
                continue
            if known is not None:
                shard.replay(known, record.offset, -1)
        if consumer.positions[partition] == before:
            break  # the rest is of open transactions
    return shard
