"""Damages to the files of a log directory, each with what a check must find of it.

An oracle of `cordwood verify`: it knows Kafka's bytes by itself, and shares no code with what it is
to judge. A damage says which finding names which file and offset, or why nobody can know of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_TABLE: list[int] = []
for _byte in range(256):
    _value = _byte
    for _bit in range(8):
        _value = _value >> 1 ^ (_POLYNOMIAL if _value & 1 else 0)
    _TABLE.append(_value)

#: Where the fields of a record batch of magic 2 begin.
BASE, LENGTH, LEADER_EPOCH, MAGIC, ATTRIBUTES, LAST_DELTA = 0, 8, 12, 16, 21, 23
FIRST_TIME, MAX_TIME, PRODUCER, EPOCH, SEQUENCE, COUNT, RECORDS = 27, 35, 43, 51, 53, 57, 61


def crc(data: bytes) -> int:
    """CRC-32C, bit by bit from its definition."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def sealed(batch: bytes) -> bytes:
    """A batch with the length and the CRC of its bytes."""
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    return batch[:17] + struct.pack(">I", crc(batch[21:])) + batch[21:]


def put(data: bytes, at: int, layout: str, value: int) -> bytes:
    """Bytes with another number at a place."""
    new = struct.pack(">" + layout, value)
    return data[:at] + new + data[at + len(new) :]


def get(data: bytes, at: int, layout: str) -> int:
    """A number at a place."""
    (value,) = struct.unpack_from(">" + layout, data, at)
    return int(value)


def base_of(batch: bytes) -> int:
    """The first offset of a batch."""
    return get(batch, BASE, "q")


def last_of(batch: bytes) -> int:
    """The last offset of a batch."""
    return base_of(batch) + get(batch, LAST_DELTA, "i")


def is_control(batch: bytes) -> bool:
    """Whether it is a marker."""
    return bool(get(batch, ATTRIBUTES, "h") & 0x20)


def is_abort(batch: bytes) -> bool:
    """Whether a marker is of type ABORT; its record has a key of four bytes."""
    return batch[RECORDS + 7 : RECORDS + 9] == b"\0\0" if len(batch) > RECORDS + 9 else False


@dataclass(frozen=True, slots=True)
class Found:
    """A finding of one of `rules` in `file`, at `offset`; None for any."""

    rules: tuple[str, ...]
    file: str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Unknowable:
    """No file says that something was changed, or it makes no difference.

    `note` is the rule of a note that says so.
    """

    why: str
    note: str | None = None


Verdict = Found | Unknowable


def found(rules: str, file: Path | str | None = None, offset: int | None = None) -> Found:
    """A finding of one of the rules, separated by blanks."""
    name = file.name if isinstance(file, Path) else file
    return Found(tuple(rules.split()), name, offset)


