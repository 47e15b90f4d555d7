"""The logs and the files beside them that an erasure works on, each with its planned erasure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cordwood.cleanup.access.commit import StalePlanError
from cordwood.cleanup.engine.search.bits import present_in
from cordwood.cleanup.engine.search.offsets import count_in, united, within
from cordwood.cleanup.engine.search.search import Searched
from cordwood.cleanup.erasure.erased_log import ErasedLog
from cordwood.cleanup.erasure.pending import PlannedErasure
from cordwood.cleanup.erasure.report import (
    ErasedBeside,
    ErasedFile,
    ErasedPartition,
    hash_of,
)
from cordwood.cleanup.erasure.stray_files import StrayFile
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.format.file_names import log_file_name
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem


@dataclass(slots=True, kw_only=True)
class LogErasure:
    """A partition, and what is erased of it."""

    log: ErasedLog
    planned: PlannedErasure | None = None

    @property
    def home(self) -> Path:
        """The log directory that has its plan."""
        return self.log.home

    @property
    def partition(self) -> TopicPartition:
        """The partition of the log."""
        return self.log.partition

    @property
    def error(self) -> str:
        """The reason why it failed; "" if it did not."""
        return self.log.result.error

    @property
    def erased(self) -> OffsetRanges:
        """The offsets that are erased; none if it was not searched."""
        return () if self.planned is None else self.planned.erased

    @property
    def name(self) -> str:
        """The path by which it is known in plans and reports."""
        return str(self.log.directory.absolute())

    def entry(self, *, is_done: bool) -> ErasedPartition:
        """The entry in the report; without `is_done`, the planned one."""
        planned, log = self.planned, self.log
        assert planned is not None, "there are entries only for what was searched"
        erased = count_in(planned.erased)
        entry = ErasedPartition(
            partition=planned.partition,
            directory=self.name,
            erased=erased,
            offsets=planned.erased,
            records_before=planned.records,
            bytes_before=planned.bytes,
        )
        if not is_done or self.error:
            return entry
        touched = {source.base_offset for source in log.touched(planned.erased)}
        stay = {
            name: facts
            for name, facts in planned.files.items()
            if int(name.partition(".")[0]) not in touched
        }
        after = log.files(stay)
        names = sorted({*planned.files, *after})
        return replace(
            entry,
            records_after=planned.records - erased,
            bytes_after=sum(source.size_bytes for source in log.sources),
            log_end_offset=log.end,
            files=[
                ErasedFile(name=name, before=planned.files.get(name), after=after.get(name))
                for name in names
            ],
        )


@dataclass(slots=True, kw_only=True)
class StrayErasure:
    """A file beside live logs, and what is erased of it; its plan is in `home`."""

    file: StrayFile
    home: Path
    is_elsewhere: bool = False
    planned: PlannedErasure | None = None
    error: str = ""

    @property
    def partition(self) -> TopicPartition:
        """The partition whose records the file has."""
        return self.file.partition

    @property
    def erased(self) -> OffsetRanges:
        """The offsets that are erased; none if it was not searched."""
        return () if self.planned is None else self.planned.erased

    @property
    def name(self) -> str:
        """The path by which it is known in plans and reports."""
        return str(self.file.path.absolute())

    def entry(self, *, is_done: bool, fs: FileSystem) -> ErasedBeside:
        """The entry of the report, in the form of a log's."""
        planned = self.planned
        assert planned is not None, "there are entries only for what was searched"
        return ErasedBeside(
            path=self.name,
            partition=planned.partition,
            erased=count_in(planned.erased),
            offsets=planned.erased,
            before=planned.files[self.name],
            after=hash_of(self.file.path, fs=fs) if is_done and not self.error else None,
        )


def still_planned(
    planned: PlannedErasure,
    searched: Searched,
    erased: OffsetRanges,
    *,
    name: str | None = None,
    fs: FileSystem,
) -> OffsetRanges:
    """Offsets of one file that an interrupted run has planned and not erased.

    Raises:
        CorruptError, OSError: it cannot be read.
        StalePlanError: the file has changed since, and still has records at such offsets that this
            run has not found: nobody can say that they are the same ones.
    """
    source = searched.source
    offsets = within(planned.erased, source.base_offset, source.next_base_offset)
    if not offsets:
        return ()
    facts = planned.files.get(name or log_file_name(source.base_offset))
    present = present_in(searched, offsets, fs=fs)
    if facts is not None and facts.size == source.size_bytes:
        return present
    if count_in(united([*erased, *present])) > count_in(erased):
        raise StalePlanError(
            f"{source.path}: the log has changed since an erasure was interrupted, and still has "
            f"a record at offset {present[0][0]} that was to be erased. Erase again with the "
            "criteria of that erasure"
        )
    return present
