"""Names and settings, good and bad, for scripts of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOPICS: Final = ("t0", "t1", "t2", "t3", "t4", "t5", "t.6", "t_7")
BAD_TOPICS: Final = (
    *("", ".", "..", "a b", "a/b", "a:b", "über", "x" * 249, "x" * 250, "a\nb", "t_6", "t.7"),
    *("__consumer_offsets", "__cluster_metadata", "__transaction_state", "missing", "A" * 300),
)
INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__cluster_metadata")
NOT_CREATED: Final = ("x" * 249, "__consumer_offsets", "__transaction_state", "missing")

#: Settings of a topic that do not make a log do things by itself within minutes.
TOPIC_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact", ""),
    "retention.ms": ("-1", "604800000", "86400000000"),
    "retention.bytes": ("-1", "1000000000"),
    "max.message.bytes": ("300", "1000", "1048588", "0"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": ("9223372036854775807", "864000000"),
    "message.timestamp.after.max.ms": ("3600000", "9223372036854775807", "0"),
    "min.insync.replicas": ("1", "2"),
    "segment.bytes": ("1048576", "1073741824"),
    "internal.segment.bytes": ("2000", "1048576"),
    "segment.ms": ("604800000", "86400000"),
    "segment.index.bytes": ("10485760", "4096"),
    "index.interval.bytes": ("4096", "0", "1"),
    "min.cleanable.dirty.ratio": ("0.5", "0", "1", "0.1234567", "1e-3"),
    "delete.retention.ms": ("0", "86400000"),
    "min.compaction.lag.ms": ("0", "100"),
    "max.compaction.lag.ms": ("9223372036854775807", "1000"),
    "compression.type": ("producer", "uncompressed"),
    "compression.gzip.level": ("-1", "1", "9"),
    "compression.lz4.level": ("9", "17"),
    "compression.zstd.level": ("3", "-131072", "22"),
    "flush.messages": ("1", "9223372036854775807"),
    "flush.ms": ("9223372036854775807",),
    "file.delete.delay.ms": ("60000", "1000"),
    "unclean.leader.election.enable": ("true", "false", "TRUE"),
    "preallocate": ("false",),
    "segment.jitter.ms": ("0",),
    "leader.replication.throttled.replicas": ("*", "0:1,1:1", "", "0:1"),
    "follower.replication.throttled.replicas": ("*", ""),
    "local.retention.ms": ("-2", "1000"),
    "local.retention.bytes": ("-2", "1000"),
}
BAD_TOPIC_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("bogus", "compact,bogus", "delete,,compact", "compact,compact"),
    "retention.ms": ("-2", "abc", "", " 5", "9223372036854775808"),
    "max.message.bytes": ("-1", "2147483648", "1.5"),
    "message.timestamp.type": ("createtime", "bogus"),
    "message.timestamp.before.max.ms": ("-1",),
    "min.insync.replicas": ("0", "-1", "x"),
    "segment.bytes": ("1000", "0", "1048575"),
    "segment.ms": ("0", "-1"),
    "min.cleanable.dirty.ratio": ("-0.1", "1.1", "half"),
    "compression.type": ("GZIP", "brotli", "none", ""),
    "compression.gzip.level": ("0", "10"),
    "compression.lz4.level": ("0", "18"),
    "compression.zstd.level": ("23", "-131073"),
    "preallocate": ("yes", "1"),
    "unclean.leader.election.enable": ("maybe",),
    "leader.replication.throttled.replicas": ("abc", "1", "1:a"),
    "message.format.version": ("3.0",),
    "message.downconversion.enable": ("true",),
    "remote.storage.enable": ("true",),
    "no.such.setting": ("1",),
    "": ("1",),
    "segment.index.bytes": ("3",),
    "index.interval.bytes": ("-1",),
    "local.retention.ms": ("99999999999999",),
    "min.compaction.lag.ms": ("9223372036854775807", "-1"),
}
BROKER_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.retention.ms": ("604800000", "-1"),
    "log.retention.bytes": ("-1",),
    "log.segment.bytes": ("1073741824", "104857600"),
    "message.max.bytes": ("1048588", "2000000"),
    "log.message.timestamp.type": ("CreateTime",),
    "log.cleaner.backoff.ms": ("15000",),
    "log.cleaner.threads": ("1", "2"),
    "log.cleaner.io.max.bytes.per.second": ("1.7976931348623157E308", "1e9"),
    "num.io.threads": ("4", "5"),
    "num.network.threads": ("2",),
    "background.threads": ("10",),
    "max.connections.per.ip": ("2147483647", "1000"),
    "log.flush.interval.ms": ("9223372036854775807",),
    "follower.replication.throttled.rate": ("1000000",),
    "group.coordinator.append.linger.ms": ("5",),
}
BAD_BROKER_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.dirs": ("/tmp/x",),  # noqa: S108  # a name that is refused
    "node.id": ("5",),
    "log.retention.ms": ("abc", "0"),
    "log.cleaner.threads": ("0", "100", "-1"),
    "num.io.threads": ("0", "100"),
    "num.network.threads": ("-1",),
    "bogus.setting": ("1",),
    "log.segment.bytes": ("1",),
    "process.roles": ("broker",),
    "log.cleaner.dedupe.buffer.size": ("1",),
    "auto.create.topics.enable": ("true",),
    "listeners": ("PLAINTEXT://127.0.0.1:1",),
    "log.retention.hours": ("1",),
}
GROUP_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "consumer.session.timeout.ms": ("45000", "50000", "1", "abc"),
    "consumer.heartbeat.interval.ms": ("5000", "6000", "60000", "0"),
    "share.isolation.level": ("read_committed", "bogus"),
    "no.such.setting": ("1",),
}
METRICS_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "metrics": ("org.apache.kafka.producer.", "*", ""),
    "interval.ms": ("60000", "10", "abc", "3600001"),
    "match": ("client_id=a.*", "bogus=1", "client_id", ""),
    "no.such.setting": ("1",),
}
GROUPS: Final = ("g0", "g1", "g2")