@dataclass(slots=True)
class Victim:
    """A partition's directory, to be damaged; `other` is one to take files of."""

    root: Path
    name: str
    other: Path
    bases: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Lists the segments."""
        self.bases = sorted(int(path.stem) for path in self.log.glob("*.log"))

    @property
    def log(self) -> Path:
        """The partition's directory."""
        return self.root / self.name

    @property
    def middle(self) -> int:
        """The base offset of a segment in the middle."""
        return self.bases[len(self.bases) // 2]

    @property
    def before_middle(self) -> int:
        """The base offset of the segment in front of that."""
        return self.bases[len(self.bases) // 2 - 1]

    def file(self, base: int, suffix: str = ".log") -> Path:
        """A file of a segment."""
        return self.log / f"{base:020d}{suffix}"

    def batches(self, base: int) -> list[bytes]:
        """The batches of a segment."""
        data, at, found = self.file(base).read_bytes(), 0, []
        while at < len(data):
            size = get(data, at + 8, "i") + 12
            found.append(data[at : at + size])
            at += size
        return found

    def write(self, base: int, batches: Sequence[bytes]) -> None:
        """Puts other batches into a segment, and indexes that agree with them."""
        path = self.file(base)
        path.write_bytes(b"".join(batches))
        self.file(base, ".index").write_bytes(b"")
        newest, offset = -1, 0
        for batch in batches:
            if get(batch, MAX_TIME, "q") > newest:
                newest, offset = get(batch, MAX_TIME, "q"), last_of(batch)
        entry = struct.pack(">qi", newest, offset - base) if newest >= 0 else b""
        self.file(base, ".timeindex").write_bytes(entry)

    def replace(self, base: int, number: int, batch: bytes) -> Path:
        """Puts another batch in the place of one, and keeps the indexes."""
        batches = self.batches(base)
        batches[number] = batch
        self.file(base).write_bytes(b"".join(batches))
        return self.file(base)

    def with_suffix(self, suffix: str) -> Path:
        """The file of that suffix in the middle, or the one that is next to it."""
        files = sorted(path for path in self.log.glob(f"*{suffix}") if path.stat().st_size)
        return files[len(files) // 2]

    def last(self) -> bytes:
        """The last batch of the log."""
        return self.batches(self.bases[-1])[-1]


Change = Callable[[Victim], Verdict]


@dataclass(frozen=True, slots=True)
class Damage:
    """A kind of damage: to which kind of file, what is done, and in which kind of log."""

    file: str
    what: str
    needs: str
    change: Change


DAMAGES: list[Damage] = []


def damages(file: str, what: str, needs: str = "") -> Callable[[Change], Change]:
    """Registers a damage.

    Args:
        file: the kind of file.
        what: what is done to it.
        needs: what the log has to have, as `SOURCES` of the test says; "" for any that was never
            compacted.
    """

    def register(change: Change) -> Change:
        DAMAGES.append(Damage(file, what, needs, change))
        return change

    return register


SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _remove(victim: Victim, base: int, suffixes: Sequence[str] = SEGMENT_SUFFIXES) -> None:
    for suffix in suffixes:
        victim.file(base, suffix).unlink(missing_ok=True)


# ---- segments


@damages(".log", "a segment in the middle removed")
def _(v: Victim) -> Verdict:
    base = v.middle
    _remove(v, base)
    return found("offsets-missing", v.file(v.before_middle), base)


@damages(".log", "a segment in the middle removed, its snapshot left")
def _(v: Victim) -> Verdict:
    base = v.middle
    _remove(v, base, SEGMENT_SUFFIXES[:4])
    return found("offsets-missing", v.file(v.before_middle), base)


@damages(".log", "two segments in the middle removed")
def _(v: Victim) -> Verdict:
    first, second = v.before_middle, v.middle
    _remove(v, first)
    _remove(v, second)
    before = v.bases[v.bases.index(first) - 1]
    return found("offsets-missing", v.file(before), first)


@damages(".log", "the first segment removed", "start")
def _(v: Victim) -> Verdict:
    _remove(v, v.bases[0])
    return found("offsets-missing", v.file(v.bases[1]), v.bases[0])


@damages(".log", "the first segment removed, below the log start offset", "deleted")
def _(v: Victim) -> Verdict:
    _remove(v, v.bases[0])
    return Unknowable("retention removes it")


@damages(".log", "the last segment removed")
def _(v: Victim) -> Verdict:
    _remove(v, v.bases[-1])
    return found("offsets-missing", v.file(v.bases[-2]), v.bases[-1])


@damages(".log", "all segments removed")
def _(v: Victim) -> Verdict:
    for base in v.bases:
        _remove(v, base)
    return found("log-missing", v.log.name)


@damages(".log", "removed, its indexes left")
def _(v: Victim) -> Verdict:
    v.file(v.middle).unlink()
    return found("log-missing", v.file(v.middle), v.middle)


@damages(".log", "the first removed, its indexes left")
def _(v: Victim) -> Verdict:
    v.file(v.bases[0]).unlink()
    return found("log-missing", v.file(v.bases[0]), v.bases[0])


@damages(".log", "the last removed, its indexes left")
def _(v: Victim) -> Verdict:
    v.file(v.bases[-1]).unlink()
    return found("log-missing", v.file(v.bases[-1]), v.bases[-1])


@damages(".log", "removed with its .index, the .timeindex left")
def _(v: Victim) -> Verdict:
    _remove(v, v.middle, (".log", ".index", ".txnindex", ".snapshot"))
    return found("log-missing", v.file(v.middle), v.middle)


@damages(".log", "two segments exchanged")
def _(v: Victim) -> Verdict:
    one, two = v.file(v.before_middle), v.file(v.middle)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return found("offset-range", one, v.middle)


@damages(".log", "that of another partition", "golden")
def _(v: Victim) -> Verdict:
    path = sorted(v.other.glob("*.log"))[0]
    v.file(v.bases[0]).write_bytes(path.read_bytes())
    return found(
        "offsets-missing offset-range offset-index-entry time-index-entry snapshot-content"
    )


@damages(".log", "renamed to a later offset")
def _(v: Victim) -> Verdict:
    v.file(v.middle).rename(v.file(v.middle + 1))
    return found("offset-range log-missing")


@damages(".log", "renamed to an earlier offset")
def _(v: Victim) -> Verdict:
    v.file(v.middle).rename(v.file(v.middle - 1))
    return found("offset-range log-missing")


@damages(".log", "a segment with all its files renamed to a later offset")
def _(v: Victim) -> Verdict:
    base = v.middle
    for suffix in SEGMENT_SUFFIXES:
        if v.file(base, suffix).exists():
            v.file(base, suffix).rename(v.file(base + 1, suffix))
    return found("offset-range", v.file(base + 1), base)


# ---- cut and extended


@damages(".log", "a closed one cut behind its last batch but one")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.before_middle)
    v.write(v.before_middle, batches[:-1])
    return found("offsets-missing", v.file(v.before_middle), base_of(batches[-1]))


@damages(".log", "a closed one cut between batches in the middle, the indexes as they were")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.before_middle)
    half = len(batches) // 2
    v.file(v.before_middle).write_bytes(b"".join(batches[:half]))
    return found("offsets-missing", v.file(v.before_middle), base_of(batches[half]))


@damages(".log", "the last one cut between batches")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.bases[-1])
    v.write(v.bases[-1], batches[:-1])
    return found("offsets-missing", v.file(v.bases[-1]), base_of(batches[-1]))


