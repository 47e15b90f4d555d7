"""Random partitions: all that a log may hold, in any order that a broker and its cleaner leave.

Every codec, tombstones, headers, LogAppendTime, emptied batches, batches with gaps and delete
horizons of an earlier cleaning, idempotent producers, transactions (committed, aborted, open, with
markers whose data is gone), several leader epochs, gaps of offsets, empty segments, entries of
magic 0 and 1, keys short, long, empty and null.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.format.batch_header import CREATE_TIME, LOG_APPEND_TIME
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_control_key
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.record_batch import (
    Header,
    Record,
    RecordBatch,
    build_batch,
    build_empty_batch,
    parse_batch,
)
from support.log_builder import NOW_MS, LogBuilder

_DAY_MS = 86_400_000
_PRODUCERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Content of a random log.

    `batches` is how many appends there are, `records_max` how many records a batch has at most,
    `keys` how many keys there are, `value_bytes_max` how long a value is at most, and `roll` the
    probability of a new segment after an append. With `versions`, most records have a header `v`,
    with `ttl` a header `ttl`.
    """

    batches: int = 40
    records_max: int = 8
    keys: int = 12
    value_bytes_max: int = 40
    roll: float = 0.15
    legacy: bool = True
    transactions: bool = True
    unkeyed: bool = True
    index_interval_bytes: int = 200
    versions: bool = False
    ttl: bool = False


