"""SIGKILL of a serving broker under load: what was acknowledged is there, once and in order."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from support.kafka import poll_until
from support.served import ServedBroker
from support.soaks.ledger import Ledger, Place
from support.soaks.reading import complaints_of
from support.soaks.writers import Writer
from support.wire_client import WireClient

TOPIC = "killed"
PARTITIONS = 4
WRITERS = 4
RUN_S = (0.05, 0.6)
#: A slow machine may take longer for so many in each run.
ACKNOWLEDGED_MIN = 120


@pytest.mark.parametrize(
    "kills", [5, pytest.param(100, marks=pytest.mark.nightly)], ids=["five", "hundred"]
)
def test_no_acknowledged_record_is_missing_or_out_of_order(tmp_path: Path, kills: int) -> None:
    rng, ledger = random.Random(kills), Ledger()
    with ServedBroker(tmp_path / "logs") as broker:
        servers = broker.bootstrap_servers
        with WireClient(broker.port) as wire:
            wire.create(TOPIC, PARTITIONS, retention_ms=-1)
        writers = [
            Writer(number, servers, ledger, topics={TOPIC: False}, records_per_second=400)
            for number in range(WRITERS)
        ]
        for _ in range(kills):
            wanted = ledger.count + ACKNOWLEDGED_MIN
            time.sleep(rng.uniform(*RUN_S))  # the load: the kill must come in the middle of it
            poll_until(
                lambda wanted=wanted: ledger.count >= wanted,  # type: ignore[misc]
                timeout_s=60,
                what="records are acknowledged",
                interval_s=0.001,
            )
            broker.kill()
            broker.start()
        for writer in writers:
            writer.stop()
        complaints = [
            complaint
            for number in range(PARTITIONS)
            for complaint in complaints_of(servers, Place(TOPIC, number), ledger)
        ]
    print(f"{kills} kills, {ledger.count} records acknowledged")
    assert complaints == []
    assert ledger.count > 100 * kills
