"""Archives of log directories for tests: made, restored, and compared with what they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cordwood.archiving.archive_logs import archive_logs
from cordwood.archiving.report import (
    ArchivedPartition,
    ArchiveReport,
    ArchiveRequest,
    RestoreReport,
    RestoreRequest,
)
from cordwood.archiving.restore import restore_logs
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.format.clean_shutdown import build_clean_shutdown
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
)
from cordwood.format.leader_epoch_checkpoint import (
    build_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.rng import SystemRng
from cordwood.model.uuids import uuid_text
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.archives.archive import Archive
from cordwood.storage.archives.manifest import (
    ArchivedFile,
    ArchivedSegment,
    ArchiveManifest,
)
from cordwood.storage.archives.mount import mounted_archive
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.objects.object_store import ObjectStore
from support.log_builder import TOPIC_ID
from support.object_storage.server import ACCESS_KEY, REGION, SECRET_KEY

#: What differs between a directory that a broker left and one that was restored.
_OF_A_RUN: Final = frozenset({LOCK, CLEAN_SHUTDOWN})
_ENDS: Final = RECOVERY_POINT_CHECKPOINT
_STARTS: Final = LOG_START_OFFSET_CHECKPOINT
_NO_LINES: Final = (b"", b"0\n0\n")


def archive_in(directory: Path) -> Archive:
    """An archive in a directory that takes the place of object storage."""
    return Archive(ObjectStore(f"file://{directory}"))


def s3_options(endpoint: str) -> dict[str, str]:
    """The options of a store at the S3 server of the tests, or at a proxy before it."""
    return {
        "endpoint": endpoint,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": REGION,
    }


def archived(
    archive: Archive,
    *log_dirs: Path,
    clock: Clock | None = None,
    has_active: bool = False,
    dry_run: bool = False,
    topics: Sequence[str] = (),
    fs: FileSystem = OS,
) -> ArchiveReport:
    """The report of a run that archives log directories."""
    clock = clock or SystemClock()
    settings = read_settings(SettingOptions(log_dirs=log_dirs, defaults=True))
    logs = CleanRequest(
        log_dirs=log_dirs,
        resolve=settings.resolve,
        now_ms=clock.now_ms(),
        topics=tuple(topics),
        dry_run=True,
        for_reading=True,
    )
    request = ArchiveRequest(logs=logs, has_active=has_active, dry_run=dry_run)
    return archive_logs(request, archive, clock=clock, rng=SystemRng(), fs=fs)


def restored(
    archive: Archive, into: Path, *, options: Mapping[str, str] | None = None, **wanted: Any
) -> RestoreReport:
    """The report of a run that restores an archive; `wanted` are fields of the request.

    `options` are those of its store.
    """
    return restore_logs(
        RestoreRequest(into=into, **wanted),
        mounted_archive(archive.url, options),
        clock=SystemClock(),
        rng=SystemRng(),
    )


def row_of(report: ArchiveReport, partition: str) -> ArchivedPartition:
    """The row of a partition."""
    (found,) = (row for row in report.partitions if f"{row.topic}-{row.partition}" == partition)
    return found


def stop(log_dir: Path) -> None:
    """Leaves the sign of a broker that has stopped in good order."""
    (log_dir / CLEAN_SHUTDOWN).write_bytes(build_clean_shutdown(1))


def contents(log_dir: Path) -> dict[str, bytes]:
    """The files of a log directory that archiving and restoring keep, by their paths.

    Not kept are segments of which all records are deleted, leader epochs that begin at the end of a
    log, producer snapshots that belong to neither a segment nor the end, the order of the lines of
    checkpoints, and what a broker that runs or stops leaves.
    """
    ends, starts = (_lines(log_dir / name) for name in (_ENDS, _STARTS))
    found = {}
    for path in sorted(each for each in log_dir.rglob("*") if each.is_file()):
        name, partition = str(path.relative_to(log_dir)), path.parent.name
        start, end = starts.get(partition, 0), ends.get(partition)
        if path.name in _OF_A_RUN or (end is not None and _is_left(path, start, end)):
            continue
        found[name] = path.read_bytes()
        if path.name == LEADER_EPOCH_CHECKPOINT and end is not None:
            epochs = parse_leader_epoch_checkpoint(found[name])
            found[name] = build_leader_epoch_checkpoint([each for each in epochs if each[1] < end])
        elif path.name.endswith("-offset-checkpoint"):
            found[name] = b"\n".join(sorted(found[name].splitlines()[2:]))
        if name.endswith("-checkpoint") and found[name] in _NO_LINES:
            del found[name]
    return found


def _lines(checkpoint: Path) -> dict[str, int]:
    if not checkpoint.exists():
        return {}
    found = parse_offset_checkpoint(checkpoint.read_bytes())
    return {str(partition): offset for partition, offset in found.items()}


def _is_left(path: Path, start: int, end: int) -> bool:
    """Whether a file is of deleted records, or a snapshot of no segment."""
    if not path.stem.isdigit():
        return False
    bases = sorted(int(each.stem) for each in path.parent.glob(f"*{LOG_SUFFIX}"))
    if int(path.stem) not in {*bases, end}:
        return path.suffix == PRODUCER_SNAPSHOT_SUFFIX
    return int(path.stem) < max((base for base in bases if base <= start), default=0)


# ---- manifests


def archived_segment(base: int, after: int, *, run: str = "run", size: int = 10) -> ArchivedSegment:
    """A segment with a log and nothing else."""
    name = f"{base:020d}{LOG_SUFFIX}"
    key = f"data/t-{uuid_text(TOPIC_ID)}/0/{base:020d}-{run}{LOG_SUFFIX}"
    file = ArchivedFile(name=name, key=key, size_bytes=size, sha256="0" * 64, modified_ns=1)
    return ArchivedSegment(
        base_offset=base, next_base_offset=after, largest_timestamp=-1, files=(file,)
    )


def manifest_of(*segments: ArchivedSegment, **fields: Any) -> ArchiveManifest:
    """The manifest of partition 0 of topic t."""
    known = {
        "topic": "t",
        "partition": 0,
        "topic_id": uuid_text(TOPIC_ID),
        "number": 1,
        "run": "run",
        "at_ms": 1_700_000_000_000,
        "log_start_offset": segments[0].base_offset if segments else 0,
        "end_offset": segments[-1].next_base_offset if segments else 0,
        "segments": segments,
    }
    return ArchiveManifest(**{**known, **fields})
