"""The audit log: events of the logger `cordwood.audit`, each about something that is gone.

Every event is logged at INFO, after what it reports has happened, by the thread that did it. A
command and a broker write the events whatever their log level is; a program that uses the library
receives them if the logger's level lets them pass. An event has a text, in the words of Kafka's own
log lines where Kafka has one, and a JSON form, in which `event` names its class.

A class is all that there is of a kind of event: its fields are the values in JSON, and its
docstring is what docs/audit-log.md says of them (`tools/audit_doc.py`). Events about other things
than removals may be added here.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, NamedTuple

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
        """The setting as a line of the log shows it."""
        own = f"{self.name}={self.value}"
        given = "" if self.given == own else self.given
        where = ", ".join(each for each in (given, self.level, self.source) if each)
        return f"{own} ({where})" if where else own


class Requester(NamedTuple):
    """The client that sent a request; `principal` as Kafka writes it, such as `User:ann`."""

    principal: str
    client_id: str | None
    host: str

    def __str__(self) -> str:
        """The requester as a line of the log shows it."""
        return f"{self.principal}, client {self.client_id} at {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent(ABC):
    """One event; `kind` is its name in JSON, `logged_by` says which commands log it."""

    kind: ClassVar[str]
    logged_by: ClassVar[str]

    @abstractmethod
    def __str__(self) -> str:
        """The event in a line."""

    def to_json(self) -> dict[str, Any]:
        """Plain values: offsets are inclusive, sizes in bytes, times in ms."""
        values = asdict(self)
        if "partition" in values:
            values["partition"] = str(TopicPartition(**values["partition"]))
        if "requester" in values:
            requester = values.pop("requester")
            values |= dict.fromkeys(Requester._fields) if requester is None else requester._asdict()
        return {"event": self.kind, **values}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDeleted(AuditEvent):
    """Retention deleted a segment.

    `records_max` is the number of its offsets: in a log that was never compacted, of its records.
    `rule` is `time`, `size`, `log start offset`, or the name of one of Cordwood's settings;
    `reason` has Kafka's words, `setting` what decided. `at_ms` is the time for which it was decided
    (`--now`), `trash` where the files went, or null.
    """

    kind = "segment deleted"
    logged_by = "`clean`; a broker's retention"
    partition: TopicPartition
    log_dir: str
    base_offset: int
    last_offset: int
    records_max: int
    size_bytes: int
    rule: str
    reason: str
    at_ms: int
    setting: AppliedSetting | None = None
    trash: str | None = None

    def __str__(self) -> str:
        """The line of the log, as Kafka's `Deleting segment ... due to ...`."""
        return (
            f"[{self.partition}] Deleted segment {self.base_offset} of {self.size_bytes} bytes "
            f"(offsets {self.base_offset} to {self.last_offset}) in dir {self.log_dir} due to "
            f"{self.reason}{_behind(self.setting, self.trash)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsCompacted(AuditEvent):
    """Compaction replaced segments by what it retains of their records.

    `segments` are the base offsets of those that are gone. `discarded` has the records by reason:
    `superseded`, `tombstone`, `aborted`, `marker`, `unkeyed`, `expired`.
    """

    kind = "segments compacted"
    logged_by = "`clean`; a broker's cleaner"
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
        return (
            f"[{self.partition}] Compacted segments {_listed(self.segments)} "
            f"(offsets {self.segments[0]} to {self.last_offset}) in dir {self.log_dir}: "
            f"{self.records_before - self.records_after} of {self.records_before} records "
            f"discarded ({reasons or 'none'}), {self.size_bytes_before} to "
            f"{self.size_bytes_after} bytes{_behind(self.setting, self.trash)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRestarted(AuditEvent):
    """A log lost all segments, as when Kafka opens it: `log_start_offset` was beyond its end."""

    kind = "log restarted"
    logged_by = "`clean`"
    partition: TopicPartition
    log_dir: str
    segments: tuple[int, ...]
    size_bytes: int
    log_start_offset: int
    trash: str | None = None

    def __str__(self) -> str:
        """One line that names the segments and the cause."""
        return (
            f"[{self.partition}] Deleted all segments ({_listed(self.segments)}, "
            f"{self.size_bytes} bytes) in dir {self.log_dir}: the log start offset "
            f"{self.log_start_offset} is beyond the end of the log{_behind(None, self.trash)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDeleted(AuditEvent):
    """A log was deleted as a whole, because its topic was, or its replica has moved.

    `log_end_offset` is exclusive. It is logged when the files go, `file.delete.delay.ms` later.
    """

    kind = "log deleted"
    logged_by = "a broker"
    partition: TopicPartition
    directory: str
    topic_id: str | None
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    in_trash: bool = False

    def __str__(self) -> str:
        """The line of the log, as Kafka's `Deleted log for partition ... in ...`."""
        done = "Moved to the trash the" if self.in_trash else "Deleted"
        return (
            f"[{self.partition}] {done} log for partition {self.partition} in {self.directory} "
            f"({self.size_bytes} bytes, offsets {self.log_start_offset} to "
            f"{self.log_end_offset - 1}, topic id {self.topic_id}): its topic was deleted, or its "
            "replica has moved"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted(AuditEvent):
    """A client sent DeleteRecords (KIP-107). Its segments follow as `segment deleted`."""

    kind = "records deleted"
    logged_by = "a broker"
    partition: TopicPartition
    log_dir: str
    first_offset: int
    last_offset: int
    requester: Requester

    def __str__(self) -> str:
        """One line that names the records and the requester."""
        return (
            f"[{self.partition}] Deleted records at offsets {self.first_offset} to "
            f"{self.last_offset} in dir {self.log_dir} due to a DeleteRecords request of "
            f"{self.requester}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncated(AuditEvent):
    """A follower cut off what its leader does not have; `log_end_offset_before` is exclusive."""

    kind = "log truncated"
    logged_by = "a broker"
    partition: TopicPartition
    log_dir: str
    offset: int
    log_end_offset_before: int

    def __str__(self) -> str:
        """The line of the log, as Kafka's `Truncating to offset ...`."""
        return (
            f"[{self.partition}] Truncated to offset {self.offset} in dir {self.log_dir}: offsets "
            f"up to {self.log_end_offset_before - 1} are gone"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsErased(AuditEvent):
    """An erasure removed records; `offsets` are ranges, first and last offset inclusive."""

    kind = "records erased"
    logged_by = "`erase`, `clean --apply-erasures`; a broker"
    partition: TopicPartition
    directory: str
    erasure: str
    records: int
    offsets: tuple[tuple[int, int], ...]
    operator: str
    reason: str

    def __str__(self) -> str:
        """One line with the number of records, their offsets and the operator."""
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
    logged_by = RecordsErased.logged_by
    path: str
    erasure: str

    def __str__(self) -> str:
        """The line of the log."""
        return f"Removed {self.path} by {self.erasure}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired(AuditEvent):
    """Committed offsets of a group, by partition, expired; `retention_ms` null is no limit."""

    kind = "group offsets expired"
    logged_by = "a broker"
    group: str
    offsets: Mapping[str, int]
    retention_ms: int | None
    at_ms: int

    def __str__(self) -> str:
        """The line of the log."""
        return (
            f"[GroupId {self.group}] Expired the committed offsets of {_committed(self.offsets)} "
            f"due to offsets.retention.minutes: {self.retention_ms} ms"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsDeleted(AuditEvent):
    """A client sent OffsetDelete (KIP-496); without one, the topics were deleted.

    `offsets` are those that were committed, by partition.
    """

    kind = "group offsets deleted"
    logged_by = "a broker"
    group: str
    offsets: Mapping[str, int]
    requester: Requester | None = None

    def __str__(self) -> str:
        """One line that names the offsets and the requester."""
        by = "the deletion of their topics"
        if self.requester is not None:
            by = f"an OffsetDelete request of {self.requester}"
        return (
            f"[GroupId {self.group}] Deleted the committed offsets of {_committed(self.offsets)} "
            f"due to {by}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(AuditEvent):
    """A client sent DeleteGroups; `offsets` are those that were committed, by partition."""

    kind = "group deleted"
    logged_by = "a broker"
    group: str
    offsets: Mapping[str, int]
    requester: Requester

    def __str__(self) -> str:
        """One line that names the group, its offsets and the requester."""
        return (
            f"[GroupId {self.group}] Deleted the group, with the committed offsets of "
            f"{_committed(self.offsets) or 'no partition'}, due to a DeleteGroups request of "
            f"{self.requester}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldReleased(AuditEvent):
    """A legal hold was released: what it kept may go at the next check.

    `target` is TOPIC or TOPIC:PARTITION; `reason`, `added_by` and `added_ms` are of the hold,
    `released_by` may be empty.
    """

    kind = "hold released"
    logged_by = "`hold release`; a broker"
    hold: str
    target: str
    reason: str
    added_by: str
    added_ms: int
    released_by: str

    def __str__(self) -> str:
        """The line of the log, with the user."""
        why = f" ({self.reason})" if self.reason else ""
        by = f" by {self.released_by}" if self.released_by else ""
        return (
            f"Released the hold {self.hold} on {self.target}{by}, which {self.added_by} added at "
            f"{self.added_ms}{why}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashEmptied(AuditEvent):
    """Something left the trash for good: it cannot be put back.

    `what` is a partition or a topic, `segments` are base offsets, empty for a topic; `removed_ms`
    is when it went to the trash, and `why`.
    """

    kind = "trash emptied"
    logged_by = "`trash empty`; a broker with `cordwood.trash.ms`"
    trash: str
    what: str
    why: str
    removed_ms: int
    size_bytes: int
    segments: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The line of the log."""
        which = f"segments {_listed(self.segments)} of " if self.segments else "topic "
        return (
            f"Deleted from the trash {self.trash}: {which}{self.what} ({self.size_bytes} bytes), "
            f"removed by {self.why} at {self.removed_ms}"
        )


def _behind(setting: AppliedSetting | None, trash: str | None) -> str:
    """The end of a line: what decided, and where the files went."""
    by = "" if setting is None else f"; {setting}"
    return by if trash is None else f"{by}; moved to {trash}"


def _listed(offsets: tuple[int, ...]) -> str:
    return ", ".join(map(str, offsets))


def _committed(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{name} at {offset}" for name, offset in offsets.items())


def audit(event: AuditEvent) -> None:
    """Logs an event. Its text is made where the logger's level lets it pass."""
    _log.info("%s", event, extra={EVENT_ATTRIBUTE: event})
