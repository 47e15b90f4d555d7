"""Batches, logs and directories of logs for the log benchmark."""

from __future__ import annotations

import os
import random
import resource
import shutil
import string
from collections.abc import Sequence
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.file_names import CLUSTER_METADATA_DIR, LOG_SUFFIX
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem, OsFile, OsFileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.resources import ResourceCache
from support.appends import with_header

KEY_BYTES = 10
VALUE_BYTES = 230
#: What a record of a batch takes, more or less.
RECORD_BYTES = 250
#: The first record's timestamp, in ms; every record is a millisecond younger than the one before.
EPOCH_MS = 1_700_000_000_000

_RANDOM_LETTERS = 90
_TEXT = b"the quick brown fox jumps over the lazy dog and runs away from the bear; "
_READ_BYTES = 4 << 20
_LETTERS = string.ascii_letters.encode() + string.digits.encode()


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        """Does nothing."""


class UnsyncedFileSystem(OsFileSystem):
    """The machine's, without its fsyncs: for logs that are made to be measured."""

    def open(self, path: Path, *, write: bool = False) -> OsFile:
        return _UnsyncedFile(path, os.O_RDWR if write else os.O_RDONLY)

    def create(self, path: Path) -> OsFile:
        return _UnsyncedFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def sync_directory(self, path: Path) -> None:
        """Does nothing."""


class Batches:
    """Some batches of one size, as a producer sends them."""

    def __init__(self, size_bytes: int, codec: Codec = Codec.NONE, *, kinds: int = 8) -> None:
        """Makes some.

        Args:
            size_bytes: of a batch before compression, at most.
            codec: compresses them.
            kinds: how many different ones there are.
        """
        rng = random.Random(size_bytes)
        count = max(1, (size_bytes - 61) // RECORD_BYTES)
        self.raw: list[bytes] = []
        for _ in range(kinds):
            records = [
                Record(n, EPOCH_MS + n, b"%010d" % rng.randrange(10**9), _value(rng))
                for n in range(count)
            ]
            while len(build_batch(records, base_offset=0)) > size_bytes:
                records.pop()
            count = len(records)
            self.raw.append(build_batch(records, base_offset=0, codec=codec))
        self.records = count

    def cycle(self, count: int) -> list[bytes]:
        """The first `count` of them."""
        return [self.raw[n % len(self.raw)] for n in range(count)]


def _value(rng: random.Random) -> bytes:
    letters = bytes(rng.choices(_LETTERS, k=_RANDOM_LETTERS))
    return (letters + _TEXT * 3)[:VALUE_BYTES]


class TimedBatches:
    """Batches of some records each, every record a millisecond younger than the one before."""

    def __init__(self, records: int) -> None:
        self._records = records
        value = b"v" * VALUE_BYTES
        self._batch = build_batch(
            [Record(n, EPOCH_MS + n, b"%010d" % n, value) for n in range(records)], base_offset=0
        )

    def at(self, start_ms: int) -> bytes:
        """One whose first record has that timestamp."""
        newest = start_ms + self._records - 1
        return with_header(self._batch, base_timestamp=start_ms, max_timestamp=newest)


def open_log(
    directory: Path, config: LogConfig | None = None, *, fs: FileSystem | None = None
) -> PartitionLog:
    """A partition's log after a clean stop, or a new one."""
    resources = ResourceCache(fs) if fs is not None else None
    return load_log(
        LoadRequest(
            directory=directory,
            topic_partition=TopicPartition.parse(directory.name),
            config=config or LogConfig(),
            context=LogContext(resources=resources),
            clean_shutdown=True,
        )
    )


def fill_by_segments(log: PartitionLog, *, segments: int, batches: int, records: int) -> int:
    """Appends until there are `segments` segments of `batches` batches; the number of records."""
    number = 0
    timed = TimedBatches(records)
    for segment in range(segments):
        for _ in range(batches):
            log.append_as_leader(timed.at(EPOCH_MS + number))
            number += records
        if segment < segments - 1:
            log.roll()
            log.context.scheduler.run_due()
    log.update_high_watermark(log.log_end_offset)
    return number


def clone(source: Path, target: Path, *, without: Sequence[str] = ()) -> Path:
    """A copy of a stopped log directory whose logs share their bytes with it.

    For runs that do not change a log; Kafka's own of metadata is copied. `without` names files that
    are left out.
    """

    def copy(path: str, into: str) -> None:
        if path.endswith(LOG_SUFFIX) and CLUSTER_METADATA_DIR not in path:
            os.link(path, into)
        else:
            shutil.copy2(path, into)

    ignored = shutil.ignore_patterns(".lock", *without)
    return Path(shutil.copytree(source, target, copy_function=copy, ignore=ignored))


def warm(directory: Path) -> int:
    """Reads all logs below a directory, so that they are in the page cache; how many bytes."""
    total = 0
    view = memoryview(bytearray(_READ_BYTES))
    for path in sorted(directory.glob(f"*/*{LOG_SUFFIX}")):
        if CLUSTER_METADATA_DIR in str(path):
            continue
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(view):
                total += got
    return total


def allow_many_files() -> None:
    """Raises the limit of open files for this process and those it starts, where that may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (200_000, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
        except (ValueError, OSError):
            continue
        return
