"""A closed segment that has lost its last bytes: readers get an answer that names the damage."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.format.file_names import LOG_SUFFIX
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire_client import WireClient, batch_of

SEGMENT_BYTES = 1 << 20
RECORD = b"v" * 200_000
LOST_BYTES = 5


def broker_on(log_dir: Path) -> RunningBroker:
    return RunningBroker(
        {"log.retention.check.interval.ms": "100"}, log_dir=log_dir, engine=NoEngine
    )


@pytest.fixture
def torn(tmp_path: Path) -> tuple[Path, int]:
    """A stopped broker's directory; the log file that was cut, and the offset of what it lost."""
    with broker_on(tmp_path / "logs") as broker, WireClient(broker.port) as wire:
        wire.create("t", segment_bytes=SEGMENT_BYTES, retention_ms=-1)
        for number in range(20):
            wire.produce("t", batch_of(RECORD, timestamp_ms=1_700_000_000_000 + number))
    first, second, *_ = sorted((tmp_path / "logs" / "t-0").glob(f"*{LOG_SUFFIX}"))
    os.truncate(first, first.stat().st_size - LOST_BYTES)
    return first, int(second.stem) - 1


def test_a_consumer_gets_corrupt_message_and_can_continue_behind_it(
    torn: tuple[Path, int], caplog: pytest.LogCaptureFixture
) -> None:
    path, lost = torn
    caplog.set_level(logging.ERROR)
    with broker_on(path.parent.parent) as broker, WireClient(broker.port) as wire:
        assert wire.fetch("t", 0, 0)["error_code"] == "none"
        assert wire.fetch("t", 0, lost - 1)["error_code"] == "none"
        for _ in range(3):
            assert wire.fetch("t", 0, lost)["error_code"] == "corrupt_message"
        assert len(wire.records("t", 0, lost + 1)) == 19 - lost
        found = wire.ask(
            "list_offsets",
            7,
            {
                "replica_id": -1,
                "topics": [
                    {
                        "name": "t",
                        "partitions": [
                            {"partition_index": 0, "timestamp": 1_700_000_000_000 + lost + 1}
                        ],
                    }
                ],
            },
        )
        assert found["topics"][0]["partitions"][0]["offset"] == lost + 1
    reports = [each.message for each in caplog.records if "are damaged" in each.message]
    assert len(reports) == 1, "at most one a minute"
    assert str(path) in reports[0]
    assert "at byte" in reports[0]


def test_verify_names_the_file_and_the_byte(torn: tuple[Path, int]) -> None:
    path, _ = torn
    done = CliRunner().invoke(app, ["verify", str(path.parent.parent)])
    assert done.exit_code == 1
    assert path.name in done.output


def test_delete_records_passes_it(torn: tuple[Path, int]) -> None:
    path, lost = torn
    with broker_on(path.parent.parent) as broker, WireClient(broker.port) as wire:
        assert wire.delete_records("t", 0, lost + 1)["error_code"] == "none"
        assert wire.fetch("t", 0, lost + 1)["error_code"] == "none"
        assert wire.fetch("t", 0, lost)["error_code"] == "offset_out_of_range"


def test_retention_passes_it(torn: tuple[Path, int]) -> None:
    path, _ = torn
    with broker_on(path.parent.parent) as broker, WireClient(broker.port) as wire:
        config = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [config]}
        wire.ask("incremental_alter_configs", 1, {"resources": [resource]})
        poll_until(
            lambda: wire.fetch("t")["error_code"] == "offset_out_of_range",
            timeout_s=60,
            what="retention",
        )