@damages(".log", "a closed one cut inside a batch")
def _(v: Victim) -> Verdict:
    path, batch = v.file(v.before_middle), v.batches(v.before_middle)[-1]
    path.write_bytes(path.read_bytes()[: -len(batch) // 2])
    return found("batch-cut-off", path, base_of(batch))


@damages(".log", "the last one cut inside a batch")
def _(v: Victim) -> Verdict:
    path = v.file(v.bases[-1])
    path.write_bytes(path.read_bytes()[:-3])
    return found("batch-cut-off", path, base_of(v_last(path)))


def v_last(path: Path) -> bytes:
    """The last batch that begins in a file."""
    data, at, last = path.read_bytes(), 0, 0
    while at + 12 <= len(data):
        last, at = at, at + get(data, at + 8, "i") + 12
    return data[last:]


@damages(".log", "a closed one cut to half a header")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle)
    path.write_bytes(path.read_bytes()[:30])
    return found("batch-cut-off", path, v.middle)


@damages(".log", "a closed one emptied")
def _(v: Victim) -> Verdict:
    v.write(v.before_middle, [])
    return found("offsets-missing", None, v.before_middle)


@damages(".log", "the last one emptied")
def _(v: Victim) -> Verdict:
    v.write(v.bases[-1], [])
    return found("offsets-missing", v.file(v.bases[-1]), v.bases[-1])


@damages(".log", "a closed one extended with zeros")
def _(v: Victim) -> Verdict:
    path = v.file(v.before_middle)
    path.write_bytes(path.read_bytes() + bytes(100))
    return found("batch-length", path)


@damages(".log", "the last one extended with zeros")
def _(v: Victim) -> Verdict:
    path = v.file(v.bases[-1])
    path.write_bytes(path.read_bytes() + bytes(100))
    return found("batch-length", path)


@damages(".log", "extended with bytes that are no batch")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle)
    path.write_bytes(path.read_bytes() + b"\x5a" * 80)
    return found("batch-cut-off batch-length batch-magic", path)


