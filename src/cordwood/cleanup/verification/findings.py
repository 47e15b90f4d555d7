"""The rules that a log obeys, by code, and what was found to break them.

The code of a rule is part of the output, and stays the same from version to version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Final

_RESTORE: Final = (
    "Restore the segment from a replica or a backup; a reader stops, and a compaction fails, here"
)
_REBUILD: Final = "Stop the broker and remove the file: Kafka rebuilds it when it starts"
_REBUILD_TXN: Final = (
    "Stop the broker and remove the segment's .txnindex and .index: Kafka rebuilds both when it "
    "starts. Until then read_committed consumers may see aborted records"
)
_REPLAY: Final = "Stop the broker and remove the file: Kafka reads the log instead when it starts"
_EPOCHS: Final = (
    "Stop the broker and restore the file from a replica or a backup; followers may truncate at "
    "wrong offsets meanwhile"
)
_LINE: Final = "Stop the broker and remove the partition's line from the file"
_NEXT_START: Final = (
    "Nothing is to be done: the next start, or `cordwood clean`, finishes or undoes it"
)
_REFUSED: Final = "The old segments were kept. Please report this: no cleaning should produce it"
_COMPARE: Final = "Keep BEFORE: AFTER does not hold what a consumer of BEFORE could read"


class Level(StrEnum):
    """The weight of a finding: only damage makes a log unsound."""

    DAMAGED = "damaged"
    UNFINISHED = "unfinished"
    NOTE = "note"


class Rule(Enum):
    """A rule: its code, and what to do where it is broken."""

    # ---- of the log
    BATCH_LENGTH = "batch-length", _RESTORE
    BATCH_MAGIC = "batch-magic", _RESTORE
    BATCH_CRC = "batch-crc", _RESTORE
    BATCH_COUNT = "batch-count", _RESTORE
    BATCH_CUT_OFF = "batch-cut-off", _RESTORE
    BATCH_LEGACY = "batch-legacy", _RESTORE
    OFFSET_ORDER = "offset-order", _RESTORE
    OFFSET_RANGE = "offset-range", _RESTORE
    MAX_TIMESTAMP = "max-timestamp", _RESTORE
    RECORD_FORMAT = "record-format", _RESTORE
    RECORD_ORDER = "record-order", _RESTORE
    RECORD_COUNT = "record-count", _RESTORE
    COMPRESSION = "compression", _RESTORE
    RECORD_SIZE = (
        "record-size",
        "Raise max.decompressed.message.bytes of the topic: until then the log is not compacted, "
        "and a lookup by time fails, here",
    )
    CONTROL_BATCH = "control-batch", _RESTORE
    MARKER_ORDER = "marker-order", _RESTORE
    MARKER_MISSING = "marker-missing", _RESTORE
    OFFSETS_MISSING = "offsets-missing", _RESTORE
    LOG_MISSING = "log-missing", _RESTORE
    SEQUENCE = "producer-sequence", _RESTORE
    PRODUCER_MISSING = "producer-batch-missing", _RESTORE
    # ---- of the files beside it
    INDEX_MISSING = "index-missing", _REBUILD
    INDEX_SIZE = "index-size", _REBUILD
    OFFSET_INDEX_ORDER = "offset-index-order", _REBUILD
    OFFSET_INDEX_ENTRY = "offset-index-entry", _REBUILD
    OFFSET_INDEX_BEYOND = "offset-index-beyond", _REBUILD
    TIME_INDEX_ORDER = "time-index-order", _REBUILD
    TIME_INDEX_ENTRY = "time-index-entry", _REBUILD
    TIME_INDEX_BEYOND = "time-index-beyond", _REBUILD
    TXN_INDEX_FORMAT = "txn-index-format", _REBUILD_TXN
    TXN_INDEX_ENTRY = "txn-index-entry", _REBUILD_TXN
    TXN_INDEX_MISSING = "txn-index-missing", _REBUILD_TXN
    SNAPSHOT_FORMAT = "snapshot-format", _REPLAY
    SNAPSHOT_CONTENT = "snapshot-content", _REPLAY
    EPOCHS_FORMAT = "leader-epochs-format", _EPOCHS
    EPOCHS_ORDER = "leader-epochs-order", _EPOCHS
    EPOCHS_CONTENT = "leader-epochs-content", _EPOCHS
    PARTITION_METADATA = (
        "partition-metadata",
        "Restore the file from another partition of the topic: its topic id is the same",
    )
    # ---- of the log directory
    META_PROPERTIES = (
        "meta-properties",
        "Restore the file from a backup, or write it with the cluster id and the node id of the "
        "broker: a broker does not start without it",
    )
    CHECKPOINT_FORMAT = (
        "checkpoint-format",
        "Stop the broker and remove the file: Kafka takes a missing one for empty, and reads more "
        "of its logs when it starts",
    )
    CHECKPOINT_BOUNDS = "checkpoint-bounds", _LINE
    UNREADABLE = "unreadable", "Give the file back its owner and mode, or check the disk"
    # ---- no damage
    TORN_TAIL = "torn-tail", "Nothing is to be done: Kafka cuts it off when it starts"
    UNFINISHED_WORK = "unfinished-work", _NEXT_START
    ORPHANED_INDEX = "orphaned-index", _NEXT_START
    DELETED_FILE = "deleted-file", "Nothing is to be done: the broker removes it"
    OFFSETS_UNKNOWN = (
        "offsets-unknown",
        "A compaction leaves such gaps, and a lost file may: compare with another replica if in "
        "doubt",
    )
    # ---- of a cleaning
    INVENTED = "cleaning-invented", _REFUSED
    CHANGED = "cleaning-changed", _REFUSED
    BATCH_CHANGED = "cleaning-batch-changed", _REFUSED
    NEWEST_LOST = "cleaning-newest-lost", _REFUSED
    TOMBSTONE_LOST = "cleaning-tombstone-early", _REFUSED
    MARKER_LOST = "cleaning-marker-lost", _REFUSED
    ABORTED_KEPT = "cleaning-aborted-kept", _REFUSED
    HORIZON = "cleaning-horizon", _REFUSED
    PRODUCER_LOST = "cleaning-producer-lost", _REFUSED
    TAIL_LOST = "cleaning-tail-lost", _REFUSED
    TXN_INDEX = "cleaning-txn-index", _REFUSED
    COUNTS = "cleaning-counts", _REFUSED
    SIZE = "cleaning-size", _REFUSED
    # ---- of two copies of a log
    COPY_INVENTED = "copy-invented", _COMPARE
    COPY_CHANGED = "copy-changed", _COMPARE
    COPY_LOST = "copy-newest-lost", _COMPARE
    COPY_REVIVED = "copy-revived", _COMPARE
    COPY_TRANSACTION = "copy-transaction", _COMPARE
    COPY_MISSING = "copy-missing", _COMPARE
    COPY_START = "copy-start", "Check that the retention of the topic explains it"

    def __init__(self, code: str, remedy: str) -> None:
        self.code = code
        self.remedy = remedy

    @property
    def level(self) -> Level:
        """The weight of breaking it."""
        if self in _UNFINISHED:
            return Level.UNFINISHED
        return Level.NOTE if self in _NOTES else Level.DAMAGED


_NOTES = frozenset({Rule.DELETED_FILE, Rule.OFFSETS_UNKNOWN, Rule.COPY_START})
_UNFINISHED = frozenset({Rule.TORN_TAIL, Rule.UNFINISHED_WORK, Rule.ORPHANED_INDEX})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken rule, and where: the byte in the file and the offset in the log, if there is one."""

    rule: Rule
    path: str
    reason: str
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        at = "" if self.position is None else f", byte {self.position}"
        of = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.path}{at}{of}: [{self.rule.code}] {self.reason}"


@dataclass(slots=True)
class Findings:
    """Findings of one partition, in the order found; of each rule and file only so many."""

    per_file_max: int = 100
    found: list[Finding] = field(default_factory=list)
    #: How many more there were than are listed.
    unlisted: int = 0
    _counts: dict[tuple[Rule, str], int] = field(default_factory=dict)

    def add(
        self,
        rule: Rule,
        path: Path | str,
        reason: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Adds a finding."""
        key = rule, str(path)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] > self.per_file_max:
            self.unlisted += 1
            return
        self.found.append(
            Finding(rule=rule, path=str(path), reason=reason, position=position, offset=offset)
        )

    @property
    def is_damaged(self) -> bool:
        """Whether there is damage."""
        return has_damage(self.found)


def has_damage(findings: Iterable[Finding]) -> bool:
    """Whether one of the findings is damage."""
    return any(each.rule.level is Level.DAMAGED for each in findings)
