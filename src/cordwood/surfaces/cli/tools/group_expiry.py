"""Forecast of the expiry of committed offsets: `cordwood consumer-groups --describe --expiry`.

The groups are read from their partition of `__consumer_offsets`, and judged by the rules that the
coordinator applies. So it works with any broker of Kafka, too. What an open transaction may change
is not read.

Source: KIP-211; org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import GROUP, ClusterClient, Coordinator
from cordwood.client.configs import ConfigFacts, Configs
from cordwood.client.consumer import READ_COMMITTED, Consumer
from cordwood.client.errors import RefusedError
from cordwood.client.offsets import EARLIEST, LATEST, Offsets
from cordwood.configs.resource import ConfigResource
from cordwood.configs.table import GROUP_OFFSETS_RETENTION
from cordwood.coordinator.group import records
from cordwood.coordinator.group.expiry import Expiry, forecast
from cordwood.coordinator.group.settings import retention_ms_of
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.timeline import Timeline
from cordwood.format.java_map import absolute_hash
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.cli.tools.tool import Terminal

_RETENTION = "offsets.retention.minutes"
_MS_PER_MINUTE = 60_000
_POLL_MS = 1_000
_NEVER = "-"


def show_expiry(
    cluster: ClusterClient, group_ids: Sequence[str], terminal: Terminal, *, as_json: bool
) -> None:
    """Shows for each offset of the groups when it expires if nothing changes, and why.

    Raises:
        RefusedError: a group is not there; then nothing is shown.
    """
    found = {group_id: _expiries(cluster, group_id) for group_id in sorted(set(group_ids))}
    if as_json:
        terminal.document(
            [
                {"group": group_id, "offsets": [_document(each) for each in expiries]}
                for group_id, expiries in found.items()
            ]
        )
        return
    for group_id, expiries in found.items():
        _show(group_id, expiries, terminal)


def _expiries(cluster: ClusterClient, group_id: str) -> list[Expiry]:
    shard = _shard_of(cluster, group_id)
    group = shard.groups.get(group_id)
    if group is None or not group.expires:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    expiries = forecast(shard, group, retention_ms=_retention_ms(cluster, group_id))
    return sorted(expiries, key=lambda each: (each.key.topic, each.key.partition))


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


def _document(expiry: Expiry) -> dict[str, object]:
    return {
        "topic": expiry.key.topic,
        "partition": expiry.key.partition,
        "currentOffset": expiry.offset.offset,
        "committed": expiry.offset.commit_timestamp_ms,
        "expires": expiry.expires_at_ms,
        "reason": expiry.reason.value,
    }


def _show(group_id: str, expiries: Sequence[Expiry], terminal: Terminal) -> None:
    header = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "EXPIRES", "REASON")
    rows = [header]
    for each in expiries:
        moment = _NEVER if each.expires_at_ms is None else _shown(each.expires_at_ms)
        key = each.key
        rows.append(
            (
                group_id,
                key.topic,
                str(key.partition),
                str(each.offset.offset),
                moment,
                each.reason.value,
            )
        )
    widths = [max(15, *(len(row[column]) for row in rows)) for column in range(len(header) - 1)]
    for number, row in enumerate(rows):
        cells = " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        terminal.line(("\n" if number == 0 else "") + f"{cells} {row[-1]}")


def _shown(timestamp_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
