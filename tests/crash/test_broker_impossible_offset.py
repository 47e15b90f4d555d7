"""`cordwood serve` on a log with an impossible offset: it says so, and touches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.record_batch import iter_batches
from support.served import ServedBroker, ServeError
from support.wire_client import WireClient, batch_of


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_a_broker_refuses_to_start_on_an_impossible_offset_and_says_where_it_is(
    tmp_path: Path, ends: str
) -> None:
    broker = ServedBroker(tmp_path / "logs", {"log.initial.task.delay.ms": "0"})
    broker.start()
    with WireClient(broker.port) as wire:
        wire.create("t")
        for n in range(9):
            assert wire.produce("t", batch_of(b"%d" % n))["error_code"] == "none"
    if ends == "killed":
        broker.kill()
    else:
        assert broker.stop() == 0
    path = tmp_path / "logs" / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    position = [at for at, _ in iter_batches(bytes(data))][4 if ends == "killed" else 8]
    data[position] ^= 0x40  # bit 62 of the base offset
    path.write_bytes(data)
    with pytest.raises(ServeError) as refused:
        broker.start()
    assert f"{path}: a batch whose CRC is right has impossible offsets" in str(refused.value)
    assert f"The batch is at byte {position}" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert broker.exit_code == 1
    assert path.read_bytes() == data
    assert [each.name for each in path.parent.glob("*.log")] == [path.name]
