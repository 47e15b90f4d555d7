"""`cordwood dump-log` against kafka-dump-log: the same text on stdout and stderr, byte for byte.

What Kafka 4.4 prints as 4.3 does is compared with both. It alone is the measure for the state of a
transaction, which it prints by its name, and for records by chance: some have fields and types that
4.3 does not know, and of some damaged ones it says that they have too many tagged fields.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.format import (
    group_metadata,
    metadata_records,
    remote_log_metadata,
    share_state,
    transaction_state,
)
from cordwood.format.batch_header import parse_header
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, build_control_key, build_end_txn_marker
from cordwood.format.coordinator_record import CoordinatorSchemas
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.message_schema import Field, MessageSchema, encode_message
from cordwood.format.offset_index import build_offset_index
from cordwood.format.producer_snapshot import ProducerEntry, build_producer_snapshot
from cordwood.format.record_batch import Header, Record, build_batch, build_empty_batch
from cordwood.format.time_index import build_time_index
from cordwood.format.varint import encode_unsigned_varint
from cordwood.model.uuids import ZERO_UUID
from support.golden import Golden
from support.kafka_programs import KAFKA_4_4, KAFKA_VERSIONS

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

NEWEST = (KAFKA_4_4,)
LOG = "00000000000000000000.log"
TS = 1700000000000
TEXTS = [
    "",
    "a",
    "topic-1",
    "über",
    "日本",
    "\U0001f600",
    'q"\\',
    "tab\tnl\n\x01\x1f\x7f",
    "</\u2028",
]
DOUBLES = [0.0, -0.0, 1.0, 1e7, 1e-3, 9.99e-4, 123456.789, 1e300, 1048576.0, float("nan")]

Compare = Callable[..., None]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--deep-iteration"],
        ["--print-data-log"],
        ["--print-data-log", "--skip-record-metadata"],
        ["--max-bytes", "20000", "--deep-iteration"],
    ],
)
def test_logs_of_kafka(golden_a: Golden, compare: Compare, flags: list[str]) -> None:
    compare(golden_a.files("*/*.log"), *flags)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("flags", [[], ["--verify-index-only"], ["--index-sanity-check"]])
def test_indexes_of_kafka(
    golden_a: Golden, compare: Compare, suffix: str, flags: list[str]
) -> None:
    compare(golden_a.files(f"*/*.{suffix}"), *flags)


@pytest.mark.parametrize("suffix", ["txnindex", "snapshot"])
def test_other_files_of_kafka(golden_a: Golden, compare: Compare, suffix: str) -> None:
    compare(golden_a.files(f"*/*.{suffix}"))


@pytest.mark.parametrize("more", [[], ["--skip-record-metadata"]])
@pytest.mark.parametrize(
    ("patterns", "flag"),
    [
        (["__cluster_metadata-0/*.log", "bootstrap.checkpoint"], "--cluster-metadata-decoder"),
        (["__consumer_offsets-*/*.log"], "--offsets-decoder"),
        (["__transaction_state-*/*.log"], "--transaction-log-decoder"),
        (["bootstrap.checkpoint"], "--deep-iteration"),
        (["meta.properties", "codec-none-0/leader-epoch-checkpoint"], "--print-data-log"),
    ],
)
def test_internal_topics_of_kafka(
    golden_a: Golden, compare: Compare, patterns: list[str], flag: str, more: list[str]
) -> None:
    files = [file for pattern in patterns for file in golden_a.files(pattern)]
    has_states = flag == "--transaction-log-decoder"
    compare(files, flag, *more, versions=NEWEST if has_states else KAFKA_VERSIONS)


class Rng:
    """Field values by chance, the extreme ones more often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def fields(self, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
        return {
            field.name: self._field(field, version)
            for field in fields
            if version in field.versions and (field.tag is None or self.random.random() < 0.7)
        }

    def message(self, schema: MessageSchema, version: int) -> bytes:
        return encode_message(schema, version, self.fields(schema.fields, version))

    def damaged(self, data: bytes) -> bytes:
        how = self.random.randrange(4)
        if how == 0:
            return data[: self.random.randrange(len(data) + 1)]
        if how == 1:
            return data + self.random.randbytes(2)
        if how == 2 and len(data) > 2:
            # Not the version: Kafka's tool reads unknown versions of some messages, more or less.
            position = self.random.randrange(2, len(data))
            return data[:position] + self.random.randbytes(1) + data[position + 1 :]
        return data

    def bytes_or_none(self, size_max: int) -> bytes | None:
        if self.random.random() < 0.2:
            return None
        return self.random.randbytes(self.random.randrange(size_max))

    def _field(self, field: Field, version: int) -> Any:
        is_nullable = field.nullable is not None and version in field.nullable
        if is_nullable and self.random.random() < 0.3:
            return None
        if field.is_array:
            return [self._one(field, version) for _ in range(self.random.randrange(4))]
        return self._one(field, version)

    def _one(self, field: Field, version: int) -> Any:
        choose = self.random.choice
        match field.kind:
            case "struct":
                return self.fields(field.fields, version)
            case "string":
                return choose(TEXTS)
            case "bytes":
                return self.random.randbytes(self.random.randrange(5))
            case "uuid":
                return choose([ZERO_UUID, UUID(bytes=self.random.randbytes(16))])
            case "bool":
                return choose([True, False])
            case "float64":
                return choose(DOUBLES)
        bits = int(field.kind.removeprefix("u").removeprefix("int"))
        if field.kind.startswith("u"):
            return choose([0, 1, (1 << bits) - 1, self.random.randrange(1 << bits)])
        half = 1 << (bits - 1)
        return choose([0, 1, -1, half - 1, -half, self.random.randrange(-half, half)])


def write_records(
    directory: Path, records: list[tuple[bytes | None, bytes | None]], **options: Any
) -> Path:
    data = b"".join(
        build_batch(
            [
                Record(start + index, TS + start + index, key, value)
                for index, (key, value) in enumerate(records[start : start + 7])
            ],
            base_offset=start,
            **options,
        )
        for start in range(0, len(records), 7)
    )
    return write(directory, data)


def write(directory: Path, data: bytes, name: str = LOG) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(data)
    return directory / name


def versions_of(schema: MessageSchema) -> range:
    return range(schema.versions.lowest, schema.versions.highest + 1)


@pytest.mark.parametrize("seed", range(3))
def test_every_metadata_record(tmp_path: Path, compare: Compare, seed: int) -> None:
    rng = Rng(seed)
    values = [
        metadata_records.encode_metadata_record(
            schema.name, version, rng.fields(schema.fields, version)
        )
        for schema in metadata_records.SCHEMAS.values()
        for version in versions_of(schema)
        for _ in range(6)
    ]
    damaged = [value[:3] + rng.damaged(value[3:]) for value in rng.random.choices(values, k=200)]
    odd = [None, b"", b"\0\1\0", b"\2\1\0", b"\1\x63\0", b"\1\xff\xff\xff\x7f", b"\1\x14\x63\0"]
    records: list[tuple[bytes | None, bytes | None]] = [
        (None, value) for value in [*values, *damaged, *odd]
    ]
    compare([write_records(tmp_path, records)], "--cluster-metadata-decoder", versions=NEWEST)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("schemas", "flag"),
    [
        (group_metadata.GROUP_RECORDS, "--offsets-decoder"),
        (transaction_state.TRANSACTION_RECORDS, "--transaction-log-decoder"),
        (share_state.SHARE_STATE_RECORDS, "--share-group-state-decoder"),
    ],
)
def test_every_coordinator_record(
    tmp_path: Path, compare: Compare, schemas: CoordinatorSchemas, flag: str, seed: int
) -> None:
    rng = Rng(seed)
    records: list[tuple[bytes | None, bytes | None]] = []
    for number, schema in schemas.values.items():
        key_fields = schemas.keys[number].fields
        for version in versions_of(schema):
            for _ in range(6):
                key = schemas.encode_key(number, rng.fields(key_fields, 0))
                value = struct.pack(">h", version) + rng.message(schema, version)
                records += [(key, value), (key, rng.damaged(value))]
                records += [(rng.damaged(key), value), (key, None)]
    known = schemas.encode_key(max(schemas.keys), {})
    records += [(known, struct.pack(">h", version)) for version in (-1, 5, 99)]
    records += [(struct.pack(">h", number) + b"abc", b"\0\0") for number in (99, 32767, -1)]
    compare([write_records(tmp_path, records)], flag, versions=NEWEST)