class RandomLog:
    """Fills a builder with random appends."""

    def __init__(
        self, rng: random.Random, contents: Contents, *, name: str = "log-0", start: int = 0
    ) -> None:
        self.log = LogBuilder(
            name, index_interval_bytes=contents.index_interval_bytes, start_offset=start
        )
        self._rng = rng
        self._contents = contents
        self._keys = [self._key(number) for number in range(contents.keys)]
        self._epochs = dict.fromkeys(range(_PRODUCERS), 0)

    def fill(self) -> LogBuilder:
        """Appends everything; the checkpoints are set at random too."""
        rng, log = self._rng, self.log
        for _ in range(self._contents.batches):
            rng.choices([kind for kind, _ in self._kinds()], [w for _, w in self._kinds()])[0]()
            if rng.random() < 0.08:
                log.skip(rng.randint(1, 60))
            if rng.random() < 0.04:
                log.new_leader_epoch()
            if rng.random() < self._contents.roll and log.next_offset > log.active.base_offset:
                log.roll()
                if rng.random() < 0.1:
                    log.skip(rng.randint(1, 5))
                    log.roll()
        while log.open_transactions() and rng.random() < 0.9:
            self._end_transaction()
        if rng.random() < 0.8 and log.next_offset > log.active.base_offset:
            log.roll()
        self._set_checkpoints()
        return log

    def _set_checkpoints(self) -> None:
        rng, log = self._rng, self.log
        bases = [segment.base_offset for segment in log.segments]
        end = log.next_offset
        log.cleaner_checkpoint = rng.choice(
            [None, 0, rng.choice(bases[:-1] or bases), rng.randint(bases[0], bases[-1])]
        )
        if rng.random() < 0.2:
            log.log_start_offset = rng.randint(bases[0], end)

    def _kinds(self) -> list[tuple[Callable[[], None], float]]:
        kinds = [(self._data, 10.0), (self._emptied, 1.0)]
        if self._contents.legacy:
            kinds.append((self._legacy, 1.0))
        if self._contents.transactions:
            kinds += [
                (self._transactional, 5.0),
                (self._end_transaction, 3.0),
                (self._bare_marker, 0.7),
                (self._emptied_marker, 0.4),
            ]
        return kinds

    # ---- keys and values

    def _key(self, number: int) -> bytes:
        length = self._rng.choice([0, 1, 3, 8, 16, 22, 23, 24, 25, 40, 64, 200])
        # Many keys agree in all but a byte, at the start or at the end.
        if length == 0:
            return b""
        byte = bytes([number % 256])
        filler = b"k" * (length - 1)
        return byte + filler if self._rng.random() < 0.5 else filler + byte

    def _value(self) -> bytes | None:
        kind = self._rng.random()
        if kind < 0.2:
            return None
        if kind < 0.25:
            return b""
        length = self._rng.randint(1, self._contents.value_bytes_max)
        if kind < 0.6:
            return self._rng.randbytes(length)
        return b"v" * length

    def _record(self, offset: int) -> Record:
        rng = self._rng
        key: bytes | None = rng.choice(self._keys)
        if self._contents.unkeyed and rng.random() < 0.05:
            key = None
        headers: tuple[Header, ...] = ()
        if rng.random() < 0.2:
            headers = tuple(
                Header(f"h{n}é", None if rng.random() < 0.3 else rng.randbytes(n))
                for n in range(rng.randint(1, 3))
            )
        if self._contents.versions and rng.random() < 0.9:
            headers += (self._version(),)
        if self._contents.ttl and rng.random() < 0.6:
            headers += (self._time_to_live(),)
        return Record(offset, self._timestamp(), key, self._value(), headers)

    def _time_to_live(self) -> Header:
        """A header `ttl`: of a few days in both forms, and what is none."""
        rng = self._rng
        ttl_ms = rng.choice([0, rng.randint(0, 6 * _DAY_MS), 30 * _DAY_MS, (1 << 63) - 1])
        forms: list[bytes | None] = [b"%d" % ttl_ms, ttl_ms.to_bytes(8, "big")]
        if rng.random() < 0.1:
            forms = [None, b"", b"-1", b"1.5", b"\xff" * 8, b"9" * 19, b"0" * 30, b"12345678 "]
        return Header("ttl", rng.choice(forms))

    def _version(self) -> Header:
        """A header `v`: few versions, so that some are equal, extreme ones, and what is none."""
        rng = self._rng
        value = rng.choice([rng.randint(-3, 6), rng.randint(0, 1 << 40), (1 << 63) - 1, -(1 << 63)])
        data: bytes | None = value.to_bytes(8, "big", signed=True)
        if rng.random() < 0.1:
            data = rng.choice([None, b"", b"1234567", b"123456789"])
        return Header("v", data)

    def _timestamp(self) -> int:
        rng = self._rng
        if rng.random() < 0.02:
            return rng.choice([-1, 1, NOW_MS + _DAY_MS])
        return NOW_MS - rng.randint(0, 5 * _DAY_MS)

    def _horizon(self) -> int:
        return NOW_MS + self._rng.choice([-_DAY_MS, -1, 0, 1, _DAY_MS])

    def _codec(self) -> Codec:
        codec: Codec = self._rng.choice([Codec.NONE, *Codec])
        return codec

    def _producer(self) -> tuple[int, int]:
        """A producer outside of a transaction, sometimes with a new epoch."""
        free = [p for p in self._epochs if p not in self.log.open_transactions()]
        if not free:
            return -1, -1
        producer_id = self._rng.choice(free)
        if self._rng.random() < 0.1:
            self._epochs[producer_id] += 1
        return producer_id, self._epochs[producer_id]

    # ---- appends

    def _data(self) -> None:
        producer = self._producer() if self._rng.random() < 0.4 else (-1, -1)
        self._batch(producer, transactional=False)

    def _transactional(self) -> None:
        producer_id = self._rng.choice(list(self._epochs))
        self._batch((producer_id, self._epochs[producer_id]), transactional=True)

    def _batch(self, producer: tuple[int, int], *, transactional: bool) -> None:
        rng, base = self._rng, self.log.next_offset
        count = rng.randint(1, self._contents.records_max)
        offsets = list(range(base, base + count))
        horizon = None
        last = offsets[-1]
        if rng.random() < 0.25:
            # As a cleaning leaves it: some records gone, perhaps stamped.
            offsets = sorted(rng.sample(offsets, rng.randint(1, count)))
            horizon = self._horizon() if rng.random() < 0.6 else None
        self.log.batch(
            [self._record(offset) for offset in offsets],
            timestamp=NOW_MS - rng.randint(0, _DAY_MS),
            codec=self._codec(),
            append_time=rng.random() < 0.15,
            producer=None if producer[0] < 0 else producer,
            transactional=transactional,
            last_offset=last,
            delete_horizon_ms=horizon,
        )

    def _end_transaction(self) -> None:
        running = sorted(self.log.open_transactions())
        if running:
            producer_id = self._rng.choice(running)
            self.log.marker(
                (producer_id, self._epochs[producer_id]),
                commit=self._rng.random() < 0.5,
                timestamp=self._timestamp(),
            )

    def _bare_marker(self) -> None:
        """A marker whose data an earlier cleaning removed; ABORT may have its index entry yet."""
        producer_id, epoch = self._producer()
        if producer_id < 0:
            return
        rng, log = self._rng, self.log
        kind = rng.choice([ControlType.COMMIT, ControlType.ABORT])
        if kind is ControlType.ABORT:
            log.skip(1)  # the data is gone
        offset = log.next_offset
        stamped = rng.random() < 0.5
        log.append(self._control(offset, producer_id, epoch, kind, stamped=stamped))
        if kind is ControlType.ABORT and not stamped and offset:
            earliest = max(log.earliest_first_offset(producer_id), offset - 3)
            log.aborted(producer_id, rng.randint(earliest, offset), offset)

    def _control(
        self, offset: int, producer_id: int, epoch: int, kind: ControlType, *, stamped: bool
    ) -> bytes:
        record = Record(offset, self._timestamp(), build_control_key(kind), b"\0\0\0\0\0\0")
        return build_batch(
            [record],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
            partition_leader_epoch=self.log.leader_epoch,
            delete_horizon_ms=self._horizon() if stamped else None,
        )

    def _emptied(self) -> None:
        """The header that an earlier cleaning left of a data batch."""
        producer_id, epoch = self._producer() if self._rng.random() < 0.7 else (-1, -1)
        base = self.log.next_offset
        count = self._rng.randint(1, 5)
        self._append_emptied(
            build_batch(
                [self._record(base + i) for i in range(count)],
                base_offset=base,
                timestamp_type=self._rng.choice([CREATE_TIME, LOG_APPEND_TIME]),
                log_append_time_ms=self._timestamp(),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=-1
                if producer_id < 0
                else self.log.next_sequence((producer_id, epoch), count),
                partition_leader_epoch=self.log.leader_epoch,
            )
        )

    def _emptied_marker(self) -> None:
        producer_id, epoch = self._producer()
        if producer_id >= 0:
            kind = self._rng.choice([ControlType.COMMIT, ControlType.ABORT])
            self._append_emptied(
                self._control(self.log.next_offset, producer_id, epoch, kind, stamped=True)
            )

    def _append_emptied(self, data: bytes) -> None:
        batch = parse_batch(data)
        assert isinstance(batch, RecordBatch), "built just now"
        self.log.append(build_empty_batch(batch.header))

    def _legacy(self) -> None:
        """One entry of magic 0 or 1: a record, or a compressed set."""
        rng, base = self._rng, self.log.next_offset
        magic = rng.choice([0, 1])
        codecs = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
        codec = rng.choice(codecs)
        count = 1 if codec is Codec.NONE else rng.randint(1, 5)
        records = [
            Record(base + i, self._timestamp() if magic else -1, r.key, r.value)
            for i, r in enumerate(self._record(base + i) for i in range(count))
        ]
        if codec is Codec.NONE:
            record = records[0]
            data = build_legacy_message(
                offset=base,
                magic=magic,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp,
                attributes=8 if magic and rng.random() < 0.2 else 0,
            )
        else:
            append_time = bool(magic) and rng.random() < 0.3
            data = build_legacy_wrapper(
                records,
                magic=magic,
                codec=codec,
                log_append_time_ms=NOW_MS - _DAY_MS if append_time else None,
            )
        self.log.append(data)


def random_log(
    seed: int, contents: Contents | None = None, *, name: str = "log-0", start: int = 0
) -> LogBuilder:
    """A random partition; the same for the same arguments."""
    rng = random.Random(seed)  # noqa: S311  # nothing here is secret
    return RandomLog(rng, contents or Contents(), name=name, start=start).fill()
