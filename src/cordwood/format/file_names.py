"""The names of files in a log directory and in a partition's: every suffix, once.

Source: org.apache.kafka.storage.internals.log.LogFileUtils, UnifiedLog, LogManager;
org.apache.kafka.snapshot.Snapshots.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from cordwood.model.errors import CorruptError

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
METADATA_SNAPSHOT_SUFFIX = ".checkpoint"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
PART_SUFFIX = ".part"
TEMPORARY_SUFFIX = ".tmp"

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"
META_PROPERTIES = "meta.properties"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
#: Cordwood's own: which broker runs on the directory.
RUNTIME_FILE = ".cordwood-broker.json"
#: Cordwood's own: the legal holds.
HOLDS_FILE = "cordwood-holds.json"
#: Cordwood's own, in a trash: the notes of a partition's removals.
TRASH_NOTES = "cordwood-trash.json"
#: Cordwood's own, in a trash: its id.
TRASH_ID = ".cordwood-trash"
#: Cordwood's own, in a log directory: the ids of the trashes that were used, by their paths.
TRASH_MARK = "cordwood-trashes.json"
#: Cordwood's own, in a log directory: the note of a deleted topic that a trash could not take.
WAITING_TOPIC_PREFIX = "cordwood-trash."
#: Of a directory in a trash: its name before that is the id of a deleted topic.
TRASHED_TOPIC_SUFFIX = ".topic"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
REMOTE_LOG_INDEX_CACHE = "remote-log-index-cache"
CLUSTER_METADATA_DIR = "__cluster_metadata-0"

OFFSET_DIGITS = 20
EPOCH_DIGITS = 10


class FileKind(enum.Enum):
    """The kind of a file in a partition directory; the value is its suffix or whole name."""

    LOG = LOG_SUFFIX
    INDEX = INDEX_SUFFIX
    TIME_INDEX = TIME_INDEX_SUFFIX
    TXN_INDEX = TXN_INDEX_SUFFIX
    PRODUCER_SNAPSHOT = PRODUCER_SNAPSHOT_SUFFIX
    METADATA_SNAPSHOT = METADATA_SNAPSHOT_SUFFIX
    LEADER_EPOCHS = LEADER_EPOCH_CHECKPOINT
    PARTITION_METADATA = PARTITION_METADATA
    QUORUM_STATE = QUORUM_STATE
    OTHER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """A file name taken apart; `state` is one of the suffixes that mark work under way, or ""."""

    kind: FileKind
    base_offset: int | None
    state: str


_SEGMENT_FILE = re.compile(
    r"(?P<offset>\d{20})(?:-(?P<epoch>\d{10}))?"
    r"(?P<kind>\.(?:log|index|timeindex|txnindex|snapshot|checkpoint))"
    r"(?P<state>\.(?:deleted|cleaned|swap|part|tmp))?",
    re.ASCII,
)
_OFFSET_MAX = (1 << 63) - 1

_NAMED_KINDS = (FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE)


def log_file_name(base_offset: int) -> str:
    """The name of the `.log` file of the segment with that base offset."""
    return segment_file_name(base_offset, LOG_SUFFIX)


def segment_file_name(base_offset: int, suffix: str) -> str:
    """The name of a segment's file: 20 digits of its base offset, and a suffix such as `.index`."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def metadata_snapshot_name(end_offset: int, epoch: int) -> str:
    """The name of a metadata snapshot that ends at `end_offset`, exclusive."""
    stem = f"{end_offset:0{OFFSET_DIGITS}d}-{epoch:0{EPOCH_DIGITS}d}"
    return stem + METADATA_SNAPSHOT_SUFFIX


def metadata_snapshot_epoch(name: str) -> int:
    """The epoch in the name of a metadata snapshot."""
    return int(name[OFFSET_DIGITS + 1 : OFFSET_DIGITS + 1 + EPOCH_DIGITS])


def base_offset_of(name: str) -> int:
    """The offset before the first `.` of a file's name.

    Raises:
        CorruptError: what stands there is not an offset.

    Source: UnifiedLog.offsetFromFileName.
    """
    digits = name.partition(".")[0]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > OFFSET_DIGITS:
        raise CorruptError(f"{name!r} does not begin with an offset")
    offset = int(digits)
    if offset > _OFFSET_MAX:
        raise CorruptError(f"{name!r} begins with an offset that is out of range")
    return offset


def classify(name: str) -> FileName:
    """The kind of a file in a partition directory, from its name alone."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is not None and int(match["offset"]) <= _OFFSET_MAX:
        kind = FileKind(match["kind"])
        if (kind is FileKind.METADATA_SNAPSHOT) == (match["epoch"] is not None):
            return FileName(kind=kind, base_offset=int(match["offset"]), state=match["state"] or "")
    for kind in _NAMED_KINDS:
        for state in ("", TEMPORARY_SUFFIX):
            if name == kind.value + state:
                return FileName(kind=kind, base_offset=None, state=state)
    return FileName(kind=FileKind.OTHER, base_offset=None, state="")


def is_log_file(name: str) -> bool:
    """True for a segment's live `.log` file."""
    return name.endswith(LOG_SUFFIX)


def is_index_file(name: str) -> bool:
    """True for a segment's live `.index`, `.timeindex` or `.txnindex` file."""
    return name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX))