def test_members_of_consumer_groups(tmp_path: Path, compare: Compare) -> None:
    rng = Rng(1)
    inner = group_metadata.CONSUMER_PROTOCOL_SCHEMAS
    records: list[tuple[bytes | None, bytes | None]] = []
    for version in range(60):
        blobs = {}
        for name, schema in (
            ("subscription", inner["ConsumerProtocolSubscription"]),
            ("assignment", inner["ConsumerProtocolAssignment"]),
        ):
            blob = struct.pack(">h", version % 4) + rng.message(schema, version % 4)
            blobs[name] = rng.damaged(blob) if version % 3 == 0 else blob
        fields = {
            "protocolType": "connect" if version % 7 == 0 else "consumer",
            "members": [{"memberId": "m", **blobs}],
        }
        value = group_metadata.GROUP_RECORDS.encode_value(2, version % 5, fields)
        records.append((group_metadata.GROUP_RECORDS.encode_key(2, {"group": "g"}), value))
    compare([write_records(tmp_path, records)], "--offsets-decoder", versions=NEWEST)


def test_every_remote_log_record(tmp_path: Path, compare: Compare) -> None:
    rng = Rng(1)
    records: list[tuple[bytes | None, bytes | None]] = [(None, None), (None, b"\1\x09\0")]
    for schema in remote_log_metadata.SCHEMAS.values():
        for _ in range(40):
            fields = rng.fields(schema.fields, 0)
            if "startOffset" in fields and rng.random.random() < 0.8:
                fields["startOffset"] = rng.random.randrange(1000)
                fields["endOffset"] = rng.random.randrange(2000)
            for state in ("remoteLogSegmentState", "remotePartitionDeleteState"):
                if state in fields:
                    fields[state] = rng.random.randrange(-1, 5)
            frame = b"\1" + encode_unsigned_varint(schema.key) + b"\0"
            records.append((None, frame + encode_message(schema, 0, fields)))
    compare([write_records(tmp_path, records)], "--remote-log-metadata-decoder")


