"""Writes the drawings of docs/concepts.md, between their markers, of logs that are made here.

Each drawing is read from files that a `PartitionLog` has written and, where it is compacted, that
`cordwood clean` has rewritten. Time is a clock of this script, so that the page is always the same.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.offset_index import lookup_offset, parse_offset_index
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.testing.manual_clock import ManualClock
from support.in_process_engine import clean_in_process

PAGE = Path(__file__).resolve().parent.parent / "docs" / "concepts.md"
PARTITION = TopicPartition("t", 0)
_HOUR_MS = 3_600_000
_PRODUCER, _EPOCH = 7, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A log directory with one partition, and the clock."""

    root: Path
    config: LogConfig
    clock: ManualClock

    @contextmanager
    def log(self) -> Iterator[PartitionLog]:
        """The partition's log, closed at the end."""
        context = LogContext(clock=self.clock)
        manager = LogManager([self.root], defaults=self.config, context=context)
        manager.load()
        manager.verify_transactions(is_enabled=False)
        try:
            yield manager.get_or_create(PARTITION)
        finally:
            manager.shutdown()

    def clean(self) -> None:
        """Cleans the log as `cordwood clean` does."""
        configs = {PARTITION.topic: self.config}
        report = clean_in_process(self.root, configs, now_ms=self.clock.now_ms())
        assert not report.warnings, report.warnings

    def batches(self) -> list[RecordBatch]:
        """All batches on disk, in order."""
        logs = sorted((self.root / str(PARTITION)).glob("*.log"))
        return [
            batch
            for path in logs
            for _, batch in iter_batches(path.read_bytes())
            if isinstance(batch, RecordBatch)
        ]


@contextmanager
def _place(**settings: object) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as name:
        config = LogConfig(**settings)  # type: ignore[arg-type]
        yield Place(root=Path(name), config=config, clock=ManualClock())


def _append(
    log: PartitionLog, clock: ManualClock, *records: tuple[str, str | None], committed: bool = True
) -> None:
    """Appends a batch of keys and values; None is a tombstone."""
    made = [
        Record(number, clock.now_ms(), key.encode(), None if value is None else value.encode())
        for number, (key, value) in enumerate(records)
    ]
    log.append_as_leader(build_batch(made, base_offset=0))
    if committed:
        log.update_high_watermark(log.log_end_offset)


