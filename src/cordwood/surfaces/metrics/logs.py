"""Metrics of logs, log directories and the cleaner.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LogManager, LogCleaner,
LogCleanerManager, LogSegment; kafka.cluster.Partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cordwood.broker.partition import Partition
from cordwood.metadata.image import PartitionImage
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.log.open_transactions import open_transactions
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.surfaces.metrics.metric import Metric, MetricType, Times, Value, single
from cordwood.surfaces.metrics.snapshot import Snapshot


def _labels(log: PartitionLog) -> dict[str, str]:
    partition = log.topic_partition
    return {"topic": partition.topic, "partition": str(partition.partition)}


def _log(name: str, text: str, value: Callable[[PartitionLog], float]) -> Metric[Snapshot]:
    """A value of every log; a future one has the label `is_future`."""

    def read(snapshot: Snapshot) -> Iterator[Value]:
        for log, is_future in snapshot.logs:
            future = {"is_future": "true"} if is_future else {}
            yield Value(_labels(log) | future, value(log))

    return Metric(
        mbean=f"kafka.log:type=Log,name={name}",
        type=MetricType.GAUGE,
        labels=("topic", "partition"),
        help=text,
        read=read,
    )


def _retention_percent(log: PartitionLog) -> int:
    """Source: UnifiedLog, KIP-1257."""
    limit = log.config.retention_bytes
    return 100 * log.size_bytes // limit if limit > 0 else 0


def _partition(
    name: str, text: str, value: Callable[[Partition, PartitionImage], float]
) -> Metric[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Value]:
        for partition, image in snapshot.led:
            yield Value(_labels(partition.log), value(partition, image))

    return Metric(
        mbean=f"kafka.cluster:type=Partition,name={name}",
        type=MetricType.GAUGE,
        labels=("topic", "partition"),
        help=text,
        read=read,
    )


def min_isr(partition: Partition, image: PartitionImage) -> int:
    """min.insync.replicas, or the number of replicas if that is smaller.

    Source: kafka.cluster.Partition.effectiveMinIsr.
    """
    return min(partition.log.config.min_insync_replicas, len(image.replicas))


def _flushes(snapshot: Snapshot) -> Iterator[Times]:
    count, seconds, recent = snapshot.broker.replicas.logs.context.flushes.read()
    yield Times({}, count, 1000 * seconds, [1000 * each for each in recent])


def _trash(name: str, text: str, value: Callable[[BrokerTrash], float]) -> Metric[Snapshot]:
    """A value of the broker's trash, if it has one."""

    def read(snapshot: Snapshot) -> Iterator[Value]:
        trash = snapshot.broker.replicas.logs.context.trash
        if trash is not None:
            yield Value({}, value(trash))

    return Metric(type=MetricType.GAUGE, labels=(), help=text, read=read, given_name=name)


# ---- directories


def _directories(snapshot: Snapshot) -> list[Path]:
    """Every entry of log.dirs, including those that failed before they were opened."""
    return [Path(name).absolute() for name in snapshot.broker.settings.log_dirs]


def _offline(snapshot: Snapshot) -> Mapping[Path, str]:
    return snapshot.broker.replicas.logs.context.failures.offline


def _cordoned(snapshot: Snapshot) -> frozenset[Path]:
    """The directories that take no new partitions (KIP-1066)."""
    return snapshot.broker.replicas.logs.cordoned


def _directory(name: str, text: str, holds: Callable[[Snapshot], object]) -> Metric[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Value]:
        marked = holds(snapshot)
        assert isinstance(marked, Mapping | frozenset)
        for path in _directories(snapshot):
            yield Value({"logDirectory": str(path)}, path in marked)

    return Metric(
        mbean=f"kafka.log:type=LogManager,name={name}",
        type=MetricType.GAUGE,
        labels=("logDirectory",),
        help=text,
        read=read,
    )


def _directory_count(name: str, text: str, count: Callable[[Snapshot], int]) -> Metric[Snapshot]:
    return single(f"kafka.log:type=LogManager,name={name}", text, count)