def test_payloads_of_any_bytes_in_every_codec(tmp_path: Path, compare: Compare) -> None:
    rng = Rng(1)
    records = [(rng.bytes_or_none(12), rng.bytes_or_none(40)) for _ in range(2000)]
    for lead in (0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xF5):
        for _ in range(60):
            following = bytes(rng.random.choices(range(0x60, 0xC0), k=3))
            tail = following[: rng.random.randrange(4)]
            records.append((bytes([lead]) + tail, b"A" + bytes([lead]) + tail + b"B"))
    files = [write_records(tmp_path / codec.name, records, codec=codec) for codec in Codec]
    compare(files, "--print-data-log")
    compare(files, "--print-data-log", "--skip-record-metadata")


def test_batches_of_every_kind(tmp_path: Path, compare: Compare) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v"), (None, None)] * 10
    appended = write_records(
        tmp_path / "appended",
        records,
        timestamp_type="LogAppendTime",
        log_append_time_ms=TS + 5,
        producer_id=5,
        producer_epoch=1,
        base_sequence=(1 << 31) - 3,
        is_transactional=True,
    )
    horizon = write_records(tmp_path / "horizon", records, delete_horizon_ms=TS + 9)
    batch = build_batch(
        [Record(0, TS, b"k", b"v", (Header("h", b"1"), Header("ü", None)))], base_offset=0
    )
    empty = write(tmp_path / "empty", build_empty_batch(parse_header(batch)) + batch)
    bad_crc = write(tmp_path / "crc", batch[:-1] + b"\1" + batch[:16])
    torn = write(tmp_path / "torn", batch + batch[:30])
    odd_magic = write(tmp_path / "magic", batch[:16] + b"\5" + batch[17:])
    files = [appended, horizon, empty, bad_crc, torn, odd_magic]
    files += [write(tmp_path / "nothing", b""), write(tmp_path / "tiny", batch[:10])]
    files.append(write(tmp_path, batch, "00000000000000000010-0000000003.checkpoint"))
    for flags in ([], ["--print-data-log"], ["--max-bytes", "200"]):
        compare(files, *flags)


def test_control_records_of_every_kind(tmp_path: Path, compare: Compare) -> None:
    kraft = [
        (ControlType.LEADER_CHANGE, "00000000000102000000010002000000010000"),
        (ControlType.SNAPSHOT_HEADER, "00000000018bcfe5680000"),
        (ControlType.SNAPSHOT_FOOTER, "000000"),
        (ControlType.KRAFT_VERSION, "0000000100"),
        (
            ControlType.KRAFT_VOTERS,
            "00000200000064" + "00" * 16 + "02054142434402682384000000000100"
            "0000",
        ),
    ]  # fmt: skip
    data = b""
    for offset in range(6):
        data += build_end_txn_marker(
            offset=offset,
            timestamp=TS,
            producer_id=7,
            producer_epoch=2,
            control_type=ControlType(offset % 2),
            coordinator_epoch=offset - 1,
        )
    for offset, (key, value) in enumerate(
        [(build_control_key(kind), bytes.fromhex(text)) for kind, text in kraft]
        + [(struct.pack(">hh", 0, number), b"abc") for number in (7, 99, -3)]
        + [(struct.pack(">hhh", 3, 1, 7), struct.pack(">hiq", 4, 9, 1))],
        start=6,
    ):
        record = Record(offset, TS, key, value)
        data += build_batch([record], base_offset=offset, is_control=True)
    for flags in (["--deep-iteration"], ["--print-data-log", "--skip-record-metadata"]):
        compare([write(tmp_path, data)], *flags)