def segment() -> str:
    """The files of a segment, and the batches of its log."""
    with _place(segment_bytes=1_500, index_interval_bytes=300) as place:
        with place.log() as log:
            for number in range(12):
                records = [(f"key-{number}-{each}", "v" * 20) for each in range(3)]
                _append(log, place.clock, *records)
        directory = place.root / str(PARTITION)
        lines = []
        for path in sorted(directory.glob("*.log")):
            lines.append(f"{path.name}  {path.stat().st_size} bytes")
            for position, batch in iter_batches(path.read_bytes()):
                assert isinstance(batch, RecordBatch)
                bar = "█" * (batch.size_bytes // 16)
                lines.append(
                    f"  byte {position:>5}  offsets {batch.base_offset:>2} to "
                    f"{batch.last_offset:>2}  {batch.size_bytes:>3} bytes  {bar}"
                )
        return "\n".join(lines)


def lookup(wanted: int = 16) -> str:
    """The look-up of the batch of an offset."""
    with _place(segment_bytes=1 << 20, index_interval_bytes=300) as place:
        with place.log() as log:
            for number in range(10):
                _append(log, place.clock, *[(f"key-{number}-{n}", "v" * 20) for n in range(3)])
        directory = place.root / str(PARTITION)
        entries = parse_offset_index((directory / f"{0:020}.index").read_bytes(), 0)
        found = lookup_offset(entries, wanted, 0)
        lines = [f"wanted: offset {wanted}", "", f"{0:020}.index"]
        for offset, position in entries:
            mark = "  <- the last entry not behind it" if (offset, position) == found else ""
            lines.append(f"  offset {offset:>2} is in the batch at byte {position:>4}{mark}")
        lines += ["", f"{0:020}.log, from byte {found[1]} on"]
        for position, batch in iter_batches((directory / f"{0:020}.log").read_bytes()):
            assert isinstance(batch, RecordBatch)
            if position < found[1]:
                continue
            lines.append(
                f"  byte {position:>4}  offsets {batch.base_offset:>2} to {batch.last_offset:>2}"
            )
            if batch.last_offset >= wanted:
                lines[-1] += "  <- here"
                break
        return "\n".join(lines)


def _row(batches: list[RecordBatch], ends: int) -> list[str]:
    """The keys by offset, a dot where there is no record any more."""
    keys: dict[int, str] = {}
    for batch in batches:
        for record in batch.records():
            key = (record.key or b"").decode()
            keys[record.offset] = f"{key}-" if record.value is None else key
    return [keys.get(offset, ".") for offset in range(ends)]


def _lines(rows: dict[str, list[str]]) -> list[str]:
    """Rows of cells below the offsets."""
    width = max(len(name) for name in rows)
    ends = max(len(cells) for cells in rows.values())
    lines = [f"{'offset':<{width}}  " + "".join(f"{number:>3}" for number in range(ends))]
    for name, cells in rows.items():
        lines.append(f"{name:<{width}}  " + "".join(f"{cell:>3}" for cell in cells))
    return [line.rstrip() for line in lines]


KEYS = ("a", "b", "a", "c", "a", "b", "d", "a", "c", "e", "a", "b")


def compaction() -> str:
    """A log before and after a compaction."""
    with _place(cleanup_policy="compact", segment_bytes=300) as place:
        with place.log() as log:
            for number, key in enumerate(KEYS):
                _append(log, place.clock, (key, f"value {number}"))
            active = log.active.base_offset
        before = _row(place.batches(), len(KEYS))
        place.clock.advance(_HOUR_MS)
        place.clean()
        after = _row(place.batches(), len(KEYS))
        marks = ["^" if number == active else "" for number in range(len(KEYS))]
        lines = _lines({"before": before, "after": after, "active segment from": marks})
        return "\n".join(lines)


def dirty_ratio() -> str:
    """The clean and the dirty section of a log, and its ratio."""
    with _place(cleanup_policy="compact", segment_bytes=300) as place:
        with place.log() as log:
            for number, key in enumerate(KEYS):
                _append(log, place.clock, (key, f"value {number}"))
        place.clock.advance(_HOUR_MS)
        place.clean()
        first = (place.root / "cleaner-offset-checkpoint").read_text().split()[-1]
        with place.log() as log:
            for number, key in enumerate(KEYS[:9]):
                _append(log, place.clock, (key, f"newer {number}"))
            sizes = [(each.base_offset, each.size_bytes) for each in log.segments[:-1]]
            active = log.active.base_offset
            ends = log.log_end_offset
        clean = sum(size for base, size in sizes if base < int(first))
        dirty = sum(size for base, size in sizes if base >= int(first))
        lines = _lines({"record": _row(place.batches(), ends)})
        lines += [
            "",
            f"clean   offsets 0 to {int(first) - 1}: {clean} bytes",
            f"dirty   offsets {first} to {active - 1}: {dirty} bytes",
            f"active  offsets {active} to {ends - 1}: not counted",
            f"ratio   {dirty} / ({clean} + {dirty}) = {dirty / (clean + dirty):.2f}",
        ]
        return "\n".join(lines)


def tombstone() -> str:
    """The states of a tombstone, from hour to hour."""
    with _place(cleanup_policy="compact", segment_bytes=200, min_cleanable_dirty_ratio=0) as place:
        begun_ms = place.clock.now_ms()
        rows: dict[str, list[str]] = {}

        def note(what: str) -> None:
            hours = (place.clock.now_ms() - begun_ms) // _HOUR_MS
            rows[f"{hours:>3} h  {what}"] = _row(place.batches(), 8)

        with place.log() as log:
            for key, value in (("a", "1"), ("b", "1"), ("a", None), ("c", "1"), ("d", "1")):
                _append(log, place.clock, (key, value))
        note("written")
        place.clock.advance(_HOUR_MS)
        place.clean()
        note("cleaned")
        horizons = {each.header.delete_horizon_ms for each in place.batches()} - {None}
        (horizon_ms,) = horizons
        assert horizon_ms is not None
        for hours, what in ((12, "cleaned again"), (13, "cleaned again")):
            with place.log() as log:
                _append(log, place.clock, ("e", "1"))
                log.roll()
            place.clock.advance(hours * _HOUR_MS)
            place.clean()
            note(what)
        hours = (horizon_ms - begun_ms) // _HOUR_MS
        lines = _lines(rows)
        lines += ["", f"a- is a tombstone of a; its delete horizon is at {hours} h"]
        return "\n".join(lines)


def high_watermark() -> str:
    """A leader's log of which the followers have a part."""
    with _place() as place, place.log() as log:
        for number in range(9):
            _append(log, place.clock, ("k", str(number)), committed=False)
        log.update_high_watermark(6)
        log.maybe_increment_log_start_offset(2, "an example")
        read = log.reader.read(2, max_bytes=1 << 20)
        visible = [b.base_offset for _, b in iter_batches(read.read())]
        marks = {
            log.log_start_offset: "log start offset",
            log.high_watermark: "high watermark",
            log.log_end_offset: "log end offset (LEO)",
        }
        lines = ["offset  " + "".join(f"{number:>3}" for number in range(10))]
        for offset, name in marks.items():
            lines.append("        " + "   " * offset + "  ^ " + name)
        lines += ["", f"a consumer can read offsets {visible[0]} to {log.high_watermark - 1}"]
        return "\n".join(lines)


def transaction() -> str:
    """The last stable offset while a transaction is open, and afterwards."""
    with _place() as place, place.log() as log:
        clock = place.clock

        def put(key: str, sequence: int | None = None) -> None:
            record = Record(0, clock.now_ms(), key.encode(), b"value")
            batch = build_batch([record], base_offset=0)
            if sequence is not None:
                batch = build_batch(
                    [record],
                    base_offset=0,
                    producer_id=_PRODUCER,
                    producer_epoch=_EPOCH,
                    base_sequence=sequence,
                    is_transactional=True,
                )
            log.append_as_leader(batch)
            log.update_high_watermark(log.log_end_offset)

        lines = []

        def note(what: str) -> None:
            lines.append(
                f"{what:<42} high watermark {log.high_watermark}, "
                f"last stable offset {log.last_stable_offset}"
            )

        put("a")
        note("0: a record without a transaction")
        put("b", 0)
        note("1: a record of a transaction")
        put("c")
        note("2: another record without one")
        put("d", 1)
        note("3: the transaction's second record")
        marker = build_end_txn_marker(
            offset=0,
            timestamp=clock.now_ms(),
            producer_id=_PRODUCER,
            producer_epoch=_EPOCH,
            control_type=ControlType.COMMIT,
            coordinator_epoch=0,
        )
        log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)
        note("4: its marker, COMMIT")
        return "\n".join(lines)


DRAWINGS: Mapping[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        *(segment, lookup, compaction, dirty_ratio, tombstone),
        *(high_watermark, transaction),
    )
}
_DRAWING = re.compile(r"(<!-- drawing: (\w+) -->\n).*?(<!-- end of drawing -->\n)", re.DOTALL)


def page(text: str) -> str:
    """The page with its drawings made again."""
    return _DRAWING.sub(
        lambda found: f"{found[1]}\n```text\n{DRAWINGS[found[2]]()}\n```\n\n{found[3]}", text
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
