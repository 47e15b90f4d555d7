"""The audit log: events of the logger `cordwood.audit`, each about something that is gone.

Every event is logged at INFO, after what it reports has happened, by the thread that did it. A
command and a broker write the events whatever their log level is; a program that uses the library
receives them if the logger's level lets them pass. An event has a text, in the words of Kafka's own
log lines where Kafka has one, and a JSON form, in which `event` names its class.

Events about other things than removals may be added here: one class for each kind.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

from cordwood.model.topic_partition import TopicPartition

AUDIT_LOGGER: Final = "cordwood.audit"
#: Where a log record has its event.
EVENT_ATTRIBUTE: Final = "audit_event"

_log = logging.getLogger(AUDIT_LOGGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSetting:
    """A setting that decided: its name and value in force, and where that was given.

    `given` is the setting and value that were written, such as `log.retention.hours=48` for a
    retention.ms. `level` and `source` are empty where the origin is unknown.
    """

    name: str
    value: str
    given: str = ""
    level: str = ""
    source: str = ""

    def __str__(self) -> str:
        """As a line of the log has it."""
        own = f"{self.name}={self.value}"
        given = "" if self.given == own else self.given
        where = ", ".join(each for each in (given, self.level, self.source) if each)
        return f"{own} ({where})" if where else own


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent(ABC):
    """One event; `kind` is its name in JSON."""

    kind: ClassVar[str]

    @abstractmethod
    def __str__(self) -> str:
        """The event in a line."""

    def to_json(self) -> dict[str, Any]:
        """Plain values: offsets are inclusive, sizes in bytes, times in ms."""
        values = asdict(self)
        partition = getattr(self, "partition", None)
        if partition is not None:
            values["partition"] = str(partition)
        return {"event": self.kind, **values}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDeleted(AuditEvent):
    """Retention deleted a segment.

    `rule` is that of retention, `reason` says why in Kafka's words. `records` is None where nobody
    has counted them. `at_ms` is the time for which retention was decided.
    """

    kind = "segment deleted"
    partition: TopicPartition
    log_dir: str
    base_offset: int
    last_offset: int
    size_bytes: int
    rule: str
    reason: str
    at_ms: int
    setting: AppliedSetting | None = None
    records: int | None = None
    trash: str | None = None

    def __str__(self) -> str:
        """As Kafka's `Deleting segment ... due to ...`."""
        by = "" if self.setting is None else f"; {self.setting}"
        trash = "" if self.trash is None else f"; moved to {self.trash}"
        return (
            f"[{self.partition}] Deleted segment {self.base_offset} of {self.size_bytes} bytes "
            f"(offsets {self.base_offset} to {self.last_offset}) in dir {self.log_dir} due to "
            f"{self.reason}{by}{trash}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsCompacted(AuditEvent):
    """Compaction replaced segments by what it retains of their records.

    `segments` are the base offsets of those that are gone. `discarded` has the records by reason;
    a reason without records is left out.
    """

    kind = "segments compacted"
    partition: TopicPartition
    log_dir: str
    segments: tuple[int, ...]
    last_offset: int
    size_bytes_before: int
    size_bytes_after: int
    records_before: int
    records_after: int
    discarded: Mapping[str, int]
    at_ms: int
    setting: AppliedSetting | None = None
    trash: str | None = None

    def __str__(self) -> str:
        """The records that went, by reason."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.discarded.items())
        by = "" if self.setting is None else f"; {self.setting}"
        trash = "" if self.trash is None else f"; moved to {self.trash}"
        return (
            f"[{self.partition}] Compacted segments {', '.join(map(str, self.segments))} "
            f"(offsets {self.segments[0]} to {self.last_offset}) in dir {self.log_dir}: "
            f"{self.records_before - self.records_after} of {self.records_before} records "
            f"discarded ({reasons or 'none'}), {self.size_bytes_before} to "
            f"{self.size_bytes_after} bytes{by}{trash}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRestarted(AuditEvent):
    """A log whose log start offset is beyond its end lost all segments, as when Kafka opens it."""

    kind = "log restarted"
    partition: TopicPartition
    log_dir: str
    segments: tuple[int, ...]
    size_bytes: int
    log_start_offset: int
    trash: str | None = None

    def __str__(self) -> str:
        """Which segments."""
        trash = "" if self.trash is None else f"; moved to {self.trash}"
        return (
            f"[{self.partition}] Deleted all segments ({', '.join(map(str, self.segments))}, "
            f"{self.size_bytes} bytes) in dir {self.log_dir}: the log start offset "
            f"{self.log_start_offset} is beyond the end of the log{trash}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDeleted(AuditEvent):
    """A log was deleted as a whole, because its topic was, or its replica has moved.

    `log_end_offset` is exclusive.
    """

    kind = "log deleted"
    partition: TopicPartition
    directory: str
    topic_id: str | None
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    in_trash: bool = False

    def __str__(self) -> str:
        """As Kafka's `Deleted log for partition ... in ...`."""
        done = "Moved to the trash the" if self.in_trash else "Deleted"
        return (
            f"[{self.partition}] {done} log for partition {self.partition} in {self.directory} "
            f"({self.size_bytes} bytes, offsets {self.log_start_offset} to "
            f"{self.log_end_offset - 1}, topic id {self.topic_id}): its topic was deleted, or its "
            "replica has moved"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted(AuditEvent):
    """A client deleted records with DeleteRecords (KIP-107); their segments go later."""

    kind = "records deleted"
    partition: TopicPartition
    log_dir: str
    first_offset: int
    last_offset: int
    principal: str
    client_id: str | None
    host: str

    def __str__(self) -> str:
        """Who, and which."""
        return (
            f"[{self.partition}] Deleted records at offsets {self.first_offset} to "
            f"{self.last_offset} in dir {self.log_dir} due to a DeleteRecords request of "
            f"{self.principal}, client {self.client_id} at {self.host}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncated(AuditEvent):
    """The end of a log was cut off; `log_end_offset_before` is exclusive.

    A follower does that to what its leader does not have.
    """

    kind = "log truncated"
    partition: TopicPartition
    log_dir: str
    offset: int
    log_end_offset_before: int

    def __str__(self) -> str:
        """As Kafka's `Truncating to offset ...`."""
        return (
            f"[{self.partition}] Truncated to offset {self.offset} in dir {self.log_dir}: offsets "
            f"up to {self.log_end_offset_before - 1} are gone"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsErased(AuditEvent):
    """An erasure removed records; `offsets` are ranges, first and last offset inclusive."""

    kind = "records erased"
    partition: TopicPartition
    directory: str
    erasure: str
    records: int
    offsets: tuple[tuple[int, int], ...]
    operator: str
    reason: str

    def __str__(self) -> str:
        """How many, and on whose order."""
        why = f" ({self.reason})" if self.reason else ""
        ranges = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in self.offsets)
        return (
            f"[{self.partition}] Erased {self.records} records (offsets {ranges}) in "
            f"{self.directory} by {self.erasure} of {self.operator}{why}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileErased(AuditEvent):
    """An erasure removed a whole file beside the segments, which held erased records."""

    kind = "file erased"
    path: str
    erasure: str

    def __str__(self) -> str:
        """Which."""
        return f"Removed {self.path} by {self.erasure}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired(AuditEvent):
    """Committed offsets of a group, by partition, expired; `retention_ms` None is no limit."""

    kind = "group offsets expired"
    group: str
    offsets: Mapping[str, int]
    retention_ms: int | None
    at_ms: int

    def __str__(self) -> str:
        """Which."""
        each = ", ".join(f"{name} at {offset}" for name, offset in self.offsets.items())
        return (
            f"[GroupId {self.group}] Expired the committed offsets of {each} due to "
            f"offsets.retention.minutes: {self.retention_ms} ms"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashEmptied(AuditEvent):
    """Something left the trash for good: it cannot be put back.

    `what` is a partition or a topic, `segments` are base offsets, empty for a topic; `removed_ms`
    is when it went to the trash, and `why`.
    """

    kind = "trash emptied"
    trash: str
    what: str
    why: str
    removed_ms: int
    size_bytes: int
    segments: tuple[int, ...] = field(default=())

    def __str__(self) -> str:
        """Which."""
        which = f"segments {', '.join(map(str, self.segments))} of " if self.segments else "topic "
        return (
            f"Deleted from the trash {self.trash}: {which}{self.what} ({self.size_bytes} bytes), "
            f"removed by {self.why} at {self.removed_ms}"
        )


def audit(event: AuditEvent) -> None:
    """Logs an event. Its text is made where the logger's level lets it pass."""
    _log.info("%s", event, extra={EVENT_ATTRIBUTE: event})


def is_audited() -> bool:
    """Whether events are written anywhere; for callers to whom one costs something."""
    return _log.isEnabledFor(logging.INFO)
