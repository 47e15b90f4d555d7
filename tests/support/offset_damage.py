"""Logs with one bit flipped in the offsets of a batch, opened by this loader or by a real Kafka."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.manual_clock import ManualClock
from support.kafka_programs import java_command, tools_resource

#: Where a batch's base offset and last offset delta begin in its header, and their bits.
BASE_OFFSET, LAST_OFFSET_DELTA = (0, 64), (23, 32)
SEGMENTS, BATCHES, RECORDS = 3, 7, 5
INDEX_INTERVAL_BYTES = 400
_VALUE = bytes(20)
_SUFFIXES = (".index", ".timeindex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bit of one batch, and how the log is opened afterwards.

    `bit` counts from the least significant one of the field; `recovery_point` is what the
    checkpoint says.
    """

    field: tuple[int, int]
    bit: int
    segment: int
    batch: int
    has_indexes: bool
    is_clean: bool
    recovery_point: int

    @property
    def name(self) -> str:
        """Short, and usable as the name of a directory."""
        field = "base" if self.field == BASE_OFFSET else "delta"
        parts = [field, f"bit{self.bit}", f"segment{self.segment}", f"batch{self.batch}"]
        parts += ["indexed" if self.has_indexes else "bare"]
        parts += ["clean" if self.is_clean else f"unclean{self.recovery_point}"]
        return "_".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Result of a load: `refused` is why the log was not opened, empty if it was."""

    log_end_offset: int = -1
    refused: str = ""


def write_log(directory: Path) -> list[int]:
    """A log of three segments, flushed; the base offsets of its batches."""
    log = _open(directory, is_clean=True, recovery_point=0)
    bases = []
    for segment in range(SEGMENTS):
        if segment:
            log.roll()
        for _ in range(BATCHES):
            bases.append(log.log_end_offset)
            records = [Record(n, 1_000 + n, b"key%d" % n, _VALUE) for n in range(RECORDS)]
            log.append_as_leader(build_batch(records, base_offset=0))
    log.update_high_watermark(log.log_end_offset)
    log.close()
    return bases


def damage(directory: Path, case: Case) -> None:
    """Flips the bit, and removes the segment's indexes where the case is one without."""
    path = sorted(directory.glob("*.log"))[case.segment]
    data = bytearray(path.read_bytes())
    position = [at for at, _ in iter_batches(bytes(data))][case.batch]
    start, bits = case.field
    at = position + start + (bits - 1 - case.bit) // 8
    data[at] ^= 1 << (case.bit % 8)
    path.write_bytes(data)
    if not case.has_indexes:
        for suffix in _SUFFIXES:
            path.with_suffix(suffix).unlink(missing_ok=True)


def cases(bits: Sequence[int] | None = None) -> Iterator[Case]:
    """Every bit of both fields, or these: in the first, middle and last batch of each segment."""
    end = SEGMENTS * BATCHES * RECORDS
    for field in (BASE_OFFSET, LAST_OFFSET_DELTA):
        for bit in range(field[1]) if bits is None else [b for b in bits if b < field[1]]:
            for segment in (0, SEGMENTS - 1):
                for batch in (0, BATCHES // 2, BATCHES - 1):
                    for has_indexes in (True, False):
                        for is_clean, point in ((True, end), (False, 0), (False, end)):
                            yield Case(
                                field=field,
                                bit=bit,
                                segment=segment,
                                batch=batch,
                                has_indexes=has_indexes,
                                is_clean=is_clean,
                                recovery_point=point,
                            )


def contents(directory: Path) -> dict[str, bytes]:
    """The logs of a directory by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def open_by_us(directory: Path, case: Case) -> Opened:
    """Loads it as a broker does at its start."""
    try:
        log = _open(directory, is_clean=case.is_clean, recovery_point=case.recovery_point)
    except CordwoodError as error:
        return Opened(refused=f"{type(error).__name__}: {error}")
    end = log.log_end_offset
    log.close_handlers()
    return Opened(log_end_offset=end)


def open_by_kafka(directories: Sequence[tuple[Path, Case]]) -> list[Opened]:
    """Has Kafka's own loader open them, in one virtual machine."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as asked:
        for directory, case in directories:
            clean = str(case.is_clean).lower()
            asked.write(f"{directory}\t{clean}\t{case.recovery_point}\t{INDEX_INTERVAL_BYTES}\n")
        asked.flush()
        done = subprocess.run(
            [*java_command(str(tools_resource("LoadLogs.java"))), asked.name],
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
        )
    found = []
    for line in done.stdout.splitlines():
        if line.startswith("="):
            found.append(Opened(log_end_offset=int(line[1:].split("\t")[1])))
        elif line.startswith("!"):
            found.append(Opened(refused=line[1:].replace("\t", ": ")))
    assert len(found) == len(directories), done.stdout[-2000:] + done.stderr[-2000:]
    return found


def _open(directory: Path, *, is_clean: bool, recovery_point: int) -> PartitionLog:
    return load_log(
        LoadRequest(
            directory=directory,
            topic_partition=TopicPartition("t", 0),
            config=LogConfig(index_interval_bytes=INDEX_INTERVAL_BYTES),
            context=LogContext(clock=ManualClock()),
            clean_shutdown=is_clean,
            recovery_point=recovery_point,
        )
    )
