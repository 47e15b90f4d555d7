"""Record batches of all kinds, good and bad, for scripts of requests."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cordwood.format.compression import Codec
from cordwood.format.crc32c import crc32c
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import Header, Record, build_batch
from support.differential import Side

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Batch:
    """Bytes of a batch whose producer's id each side puts in itself.

    `fix_crc` is False where the CRC should stay wrong.
    """

    data: bytes
    kind: str
    producer: str | None = None
    epoch_shift: int = 0
    fix_crc: bool = True

    def resolve(self, side: Side) -> bytes:
        """The bytes to send to that side."""
        if self.producer is None:
            return self.data
        producer_id, epoch = side.producers.get(self.producer, (777_000, 0))
        data = bytearray(self.data)
        struct.pack_into(">qh", data, 43, producer_id, max(-1, epoch + self.epoch_shift))
        if self.fix_crc:
            struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        return bytes(data)

    def __repr__(self) -> str:
        return f"<{self.kind} batch of {len(self.data)} bytes by {self.producer}>"


def _patched(data: bytes, position: int, layout: str, value: int, *, crc: bool = True) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    if crc and len(changed) > 21:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def _attribute(data: bytes, bits: int) -> bytes:
    (attributes,) = struct.unpack_from(">h", data, 21)
    return _patched(data, 21, ">h", attributes | bits)


# A batch marked LogAppendTime is not among them: there Cordwood is stricter than Kafka on purpose
# (cordwood.storage.append.validator).
_DAMAGES: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "wrong CRC": lambda data: _patched(data, 17, ">I", 12345, crc=False),
    "magic 3": lambda data: _patched(data, 16, ">b", 3, crc=False),
    "magic -1": lambda data: _patched(data, 16, ">b", -1, crc=False),
    "magic 1": lambda data: build_legacy_message(
        offset=0, magic=1, key=b"k", value=b"v", timestamp=1
    ),
    "magic 0": lambda data: build_legacy_message(offset=0, magic=0, key=b"k", value=b"v"),
    "base offset 7": lambda data: _patched(data, 0, ">q", 7),
    "negative base offset": lambda data: _patched(data, 0, ">q", -3),
    "last offset delta 9": lambda data: _patched(data, 23, ">i", 9),
    "negative last offset delta": lambda data: _patched(data, 23, ">i", -1),
    "too many records": lambda data: _patched(data, 57, ">i", 40),
    "too few records": lambda data: _patched(data, 57, ">i", 0),
    "negative count": lambda data: _patched(data, 57, ">i", -1),
    "cut off": lambda data: data[:-3],
    "cut in the header": lambda data: data[:30],
    "length too small": lambda data: _patched(data, 8, ">i", 10, crc=False),
    "length negative": lambda data: _patched(data, 8, ">i", -1, crc=False),
    "length too large": lambda data: _patched(data, 8, ">i", 1 << 20, crc=False),
    "bytes after it": lambda data: data + b"\0\0\0",
    "two": lambda data: data + data,
    "control": lambda data: _attribute(data, 0x20),
    "transactional": lambda data: _attribute(data, 0x10),
    "delete horizon": lambda data: _attribute(data, 0x40),
    "unknown codec": lambda data: _attribute(data, 0x07),
    "not packed as said": lambda data: _attribute(data, 0x01),
    "unused attribute": lambda data: _attribute(data, 0x80),
    "leader epoch 9": lambda data: _patched(data, 12, ">i", 9, crc=False),
    "wrong max timestamp": lambda data: _patched(data, 35, ">q", 5),
    "no bytes in": lambda data: b"",
    "changed records": lambda data: _patched(data, 61, ">b", 3),
    "epoch without id": lambda data: _patched(data, 51, ">h", 4),
    "sequence without id": lambda data: _patched(data, 53, ">i", 4),
    "id without epoch": lambda data: _patched(data, 43, ">q", 5),
}


class Batches:
    """Draws batches. `now_ms` is the script's time: what is written is at least a day older."""

    def __init__(self, rng: random.Random, now_ms: int) -> None:
        self._rng = rng
        self._now_ms = now_ms
        self.times: list[int] = []

    def timestamp(self) -> int:
        """A timestamp in ms that no broker's clock shows while the script runs."""
        rng = self._rng
        time = self._now_ms - rng.randrange(1, 40) * DAY_MS - rng.randrange(1000)
        kind = rng.random()
        if kind < 0.02:
            time = self._now_ms + 3 * HOUR_MS
        elif kind < 0.03:
            time = -1
        elif kind < 0.04:
            time = 0
        elif kind < 0.05:
            time = -2
        self.times.append(time)
        return time

    def records(self, *, keyed: float = 0.9) -> list[Record]:
        """A few records with keys out of few."""
        rng = self._rng
        big = rng.random() < 0.05
        times = sorted(self.timestamp() for _ in range(rng.randint(1, 5)))
        if rng.random() < 0.5:
            times = [times[0]] * len(times)
        records = []
        for number, time in enumerate(times):
            key = b"k%d" % rng.randrange(6) if rng.random() < keyed else None
            size = rng.choice((0, 1, 20, 200)) * (30 if big else 1)
            value = None if rng.random() < 0.1 else rng.randbytes(size // 2) * 2
            headers = tuple(Header(f"h{i}", b"x" * i or None) for i in range(rng.randrange(3)))
            records.append(Record(number, time, key, value, headers))
        return records

    def good(self, *, keyed: float = 0.95, codec: Codec | None = None) -> Batch:
        """A batch that most topics take."""
        if codec is None:
            codec = Codec(self._rng.choice((0, 0, 0, 1, 2, 3, 4)))
        data = build_batch(self.records(keyed=keyed), base_offset=0, codec=codec)
        return Batch(data, codec.config_name)

    def sequenced(
        self, producer: str, sequence: int, *, epoch_shift: int = 0, transactional: bool = False
    ) -> tuple[Batch, int]:
        """A batch of an idempotent producer, and how many records it has."""
        records = self.records(keyed=1)
        data = build_batch(
            records,
            base_offset=0,
            producer_id=0,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        return Batch(data, f"sequence {sequence}", producer, epoch_shift), len(records)

    def bad(self) -> Batch:
        """A batch with something wrong; some are taken all the same."""
        kind = self._rng.choice(sorted(_DAMAGES))
        data = build_batch(self.records(keyed=1), base_offset=0)
        return Batch(_DAMAGES[kind](data), kind)
