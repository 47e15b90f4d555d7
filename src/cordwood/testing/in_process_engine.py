"""Compactions in this process, without Spark: what a broker in a test compacts with.

Plan, rules, commit and verification are those of the product: an engine is handed what
`cordwood.cleanup` has planned, and stages and announces what the log's owner then puts in place. A
small log is cleaned by `cordwood.testing.reference_cleaner`, which needs no package but those of
the base installation. A larger one, an erasure, and a compaction that is to be verified run the
compiled code that a task of Spark runs, which needs `cordwood[native]`. The bytes are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cordwood.cleanup.access.announcements import announce, require_wanted
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.engine.commit_loop import begin_all, commit_ready
from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.engine.segment_files import StagedFiles
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.compaction_values import SEGMENT_BYTES_MAX, Manifest, RewrittenSegment
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from cordwood.model.clock import pause
from cordwood.model.errors import CordwoodError, EngineError
from cordwood.model.extras import NATIVE, missing_packages
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.replace import StagedSegment
from cordwood.testing.reference_cleaner import (
    CleanedGroup,
    CleanedSegment,
    ReferenceCleaner,
    ReferenceRound,
)

if TYPE_CHECKING:
    from cordwood.cleanup.engine.whole import Indexed, Lane

#: A log of at most so many bytes is cleaned in plain Python.
PLAIN_BYTES_MAX: Final = 16 << 20
#: A larger one with compiled code, up to so many bytes.
COMPILED_BYTES_MAX: Final = 1 << 30
#: Whose dirty section has at most so many keys.
COMPILED_KEYS_MAX: Final = 1 << 22

_SPARK: Final = "pass `engine=spark_engine` of cordwood.node.node, with cordwood[spark] and Java"
_POLL_S: Final = 0.001


class InProcessEngine:
    """Runs compactions one after the other; several threads may run some at once.

    It is to a broker what a `SparkProcess` is, and has nothing to start or to end.
    `log.cleaner.io.max.bytes.per.second` has no effect.
    """

    #: Where the log's files are.
    fs: FileSystem = OS
    #: A log of more bytes is cleaned with compiled code.
    plain_bytes_max: int = PLAIN_BYTES_MAX
    #: No batch may take more memory with compiled code; no bound of its own if None.
    batch_bytes_max: int | None = None
    #: With compiled code a log may have so many bytes.
    compiled_bytes_max: int = COMPILED_BYTES_MAX
    #: With compiled code a dirty section may have so many keys.
    keys_max: int = COMPILED_KEYS_MAX

    def __init__(self, *, fs: FileSystem = OS) -> None:
        """Takes the file system that has the log's files."""
        self.fs = fs

    def configure(self, settings: CleanerSettings) -> None:
        """Ignores the settings: none concerns this engine."""

    def status(self) -> EngineStatus:
        """Always available."""
        return EngineStatus(state="in process")

    def close(self) -> None:
        """Has nothing to end."""

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs each compaction; afterwards its committer has an outcome."""
        for committer in begin_all(committers):
            self._run(committer)

    def _run(self, committer: CompactionCommitter) -> None:
        compaction = committer.compaction
        if compaction.size_bytes <= self.plain_bytes_max and is_plain(compaction):
            self._run_plain(committer)
            return
        refusal = refusal_of(
            compaction,
            plain_bytes_max=self.plain_bytes_max,
            compiled_bytes_max=self.compiled_bytes_max,
        )
        if refusal is None:
            self._run_compiled(committer)
        else:
            committer.reject(refusal)

    # ---- in plain Python

    def _run_plain(self, committer: CompactionCommitter) -> None:
        directory = Path(committer.compaction.directory)
        try:
            for manifest in stage_groups(committer.compaction, fs=self.fs):
                announce(directory, manifest, fs=self.fs)
                self._poll(committer)
                if committer.outcome is not None:
                    return
        except (CordwoodError, OSError) as error:
            committer.reject(error)

    # ---- with compiled code

    def _run_compiled(self, committer: CompactionCommitter) -> None:
        from cordwood.cleanup.engine.survivors import TableFullError  # noqa: PLC0415  # needs numpy
        from cordwood.cleanup.engine.whole import Lane  # noqa: PLC0415

        errors: list[Exception] = []
        planned = committer.compaction
        if self.batch_bytes_max is not None:
            planned = replace(planned, batch_bytes_max=self.batch_bytes_max)

        def go_on(_: int) -> None:
            compaction = committer.compaction
            require_wanted(Path(compaction.directory), compaction.attempt.token, fs=self.fs)

        def work() -> None:
            try:
                clean_compiled(planned, [Lane(go_on)], keys_max=self.keys_max, fs=self.fs)
            except TableFullError:
                errors.append(_too_many_keys(planned, self.keys_max))
            except (CordwoodError, OSError) as error:
                errors.append(error)

        task = threading.Thread(target=work, name=f"task of {committer.compaction.name}")
        try:
            # A signal that the task itself raises may be handled before `start` has returned.
            task.start()
            while task.is_alive():
                if not self._poll(committer):
                    pause(_POLL_S)
        except KeyboardInterrupt:
            committer.stop_tasks()
            task.join()
            raise
        task.join()
        self._poll(committer)
        for error in errors:
            committer.reject(error)

    def _poll(self, committer: CompactionCommitter) -> bool:
        return commit_ready([committer])


def is_plain(compaction: LogCompaction) -> bool:
    """Whether `stage_groups` can do it: its rules are those of the cleaner, and nothing else."""
    return (
        compaction.erased is None
        and not compaction.is_verified
        and not compaction.attempt.is_measured
        and compaction.attempt.limits.space_max is None
    )


def refusal_of(
    compaction: LogCompaction,
    *,
    plain_bytes_max: int,
    compiled_bytes_max: int = COMPILED_BYTES_MAX,
) -> EngineError | None:
    """Why a compaction cannot run with compiled code; None if it can."""
    size = f"{compaction.name} has {compaction.size_bytes:,} bytes to compact"
    if compaction.size_bytes > compiled_bytes_max:
        return EngineError(f"{size}, more than the {compiled_bytes_max:,} of a test: {_SPARK}")
    if not missing_packages(NATIVE):
        return None
    if compaction.size_bytes > plain_bytes_max:
        return EngineError(
            f"{size}, more than the {plain_bytes_max:,} of a test: install cordwood[native] for "
            f"up to {compiled_bytes_max:,} bytes, or {_SPARK}"
        )
    what = "an erasure" if compaction.erased is not None else "cordwood.cleaner.verify=true"
    return EngineError(f"{what} needs compiled code: install cordwood[native]")


def _too_many_keys(compaction: LogCompaction, keys_max: int) -> EngineError:
    return EngineError(
        f"{compaction.name} has more keys in its dirty section than the {keys_max:,} of a test: "
        f"{_SPARK}"
    )


def clean_compiled(
    compaction: LogCompaction,
    lanes: Sequence[Lane] | None = None,
    *,
    keys_max: int = COMPILED_KEYS_MAX,
    fs: FileSystem = OS,
) -> Indexed:
    """Runs all steps of a compaction one after the other, in one task of several threads.

    Args:
        compaction: whose keys fit the memory of a test.
        lanes: one for each thread; one thread if None.
        keys_max: how many keys each thread may hold.
        fs: where the log's files are.

    Raises:
        TableFullError: there are more.
        EngineError, CorruptError, NoSpaceError, StagingError, OSError: as `WholeCompaction`.
    """
    from cordwood.cleanup.engine.whole import Lane, WholeCompaction  # noqa: PLC0415  # needs numpy

    work = WholeCompaction(compaction, lanes or [Lane()], fs=fs)
    try:
        indexed = work.index(keys_max)
        work.rewrite()
        work.finish()
    finally:
        work.end()
    return indexed


def stage_groups(compaction: LogCompaction, *, fs: FileSystem = OS) -> Iterator[Manifest]:
    """Stages the groups that are left, each when it is asked for, and yields their manifests.

    The files are durable, and nothing is announced yet. A group has to be in place before the next
    is asked for.

    Raises:
        CorruptError: a segment is damaged.
        OSError: a segment cannot be read.
        NoSpaceError, StagingError: a staged file cannot be written; all of it are removed again.
    """
    cleaner = ReferenceCleaner(ReferenceRound.of(compaction, recompresses=True, fs=fs))
    for number, group in enumerate(cleaner.groups(), start=compaction.groups_done):
        yield _stage(compaction, number, group, fs=fs)


def _stage(
    compaction: LogCompaction, number: int, group: CleanedGroup, *, fs: FileSystem
) -> Manifest:
    sources = compaction.group(number)
    tally = group.tally
    manifest = Manifest(
        base_offset=sources[0].base_offset,
        token=compaction.attempt.token,
        unchanged=tally.stays,
        bytes_before=sum(each.size_bytes for each in sources),
        records_before=tally.records_before,
        records_after=tally.records_after,
        batches_before=tally.batches_before,
        batches_after=tally.batches_after,
        discarded=tally.discarded,
    )
    if tally.stays:
        manifest.segments = (
            RewrittenSegment(base_offset=sources[0].base_offset, log_bytes=sources[0].size_bytes),
        )
        return manifest
    manifest.after = tally.after.to_json()
    segment_bytes = min(SEGMENT_BYTES_MAX, max(compaction.segment_bytes, manifest.bytes_before))
    divided = group.segment.divided(segment_bytes, interval_bytes=compaction.index_interval_bytes)
    manifest.segments = tuple(_write(compaction, each, fs=fs) for each in divided)
    return manifest


def _write(
    compaction: LogCompaction, segment: CleanedSegment, *, fs: FileSystem
) -> RewrittenSegment:
    staged = StagedSegment(
        directory=compaction.directory,
        base_offset=segment.base_offset,
        token=compaction.attempt.token,
    )
    files = StagedFiles(staged, model=compaction.model, modified_ns=segment.modified_ns, fs=fs)
    try:
        files.write_log(segment.files[LOG_SUFFIX])
    except BaseException:
        files.discard()
        raise
    indexes = {suffix: data for suffix, data in segment.files.items() if suffix != LOG_SUFFIX}
    files.finish(indexes)
    timestamps = [timestamp for _, _, timestamp in segment.facts]
    return RewrittenSegment(
        base_offset=segment.base_offset,
        log_bytes=files.log_bytes,
        sha256=files.sha256,
        index_bytes=len(indexes[INDEX_SUFFIX]),
        time_index_bytes=len(indexes[TIME_INDEX_SUFFIX]),
        transaction_index_bytes=len(indexes.get(TXN_INDEX_SUFFIX, b"")),
        first_batch_timestamp=timestamps[0] if timestamps else -1,
        largest_timestamp=max(timestamps, default=-1),
    )
