"""SIGKILL of a broker after a topic was deleted and made again: its records stay."""

from __future__ import annotations

from pathlib import Path

from support.kafka import poll_until
from support.served import ServedBroker
from support.wire import ConnectionClosedError
from support.wire_client import WireClient, batch_of

SETTINGS = {"log.flush.start.offset.checkpoint.interval.ms": "1000"}
RECORDS = [b"%d" % number for number in range(10)]


def served(root: Path, *, kill_before: str | None = None) -> ServedBroker:
    return ServedBroker(
        root / "logs",
        SETTINGS if kill_before else {},
        module="support.serve_in_process",
        environment={"KILL_BEFORE": kill_before} if kill_before else {},
    )


def line_of_x(broker: ServedBroker) -> bool:
    path = broker.log_dir / "log-start-offset-checkpoint"
    return path.exists() and "\nx 0 90" in path.read_text()


def test_a_topic_made_again_after_a_kill_in_its_deletion_keeps_its_records_in_another_kill(
    tmp_path: Path,
) -> None:
    broker = served(tmp_path, kill_before=r"rename logs/x-0 .*-delete").start()
    with WireClient(broker.port) as wire:
        wire.create("x")
        wire.produce("x", batch_of(*[b"old"] * 100))
        wire.delete_records("x", 0, 90)
        poll_until(lambda: line_of_x(broker), timeout_s=60, what="the checkpoint")
        try:
            wire.delete("x")
        except ConnectionClosedError:
            poll_until(lambda: not broker.is_running, timeout_s=60, what="the kill")
    poll_until(lambda: not broker.is_running, timeout_s=60, what="the kill")
    broker.kill()

    broker = served(tmp_path).start()
    with WireClient(broker.port) as wire:
        wire.create("x")
        told = [wire.produce("x", batch_of(each)) for each in RECORDS]
    assert [each["error_code"] for each in told] == ["none"] * 10
    broker.kill()
    with served(tmp_path) as broker, WireClient(broker.port) as wire:
        assert [record.value for record in wire.records("x")] == RECORDS
