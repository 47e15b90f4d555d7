"""Tables of DataFrames beside kafka-dump-log: the text that it prints, made of their rows."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.engine.spark.session import spark_runner
from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch
from cordwood.model.utf8 import decode_utf8
from cordwood.surfaces.dump.control import control_text
from support.dumps import runs_of
from support.golden import Golden
from support.kafka import read_checkpoint
from support.kafka_tools import KafkaTools
from support.log_builder import LogBuilder, write_log_dir

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("kafka_jars")]

Row = Mapping[str, Any]
Log = tuple[str, int]
Segment = tuple[str, int, int]

_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from cordwood.frames.data_source import register  # noqa: PLC0415  # PySpark is slow to import

    with spark_runner("local[2]") as runner:
        session = runner.session()
        register(session)
        yield session


class Frames:
    """The rows of all tables of a log directory."""

    def __init__(self, spark: Any, log_dir: Path) -> None:
        self._spark = spark
        self._log_dir = log_dir
        self.segments = {
            (row["topic"], row["partition"], row["baseOffset"]): row
            for row in self.rows("segments")
        }
        self.batches = by_segment(self.rows("batches"))
        self.entries = by_segment(self.rows("indexes"))

    def records(self) -> dict[Log, list[Row]]:
        """All records in the order of their offsets, those of control batches, too."""
        columns = "topic,partition,offset,timestamp,key,value,headers,sequence,isControl"
        found: dict[Log, list[Row]] = defaultdict(list)
        for row in self.rows("records", isolation="all", columns=columns):
            found[row["topic"], row["partition"]].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row["offset"])
        return found

    def rows(self, table: str, **options: str) -> list[Row]:
        """The rows of a table, read by several tasks."""
        reader = self._spark.read.format("cordwood").option("table", table).options(**options)
        frame = reader.option("sliceBytes", str(1 << 20)).load(str(self._log_dir))
        found: list[Row] = frame.toArrow().to_pylist()
        return found


def by_segment(rows: Iterable[Row]) -> dict[Segment, list[Row]]:
    found: dict[Segment, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["topic"], row["partition"], row["segmentBaseOffset"]].append(row)
    for some in found.values():
        some.sort(key=lambda row: row.get("position") or 0)
    return found


def ms(row: Row, name: str) -> int:
    moment: datetime = row[name]
    return round(moment.timestamp() * 1000)


def java(value: bool) -> str:
    return str(value).lower()


def batch_line(row: Row) -> str:
    if row["magic"] < 2:
        return f"offset: {row['lastOffset']}{batch_end(row)}"
    horizon = row["deleteHorizonMs"]
    return (
        f"baseOffset: {row['baseOffset']} lastOffset: {row['lastOffset']} count: {row['count']} "
        f"baseSequence: {row['baseSequence']} lastSequence: {row['lastSequence']} "
        f"producerId: {row['producerId']} producerEpoch: {row['producerEpoch']} "
        f"partitionLeaderEpoch: {row['partitionLeaderEpoch']} "
        f"isTransactional: {java(row['isTransactional'])} isControl: {java(row['isControl'])} "
        f"deleteHorizonMs: OptionalLong{'.empty' if horizon is None else f'[{horizon}]'}"
        + batch_end(row)
    )


def batch_end(row: Row) -> str:
    return (
        f" position: {row['position']} {_TYPES[row['timestampType']]}: {ms(row, 'maxTimestamp')} "
        f"size: {row['size']} magic: {row['magic']} compresscodec: {row['codec']} "
        f"crc: {row['crc']} isvalid: {java(row['isValid'])}"
    )


def record_line(row: Row, batch: Row) -> str:
    key, value = row["key"], row["value"]
    line = (
        f"| offset: {row['offset']} {_TYPES[batch['timestampType']]}: {ms(row, 'timestamp')} "
        f"keySize: {-1 if key is None else len(key)} "
        f"valueSize: {-1 if value is None else len(value)} sequence: {row['sequence']} "
        f"headerKeys: [{','.join(each['key'] for each in row['headers'])}]"
    )
    if row["isControl"]:
        return line + control_text(Record(row["offset"], 0, key, value))
    line += "" if key is None else f" key: {decode_utf8(key)}"
    return line + ("" if value is None else f" payload: {decode_utf8(value)}")


def log_lines(frames: Frames, segment: Segment, records: Mapping[Log, list[Row]]) -> Iterator[str]:
    yield f"Log starting offset: {segment[2]}"
    of_log = records[segment[0], segment[1]]
    number = bisect_left(of_log, segment[2], key=lambda row: row["offset"])
    for batch in frames.batches[segment]:
        yield batch_line(batch)
        while number < len(of_log) and of_log[number]["offset"] <= batch["lastOffset"]:
            yield record_line(of_log[number], batch)
            number += 1


def entry_lines(frames: Frames, segment: Segment, path: Path) -> Iterator[str]:
    kind = {".index": "offset", ".timeindex": "time", ".txnindex": "transaction"}[path.suffix]
    rows = [row for row in frames.entries[segment] if row["kind"] == kind]
    if kind == "offset":
        # So the tool calls an index without a byte.
        yield from [] if rows else [f"{path} is empty."]
        yield from (f"offset: {row['offset']} position: {row['position']}" for row in rows)
    elif kind == "time":
        yield from (f"timestamp: {ms(row, 'timestamp')} offset: {row['offset']}" for row in rows)
    else:
        for row in rows:
            yield (
                f"version: 0 producerId: {row['producerId']} firstOffset: {row['firstOffset']} "
                f"lastOffset: {row['lastOffset']} lastStableOffset: {row['lastStableOffset']}"
            )


def dumped(tools: KafkaTools, paths: Iterable[Path], *flags: str) -> list[str]:
    """The lines that kafka-dump-log prints of files."""
    text = ""
    for names in runs_of(paths):
        done = tools.run("dump-log", "--files", names, *flags)
        assert done.code == 0, done.err
        text += done.out
    return text.split("\n")


@pytest.mark.parametrize("stage", ["before", "after", "before-2", "after-2"])
def test_rows_are_what_kafka_prints_of_every_topic(
    golden_a: Golden, spark: Any, tools: KafkaTools, stage: str
) -> None:
    log_dir = golden_a.root / stage
    frames = Frames(spark, log_dir)
    records = frames.records()
    check_records_of_consumers(frames, records, log_dir)
    paths = {segment: Path(row["path"]) for segment, row in frames.segments.items()}
    assert {path.parent.name for path in paths.values()} == {
        path.parent.name for path in log_dir.glob("*/*.log")
    } - {"__cluster_metadata-0"}
    expected = dumped(tools, paths.values(), "--deep-iteration", "--print-data-log")
    found: list[str] = []
    for segment, path in paths.items():
        found += [f"Dumping {path}", *"\n".join(log_lines(frames, segment, records)).split("\n")]
    assert_same(found, expected)
    for suffix in (".index", ".timeindex", ".txnindex"):
        files = {
            segment: file
            for segment, path in paths.items()
            if (file := path.with_suffix(suffix)).exists()
        }
        assert files
        expected = dumped(tools, files.values())
        found = []
        for segment, path in files.items():
            found += [f"Dumping {path}", *entry_lines(frames, segment, path)]
        assert_same(found, expected)


def test_rows_of_old_magics_and_of_wrong_crcs_are_what_kafka_prints(
    tmp_path: Path, spark: Any, tools: KafkaTools
) -> None:
    log = LogBuilder("log-0")
    for offset, (magic, attributes) in enumerate([(0, 0), (1, 0), (1, 8)]):
        message = build_legacy_message(
            offset=offset, magic=magic, key=b"k", value=b"v", timestamp=7, attributes=attributes
        )
        log.append(message if offset else message[:-1] + b"w")
    for magic in (0, 1):
        records = [Record(3 + 5 * magic + step, 50 - step, b"k", b"v") for step in range(5)]
        log.append(build_legacy_wrapper(records, magic=magic, codec=Codec.GZIP))
    log.batch([(b"k", b"v")] * 3, delete_horizon_ms=1_700_000_000_000)
    log.append(build_batch([Record(16, 5, b"k", b"v")], base_offset=16)[:-2] + b"w\0")
    log.batch([(b"k", b"v")] * 3, codec=Codec.ZSTD, producer=(7, 1), transactional=True)
    log.roll()
    frames = Frames(spark, write_log_dir(tmp_path, [log]))
    paths = [Path(row["path"]) for row in frames.segments.values()]
    found: list[str] = []
    for segment, path in zip(frames.segments, paths, strict=True):
        found += [f"Dumping {path}", f"Log starting offset: {segment[2]}"]
        found += [batch_line(row) for row in frames.batches[segment]]
    assert sum(line.endswith("isvalid: false") for line in found) == 2
    assert_same(found, dumped(tools, paths))


def check_records_of_consumers(
    frames: Frames, records: Mapping[Log, list[Row]], log_dir: Path
) -> None:
    """Checks that a consumer's records are those without control records from the log start on."""
    starts = read_checkpoint(log_dir / "log-start-offset-checkpoint")
    expected = {
        (*log, row["offset"])
        for log, rows in records.items()
        for row in rows
        if not row["isControl"] and row["offset"] >= starts.get("-".join(map(str, log)), 0)
    }
    rows = frames.rows("records", columns="topic,partition,offset")
    assert len(rows) == len(expected)
    assert {(row["topic"], row["partition"], row["offset"]) for row in rows} == expected


def assert_same(found: list[str], expected: list[str]) -> None:
    assert expected.pop() == ""
    for ours, theirs in zip(found, expected, strict=False):
        assert ours == theirs
    assert len(found) == len(expected) > 10
