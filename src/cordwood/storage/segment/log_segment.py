"""One segment of a log: a file of record batches, and three indexes into it.

One thread at a time changes a segment: the log's lock sees to that. How it is read meanwhile is
told in `cordwood.storage.segment.segment_reads`.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cordwood.format.control_record import EndTxnMarker
from cordwood.format.file_names import LOG_SUFFIX, segment_file_name
from cordwood.format.record_batch import BatchHeader
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.format.varint import Buffer
from cordwood.model.config import LogConfig
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import SegmentOffsetOverflowError
from cordwood.storage.filesystem import File, FileFacts
from cordwood.storage.segment.batch_walk import BatchPosition, FileRange, iter_heads
from cordwood.storage.segment.index_builder import IndexBuilder
from cordwood.storage.segment.resources import ResourceCache, sync_log
from cordwood.storage.segment.segment_index import INT32_MAX
from cordwood.storage.segment.segment_reads import SegmentReads
from cordwood.storage.segment.segment_recovery import (
    C,
    Completed,
    LeaderEpochs,
    Producers,
    SegmentWalk,
)
from cordwood.storage.segment.timestamp_lookup import TimestampAndOffset, largest_from

__all__ = ["AppendedBatch", "BatchPosition", "FileRange", "LogSegment", "TimestampAndOffset"]

_APPEND_CHUNK_BYTES = 1 << 20


class AppendedBatch(NamedTuple):
    """What a segment needs to know of a batch that it is given; the timestamp in ms, -1 none."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class LogSegment(SegmentReads):
    """A segment, and whatever changes it; see the module."""

    __slots__ = ()

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        now_ms: int,
        roll_jitter_ms: int = 0,
        on_warning: Callable[[str], None] | None = None,
    ) -> LogSegment:
        """A new, empty segment; files of the same name are replaced.

        Raises:
            NoSpaceError: the file system is full.
        """
        segment = cls(
            directory,
            base_offset,
            config=config,
            resources=resources,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            size_bytes=0,
            is_new=True,
            on_warning=on_warning,
        )
        fs = resources.fs
        for path in segment._index_paths():
            fs.remove(path)
        file = fs.create(segment.path)
        if config.preallocate:
            file.truncate(config.segment_bytes)
            segment._is_preallocated = True
        resources.keep(segment, file)
        return segment

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        resources: ResourceCache,
        now_ms: int,
        roll_jitter_ms: int = 0,
        facts: FileFacts | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> LogSegment:
        """A segment that is there; nothing of it is read yet.

        Args:
            directory: the partition's.
            base_offset: which segment.
            config: of the topic; its index settings are taken over.
            resources: opens and keeps its files.
            now_ms: taken for the time it was created.
            roll_jitter_ms: how much earlier than segment.ms it rolls.
            facts: of the log file, where they are known already.
            on_warning: told of damage that was mended; the module's logger otherwise.

        Raises:
            FileNotFoundError: there is no such log file.
        """
        if facts is None:
            facts = resources.fs.facts_of(directory / segment_file_name(base_offset, LOG_SUFFIX))
        return cls(
            directory,
            base_offset,
            config=config,
            resources=resources,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            size_bytes=facts.size_bytes,
            is_new=False,
            on_warning=on_warning,
        )

    # ---- append and roll

    def append(self, parts: Sequence[Buffer], batches: Sequence[AppendedBatch]) -> None:
        """Writes batches behind those there are.

        Args:
            parts: their bytes, in as many pieces as it takes.
            batches: each of them, in order.

        Raises:
            SegmentOffsetOverflowError: the last offset is out of reach of the base offset; nothing
                was written.
            ValueError: the file would grow beyond 2^31 - 1 bytes; nothing was written.
            NoSpaceError: the file system is full. The segment is as it was.
            OSError: the disk refused. The segment is as it was.
        """
        if not batches:
            return
        position = self.size_bytes
        if not 0 <= batches[-1].last_offset - self.base_offset <= INT32_MAX:
            raise self._overflow(batches[-1].last_offset)
        end = position + sum([batch[0] for batch in batches])
        if end > INT32_MAX:
            raise ValueError(
                f"Append of size {end - position} bytes is too large for segment with current file "
                f"position at {position}"
            )
        if not self._is_writing:
            self._begin_writing()
        file = self._resources.file(self)
        try:
            file.write_at(parts, position)
        except (NoSpaceError, OSError):
            self._is_preallocated = False
            # Where this fails too, it is no longer a matter of room.
            self._cut(file, position)
            raise
        with self._index_lock:
            self._changes += 1
            self.size_bytes = end
            self._note_appended(position, batches)

    def _note_appended(self, position: int, batches: Sequence[AppendedBatch]) -> None:
        """Adds index entries as they fall due.

        A set of batches that an index has no room for is only looked up less quickly: the log is
        rolled before the next.
        """
        newest = self._max_timestamp
        assert newest is not None, "known since writing began"
        since = self.bytes_since_last_index_entry
        interval = self._index_interval_bytes
        for size, last_offset, timestamp in batches:
            if timestamp > newest:
                self._max_timestamp = newest = timestamp
                self._offset_of_max_timestamp = last_offset
            if since > interval:
                if not (self._offset_index.is_full or self._time_index.is_full):
                    self._offset_index.append(last_offset, position)
                    self._time_index.maybe_append(newest, self._offset_of_max_timestamp)
                since = 0
            position += size
            since += size
        self.bytes_since_last_index_entry = since

    def _begin_writing(self) -> None:
        """Has both indexes in memory, in accord with the log, before the first write."""
        self.offset_index.pin()
        self.time_index.pin()
        if self._max_timestamp is None:
            self._read_max_timestamp()
        self._is_writing = True

    def append_from_file(self, file: File, start: int, end: int) -> int:
        """Copies batches in [start, end) of another log, as far as offsets fit; how many bytes.

        Raises:
            CorruptError: a batch there cannot be.
            NoSpaceError: the file system is full; what was copied before is there.
        """
        chunk: list[AppendedBatch] = []
        position = chunk_start = start
        for head in iter_heads(file, start, end, path=self.path):
            if not self.can_hold(head.last_offset):
                break
            size = head.size_bytes
            if chunk and position + size - chunk_start >= _APPEND_CHUNK_BYTES:
                self.append([file.read_at(position - chunk_start, chunk_start)], chunk)
                chunk, chunk_start = [], position
            chunk.append(AppendedBatch(size, head.last_offset, head.max_timestamp))
            position += size
        if chunk:
            self.append([file.read_at(position - chunk_start, chunk_start)], chunk)
        return position - start

    def note_completed(self, completed: Completed, last_stable_offset: int) -> None:
        """Adds an aborted transaction to the index; a committed one leaves no trace.

        Raises:
            OSError: the disk refused; a full one does not.

        Source: LogSegment.updateTxnIndex.
        """
        if completed.is_aborted:
            self.transaction_index.append(
                AbortedTransaction(
                    producer_id=completed.producer_id,
                    first_offset=completed.first_offset,
                    last_offset=completed.last_offset,
                    last_stable_offset=last_stable_offset,
                )
            )

    def should_roll(
        self,
        *,
        append_bytes: int,
        max_timestamp: int,
        max_offset: int,
        now_ms: int,
        config: LogConfig,
    ) -> bool:
        """Whether a new segment has to take `append_bytes` bytes with these largest values."""
        size = self.size_bytes
        if size > config.segment_bytes - append_bytes:
            return True
        if size > 0:
            waited = self.time_waited_for_roll(now_ms, max_timestamp)
            if waited > config.segment_ms_max - self.roll_jitter_ms:
                return True
        if not 0 <= max_offset - self.base_offset <= INT32_MAX:
            return True
        if not self._is_writing:
            self._begin_writing()
        return self._offset_index.is_full or self._time_index.is_full

    def sanity_check(
        self, *, time_index_newly_created: bool = False, has_transaction_index: bool | None = None
    ) -> None:
        """What a loader checks: the offset index is there, the transaction index is whole.

        Args:
            time_index_newly_created: there is no time index; an empty one is made.
            has_transaction_index: whether there is one; None has it looked for.

        Raises:
            FileNotFoundError: there is no offset index.
            CorruptError: the transaction index is damaged.
        """
        path = self._offset_index.path
        if not self._resources.fs.exists(path):
            raise FileNotFoundError(f"Offset index file {path} does not exist")
        if time_index_newly_created:
            self._time_index.truncate()
            self._time_index.trim()
            self.resize_indexes(self._max_index_bytes)
        if has_transaction_index is False:
            self.transaction_index.forget_file()
        else:
            self.transaction_index.sanity_check()

    # ---- cut off, made anew

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> int:
        """Removes batches that reach `offset` or beyond, and their index entries; how many bytes.

        Args:
            offset: a batch that holds it goes wholly.
            now_ms: taken for the time of creation when the segment is empty after that.

        Raises:
            CorruptError: the log is damaged on the way to the offset.
            OSError: the disk refused.
        """
        if offset <= self.base_offset:
            position = 0
        else:
            batch = self._find(offset, 0)
            position = self.size_bytes if batch is None else batch.position
            # In memory before the lock is taken: making them anew takes it too.
            self._begin_writing()
        with self._index_lock:
            if offset <= self.base_offset:
                self._offset_index.truncate()
                self._time_index.truncate()
                self.transaction_index.reset()
            else:
                self._offset_index.truncate_to(offset)
                self._time_index.truncate_to(offset)
                self.transaction_index.truncate_to(offset)
            self.resize_indexes(self._max_index_bytes)
            self._is_writing = True
            removed = self.size_bytes - position
            if removed:
                # Readers first: nobody is to look for what is about to go.
                self.size_bytes = position
                self._is_preallocated = False
                self._changes += 1
                self._cut(self._resources.file(self), position)
            if position == 0:
                self._first_batch_timestamp = None
                self.created_ms = self.created_ms if now_ms is None else now_ms
            self.bytes_since_last_index_entry = 0
            self._find_max_timestamp_again()
        return removed

    @staticmethod
    def _cut(file: File, size_bytes: int) -> None:
        """Cuts the log off for good.

        Were the cut to come undone by a power loss, batches that were cut off could turn up behind
        new ones, where these happen to take as many bytes.
        """
        file.truncate(size_bytes)
        sync_log(file)

    def _find_max_timestamp_again(self) -> None:
        """Source: LogSegment.readLargestTimestamp."""
        known = self._time_index.last_entry
        position = self._offset_index.lookup(known.offset).position
        file = self._resources.file(self)
        later = largest_from(file, position, self.size_bytes, path=self.path)
        newest = later if later.timestamp > known.timestamp else known
        self._offset_of_max_timestamp = newest.offset
        self._max_timestamp = newest.timestamp

    def recover(
        self,
        *,
        producer_state: Producers[C] | None = None,
        leader_epochs: LeaderEpochs | None = None,
        flushed_offset: int = 0,
        next_base_offset: int | None = None,
        native: bool | None = None,
    ) -> int:
        """Checks every batch, cuts the log off at the first bad one, and makes the indexes anew.

        Args:
            flushed_offset: batches below it were flushed, and are not torn by a crash.
            next_base_offset: the next segment's base offset, which no offset here may reach.
            producer_state: that of the segment's base offset, brought up to its end; without one
                the transaction index stays as it is.
            leader_epochs: told of epochs that begin here.
            native: by compiled code or not; None lets the segment's size decide.

        Returns:
            How many bytes were cut off.

        Raises:
            SegmentOffsetOverflowError: an offset is out of reach of the base offset; the log was
                not cut.
            ImpossibleOffsetError: a whole batch has offsets that no append writes; the log was
                not cut.
            KafkaError: the state of producers refuses a batch.
        """
        with self._index_lock:
            self._offset_index.reset()
            self._time_index.reset()
            if producer_state is not None:
                self.transaction_index.reset()
            builder = IndexBuilder(self.base_offset, self._index_interval_bytes, self.path)
            walk = SegmentWalk(
                self._resources.file(self),
                self.size_bytes,
                builder,
                path=self.path,
                flushed_offset=flushed_offset,
                next_base_offset=next_base_offset,
                on_batch=None if producer_state is None else self._replayed_by(producer_state),
                leader_epochs=leader_epochs,
            )
            walk.run(native=native)
            if walk.reason is not None:
                self.warn(
                    f"Found invalid messages in log segment {self.path} at byte offset "
                    f"{walk.position}: {walk.reason.reason}."
                )
            builder.finish()
            if producer_state is not None and walk.next_offset >= 0:
                producer_state.update_map_end_offset(walk.next_offset)
            removed = self.size_bytes - walk.position
            if removed:
                self.size_bytes = walk.position
                self._cut(self._resources.file(self), walk.position)
            self._is_preallocated = self._is_writing = False
            self._changes += 1
            self._first_batch_timestamp = None
            self._install(builder)
            self._rebuilds += 1
        return removed

    def _replayed_by(
        self, producers: Producers[C]
    ) -> Callable[[BatchHeader, EndTxnMarker | None], None]:
        def replay(header: BatchHeader, marker: EndTxnMarker | None) -> None:
            completed = producers.replay(header, marker)
            if completed is not None:
                if completed.is_aborted:
                    self.note_completed(completed, producers.last_stable_offset(completed))
                producers.complete_transaction(completed)

        return replay

    def rebuild_indexes(self) -> None:
        """Makes both indexes anew from the log's headers; the log stays as it is.

        Raises:
            KafkaError: offsets do not ascend, or are out of reach of the base offset.
        """
        with self._index_lock:
            self._make_indexes_anew()

    # ---- flush, close, rename, delete

    def flush(self) -> None:
        """Returns when the log and its indexes are on disk; their names need the directory synced.

        Raises:
            NoSpaceError: the file system has no room for the indexes.
            OSError: the disk refused.
        """
        self.flush_log()
        self.flush_indexes()

    def flush_log(self) -> None:
        """Returns when the log is on disk.

        Raises:
            OSError: the disk refused, for want of room or otherwise: nobody knows what is on it.
        """
        changes = self._changes
        if self._changes_synced < changes:
            sync_log(self._resources.file(self))
            # What was written meanwhile is for the next one.
            self._changes_synced = max(self._changes_synced, changes)

    def flush_indexes(self) -> None:
        """Returns when the indexes are on disk.

        Raises:
            NoSpaceError: the file system has no room for them.
            OSError: the disk refused.
        """
        self._offset_index.flush()
        self._time_index.flush()
        self.transaction_index.flush()

    def on_become_inactive(self) -> None:
        """Adds the last time index entry, and leaves all files exactly as long as they need be.

        Raises:
            NoSpaceError: the file system has no room for the indexes.
            OSError: the disk refused.
        """
        if not self._is_writing:
            self._begin_writing()
        self._finish_writing()

    def close(self) -> None:
        """The same for a segment that was written to, and lets go of its file; syncs nothing.

        Raises:
            NoSpaceError: the file system has no room for the indexes.
            OSError: the disk refused.
        """
        if self._is_writing:
            self._finish_writing()
        else:
            self._offset_index.trim()
            self._time_index.trim()
        self._resources.forget(self)
        self.transaction_index.close()

    def _finish_writing(self) -> None:
        with self._index_lock:
            newest = self._max_timestamp
            assert newest is not None, "known since writing began"
            self._time_index.maybe_append(
                newest, self._offset_of_max_timestamp, skip_full_check=True
            )
            self._offset_index.trim()
            self._time_index.trim()
            if self._is_preallocated:
                # For good: what it was set aside for would look like a torn end, and take all that
                # lies behind it.
                self._cut(self._resources.file(self), self.size_bytes)
                self._is_preallocated = False
            self._is_writing = False

    def close_handlers(self) -> None:
        """Lets go of all files and writes nothing: for a disk that has failed."""
        self._resources.forget(self)
        self._offset_index.close_handlers()
        self._time_index.close_handlers()
        self.transaction_index.close_handlers()
        self._is_writing = False

    def change_suffix(self, old: str, new: str) -> list[Path]:
        """Renames the files from one suffix to another, "" for none; the new paths of those there.

        A segment whose files do not have the old suffix is left alone.

        Raises:
            OSError: a file could not be renamed.
        """
        if self.suffix != old:
            return []
        path = self._renamed(self.path, old, new)
        with self.naming_lock:
            self._resources.fs.rename(self.path, path)
            self.path, self.suffix = path, new
        renamed = [path]
        for index in (self._offset_index, self._time_index, self.transaction_index):
            if index.rename_to(self._renamed(index.path, old, new)):
                renamed.append(index.path)
        return renamed

    @staticmethod
    def _renamed(path: Path, old: str, new: str) -> Path:
        return path.with_name(path.name.removesuffix(old) + new)

    def move_to(self, directory: Path) -> None:
        """Takes it as known that the directory has another name now."""
        with self.naming_lock:
            self.directory = directory
            self.path = directory / self.path.name
        for index in (self._offset_index, self._time_index, self.transaction_index):
            index.path = directory / index.path.name

    def delete_if_exists(self) -> None:
        """Removes the files; all that can be, even if one cannot.

        Raises:
            OSError: a file could not be removed.
        """
        self._resources.forget(self)
        errors = []
        removals: tuple[Callable[[], object], ...] = (
            lambda: self._resources.fs.remove(self.path),
            self._offset_index.delete_if_exists,
            self._time_index.delete_if_exists,
            self.transaction_index.delete_if_exists,
        )
        for remove in removals:
            try:
                remove()
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _index_paths(self) -> tuple[Path, Path, Path]:
        return self._offset_index.path, self._time_index.path, self.transaction_index.path

    def _overflow(self, offset: int) -> SegmentOffsetOverflowError:
        return SegmentOffsetOverflowError(
            f"Detected offset overflow at offset {offset} in segment {self}",
            base_offset=self.base_offset,
        )