@damages(".log", "extended with its last batch once more")
def _(v: Victim) -> Verdict:
    batch = v.batches(v.middle)[-1]
    path = v.file(v.middle)
    path.write_bytes(path.read_bytes() + batch)
    return found("offset-order", path, base_of(batch))


@damages(".log", "extended with a batch of the segment behind")
def _(v: Victim) -> Verdict:
    path, batch = v.file(v.before_middle), v.batches(v.middle)[0]
    path.write_bytes(path.read_bytes() + batch)
    return found("offset-range", path, base_of(batch))


@damages(".log", "the last one extended with a batch that continues it")
def _(v: Victim) -> Verdict:
    batch = put(v.last(), BASE, "q", last_of(v.last()) + 1)
    batch = sealed(put(put(put(batch, PRODUCER, "q", -1), EPOCH, "h", -1), SEQUENCE, "i", -1))
    batch = sealed(put(batch, ATTRIBUTES, "h", get(batch, ATTRIBUTES, "h") & 0xF))
    v.write(v.bases[-1], [*v.batches(v.bases[-1]), batch])
    return Unknowable("it is as a broker would have written it")


# ---- bytes of batches


def _changed(v: Victim, at: int, layout: str, by: int, *, seal: bool, number: int = 3) -> Path:
    batch = v.batches(v.middle)[number]
    batch = put(batch, at, layout, get(batch, at, layout) + by)
    return v.replace(v.middle, number, sealed(batch) if seal else batch)


def _offset(v: Victim, number: int = 3) -> int:
    return base_of(v.batches(v.middle)[number])


@damages(".log", "a bit of a record flipped")
def _(v: Victim) -> Verdict:
    offset, batch = _offset(v), bytearray(v.batches(v.middle)[3])
    batch[-2] ^= 4
    return found("batch-crc", v.replace(v.middle, 3, bytes(batch)), offset)


@damages(".log", "a length made smaller", "uncompressed")
def _(v: Victim) -> Verdict:
    return found("batch-length batch-crc", _changed(v, LENGTH, "i", -7, seal=False), _offset(v, 3))


@damages(".log", "a length made larger than the segment")
def _(v: Victim) -> Verdict:
    return found("batch-cut-off", _changed(v, LENGTH, "i", 1 << 24, seal=False), None)


@damages(".log", "a magic changed")
def _(v: Victim) -> Verdict:
    offset = _offset(v)
    return found("batch-magic", _changed(v, MAGIC, "b", 1, seal=False), offset)


@damages(".log", "a codec changed, CRC right")
def _(v: Victim) -> Verdict:
    offset, batch = _offset(v), v.batches(v.middle)[3]
    batch = sealed(put(batch, ATTRIBUTES, "h", get(batch, ATTRIBUTES, "h") ^ 5))
    path = v.replace(v.middle, 3, batch)
    return found("compression record-format batch-magic batch-crc", path, offset)


@damages(".log", "a last offset made larger, CRC right")
def _(v: Victim) -> Verdict:
    path = _changed(v, LAST_DELTA, "i", 1, seal=True)
    return found("offset-order batch-count", path)


@damages(".log", "a last offset made smaller, CRC right")
def _(v: Victim) -> Verdict:
    path = _changed(v, LAST_DELTA, "i", -1, seal=True)
    return found("record-order batch-count offset-order", path)