# ---- the cleaner


def _cleaner(
    group: str, name: str, text: str, *labels: str, own_name: str = ""
) -> Metric[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Value]:
        for gauge in snapshot.gauges.get((group, name), []):
            yield Value(gauge.tags, gauge.read())

    return Metric(
        mbean="" if own_name else f"kafka.log:type={group},name={name}",
        type=MetricType.GAUGE,
        labels=labels,
        help=text,
        read=read,
        given_name=own_name,
    )


# ---- transactions


def _open_transactions(snapshot: Snapshot) -> Iterator[Value]:
    """Seconds since each open transaction began in a partition that is led here."""
    for partition, _ in snapshot.led:
        if partition.log.offsets.first_unstable is None:
            continue
        for each in open_transactions(partition.log):
            labels = {
                "producer_id": str(each.producer_id),
                "transactional_id": snapshot.transactional_ids.get(each.producer_id, ""),
            }
            seconds = max(0, snapshot.now_ms - each.started_ms) / 1000
            yield Value(_labels(partition.log) | labels, seconds)


# ---- groups that retention waits for


def _lost_offsets(snapshot: Snapshot) -> Iterator[Value]:
    """Numbers of lost offsets, 0 for every group that a log here waits for and that lost none."""
    found = {
        (log.topic_partition.topic, group): 0
        for log, _ in snapshot.logs
        for group in log.config.cordwood_retention_groups
    } | dict(snapshot.cleaner.manager.groups.losses.offsets())
    for (topic, group), count in sorted(found.items()):
        yield Value({"topic": topic, "group": group}, count)


# ---- legal holds


def _holds(snapshot: Snapshot) -> Iterator[Value]:
    for log, is_future in snapshot.logs:
        if not is_future:
            yield Value(_labels(log), len(log.holds))


