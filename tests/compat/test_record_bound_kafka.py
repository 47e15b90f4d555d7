"""The bound on a record of a compressed batch, against the reader of Kafka 4.4.

Kafka's own classes read the batches, without a broker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch, build_legacy_wrapper
from cordwood.format.record_batch import Record, build_batch, parse_batch
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import OversizedRecordError
from cordwood.model.kafka_errors import InvalidRecordError
from support.appends import NOW, validate
from support.bombs import bomb
from support.kafka_programs import KAFKA_4_4, kafka_jars, tools_resource

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

BOUND = 2000
#: Sizes of the values of a batch; records of a key of one byte take 8 bytes more.
SIZES: Mapping[str, tuple[int, ...]] = {
    "small": (10, 10),
    "at the bound": (BOUND - 8,),
    "over by one": (BOUND - 7,),
    "the second": (10, 5_000, 10),
    "the last": (10, 10, BOUND - 7),
    "many within": (1_900,) * 20,
}


def batches() -> dict[str, bytes]:
    """The batches, by codec and sizes."""
    found = {}
    for codec in Codec:
        for name, sizes in SIZES.items():
            records = [Record(i, NOW + i, b"k", bytes(size)) for i, size in enumerate(sizes)]
            found[f"{codec.name} {name}"] = build_batch(records, base_offset=0, codec=codec)
        if codec is not Codec.NONE:
            found[f"{codec.name} far over"] = bomb(codec, 3_000_000, timestamp=NOW)
    for magic in (0, 1):
        for size in (BOUND, 5_000):
            overhead = 1 + (14 if magic == 0 else 22)
            records = [Record(0, NOW, b"k", b"v"), Record(1, NOW, b"k", bytes(size - overhead))]
            data = build_legacy_wrapper(records, magic=magic, codec=Codec.GZIP)
            found[f"magic {magic} of {size}"] = data
    return found


def read(data: bytes) -> str:
    """The number of records as a cleaner reads them, or the code of the error."""
    batch = parse_batch(data)
    assert batch is not None
    try:
        if not isinstance(batch, LegacyBatch):
            return str(len(list(batch.iter_records(record_bytes_max=BOUND))))
        return str(len(batch.records(record_bytes_max=BOUND)))
    except OversizedRecordError:
        return ErrorCode.INVALID_RECORD.name


def validated(data: bytes) -> str:
    """The number of records of a produce request that is taken, or the error."""
    config = replace(LogConfig(), max_decompressed_message_bytes=BOUND)
    try:
        return str(validate(data, config).next_offset)
    except InvalidRecordError as error:
        return f"{ErrorCode(error.code).name}\t{error}"


def test_what_is_over_the_bound_is_refused_in_the_same_words(tmp_path: Path) -> None:
    made = batches()
    files = []
    for number, data in enumerate(made.values()):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(data)
    done = subprocess.run(
        [
            *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars(KAFKA_4_4)}/*"),
            *(str(tools_resource("BoundedRecords.java")), str(BOUND), *map(str, files)),
        ],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    lines = iter(done.stdout.splitlines())
    theirs = {name: (next(lines), next(lines), next(lines)) for name in made}
    for name, data in made.items():
        cleaned, produced, newest = theirs[name]
        assert read(data) == cleaned.partition("\t")[0], name
        if not name.startswith("magic"):
            assert validated(data) == produced, name
            assert cleaned.isdecimal() == newest.isdecimal(), name
    refused = {name for name, found in theirs.items() if found[0].startswith("INVALID_RECORD")}
    over = ("over by one", "the second", "the last", "far over")
    assert refused == {
        *(f"{codec.name} {name}" for codec in Codec if codec for name in over),
        *(f"magic {magic} of 5000" for magic in (0, 1)),
    }