@damages(".log", "a base offset changed, which no CRC covers")
def _(v: Victim) -> Verdict:
    return found("offset-order", _changed(v, BASE, "q", 1, seal=False))


@damages(".log", "a leader epoch changed, which no CRC covers")
def _(v: Victim) -> Verdict:
    _changed(v, LEADER_EPOCH, "i", 3, seal=False)
    return found("leader-epochs-content", "leader-epoch-checkpoint", _offset(v))


@damages(".log", "a maximum timestamp changed, CRC right", "create time")
def _(v: Victim) -> Verdict:
    return found("max-timestamp", _changed(v, MAX_TIME, "q", 999, seal=True), _offset(v))


@damages(".log", "a first timestamp changed, CRC right", "create time")
def _(v: Victim) -> Verdict:
    return found("max-timestamp", _changed(v, FIRST_TIME, "q", 999, seal=True), _offset(v))


@damages(".log", "both timestamps made older, CRC right, no index entry there", "create time")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.middle)
    for at in (FIRST_TIME, MAX_TIME):
        batches[3] = put(batches[3], at, "q", get(batches[3], at, "q") - 1)
    batches[3] = sealed(batches[3])
    v.write(v.middle, batches)
    return Unknowable("a client may give any timestamp")


@damages(".log", "a count of records made smaller, CRC right")
def _(v: Victim) -> Verdict:
    return found("record-count", _changed(v, COUNT, "i", -1, seal=True), _offset(v))


@damages(".log", "a count of records made larger, CRC right")
def _(v: Victim) -> Verdict:
    path = _changed(v, COUNT, "i", 1, seal=True)
    return found("record-format batch-count", path, _offset(v))


@damages(".log", "a byte of a value changed, CRC right", "uncompressed")
def _(v: Victim) -> Verdict:
    batch = bytearray(v.batches(v.middle)[3])
    batch[-2] ^= 1
    v.replace(v.middle, 3, sealed(bytes(batch)))
    return Unknowable("what a record holds is only known by its CRC")


# ---- batches


@damages(".log", "a batch removed")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.middle)
    v.write(v.middle, [*batches[:3], *batches[4:]])
    return found("offsets-missing", v.file(v.middle), base_of(batches[3]))


@damages(".log", "the first batch of the log removed")
def _(v: Victim) -> Verdict:
    v.write(v.bases[0], v.batches(v.bases[0])[1:])
    return found("offsets-missing", v.file(v.bases[0]), v.bases[0])


@damages(".log", "the first batch of a segment removed")
def _(v: Victim) -> Verdict:
    v.write(v.middle, v.batches(v.middle)[1:])
    return found("offsets-missing", v.file(v.middle), v.middle)


@damages(".log", "every second batch removed, the indexes as they were")
def _(v: Victim) -> Verdict:
    v.file(v.middle).write_bytes(b"".join(v.batches(v.middle)[::2]))
    return found("offsets-missing offset-index-beyond offset-index-entry")


@damages(".log", "a batch written twice")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.middle)
    v.write(v.middle, [*batches[:4], *batches[3:]])
    return found("offset-order", v.file(v.middle), base_of(batches[3]))


@damages(".log", "two batches exchanged")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.middle)
    batches[3], batches[4] = batches[4], batches[3]
    v.write(v.middle, batches)
    return found("offset-order", v.file(v.middle), base_of(batches[4]))


@damages(".log", "the records of a batch removed, its header left", "uncompressed")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.middle)
    empty = put(put(batches[3][:RECORDS], COUNT, "i", 0), FIRST_TIME, "q", -1)
    empty = put(empty, ATTRIBUTES, "h", get(empty, ATTRIBUTES, "h") & ~7)
    batches[3] = sealed(empty)
    v.write(v.middle, batches)
    return Unknowable("a compaction or an erasure leaves such a header")