LOGS: tuple[Metric[Snapshot], ...] = (
    _log("Size", "Bytes of a log's segments.", lambda log: log.size_bytes),
    _log("NumLogSegments", "Segments of a log.", lambda log: len(log.segments)),
    _log("LogStartOffset", "The first offset of a log.", lambda log: log.log_start_offset),
    _log("LogEndOffset", "The offset that the next record gets.", lambda log: log.log_end_offset),
    _log(
        "RetentionSizeInPercent",
        "A log's size in percent of retention.bytes, 0 if that sets no limit; the current value, "
        "while Kafka's is from the last retention check.",
        _retention_percent,
    ),
    Metric(
        mbean="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        type=MetricType.SUMMARY,
        help="Flushes of segments, and how long one took, in ms.",
        read=_flushes,
    ),
    _partition(
        "UnderReplicated",
        "1 if a replica is not in sync.",
        lambda _, image: len(image.isr) < len(image.replicas),
    ),
    _partition("InSyncReplicasCount", "Replicas in sync.", lambda _, image: len(image.isr)),
    _partition("ReplicasCount", "Replicas.", lambda _, image: len(image.replicas)),
    _partition(
        "UnderMinIsr",
        "1 if fewer replicas than min.insync.replicas are in sync.",
        lambda partition, image: len(image.isr) < min_isr(partition, image),
    ),
    _partition(
        "AtMinIsr",
        "1 if as many replicas as min.insync.replicas are in sync.",
        lambda partition, image: len(image.isr) == min_isr(partition, image),
    ),
    _partition(
        "LastStableOffsetLag",
        "Committed offsets behind the start of the first open transaction.",
        lambda partition, _: partition.log.high_watermark - partition.log.last_stable_offset,
    ),
    Metric(
        type=MetricType.GAUGE,
        labels=("topic", "partition", "producer_id", "transactional_id"),
        help="Seconds since an open transaction began in a partition: it holds back readers of "
        "committed records, and compaction.",
        read=_open_transactions,
        given_name="cordwood_log_open_transaction_seconds",
    ),
    Metric(
        type=MetricType.GAUGE,
        labels=("topic", "partition"),
        help="Legal holds on a partition: while there is one, nothing of it is removed "
        "(`cordwood hold list`).",
        read=_holds,
        given_name="cordwood_log_holds",
    ),
    Metric(
        type=MetricType.COUNTER,
        labels=("topic", "group"),
        help="Offsets that retention removed before a group of cordwood.retention.groups had "
        "consumed them, because a limit ended the wait.",
        read=_lost_offsets,
        given_name="cordwood_log_group_lost_offsets_total",
    ),
    _trash(
        "cordwood_trash_removals",
        "What the trash of cordwood.trash.dir had after the last check: removals of segments, and "
        "deleted topics (`cordwood trash list`).",
        lambda trash: trash.removals_at_check,
    ),
    _trash(
        "cordwood_trash_missing",
        "1 while the directory of cordwood.trash.dir is missing: what is removed stays in the log "
        "directories until it is back.",
        lambda trash: trash.is_missing,
    ),
    _trash(
        "cordwood_trash_bytes",
        "The bytes of what the trash had after the last check.",
        lambda trash: trash.bytes_at_check,
    ),
    _directory_count(
        "OfflineLogDirectoryCount", "Log directories that failed.", lambda each: len(_offline(each))
    ),
    _directory("LogDirectoryOffline", "1 if a log directory failed.", _offline),
    _directory_count(
        "CordonedLogDirectoryCount",
        "Log directories that take no new partitions (KIP-1066).",
        lambda each: len(_cordoned(each)),
    ),
    _directory("LogDirectoryCordoned", "1 if a log directory takes no new partitions.", _cordoned),
    _cleaner(
        "LogCleaner",
        "cleaner-recopy-percent",
        "Bytes written by the threads' last cleanings, in percent of bytes read.",
    ),
    _cleaner("LogCleaner", "max-clean-time-secs", "The longest of the threads' last cleanings."),
    _cleaner(
        "LogCleaner",
        "max-buffer-utilization-percent",
        "Highest use of the memory for keys in the threads' last cleanings.",
    ),
    _cleaner(
        "LogCleaner",
        "max-compaction-delay-secs",
        "Longest time a log was past max.compaction.lag.ms at the last check.",
    ),
    _cleaner("LogCleaner", "DeadThreadCount", "Cleaner threads that ended with an error."),
    _cleaner(
        "LogCleaner",
        "cordwood-idle-threads",
        "Cleaner threads that wait for logs to clean; 0 if all compact, or if log.cleaner.enable "
        "is false.",
        own_name="cordwood_cleaner_idle_threads",
    ),
    _cleaner(
        "LogCleaner",
        "cordwood-engine-available",
        "0 if Spark, which compacts, is unavailable; `cordwood cleaner` shows the reason.",
        own_name="cordwood_cleaner_engine_available",
    ),
    _cleaner(
        "LogCleaner",
        "cordwood-due-bytes",
        "Dirty bytes of the logs that were due to be compacted at the last check.",
        own_name="cordwood_cleaner_due_bytes",
    ),
    _cleaner(
        "LogCleaner",
        "cordwood-falling-behind",
        "1 if records arrive faster than they are cleaned: for ten minutes logs were due at each "
        "check, and their dirty bytes grew.",
        own_name="cordwood_cleaner_falling_behind",
    ),
    _cleaner(
        "LogCleanerManager",
        "max-dirty-percent",
        "Highest dirty ratio of all logs at the last check, in percent.",
    ),
    _cleaner(
        "LogCleanerManager",
        "time-since-last-run-ms",
        "Time since the last check for logs to clean.",
    ),
    _cleaner(
        "LogCleanerManager",
        "uncleanable-partitions-count",
        "Partitions whose cleaning failed, and which are not retried yet.",
        "logDirectory",
    ),
    _cleaner(
        "LogCleanerManager",
        "uncleanable-bytes",
        "Cleanable bytes of these partitions.",
        "logDirectory",
    ),
)
