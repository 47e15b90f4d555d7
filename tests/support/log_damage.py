"""Files of log directories damaged at random, and all that a broker does with them afterwards.

A case is drawn from its seed: directories that were stopped cleanly or killed, one to three files
of them with bits flipped, cut off, extended, with blocks swapped, or emptied. They are opened, read
in every way, appended to, flushed, stopped, opened and read again. Whatever the damage: an error
has a type, nothing takes for ever, no record is served that was not written, and logs whose files
are whole are served whole.

A failure names its seed; `python -m support.log_damage --seed N` brings it back.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import logging
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    base_offset_of,
    is_log_file,
)
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile
from support.log_damage_base import (
    DIRECTORIES,
    NOW_MS,
    VARIANTS,
    base_of,
    batches_of,
    manager_over,
)
from support.log_damage_check import LogJudge, Wanted, view_of

SECONDS_MAX: Final = 60
_STANDARD_ERROR: Final = 2
_BLOCKS: Final = (1, 4, 12, 16, 64, 512)


class TooLongError(BaseException):
    """A case that takes too long; no exception, so that nobody takes it for a disk's."""


class DamageFailure(AssertionError):
    """A case that went wrong; the text has its seed and damage."""

    def __init__(self, seed: int, text: str) -> None:
        super().__init__(text)
        self.seed = seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Damage of a file, and its bytes before and after."""

    path: Path
    what: str
    before: bytes
    after: bytes

    @property
    def first_byte(self) -> int:
        """The first that is not as it was."""
        pairs = enumerate(zip(self.before, self.after, strict=False))
        same = min(len(self.before), len(self.after))
        return next((at for at, (one, other) in pairs if one != other), same)


class DamageCase:
    """One case; see the module."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"damage {seed}")  # noqa: S311  # no secret
        self.seed = seed
        self.base = base_of(self._rng.choice(VARIANTS))
        self.fs = self.base.fs.clone()
        self.damage = [self._damage(path) for path in self._chosen()]
        self.counts: Counter[str] = Counter()
        self._second = False

    def __str__(self) -> str:
        done = "; ".join(f"{damage.path}: {damage.what}" for damage in self.damage)
        return f"seed {self.seed}, {self.base.variant}: {done}"

    # ---- damage

    def _chosen(self) -> list[Path]:
        """The files to be damaged: of each kind as often, but of logs more often."""
        by_kind: dict[str, list[Path]] = {}
        for directory in DIRECTORIES:
            for path in _files_below(self.fs, directory):
                by_kind.setdefault(path.suffix or path.name, []).append(path)
        kinds = sorted(by_kind)
        weights = [4 if kind == ".log" else 1 for kind in kinds]
        count = self._rng.choice((1, 1, 1, 2, 3))
        chosen: list[Path] = []
        while len(chosen) < count:
            path = self._rng.choice(by_kind[self._rng.choices(kinds, weights)[0]])
            if path not in chosen:
                chosen.append(path)
        return chosen

    def _damage(self, path: Path) -> Damage:
        before = self.fs.read_bytes(path)
        what, after = self._changed(before)
        file = self.fs.create(path)
        file.write_at([after], 0)
        file.sync()
        file.close()
        return Damage(path=path, what=what, before=before, after=after)

    def _changed(self, before: bytes) -> tuple[str, bytes]:
        rng, data, size = self._rng, bytearray(before), len(before)
        kind = rng.choice(("bits", "bits", "bytes", "cut", "garbage", "zeros", "swap", "empty"))
        if kind in {"bits", "bytes"} and size:
            count = rng.choice((1, 1, 2, 5, 40))
            places = sorted(rng.randrange(size) for _ in range(count))
            for at in places:
                data[at] = data[at] ^ 1 << rng.randrange(8) if kind == "bits" else _any(rng)
            return f"{kind} changed in bytes {places}", bytes(data)
        if kind == "cut" and size:
            kept = rng.randrange(size)
            return f"cut from {size} to {kept} bytes", before[:kept]
        if kind == "swap" and size >= 2:
            length = min(rng.choice(_BLOCKS), size // 2)
            first = rng.randint(0, size - 2 * length)
            second = rng.randint(first + length, size - length)
            one, other = before[first : first + length], before[second : second + length]
            data[first : first + length], data[second : second + length] = other, one
            return f"{length} bytes at {first} and {second} swapped", bytes(data)
        if kind in {"garbage", "zeros"} or not size:
            more = rng.choice((1, 7, 12, 61, 200, 4_096))
            tail = bytes(more) if kind == "zeros" else rng.randbytes(more)
            return f"extended by {more} bytes of {kind}", before + tail
        return f"emptied of {size} bytes", b""

    # ---- what must be found

    def _wanted(self, partition: TopicPartition) -> Wanted:
        base, home = self.base, self.base.homes[partition]
        segments = base.segments[partition]
        wanted = Wanted(written=batches_of(segments))
        for damage in self._damage_in(home / str(partition)):
            if not is_log_file(damage.path.name) or damage.before == damage.after:
                continue
            number = base_offset_of(damage.path.name)
            wanted.damaged[number] = damage.after
            segment = next(s for s in segments if s.base_offset == number)
            first = damage.first_byte
            whole = [b for at, b in segment.batches if at + b.size_bytes <= first]
            next_offset = whole[-1].next_offset if whole else number
            wanted.first_damaged = min(wanted.first_damaged, next_offset)
        if not self.fs.exists(home / CLEAN_SHUTDOWN):
            wanted.walked = self._walked(partition) & wanted.damaged.keys()
        if not self._is_damaged(home / LOG_START_OFFSET_CHECKPOINT):
            starts = OffsetCheckpointFile(home / LOG_START_OFFSET_CHECKPOINT, fs=base.fs).read()
            wanted.log_start_offset = starts.get(partition, segments[0].base_offset)
        checkpoints = (LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
        touched = any(self._damage_in(home / str(partition)))
        if not touched and not any(self._is_damaged(home / name) for name in checkpoints):
            wanted.view = _views(base.variant)[partition]
        return wanted

    def _walked(self, partition: TopicPartition) -> set[int]:
        """The segments that recovery walks over, as far as the damaged recovery point says."""
        path = self.base.homes[partition] / RECOVERY_POINT_CHECKPOINT
        points = OffsetCheckpointFile(path, fs=self.fs).read_or_nothing("")
        bases = [segment.base_offset for segment in self.base.segments[partition]]
        point = points.get(partition, 0)
        first = max((base for base in bases if base <= point), default=bases[0])
        return {base for base in bases if base >= first}

    def _damage_in(self, directory: Path) -> Iterator[Damage]:
        return (damage for damage in self.damage if directory in damage.path.parents)

    def _is_damaged(self, path: Path) -> bool:
        return any(damage.path == path for damage in self.damage)

    # ---- the case

    def run(self) -> Counter[str]:
        """Runs it; what was counted.

        Raises:
            DamageFailure: something is not as it must be.
        """
        self.counts["cases"] += 1
        try:
            with time_limit(SECONDS_MAX):
                self._run()
        except (Exception, TooLongError) as error:
            raise DamageFailure(self.seed, f"{self}: {type(error).__name__}: {error}") from error
        return self.counts

    def _run(self) -> None:
        wanted = {p: self._wanted(p) for p in self.base.homes}
        manager = self._open()
        if manager is None:
            return
        self._judge(manager, wanted)
        for partition, known in wanted.items():
            log = manager.get(partition)
            if log is not None:
                self._append(log, known)
        manager.shutdown()
        self.fs = self.fs.process_crash()
        self._second = True
        manager = self._open()
        if manager is not None:
            self._judge(manager, wanted)
            manager.shutdown()

    def _open(self) -> LogManager | None:
        """The logs; None where the start is refused, for a reason that names what is damaged."""
        refusal = ""
        try:
            manager = manager_over(self.fs, self.base.configs, now_ms=NOW_MS)
            manager.load()
        except CordwoodError as error:
            refusal = f"{type(error).__name__}: {error}"
        if refusal:
            places = [damage.path for damage in self.damage]
            is_named = any(str(p) in refusal or str(p.parent) in refusal for p in places)
            are_all_damaged = all(any(self._damage_in(path)) for path in DIRECTORIES)
            assert is_named or ("all log dirs" in refusal and are_all_damaged), (
                f"a refusal that does not name the file: {refusal}"
            )
            self.counts["starts refused"] += 1
            return None
        for offline, reason in manager.context.failures.offline.items():
            places = [damage.path for damage in self._damage_in(offline)]
            assert places, f"{offline} is offline: {reason}"
            assert any(str(place) in reason for place in places), f"{offline} is offline: {reason}"
            self.counts["directories offline"] += 1
        return manager

    def _judge(self, manager: LogManager, wanted: dict[TopicPartition, Wanted]) -> None:
        offline = manager.context.failures.offline
        for partition, known in wanted.items():
            log = manager.get(partition)
            if log is None:
                assert self.base.homes[partition] in offline, f"{partition} is gone"
                continue
            try:
                self._judge_one(log, known)
            except Exception as error:
                when = "opened again" if self._second else "opened"
                raise AssertionError(
                    f"{partition}, {when}: {type(error).__name__}: {error}"
                ) from error
        assert manager.context.failures.offline == offline, "a read took a directory offline"

    def _judge_one(self, log: PartitionLog, known: Wanted) -> None:
        LogJudge(log, known, self._rng, self.counts).judge()

    def _append(self, log: PartitionLog, known: Wanted) -> None:
        """Appends a batch, flushes, and reads it."""
        records = [Record(n, NOW_MS, b"k0", b"continues") for n in range(self._rng.choice((1, 3)))]
        end, start = log.log_end_offset, log.log_start_offset
        epoch = max(0, log.leader_epochs.latest_epoch or 0)
        try:
            result = log.append_as_leader(build_batch(records, base_offset=0), leader_epoch=epoch)
            log.update_high_watermark(log.log_end_offset)
            log.flush()
        except StorageError:
            raise
        except CordwoodError:
            assert known.damaged, f"{log.topic_partition} cannot be appended to"
            self.counts["appends refused"] += 1
            return
        assert result.first_offset == end, f"appended at {result.first_offset}, not at {end}"
        try:
            data = log.reader.read(end, 1, isolation=Isolation.LOG_END, min_one=True).read()
        except CordwoodError:
            assert known.damaged, "what was appended cannot be read"
            self.counts["reads refused"] += 1
            return
        found = [batch for _, batch in iter_batches(data) if isinstance(batch, RecordBatch)]
        assert found, "what was appended cannot be read"
        if found[0].base_offset != end:
            # A batch whose last offset is damaged, in a file that a clean start does not check.
            assert not found[0].is_valid(), f"a read from {end} gives {found[0].base_offset}"
            assert known.damaged.keys() - known.walked, "though it was recovered"
            self.counts["batches with a wrong CRC"] += 1
            found = self._newest(log, end)
        assert len(found[0].records()) == len(records)
        if not known.damaged:
            known.written = [b for b in known.written if b.last_offset >= start]
        known.written.append(found[0])
        known.log_start_offset, known.view = start, None
        self.counts["appends"] += 1

    def _newest(self, log: PartitionLog, base_offset: int) -> list[RecordBatch]:
        """The batch at `base_offset` as it is on disk, at the end of the active segment."""
        data = self.fs.read_bytes(log.segments[-1].path)
        batches = [batch for _, batch in iter_batches(data) if isinstance(batch, RecordBatch)]
        return [batch for batch in batches[-1:] if batch.base_offset == base_offset]


@functools.cache
def _views(variant: str) -> dict[TopicPartition, tuple[object, ...]]:
    """The answers of each log of a base, without damage."""
    base = base_of(variant)
    manager = manager_over(base.fs.clone(), base.configs, now_ms=NOW_MS)
    manager.load()
    return {partition: view_of(manager.require(partition)) for partition in base.homes}


def _any(rng: random.Random) -> int:
    return rng.choice((0, 0xFF, 0x2D, 0x30 + rng.randrange(10), rng.randrange(256)))


def _files_below(fs: FileSystem, directory: Path) -> Iterator[Path]:
    for entry in fs.entries_in(directory):
        if entry.is_directory:
            yield from _files_below(fs, directory / entry.name)
        elif entry.name != LOCK:
            yield directory / entry.name


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what takes longer with a `TooLongError`, and shows where every thread is."""

    def stop(*_: Any) -> None:
        faulthandler.dump_traceback(_STANDARD_ERROR)
        raise TooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_cases(
    first: int, count: int, on_failure: Callable[[DamageFailure], None] = lambda _: None
) -> tuple[Counter[str], list[DamageFailure]]:
    """Runs cases with these seeds; returns counts and failures, also printed immediately."""
    counts: Counter[str] = Counter()
    failures = []
    for seed in range(first, first + count):
        try:
            counts += DamageCase(seed).run()
        except DamageFailure as failure:
            failures.append(failure)
            on_failure(failure)
    return counts, failures


def _show(failure: DamageFailure) -> None:
    print(failure, flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: runs cases, and says what was counted."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    options = parser.parse_args(arguments)
    logging.disable()
    if options.seeds == 1:
        case = DamageCase(options.seed)
        print(case)  # noqa: T201
        print(dict(case.run()))  # noqa: T201
        return 0
    counts, failures = run_cases(options.seed, options.seeds, _show)
    print(dict(counts), f"{len(failures)} failed")  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
