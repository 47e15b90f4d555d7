"""Captures a log of an archive by its manifest: its segments are not opened.

What planners need of a segment is in the manifest; read are the producer snapshot at the log's end,
and transaction indexes. So a log of ten thousand segments takes a few requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cordwood.cleanup.access.capture import due_of, with_due
from cordwood.cleanup.access.due_reader import KnownDue
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.view_after import empty_segment
from cordwood.cleanup.rules.group_guard import Consumed
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from cordwood.format.transaction_index import AbortedTransaction, parse_transaction_index
from cordwood.model.errors import CorruptError
from cordwood.storage.archives.archive_filesystem import ArchiveFileSystem
from cordwood.storage.archives.manifest import ArchivedFile, ArchivedSegment, ArchiveManifest
from cordwood.storage.reading.source import SegmentSource

T = TypeVar("T")


class ManifestCapture:
    """The capture of one log, whose directory in the mounted archive is `directory`."""

    def __init__(
        self,
        archive: ArchiveFileSystem,
        manifest: ArchiveManifest,
        directory: Path,
        *,
        config: LogConfig,
        other: LogConfig | None,
    ) -> None:
        """Reads nothing. Planners need what `config` asks for, and `other` if there is one."""
        self._archive = archive
        self._manifest = manifest
        self._directory = directory
        self._config = config
        configs = (config,) if other is None else (config, other)
        self._is_compacted = any(each.compact for each in configs)
        self._needs_first = self._is_compacted or any(
            each.cordwood_segment_roll_idle for each in configs
        )

    @property
    def is_possible(self) -> bool:
        """Whether the manifest has all that is needed."""
        knows_first = all(
            each.first_batch_timestamp is not None for each in self._manifest.segments
        )
        return self._snapshot() is not None and (knows_first or not self._needs_first)

    def _snapshot(self) -> ArchivedFile | None:
        """The producer snapshot at the log's end."""
        name = segment_file_name(self._manifest.end_offset, PRODUCER_SNAPSHOT_SUFFIX)
        return next((each for each in self._manifest.files if each.name == name), None)

    def capture(
        self,
        *,
        now_ms: int,
        producer_expiration_ms: int,
        metadata_version: int,
        holds: tuple[str, ...],
        consumed: Consumed,
        due: KnownDue,
    ) -> Captured:
        """The log, as its loader would find it.

        Args:
            now_ms: for the expiry of producers.
            producer_expiration_ms: producer.id.expiration.ms.
            metadata_version: the cluster's level, 0 if unknown.
            holds: the ids of its legal holds.
            consumed: what groups have consumed of it.
            due: what earlier calls have read of its segments; added to.

        Raises:
            CorruptError: a transaction index or the snapshot cannot be understood.
            OSError: an object cannot be read.
        """
        manifest = self._manifest
        producers = self._producers(now_ms, producer_expiration_ms)
        opened = [each.current_txn_first_offset for each in producers]
        open_since = [each for each in opened if each >= 0]
        segments = tuple(map(self._view_of, manifest.segments))
        sources = tuple(map(self._source_of, manifest.segments))
        if not manifest.has_active_segment:
            end = manifest.end_offset
            segments += (empty_segment(end, now_ms=manifest.at_ms),)
            sources += (self._empty_source(end),)
        captured = Captured(
            view=LogView(
                topic_partition=manifest.log.topic_partition,
                segments=segments,
                log_start_offset=manifest.log_start_offset,
                log_end_offset=manifest.end_offset,
                high_watermark=manifest.end_offset,
                last_stable_offset=min([manifest.end_offset, *open_since]),
                cleaner_checkpoint=manifest.cleaner_offset,
                config=self._config,
                holds=holds,
                consumed=consumed,
                metadata_version=metadata_version,
            ),
            directory=self._directory,
            sources=sources,
            producers=producers,
            aborted=self._aborted(),
            model=self._archive.facts_of(Path(sources[-1].path)),
        )
        moments = due_of(captured, self._config, due) if not holds else []
        return replace(captured, view=with_due(captured.view, moments)) if moments else captured

    def _view_of(self, segment: ArchivedSegment) -> SegmentView:
        sizes = {each.name: each.size_bytes for each in segment.files}
        base, log = segment.base_offset, segment.log_file
        first = segment.first_batch_timestamp
        return SegmentView(
            base_offset=base,
            size_bytes=log.size_bytes,
            index_bytes=self._size(sizes, base, INDEX_SUFFIX),
            time_index_bytes=self._size(sizes, base, TIME_INDEX_SUFFIX),
            largest_record_timestamp=segment.largest_timestamp,
            first_batch_timestamp=first if self._needs_first and first is not None else -1,
            modified_ms=log.modified_ns // 1_000_000,
        )

    def _size(self, sizes: dict[str, int], base: int, suffix: str) -> int:
        return sizes.get(segment_file_name(base, suffix), 0) if self._is_compacted else 0

    def _source_of(self, segment: ArchivedSegment) -> SegmentSource:
        log = segment.log_file
        return SegmentSource(
            path=str(self._archive.object_path(log.key)),
            base_offset=segment.base_offset,
            next_base_offset=segment.next_base_offset,
            size_bytes=log.size_bytes,
            modified_ns=log.modified_ns,
        )

    def _empty_source(self, end: int) -> SegmentSource:
        path = self._directory / segment_file_name(end, LOG_SUFFIX)
        return SegmentSource(
            path=str(path),
            base_offset=end,
            next_base_offset=end,
            size_bytes=0,
            modified_ns=self._archive.facts_of(path).modified_ns,
        )

    def _producers(self, now_ms: int, expiration_ms: int) -> tuple[ProducerEntry, ...]:
        snapshot = self._snapshot()
        assert snapshot is not None, "it was asked whether this is possible"
        entries = self._parsed(snapshot, parse_producer_snapshot)
        return tuple(
            each
            for each in entries
            if each.current_txn_first_offset >= 0 or now_ms - each.timestamp < expiration_ms
        )

    def _aborted(self) -> tuple[AbortedTransaction, ...]:
        indexes = [each for each in self._manifest.files if each.name.endswith(TXN_INDEX_SUFFIX)]
        found = {
            entry
            for each in indexes
            if each.size_bytes
            for entry in self._parsed(each, parse_transaction_index)
        }
        return tuple(sorted(found, key=lambda entry: entry.last_offset))

    def _parsed(self, file: ArchivedFile, parse: Callable[[bytes], list[T]]) -> list[T]:
        path, fs = self._archive.object_path(file.key), self._archive
        try:
            return parse(fs.read_bytes(path))
        except CorruptError as error:
            raise error.located(path=str(path)) from error
