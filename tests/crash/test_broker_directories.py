"""`cordwood serve` with several log directories: dead disks, and moves that a kill interrupts."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from support.failing_disks import break_directory, mend_directory
from support.kafka import poll_until
from support.served import ServedBroker
from support.wire import ConnectionClosedError
from support.wire_client import WireClient, batch_of

_NUMBER = struct.Struct(">q")
_ROUNDS = 4


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


@pytest.fixture
def served(directories: Sequence[Path]) -> Iterator[ServedBroker]:
    broker = ServedBroker(
        directories[0],
        {
            "log.dirs": ",".join(map(str, directories)),
            "log.retention.ms": "-1",
            "log.cleaner.backoff.ms": "500",
            "log.segment.bytes": "1048576",
            "log.initial.task.delay.ms": "100",
            "replica.high.watermark.checkpoint.interval.ms": "500",
        },
        flags=(),
    )
    with broker:
        yield broker


def is_offline(wire: WireClient, directory: Path) -> bool:
    return bool(wire.directories()[str(directory)]["error_code"] != "none")


def has_grown(wire: WireClient, end: int) -> bool:
    return bool(wire.fetch("t", 0, 0)["high_watermark"] > end)


def has_begun(target: Path) -> bool:
    """Whether the partition is on its way to a directory; or there, if that was not seen."""
    return any(target.glob("t-0.*-future/*.log")) or (target / "t-0").exists()


def has_none(directory: Path, pattern: str) -> bool:
    return not any(directory.glob(pattern))


# ---- the end of the process


def ended(broker: ServedBroker) -> int:
    """The exit code, once it has ended by itself."""
    return poll_until(lambda: _code(broker), timeout_s=120, what="the process ends")[0]


def _code(broker: ServedBroker) -> tuple[int] | None:
    code = broker.exit_code
    return None if code is None else (code,)


def test_the_process_ends_when_the_metadata_logs_directory_fails(
    served: ServedBroker, directories: Sequence[Path]
) -> None:
    break_directory(directories[0])
    assert ended(served) == 1
    last = served.log.splitlines()[-1]
    why = (
        f"cordwood serve: Shutdown broker because the metadata log dir {directories[0]} has failed"
    )
    assert last.startswith(why)
    mend_directory(directories[0])


def test_the_process_goes_on_without_another_directory_and_ends_without_any(
    served: ServedBroker, directories: Sequence[Path]
) -> None:
    for directory in directories[1:]:
        break_directory(directory)
    with WireClient(served.port) as wire:
        for directory in directories[1:]:
            poll_until(
                partial(is_offline, wire, directory),
                timeout_s=120,
                what="it is found out",
            )
        wire.create("t")
        assert wire.produce("t", batch_of(b"x"))["error_code"] == "none"
    break_directory(directories[0])
    assert ended(served) == 1
    assert "cordwood serve: Shutdown broker because" in served.log.splitlines()[-1]
    for directory in directories:
        mend_directory(directory)
    served.start()
    with WireClient(served.port) as wire:
        assert [each.value for each in wire.records("t")] == [b"x"]
        assert {each["error_code"] for each in wire.directories().values()} == {"none"}


# ---- moves


class Writer:
    """Writes numbered records until told to stop; what was acknowledged, by offset."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: dict[int, int] = {}
        self.errors: set[str] = set()
        self.number = 0

    def start(self, port: int) -> None:
        self._port = port
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with WireClient(self._port) as wire:
                while not self._stop.is_set():
                    self.number += 1
                    told = wire.produce("t", batch_of(_NUMBER.pack(self.number) * 100))
                    if told["error_code"] == "none":
                        self.acknowledged[told["base_offset"]] = self.number
                    else:
                        self.errors.add(told["error_code"])
        except (ConnectionClosedError, OSError):
            pass  # killed

    def require_all(self, wire: WireClient) -> None:
        found = {
            each.offset: _NUMBER.unpack_from(each.value or b"")[0] for each in wire.records("t")
        }
        missing = {o: n for o, n in self.acknowledged.items() if found.get(o) != n}
        assert not missing
        assert sorted(found) == list(range(len(found)))


def settled(wire: WireClient) -> Path:
    """The partition's directory when nothing moves any more, and the partition has its leader."""

    def place() -> Path | None:
        if wire.fetch("t")["error_code"] != "none":
            return None
        described = wire.directories()
        found = [
            (Path(path), each["partitions"]["t-0"]["is_future_key"])
            for path, each in described.items()
            if "t-0" in each["partitions"]
        ]
        return found[0][0] if len(found) == 1 and not found[0][1] else None

    return poll_until(place, timeout_s=120, what="the move is over")


def filled(wire: WireClient, megabytes: int) -> None:
    wire.create("t", max_message_bytes=2_000_000)
    for number in range(megabytes):
        records = [_NUMBER.pack(-number) * 1000] * 125
        assert wire.produce("t", batch_of(*records))["error_code"] == "none"


def test_a_partition_moves_while_it_is_written_to_and_read(
    served: ServedBroker, directories: Sequence[Path]
) -> None:
    writer = Writer(served.port)
    with WireClient(served.port) as wire:
        filled(wire, 20)
        writer.start(served.port)
        for compaction in range(_ROUNDS):
            source = settled(wire)
            target = directories[(directories.index(source) + 1) % len(directories)]
            assert wire.move("t", [0], target) == {0: "none"}
            end = wire.fetch("t", 0, 0)["high_watermark"]
            poll_until(
                partial(has_grown, wire, end + 5),
                timeout_s=120,
                what="writing goes on",
            )
            assert settled(wire) == target, compaction
        writer.stop()
        assert writer.errors == set()
        writer.require_all(wire)
    served.stop()
    served.start()
    with WireClient(served.port) as wire:
        assert settled(wire) == target
        writer.require_all(wire)


def test_a_move_is_called_off_by_sending_the_partition_back(
    served: ServedBroker, directories: Sequence[Path]
) -> None:
    with WireClient(served.port) as wire:
        filled(wire, 20)
        source = settled(wire)
        first, second = (each for each in directories if each != source)
        assert wire.move("t", [0], first) == {0: "none"}
        assert wire.move("t", [0], second) == {0: "none"}
        assert wire.move("t", [0], source) == {0: "none"}
        end = settled(wire)
        # The first move may have been over by then; it is brought back.
        poll_until(lambda: settled(wire) == source, timeout_s=120, what=f"it is back from {end}")
        assert len(wire.records("t")) == 20 * 125


def test_a_move_that_a_kill_interrupts_goes_on_and_loses_nothing(
    served: ServedBroker, directories: Sequence[Path]
) -> None:
    writer = Writer(served.port)
    with WireClient(served.port) as wire:
        filled(wire, 40)
        for compaction in range(_ROUNDS):
            source = settled(wire)
            target = directories[(directories.index(source) + 1) % len(directories)]
            writer.start(served.port)
            assert wire.move("t", [0], target) == {0: "none"}
            if compaction % 2:  # somewhere near the end
                poll_until(
                    partial(has_none, target, "t-0.*-future"),
                    timeout_s=120,
                    interval_s=0.001,
                    what="it is over",
                )
            else:
                poll_until(
                    partial(has_begun, target),
                    timeout_s=120,
                    interval_s=0.001,
                    what="it has begun",
                )
            served.kill()
            writer.stop()
            wire.close()
            served.start()
            assert settled(wire) == target
            writer.require_all(wire)
        poll_until(
            lambda: not [path for each in directories for path in each.glob("t-0.*-future")],
            timeout_s=120,
            what="nothing is left of moves",
        )
