"""The settings that matter to logs and their cleanup: names, validation rules, defaults, docs.

A topic setting has one or more broker settings that give its default to all topics, in order of
precedence (milliseconds before minutes before hours). `LogConfig` has the effective settings of one
topic, `BrokerConfig` those of one broker; `sources` describes how they are resolved.

Settings that begin with `cordwood.` are Cordwood's own, off by default. The broker setting that
gives one of a topic its default has the same name.

Source: org.apache.kafka.storage.internals.log.LogConfig, kafka.server.KafkaConfig and
org.apache.kafka.server.config.ServerTopicConfigSynonyms, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cordwood.configs.value import LONG_MAX, Kind, Rule, Value, parse_value

OWN_PREFIX: Final = "cordwood."
#: A setting of groups, which comes before the broker's offsets.retention.minutes.
GROUP_OFFSETS_RETENTION: Final = "cordwood.offsets.retention.minutes"
SPARK_IDLE_MS: Final = "cordwood.cleaner.spark.idle.ms"
UNCLEANABLE_RETRY_MS: Final = "cordwood.cleaner.uncleanable.retry.ms"
UNCLEANABLE_RETRY_MAX_MS: Final = "cordwood.cleaner.uncleanable.retry.max.ms"
VERIFY: Final = "cordwood.cleaner.verify"

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerName:
    """A broker setting that gives a topic setting its default; times `factor` in its unit."""

    name: str
    factor: int = 1

    def scaled(self, value: Value | None) -> Value | None:
        """A value of the broker setting in the unit of the topic setting."""
        if self.factor == 1:
            return value
        assert isinstance(value, int), self.name
        return value * self.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """One topic setting.

    `broker_names` are its broker settings; the first one that is set wins. It is empty if the
    setting exists for topics only. `default` None means unset.
    """

    name: str
    rule: Rule
    default: Value | None
    unit: str
    doc: str
    broker_names: tuple[BrokerName, ...] = ()

    def parse(self, text: str) -> Value:
        """The parsed value of `text`.

        Raises:
            ConfigError: Kafka would refuse it.
        """
        return parse_value(self.name, text, self.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSetting:
    """One broker setting; `dynamic` settings can be changed in the metadata log."""

    name: str
    rule: Rule
    default: Value | None
    unit: str
    doc: str
    dynamic: bool = False

    def parse(self, text: str) -> Value:
        """The parsed value of `text`.

        Raises:
            ConfigError: Kafka would refuse it.
        """
        return parse_value(self.name, text, self.rule)


_BOOLEAN = Rule(kind=Kind.BOOLEAN)
_STRING = Rule(kind=Kind.STRING)
_LISTED = Rule(kind=Kind.LIST)
_POLICY = Rule(kind=Kind.LIST, choices=("compact", "delete"))
_RATIO = Rule(kind=Kind.DOUBLE, at_least=0, at_most=1)
_DOUBLE = Rule(kind=Kind.DOUBLE)
_CODEC = Rule(
    kind=Kind.STRING,
    choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
)
_FUTURE_POLICY = Rule(kind=Kind.STRING, choices=("kafka", "append-time"))
_STRATEGY = Rule(kind=Kind.STRING, choices=("offset", "timestamp", "header"))
_CLEANER_ORDER = Rule(kind=Kind.STRING, choices=("ratio", "freed"))
_TIMESTAMP_TYPE = Rule(kind=Kind.STRING, choices=("CreateTime", "LogAppendTime"))
_THROTTLED = Rule(
    kind=Kind.LIST,
    element_pattern="([0-9]+:[0-9]+)?",
    element_note="must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
)


def _int(at_least: int | None = None, at_most: int | None = None) -> Rule:
    return Rule(kind=Kind.INT, at_least=at_least, at_most=at_most)


def _long(at_least: int | None = None) -> Rule:
    return Rule(kind=Kind.LONG, at_least=at_least)


def _topic(  # a row of the table
    name: str, broker: str, rule: Rule, default: Value | None, unit: str, doc: str
) -> TopicSetting:
    names = tuple(BrokerName(name=name) for name in broker.split())
    return TopicSetting(
        name=name, rule=rule, default=default, unit=unit, doc=doc, broker_names=names
    )


def _own(name: str, rule: Rule, default: Value, unit: str, doc: str) -> TopicSetting:
    return _topic(OWN_PREFIX + name, OWN_PREFIX + name, rule, default, unit, doc)


def _timed(name: str, rule: Rule, default: int, doc: str, *broker: tuple[str, int]) -> TopicSetting:
    names = tuple(BrokerName(name=key, factor=factor) for key, factor in broker)
    return TopicSetting(
        name=name, rule=rule, default=default, unit="ms", doc=doc, broker_names=names
    )


_TOPIC_TABLE = (
    _topic("cleanup.policy", "log.cleanup.policy", _POLICY, ("delete",), "",
           "How old segments are cleaned: deleted, compacted, both, or (empty) neither."),
    _timed("retention.ms", _long(-1), 168 * _HOUR_MS,
           "How long records are retained by the delete policy; -1 for ever.",
           ("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS),
           ("log.retention.hours", _HOUR_MS)),
    _topic("retention.bytes", "log.retention.bytes", _long(), -1, "bytes",
           "How large a partition may grow before the delete policy removes any; -1 no limit."),
    _topic("segment.bytes", "log.segment.bytes", _int(_MIB), 1 << 30, "bytes",
           "Size of a segment's .log at which the next one is started."),
    _topic("internal.segment.bytes", "", _int(), None, "bytes",
           "Takes the place of segment.bytes in tests, where small segments are wanted."),
    _timed("segment.ms", _long(1), 168 * _HOUR_MS,
           "Time that a segment's records may span before the next one is started.",
           ("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    _timed("segment.jitter.ms", _long(0), 0,
           "Maximum random reduction of segment.ms, so that not all segments roll together.",
           ("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    _topic("segment.index.bytes", "log.index.size.max.bytes", _int(4), 10 * _MIB, "bytes",
           "Largest size of an index file, and the size a new one is preallocated with."),
    _topic("index.interval.bytes", "log.index.interval.bytes", _int(0), 4096, "bytes",
           "Bytes of the log between two entries of its offset index."),
    _topic("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", _RATIO, 0.5, "",
           "Share of a log that must be dirty, strictly more than this, for it to be compacted."),
    _topic("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", _long(0), 0, "ms",
           "How long a record stays as it is before it may be compacted."),
    _topic("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", _long(1), LONG_MAX, "ms",
           "How long a record may stay before its log is compacted whatever the dirty ratio."),
    _topic("delete.retention.ms", "log.cleaner.delete.retention.ms", _long(0), 24 * _HOUR_MS, "ms",
           "How long tombstones and transaction markers outlive the first cleaning."),
    _topic("file.delete.delay.ms", "log.segment.delete.delay.ms", _long(0), _MINUTE_MS, "ms",
           "How long a removed file stays, renamed to .deleted."),
    _topic("max.message.bytes", "message.max.bytes", _int(0), _MIB + 12, "bytes",
           "Largest record batch that is accepted, its 12 leading bytes included."),
    _topic("compression.type", "compression.type", _CODEC, "producer", "",
           "Codec in which batches are stored; producer leaves each as it came."),
    _topic("compression.gzip.level", "compression.gzip.level",
           Rule(kind=Kind.INT, at_least=1, at_most=9, or_equal=-1), -1, "", "Level of gzip."),
    _topic("compression.lz4.level", "compression.lz4.level", _int(1, 17), 9, "", "Level of lz4."),
    _topic("compression.zstd.level", "compression.zstd.level", _int(-131072, 22), 3, "",
           "Level of zstd."),
    _topic("message.timestamp.type", "log.message.timestamp.type", _TIMESTAMP_TYPE, "CreateTime",
           "", "Whose time a record bears: its producer's or the broker's."),
    _topic("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", _long(0),
           LONG_MAX, "ms", "How far in the past a producer's timestamp may be."),
    _topic("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", _long(0),
           _HOUR_MS, "ms", "How far in the future a producer's timestamp may be."),
    _topic("preallocate", "log.preallocate", _BOOLEAN, False, "",
           "Whether a new segment's .log is allocated with its full size."),
    _topic("flush.messages", "log.flush.interval.messages", _long(1), LONG_MAX, "records",
           "Records appended between two flushes to disk."),
    _timed("flush.ms", _long(0), LONG_MAX, "Time between two flushes to disk.",
           ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    _topic("min.insync.replicas", "min.insync.replicas", _int(1), 1, "replicas",
           "Replicas that must be in sync for a write with acks=all."),
    _topic("unclean.leader.election.enable", "unclean.leader.election.enable", _BOOLEAN, False, "",
           "Whether a replica that is out of sync may lead, at the price of lost records."),
    _topic("leader.replication.throttled.replicas", "", _THROTTLED, (), "",
           "Replicas whose replication is throttled on the leader's side."),
    _topic("follower.replication.throttled.replicas", "", _THROTTLED, (), "",
           "Replicas whose replication is throttled on the follower's side."),
    _topic("remote.storage.enable", "", _BOOLEAN, False, "", "Whether storage is tiered."),
    _topic("remote.log.copy.disable", "", _BOOLEAN, False, "",
           "Whether a tiered topic is no longer copied to remote storage."),
    _topic("remote.log.delete.on.disable", "", _BOOLEAN, False, "",
           "Whether remote data goes when tiered storage is switched off."),
    _topic("local.retention.ms", "log.local.retention.ms", _long(-2), -2, "ms",
           "retention.ms of the local part of a tiered topic; -2 the same."),
    _topic("local.retention.bytes", "log.local.retention.bytes", _long(-2), -2, "bytes",
           "retention.bytes of the local part of a tiered topic; -2 the same."),
    _own("timestamp.future.policy", _FUTURE_POLICY, "kafka", "",
         "With append-time, retention.ms counts from when a segment was last appended to at the "
         "latest, so that a record of the future does not keep it."),
    _own("retention.topic.bytes", _long(-1), -1, "bytes",
         "How large all partitions of a topic on one broker may be together before the delete "
         "policy removes their oldest segments; -1 no limit."),
    _own("retention.groups", _LISTED, (), "",
         "Consumer groups that the delete policy waits for: a segment stays while it has records "
         "that one of them has not consumed, by its committed offset."),
    _own("retention.groups.max.ms", _long(-1), -1, "ms",
         "Age of a segment beyond which it no longer waits for cordwood.retention.groups; -1 no "
         "limit."),
    _own("retention.groups.max.bytes", _long(-1), -1, "bytes",
         "Size of a partition at which its oldest segment no longer waits for "
         "cordwood.retention.groups; -1 no limit."),
    _own("segment.roll.idle", _BOOLEAN, False, "",
         "Whether a segment older than segment.ms is rolled by the check of retention, also if no "
         "record arrives."),
    _own("trash.ms", _long(0), 168 * _HOUR_MS, "ms",
         "How long what a broker removes stays in cordwood.trash.dir, from where it can be put "
         "back; 0 removes it for good. Without cordwood.trash.dir it has no effect. It counts from "
         "the removal; a change is for what is removed later."),
    _own("tombstone.cleanup", _BOOLEAN, False, "",
         "Whether a compacted log is cleaned when the delete horizon of a tombstone in its clean "
         "section has passed, also if no record arrives."),
    _own("record.ttl.header", _STRING, "", "",
         "The key of a header with a record's time to live, in ms from its timestamp: decimal "
         "digits, or a big-endian integer of 8 bytes. A compacted topic's record goes within one "
         "check after it has expired; empty, none expires."),
    _own("compaction.strategy", _STRATEGY, "offset", "",
         "Which record of a key a compaction keeps: that of the highest offset, timestamp, or "
         "value of a header; of equal ones that of the highest offset."),
    _own("compaction.strategy.header", _STRING, "", "",
         "With cordwood.compaction.strategy=header: the key of the header with the version, a "
         "big-endian integer of 8 bytes; a record without loses against any with one."),
)  # fmt: skip


def _broker(
    name: str, rule: Rule, default: Value | None, unit: str, doc: str, *, dynamic: bool = False
) -> BrokerSetting:
    return BrokerSetting(name=name, rule=rule, default=default, unit=unit, doc=doc, dynamic=dynamic)


_BROKER_TABLE = (
    _broker("log.retention.ms", _long(), None, "ms",
            "retention.ms of topics without their own; 0 is refused.", dynamic=True),
    _broker("log.retention.minutes", _int(), None, "minutes", "Used if log.retention.ms is unset."),
    _broker("log.retention.hours", _int(), 168, "hours",
            "Used if log.retention.ms and log.retention.minutes are unset."),
    _broker("log.roll.ms", _long(), None, "ms",
            "segment.ms of topics without their own; at least 1.", dynamic=True),
    _broker("log.roll.hours", _int(1), 168, "hours", "Used if log.roll.ms is unset."),
    _broker("log.roll.jitter.ms", _long(), None, "ms",
            "segment.jitter.ms of topics without their own; at least 0.", dynamic=True),
    _broker("log.roll.jitter.hours", _int(0), 0, "hours", "Used if log.roll.jitter.ms is unset."),
    _broker("log.flush.interval.ms", _long(), None, "ms",
            "flush.ms of topics without their own.", dynamic=True),
    _broker("log.flush.scheduler.interval.ms", _long(), LONG_MAX, "ms",
            "Period of the flush task, and flush.ms if log.flush.interval.ms is unset."),
    _broker("node.id", _int(0), None, "", "The broker's number in its cluster."),
    _broker("broker.id", _int(), -1, "", "The older name of node.id; equal to it if both are set."),
    _broker("process.roles",
            Rule(kind=Kind.LIST, choices=("broker", "controller"), empty_refused=True), None, "",
            "Whether the node is a broker, a controller, or both."),
    _broker("controller.quorum.voters", _LISTED, (), "", "The controllers, as id@host:port."),
    _broker("log.dirs", Rule(kind=Kind.LIST, empty_refused=True), None, "",
            "The directories that hold logs; log.dir if unset."),
    _broker("log.dir", Rule(kind=Kind.LIST, empty_refused=True), ("/tmp/kafka-logs",), "",  # noqa: S108
            "The directories that hold logs, if log.dirs is unset."),
    _broker("metadata.log.dir", _STRING, None, "",
            "The directory of the metadata log; the first of log.dirs if unset."),
    _broker("log.retention.check.interval.ms", _long(1), 5 * _MINUTE_MS, "ms",
            "How often retention is enforced."),
    _broker("log.flush.offset.checkpoint.interval.ms", _int(0), _MINUTE_MS, "ms",
            "How often recovery points are written."),
    _broker("log.flush.start.offset.checkpoint.interval.ms", _int(0), _MINUTE_MS, "ms",
            "How often log start offsets are written."),
    _broker("replica.high.watermark.checkpoint.interval.ms", _long(), 5_000, "ms",
            "How often high watermarks are written."),
    _broker("log.initial.task.delay.ms", _long(0), 30_000, "ms",
            "How long after the start the tasks on logs first run."),
    _broker("num.recovery.threads.per.data.dir", _int(1), 2, "threads",
            "Threads that load the logs of one directory.", dynamic=True),
    _broker("log.cleaner.enable", _BOOLEAN, True, "", "Whether logs are compacted at all."),
    _broker("log.cleaner.threads", _int(0), 1, "threads", "Threads that compact.", dynamic=True),
    _broker("log.cleaner.dedupe.buffer.size", _long(), 128 * _MIB, "bytes",
            "Memory for the keys of the logs being compacted, for all threads.", dynamic=True),
    _broker("log.cleaner.io.buffer.size", _int(0), 512 * 1024, "bytes",
            "Memory for reading and writing in compaction, for all threads.", dynamic=True),
    _broker("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, "",
            "How full the memory for keys may get.", dynamic=True),
    _broker("log.cleaner.io.max.bytes.per.second", _DOUBLE, 1.7976931348623157e308, "bytes/s",
            "Bound of reading and writing in compaction together.", dynamic=True),
    _broker("log.cleaner.backoff.ms", _long(0), 15_000, "ms",
            "How long the cleaner rests when there is nothing to compact.", dynamic=True),
    _broker("producer.id.expiration.ms", _int(1), 24 * _HOUR_MS, "ms",
            "How long after its last write an idempotent producer is forgotten.", dynamic=True),
    _broker("producer.id.expiration.check.interval.ms", _int(1), 10 * _MINUTE_MS, "ms",
            "How often producers are looked over for that."),
    _broker("transactional.id.expiration.ms", _int(1), 168 * _HOUR_MS, "ms",
            "How long an unused transactional id is remembered."),
    _broker("transaction.max.timeout.ms", _int(1), 15 * _MINUTE_MS, "ms",
            "Longest timeout a producer may ask for its transactions."),
    _broker("transaction.state.log.segment.bytes", _int(1), 100 * _MIB, "bytes",
            "segment.bytes of __transaction_state when it is created."),
    _broker("transaction.state.log.num.partitions", _int(1), 50, "partitions",
            "Partitions of __transaction_state when it is created."),
    _broker("transaction.state.log.replication.factor", Rule(kind=Kind.SHORT, at_least=1), 3,
            "replicas", "Replicas of __transaction_state when it is created."),
    _broker("transaction.state.log.min.isr", _int(1), 2, "replicas",
            "min.insync.replicas of __transaction_state when it is created."),
    _broker("offsets.retention.minutes", _int(1), 10_080, "minutes",
            "How long a group's committed offsets outlive its last member."),
    _broker("offsets.retention.check.interval.ms", _long(1), 10 * _MINUTE_MS, "ms",
            "How often committed offsets are looked over for that."),
    _broker("offsets.topic.segment.bytes", _int(1), 100 * _MIB, "bytes",
            "segment.bytes of __consumer_offsets when it is created."),
    _broker("offsets.topic.num.partitions", _int(1), 50, "partitions",
            "Partitions of __consumer_offsets when it is created."),
    _broker("offsets.topic.replication.factor", Rule(kind=Kind.SHORT, at_least=1), 3, "replicas",
            "Replicas of __consumer_offsets when it is created."),
    _broker("offsets.topic.compression.codec", _int(), 0, "",
            "Codec of batches written to __consumer_offsets, by number."),
    _broker("share.coordinator.state.topic.segment.bytes", _int(1), 100 * _MIB, "bytes",
            "segment.bytes of __share_group_state when it is created."),
    _broker("share.coordinator.state.topic.min.isr", Rule(kind=Kind.SHORT, at_least=1), 2,
            "replicas", "min.insync.replicas of __share_group_state when it is created."),
    _broker("num.partitions", _int(1), 1, "partitions", "Partitions of a new topic."),
    _broker("default.replication.factor", _int(), 1, "replicas", "Replicas of a new topic."),
    _broker("auto.create.topics.enable", _BOOLEAN, True, "",
            "Whether a topic is created when it is first requested."),
    _broker("delete.topic.enable", _BOOLEAN, True, "", "Whether topics may be deleted."),
    _broker("log.dir.failure.timeout.ms", _long(1), 30_000, "ms",
            "How long a failed directory may stay unknown to the controller."),
    _broker("remote.log.storage.system.enable", _BOOLEAN, False, "",
            "Whether topics may have tiered storage."),
    _broker("metadata.log.max.record.bytes.between.snapshots", _long(1), 20 * _MIB, "bytes",
            "Bytes of the metadata log after which a snapshot is written."),
    _broker("metadata.log.max.snapshot.interval.ms", _long(0), _HOUR_MS, "ms",
            "Time after which a snapshot is written if there are new records; 0 for never."),
    _broker("metadata.log.segment.bytes", _int(8 * _MIB), 1 << 30, "bytes",
            "Segment size of the metadata log."),
    _broker("metadata.log.segment.ms", _long(), 168 * _HOUR_MS, "ms",
            "Time a segment of the metadata log may span."),
    _broker("metadata.max.retention.bytes", _long(), 100 * _MIB, "bytes",
            "Size of the metadata log and its snapshots above which old ones go; -1 no limit."),
    _broker("metadata.max.retention.ms", _long(), 168 * _HOUR_MS, "ms",
            "Age of a snapshot of the metadata log after which it goes; -1 never."),
    _broker("cordwood.log.dir.retention.bytes", _long(-1), -1, "bytes",
            "How large all logs of a log directory may be together before the delete policy "
            "removes the oldest segments of any topic; -1 no limit.", dynamic=True),
    _broker("cordwood.log.dir.free.bytes.min", _long(-1), -1, "bytes",
            "Free space of a log directory below which the delete policy removes the oldest "
            "segments of any topic; -1 no limit.", dynamic=True),
    _broker("cordwood.cleaner.order", _CLEANER_ORDER, "ratio", "",
            "Which of the logs that are due is compacted next: that of the highest dirty ratio, or "
            "that of which the most bytes are freed for each byte that is read, as estimated.",
            dynamic=True),
    _broker("cordwood.trash.dir", _STRING, None, "",
            "The directory that takes what is removed from the logs, for cordwood.trash.ms: seven "
            "days by default; not in a log directory. It is made at the first start; while it is "
            "missing later, nothing is removed. Unset, nothing is kept."),
)  # fmt: skip


def _by_name_of_broker(
    topics: Iterable[TopicSetting], own: Iterable[BrokerSetting]
) -> dict[str, BrokerSetting]:
    """All broker settings; those that only give a topic setting's default are derived from it.

    The first broker name of a topic setting can be changed at run time; the coarser ones cannot.
    """
    table = {setting.name: setting for setting in own}
    for setting in topics:
        for broker in setting.broker_names[:1]:
            known = table.get(broker.name)
            assert known is None or known.dynamic, broker.name
            if known is None:
                table[broker.name] = BrokerSetting(
                    name=broker.name,
                    rule=setting.rule,
                    default=setting.default,
                    unit=setting.unit,
                    doc=f"{setting.name} of topics without their own.",
                    dynamic=True,
                )
    return table


TOPIC_SETTINGS: Mapping[str, TopicSetting] = {setting.name: setting for setting in _TOPIC_TABLE}
BROKER_SETTINGS: Mapping[str, BrokerSetting] = _by_name_of_broker(_TOPIC_TABLE, _BROKER_TABLE)
assert len(TOPIC_SETTINGS) == len(_TOPIC_TABLE), "a topic setting is listed twice"


def is_own(name: str) -> bool:
    """Whether a setting is Cordwood's own, which Kafka does not know."""
    return name.startswith(OWN_PREFIX)


assert {
    broker.name for setting in _TOPIC_TABLE for broker in setting.broker_names
} <= BROKER_SETTINGS.keys(), "a broker name without a rule"


def whole_default(name: str) -> int:
    """The default of a broker setting that is a whole number."""
    default = BROKER_SETTINGS[name].default
    assert isinstance(default, int), name
    return default


def flag_default(name: str) -> bool:
    """The default of a broker setting that is true or false."""
    default = BROKER_SETTINGS[name].default
    assert isinstance(default, bool), name
    return default


BROKER_NAME_OF_TOPIC_SETTING: Mapping[str, str] = {
    setting.name: setting.broker_names[0].name for setting in _TOPIC_TABLE if setting.broker_names
}
"""For each topic setting that brokers give a default, the broker setting that wins.

Source: org.apache.kafka.server.config.ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS, Kafka 4.3.
"""
