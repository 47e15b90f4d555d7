"""A closed segment that has lost its last bytes, at a Kafka: it continues with the next one.

Cordwood answers CORRUPT_MESSAGE there: see `tests/integration/broker/handlers/test_damaged_log.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordwood.format.file_names import LOG_SUFFIX
from support.kafka import RealKafka
from support.wire_client import WireClient, batch_of

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

RECORD = b"v" * 200_000
LOST_BYTES = 5


def test_kafka_reads_on_behind_a_batch_that_is_cut_off(tmp_path: Path) -> None:
    with RealKafka(tmp_path) as kafka:
        kafka.start()
        with WireClient(kafka.port) as wire:
            wire.create("t", segment_bytes=1 << 20, retention_ms=-1)
            for _ in range(20):
                wire.produce("t", batch_of(RECORD))
        kafka.stop()
        first, second, *_ = sorted((kafka.log_dirs[0] / "t-0").glob(f"*{LOG_SUFFIX}"))
        lost = int(second.stem) - 1
        os.truncate(first, first.stat().st_size - LOST_BYTES)
        kafka.start()
        with WireClient(kafka.port) as wire:
            assert wire.fetch("t", 0, lost)["error_code"] == "none"
            assert next(each.offset for each in wire.records("t", 0, lost)) == lost + 1