def test_messages_of_old_magics(tmp_path: Path, compare: Compare) -> None:
    data = b""
    for offset in range(20):
        data += build_legacy_message(
            offset=offset,
            magic=offset % 2,
            key=None if offset % 3 else b"k",
            value=None if offset % 5 == 0 else b"v%d" % offset,
            timestamp=TS + offset,
            attributes=8 if offset % 4 == 1 else 0,
        )
    offset = 20
    for magic, kind, stamp, relative in [
        (old, codec, append_ms, is_relative)
        for old in (0, 1)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
        for append_ms in ((None, TS + 99) if old else (None,))
        for is_relative in (True, False)
    ]:
        records = [Record(offset + step, TS + step, b"k", b"v" * step) for step in range(5)]
        data += build_legacy_wrapper(
            records,
            magic=magic,
            codec=kind,
            log_append_time_ms=stamp,
            is_relative=relative,
        )
        offset += 5
    spoiled = build_legacy_message(offset=offset, magic=1, key=b"a", value=b"b")
    file = write(tmp_path, data + spoiled[:-1] + b"x")
    for flags in ([], ["--print-data-log"]):
        compare([file], *flags)


@pytest.mark.parametrize("flags", [["--print-data-log"], []])
def test_what_lies_before_an_error_is_the_same(
    tmp_path: Path, compare: Compare, flags: list[str]
) -> None:
    batch = build_batch([Record(step, TS, b"k", b"v") for step in range(5)], base_offset=0)
    deep_only = {
        "too many": batch[:60] + b"\x09" + batch[61:],
        "too few": batch[:60] + b"\x03" + batch[61:],
        "negative": batch[:57] + b"\xff" + batch[58:],
        "record length": batch[:61] + b"\x7f" + batch[62:],
        "short batch": struct.pack(">qiib", 9, 20, 0, 2) + bytes(15) + batch,
    }
    always = {
        "zeros": bytes(300),
        "short": struct.pack(">qi", 5, 5) + bytes(50),
        "codec": batch[:22] + b"\x06" + batch[23:],
    }
    for name, tail in (deep_only | always).items():
        file = write(tmp_path / name, batch + tail)
        compare([file], *flags, is_broken=bool(flags) or name in always)


@pytest.mark.parametrize("flags", [[], ["--verify-index-only"]])
def test_indexes_that_do_not_agree_with_their_log(
    tmp_path: Path, compare: Compare, flags: list[str]
) -> None:
    log = b""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    for first in range(0, 150, 3):
        if first % 4 == 0:
            offsets.append((first + 2, len(log)))
            times.append((TS + first + 2, first + 2))
        records = [Record(first + step, TS + first + step, None, b"v") for step in range(3)]
        log += build_batch(records, base_offset=first)
    wrong_offsets = [(offset + (index % 3 == 0), at) for index, (offset, at) in enumerate(offsets)]
    wrong_times = [(ms + index % 3, at - (index % 4 == 0)) for index, (ms, at) in enumerate(times)]
    for name, index, time_index in [
        (
            "open",
            build_offset_index(offsets, 0) + bytes(80),
            build_time_index(times, 0) + bytes(99),
        ),
        ("wrong", build_offset_index(wrong_offsets, 0), build_time_index(wrong_times, 0)),
        (
            "disorder",
            build_offset_index(offsets, 0),
            build_time_index(times, 0)
            + struct.pack(">qi", TS, 149)
            + struct.pack(">qi", TS + 999, 160),
        ),
        ("empty", b"", build_time_index(times, 0)),
        ("zeros", bytes(800), bytes(1200)),
    ]:
        write(tmp_path / name, log)
        write(tmp_path / name, index, LOG.replace(".log", ".index"))
        write(tmp_path / name, time_index, LOG.replace(".log", ".timeindex"))
    for suffix in (".index", ".timeindex"):
        compare(sorted(tmp_path.glob(f"*/*{suffix}")), *flags)


def test_producer_snapshots(tmp_path: Path, compare: Compare) -> None:
    choose = random.Random(1).choice
    data = build_producer_snapshot(
        [
            ProducerEntry(
                producer_id=number,
                producer_epoch=number,
                last_sequence=choose([-1, 0, 2, (1 << 31) - 1]),
                last_offset=choose([-1, 5]),
                offset_delta=choose([0, 3]),
                timestamp=choose([-1, TS]),
                coordinator_epoch=choose([-1, 4]),
                current_txn_first_offset=choose([-1, 0, 3]),
            )
            for number in range(40)
        ]
    )
    files = [
        write(tmp_path, content, f"{number:020d}.snapshot")
        for number, content in enumerate([data, b"\0\2" + data[2:], data[:-1] + b"x"])
    ]
    compare(files)
