"""A log does what a plain list of batches would, whatever is done to it in whatever order.

The log is one of a process that is stopped, killed and started again, and cleaned as it runs.
`support.log_model` is the list.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.file_names import base_offset_of
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    RecordValidationError,
    UnexpectedAppendOffsetError,
)
from cordwood.storage.filesystem import OsFile, OsFileSystem
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from support.in_process_engine import CompiledEngine
from support.log_model import LogModel, ProducerModel, Stored, parse_batches
from support.running_logs import newest, read_records
from support.stored_log import Producer, StoredLogs

KeyValue = tuple[bytes | None, bytes | None, int]

ALL = 1 << 30
PRODUCERS = st.integers(1, 3)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.one_of(
    st.none(), st.sampled_from([0, 1, 40, 300]).map(lambda size: bytes([size & 255]) * size)
)
RECORDS = st.lists(
    st.tuples(KEYS, VALUES, st.integers(-3_600_000, 3_600_000)), min_size=1, max_size=4
)
CODECS = st.sampled_from(list(Codec))
PLACES = st.floats(0, 1)
ISOLATIONS = st.sampled_from(list(Isolation))
CONFIGS = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from(
        [frozenset({"delete"}), frozenset({"compact"}), frozenset({"compact", "delete"})]
    ),
    segment_bytes=st.sampled_from([500, 1_000, 4_000]),
    index_interval_bytes=st.sampled_from([0, 150, 4_096]),
    segment_index_bytes=st.sampled_from([24, 10_000]),
    segment_ms=st.sampled_from([600_000, 86_400_000]),
    segment_jitter_ms=st.sampled_from([0, 60_000]),
    retention_ms=st.sampled_from([-1, 600_000, 7_200_000]),
    retention_bytes=st.sampled_from([-1, 0, 1_500]),
    delete_retention_ms=st.sampled_from([0, 86_400_000]),
    flush_messages=st.sampled_from([1, 5, 1 << 62]),
    min_cleanable_dirty_ratio=st.just(0.0),
    compression_type=st.sampled_from(["producer", "producer", "zstd", "uncompressed"]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
)


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        """Takes too long, and no power is lost here."""


class UnsyncedFiles(OsFileSystem):
    """Real files, which tasks of a clean see as well."""

    def open(self, path: Path, *, write: bool = False) -> OsFile:
        opened = super().open(path, write=write)
        opened.__class__ = _UnsyncedFile
        return opened

    def create(self, path: Path) -> OsFile:
        made = super().create(path)
        made.__class__ = _UnsyncedFile
        return made

    def sync_directory(self, path: Path) -> None:
        assert path.is_dir()


class LogIsAList(RuleBasedStateMachine):
    """One log and one list, to which the same is done."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp())
        self.model = LogModel()
        self.epoch = 0
        self.start_line = self.mark_line = 0  # what checkpoints say
        self.verifying: set[int] = set()  # producers whose transaction was verified, then refused

    def teardown(self) -> None:
        self.stored.kill()
        shutil.rmtree(self.top)

    @initialize(config=CONFIGS)
    def begin(self, config: LogConfig) -> None:
        self.stored = StoredLogs(self.top / "logs", fs=UnsyncedFiles())
        self.stored.configs["t"] = config
        self._start()
        self.stored.log()

    def _start(self) -> None:
        self.stored.start()
        self.cleaning = CleanerManager(self.stored.manager)
        self.cleaner = OnlineCleaner(self.cleaning, CompiledEngine())

    @property
    def log(self) -> PartitionLog:
        return self.stored.log()

    @property
    def config(self) -> LogConfig:
        return self.stored.configs["t"]

    @property
    def now_ms(self) -> int:
        return self.stored.clock.now_ms()

    def offset_at(self, place: float, *, beyond: int = 2) -> int:
        """An offset of the log, or somewhat outside of it."""
        first = self.model.batches[0].base if self.model.batches else self.model.start
        return max(0, first - 1 + round(place * (self.model.end + beyond - first + 1)))

    # ---- append

    def _batch(
        self,
        records: list[KeyValue],
        codec: Codec,
        *,
        producer: Producer = (-1, -1, -1),
        transactional: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        return build_batch(
            [
                Record(base_offset + n, self.now_ms + delta, key, value)
                for n, (key, value, delta) in enumerate(records)
            ],
            base_offset=base_offset,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=transactional,
            partition_leader_epoch=leader_epoch,
        )

    def _take(self, result: AppendResult, records: list[KeyValue]) -> Stored:
        """Has the model take what was appended, after a look at it."""
        assert result.first_offset == self.model.end
        assert result.record_count == len(records)
        assert not result.is_duplicate
        data = self.log.reader.read(result.first_offset, ALL, isolation=Isolation.LOG_END).read()
        (stored,) = parse_batches(data)
        assert len(data) == result.size_bytes
        assert [(r.offset, r.key, r.value) for r in stored.records] == [
            (result.first_offset + n, key, value) for n, (key, value, _) in enumerate(records)
        ]
        if self.config.message_timestamp_type == "CreateTime":
            times = [self.now_ms + delta for _, _, delta in records]
        else:
            times = [self.now_ms] * len(records)
        assert [r.timestamp for r in stored.records] == times
        assert stored.batch.header.max_timestamp == max(times)
        assert stored.batch.header.partition_leader_epoch == self.epoch
        self.model.append([stored])
        assert self.log.log_end_offset == self.model.end
        return stored

    def _append(
        self,
        records: list[KeyValue],
        codec: Codec,
        producer: Producer = (-1, -1, -1),
        *,
        transactional: bool = False,
        guard: object | None = None,
    ) -> AppendResult:
        data = self._batch(records, codec, producer=producer, transactional=transactional)
        self.model.assign_epoch(self.epoch, self.model.end)
        try:
            return self.log.append_as_leader(
                data, leader_epoch=self.epoch, verification_guard=guard
            )
        except RecordBatchTooLargeError:
            # It is refused before its epoch is noted.
            self.model.epochs = [*self.log.leader_epochs.epoch_entries]
            raise

    @rule(records=RECORDS, codec=CODECS)
    def append(self, records: list[KeyValue], codec: Codec) -> None:
        try:
            result = self._append(records, codec)
        except RecordBatchTooLargeError:
            return
        self._take(result, records)

    @rule(records=RECORDS, codec=CODECS)
    def append_without_a_key(self, records: list[KeyValue], codec: Codec) -> None:
        records = [*records, (None, b"no key", 0)]
        epochs = list(self.model.epochs)
        try:
            result = self._append(records, codec)
        except RecordBatchTooLargeError:
            return
        except RecordValidationError:
            assert self.config.compact
            self.model.epochs = epochs
            return
        assert not self.config.compact
        self._take(result, records)

    @rule(
        producer_id=PRODUCERS,
        records=RECORDS,
        codec=CODECS,
        transactional=st.booleans(),
        newer=st.sampled_from([0, 0, 0, 0, 1, -1]),
        gap=st.sampled_from([0, 0, 0, 0, 0, 1, 5]),
    )
    def append_of_a_producer(
        self,
        producer_id: int,
        records: list[KeyValue],
        codec: Codec,
        transactional: bool,
        newer: int,
        gap: int,
    ) -> None:
        known = self.model.producers.get(producer_id, ProducerModel())
        epoch = max(0, known.epoch + newer)
        follows = known.batches[-1][1] + 1 if known.batches and epoch == known.epoch else 0
        sequence = follows + gap
        begins = transactional and (known.open_since is None or epoch != known.epoch)
        if begins and (gap or epoch < known.epoch):
            return
        if producer_id in self.verifying and not begins:
            return  # sequences are bounded by the one that was verified
        expected: type[KafkaError] | None = None
        if epoch < known.epoch:
            expected = InvalidProducerEpochError
        elif gap and known.epoch >= 0:
            expected = OutOfOrderSequenceError
        elif not transactional and known.open_since is not None:
            expected = InvalidTxnStateError
        guard = None
        if begins:
            guard = self.log.maybe_start_verification(producer_id, sequence, epoch)
        producer = (producer_id, epoch, sequence)
        try:
            result = self._append(
                records, codec, producer, transactional=transactional, guard=guard
            )
        except RecordBatchTooLargeError:
            if begins:
                self.verifying.add(producer_id)
            return
        except KafkaError as error:
            if type(error) is not expected:
                raise
            return
        assert expected is None
        self.verifying.discard(producer_id)
        stored = self._take(result, records)
        header = stored.batch.header
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
        assert header.is_transactional is transactional

    @precondition(lambda self: any(p.batches for p in self.model.producers.values()))
    @rule(data=st.data(), codec=CODECS)
    def append_again(self, data: Any, codec: Codec) -> None:
        known = {i: p for i, p in self.model.producers.items() if p.batches}
        producer_id = data.draw(st.sampled_from(sorted(known)))
        first, last, base = data.draw(st.sampled_from(known[producer_id].batches))
        records: list[KeyValue] = [(b"a", b"", 0)] * (last - first + 1)
        result = self._append(records, codec, (producer_id, known[producer_id].epoch, first))
        assert result.is_duplicate
        assert (result.first_offset, result.last_offset) == (base, base + last - first)

    @precondition(lambda self: self.model.producers)
    @rule(data=st.data(), commit=st.booleans(), newer=st.sampled_from([0, 0, 0, 1, -1]))
    def end_a_transaction(self, data: Any, commit: bool, newer: int) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.model.producers)))
        known = self.model.producers[producer_id]
        epoch = max(0, known.epoch + newer)
        marker = build_end_txn_marker(
            offset=0,
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            control_type=ControlType.COMMIT if commit else ControlType.ABORT,
            coordinator_epoch=0,
            partition_leader_epoch=-1,
        )
        self.model.assign_epoch(self.epoch, self.model.end)
        try:
            result = self.log.append_as_leader(
                marker, leader_epoch=self.epoch, origin=AppendOrigin.COORDINATOR
            )
        except InvalidProducerEpochError:
            assert epoch < known.epoch
            return
        assert epoch >= known.epoch
        data_read = self.log.reader.read(
            result.first_offset, ALL, isolation=Isolation.LOG_END
        ).read()
        (stored,) = parse_batches(data_read)
        assert stored.is_control
        assert stored.is_abort is not commit
        self.model.append([stored])

    @rule(
        batches=st.lists(st.tuples(RECORDS, CODECS, st.integers(0, 3)), min_size=1, max_size=3),
        newer=st.sampled_from([0, 0, 1]),
        cut=st.booleans(),
    )
    def append_as_follower(
        self, batches: list[tuple[list[KeyValue], Codec, int]], newer: int, cut: bool
    ) -> None:
        offset, data = self.model.end, b""
        self.epoch += newer
        for records, codec, gap in batches:
            data += self._batch(records, codec, base_offset=offset + gap, leader_epoch=self.epoch)
            offset += gap + len(records)
        try:
            self.log.append_as_follower(data + data[:61] if cut else data)
        except RecordBatchTooLargeError:
            assert len(data) > self.config.segment_bytes
            return
        stored = parse_batches(data)
        self.model.assign_epoch(self.epoch, stored[0].base)
        self.model.append(stored)

    @precondition(lambda self: self.model.end > self.model.start)
    @rule(records=RECORDS, back=st.integers(1, 3))
    def append_as_follower_below_the_end(self, records: list[KeyValue], back: int) -> None:
        base = max(0, self.model.end - back)
        data = self._batch(records, Codec.NONE, base_offset=base, leader_epoch=self.epoch)
        with pytest.raises(UnexpectedAppendOffsetError):
            self.log.append_as_follower(data)

    # ---- read

    @rule(
        place=PLACES,
        max_bytes=st.sampled_from([0, 1, 61, 200, 700, 3_000, ALL]),
        min_one=st.booleans(),
        isolation=ISOLATIONS,
    )
    def read(self, place: float, max_bytes: int, min_one: bool, isolation: Isolation) -> None:
        offset = self.offset_at(place)
        if not self.model.start <= offset <= self.model.end:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.reader.read(offset, max_bytes, isolation=isolation, min_one=min_one)
            return
        stable = self.log.last_stable_offset
        fetched = self.log.reader.read(offset, max_bytes, isolation=isolation, min_one=min_one)
        expected = self.model.read(
            offset,
            max_bytes,
            bound=self.model.bound(isolation, stable),
            min_one=min_one,
            bases=self.log.segments.base_offsets,
        )
        assert fetched.read() == expected
        if isolation is not Isolation.TXN_COMMITTED:
            assert fetched.aborted is None
            return
        assert fetched.aborted is not None
        aborted = {txn[:3] for txn in self.model.ended if txn.is_aborted}
        given_back = {
            (txn.producer_id, txn.first_offset, txn.last_offset) for txn in fetched.aborted
        }
        assert given_back <= {txn for txn in aborted if txn[2] >= offset}
        for one in parse_batches(expected) if max_bytes == ALL else []:
            if self.model.is_aborted(one):
                assert any(
                    txn[0] == one.producer_id and txn[1] <= one.base <= txn[2] for txn in given_back
                )

    @rule()
    def consume(self) -> None:
        stable = self.log.last_stable_offset
        assert read_records(self.log, isolation=Isolation.TXN_COMMITTED) == self.model.committed(
            stable
        )

    @rule(
        timestamp=st.one_of(
            st.integers(-7, -1), st.integers(-4_000_000, 4_000_000), st.just(1 << 60)
        ),
        place=PLACES,
        isolation=ISOLATIONS,
    )
    def list_offset(self, timestamp: int, place: float, isolation: Isolation) -> None:
        if timestamp < -6:
            times = [r.timestamp for one in self.model.batches for r in one.records]
            timestamp = times[round(place * (len(times) - 1))] if times else 0
        elif timestamp not in range(-6, 0):
            timestamp = max(0, self.now_ms + timestamp)
        segments = self.log.segments
        expected = self.model.listed(
            timestamp,
            bound=self.model.bound(isolation, self.log.last_stable_offset),
            bases=segments.base_offsets,
            idle=[segment.last_modified_ms for segment in segments],
        )
        assert self.log.reader.list_offset(timestamp, isolation=isolation) == expected

    @rule(epoch=st.integers(-1, 8))
    def end_offset_for(self, epoch: int) -> None:
        assert tuple(self.log.reader.end_offset_for_epoch(epoch)) == self.model.end_offset_for(
            epoch
        )

    # ---- offsets that move

    @rule(place=PLACES)
    def move_the_high_watermark(self, place: float) -> None:
        offset = self.offset_at(place)
        self.log.update_high_watermark(offset)
        self.model.move_high_watermark(offset)

    @rule()
    def catch_up(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.model.move_high_watermark(self.model.end)

    @rule(place=PLACES)
    def delete_records(self, place: float) -> None:
        offset = self.offset_at(place)
        if offset > self.model.high_watermark:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.delete_records(offset)
            return
        self.log.delete_records(offset)
        self.model.raise_start(offset)

    @rule()
    def become_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)
        self.model.assign_epoch(self.epoch, self.model.end)

    # ---- what takes records away

    @rule(place=PLACES)
    def truncate(self, place: float) -> None:
        offset = self.offset_at(place)
        fully = offset < self.log.segments.first.base_offset
        lowers_start = offset < self.model.start
        self.stored.manager.truncate_to({self.log.topic_partition: offset})
        if fully and offset < self.model.end:
            self.model.empty(offset)
        else:
            self.model.truncate(offset)
        if lowers_start:
            self.start_line = self.model.start
        assert self.log.offsets.recovery_point <= offset or offset >= self.model.end
        self._look_at_producers()
        self._truncated(offset)

    @rule(offset=st.integers(0, 60))
    def truncate_fully(self, offset: int) -> None:
        self.stored.manager.truncate_fully_and_start_at(self.log.topic_partition, offset)
        self.model.empty(offset)
        self.start_line = offset
        self._truncated(offset)

    def _truncated(self, offset: int) -> None:
        partition = self.log.topic_partition
        self.cleaning.checkpoints.maybe_truncate(self.log.log_dir, partition, offset)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.offsets.recovery_point == self.log.log_end_offset

    @rule(ms=st.sampled_from([1, 1_000, 120_000, 3_600_000]))
    def let_time_pass(self, ms: int) -> None:
        self.stored.clock.advance(ms)
        self.stored.manager.context.scheduler.run_due()

    @rule()
    def retain(self) -> None:
        log, model, config = self.log, self.model, self.config
        segments = log.segments
        bases = segments.base_offsets
        ends = [*bases[1:], model.end]
        sizes = [sum(len(s.raw) for s in model.in_segment(bases, n)) for n in range(len(bases))]
        gone, size, start = 0, sum(sizes), model.start

        def may_go() -> bool:
            is_last = gone == len(bases) - 1
            return (
                gone < len(bases)
                and ends[gone] <= model.high_watermark
                and not (is_last and not sizes[gone])
            )

        while may_go() and gone < len(bases) - 1 and ends[gone] <= start:
            gone, size = gone + 1, size - sizes[gone]
        if config.delete and config.retention_bytes >= 0:
            excess = size - config.retention_bytes
            while may_go() and excess - sizes[gone] >= 0:
                excess -= sizes[gone]
                gone += 1
        if config.delete and config.retention_ms >= 0:
            while may_go():
                time = model.newest_in(bases, gone)
                time = time if time >= 0 else segments[gone].last_modified_ms
                if self.now_ms - time <= config.retention_ms:
                    break
                gone += 1
        assert retain(log, self.now_ms) == gone
        if gone:
            model.raise_start(ends[gone - 1])
            model.drop_below(ends[gone - 1])

    # ---- compaction

    @precondition(lambda self: self.config.compact)
    @rule()
    def compact(self) -> None:
        log, model = self.log, self.model
        before = list(model.batches)
        committed = model.committed(log.last_stable_offset)
        cleaned = self.cleaner.clean_once()
        assert not self.cleaning.uncleanable_partitions(log.log_dir)
        after = parse_batches(self._bytes_on_disk())
        chosen = self.cleaner.last_chosen
        if not cleaned:
            assert [one.raw for one in after] == [
                one.raw for one in before if one.base >= log.segments.first.base_offset
            ]
        else:
            assert chosen is not None
            first, end = chosen.cleanable.first_dirty, chosen.cleanable.first_uncleanable
            note(f"cleaned from {first} to {end}")
            assert [s.raw for s in after if s.base >= end] == [
                s.raw for s in before if s.base >= max(end, log.segments.first.base_offset)
            ]
            known = {r.offset: r for one in before for r in one.records}
            assert all(known[r.offset] == r for one in after for r in one.records)
            rest = {r.offset for one in after for r in one.records}
            last = {
                r.key: r.offset for r in committed if r.key is not None and first <= r.offset < end
            }
            for record in committed:
                if record.key is not None and record.offset < last.get(record.key, -1):
                    assert record.offset not in rest, "superseded"
        model.replace(after)
        if log.log_start_offset > model.start:
            assert log.log_start_offset == log.segments.first.base_offset
            model.raise_start(log.log_start_offset)
        model.drop_below(log.segments.first.base_offset)
        if cleaned:
            keyed = [r for r in committed if r.key is not None and r.offset >= model.start]
            left = [r for r in model.committed(log.last_stable_offset) if r.key is not None]
            assert newest(left) == newest(keyed)

    # ---- the process ends, and another begins

    @rule()
    def restart(self) -> None:
        files = self._bytes_on_disk()
        self.start_line, self.mark_line = self.model.start, self.model.high_watermark
        self.stored.manager.shutdown()
        self._start()
        assert self._bytes_on_disk() == files
        self._reloaded()
        assert self.log.offsets.recovery_point == self.model.end

    @rule(checkpoints=st.booleans())
    def restart_after_a_kill(self, checkpoints: bool) -> None:
        if checkpoints:
            self.stored.manager.checkpoint_recovery_points()
            self.stored.manager.checkpoint_log_start_offsets()
            self.stored.manager.checkpoint_high_watermarks()
            self.start_line, self.mark_line = self.model.start, self.model.high_watermark
        files = self._bytes_on_disk()
        self.stored.kill()
        self._start()
        assert self._bytes_on_disk() == files
        self._reloaded()

    def _reloaded(self) -> None:
        bases = self.log.segments.base_offsets
        start = max(self.start_line, bases[0])
        self.verifying.clear()
        self.model.reload(start, self.mark_line, active=bases[-1])
        self._look_at_producers()

    @rule(config=CONFIGS)
    def change_the_settings(self, config: LogConfig) -> None:
        self.stored.configs["t"] = config
        self.stored.manager.update_topic_config("t", config)

    def _look_at_producers(self) -> None:
        """Takes what the log knows of its producers, which its records have to bear out."""
        replayed = self.model.replayed()
        known: dict[int, ProducerModel] = {}
        for entry in self.log.producer_state.entries():
            found = self.log.producer_state.last_entry(entry.producer_id)
            assert found is not None
            known[entry.producer_id] = ProducerModel(
                found.producer_epoch,
                [(b.first_sequence, b.last_sequence, b.first_offset) for b in found.batches],
                found.current_txn_first_offset,
                found.last_timestamp,
            )
        for producer_id, wanted in replayed.items():
            seen = known.get(producer_id)
            if seen is None:
                assert self.now_ms - wanted.last_timestamp >= 86_400_000
                continue
            assert seen.epoch == wanted.epoch
            assert seen.batches[-1:] == wanted.batches[-1:] or not wanted.batches
            assert (seen.open_since is None) == (wanted.open_since is None)
        self.model.producers = known

    def _bytes_on_disk(self) -> bytes:
        return b"".join(segment.path.read_bytes() for segment in self.log.segments)

    # ---- at all times

    @invariant()
    def offsets_are_in_order(self) -> None:
        log, model = self.log, self.model
        bounds = (log.log_start_offset, log.high_watermark, log.log_end_offset)
        wanted = (model.start, model.high_watermark, model.end)
        assert bounds == wanted, f"start, high watermark, end: {bounds}, not {wanted}"
        log.check_invariants()
        stable = log.last_stable_offset
        least, most = model.last_stable_between()
        assert least <= stable <= most, f"{least} <= {stable} <= {most}"
        epochs = [tuple(entry) for entry in log.leader_epochs.epoch_entries]
        assert epochs == model.epochs, f"epochs {epochs}, not {model.epochs}"

    @invariant()
    def segments_hold_every_batch_once(self) -> None:
        bases = self.log.segments.base_offsets
        names = self.stored.fs.names_in(self.log.directory)
        assert list(bases) == sorted(base_offset_of(n) for n in names if n.endswith(".log"))
        for number, segment in enumerate(self.log.segments):
            expected = b"".join(one.raw for one in self.model.in_segment(bases, number))
            assert segment.size_bytes == len(expected)
            assert segment.path.read_bytes() == expected

    @invariant()
    def every_record_is_read_once(self) -> None:
        found, offset = b"", self.log.log_start_offset
        while data := self.log.reader.read(offset, ALL, isolation=Isolation.LOG_END).read():
            found += data
            offset = parse_batches(data)[-1].last + 1
        assert found == b"".join(s.raw for s in self.model.batches if s.last >= self.model.start)


LogIsAList.TestCase.settings = settings(stateful_step_count=30)
test_a_log_does_what_a_list_of_batches_would = LogIsAList.TestCase
