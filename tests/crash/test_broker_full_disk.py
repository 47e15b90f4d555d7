"""A broker whose disk is full: it refuses what needs room, keeps what it has, and gets over it.

Needs root, to mount a file system that is small enough.
"""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.configs.broker_config import BrokerConfig
from cordwood.format.record_batch import iter_batches
from cordwood.storage.disk_reserve import RESERVE
from cordwood.testing.broker import RunningBroker
from support import stored_log
from support.failing_disks import break_directory, fill, may_mount, small_disk
from support.faulty_filesystem import Faults, FaultyFileSystem, Site
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.served import ServedBroker
from support.wire_client import WireClient, batch_of

REASON = may_mount()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

MEGABYTES = 40
STORAGE_ERROR = "kafka_storage_error"
CHUNK = 200_000
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "log.segment.bytes": "2000000",
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "4096",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=MEGABYTES) as found:
        yield found


@pytest.fixture
def running(disk: Path) -> Iterator[RunningBroker]:
    with RunningBroker(PROPERTIES, log_dir=disk / "logs", engine=NoEngine) as broker:
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[WireClient]:
    with WireClient(running.port) as connection:
        yield connection


def value(number: int) -> bytes:
    return b"%08d" % number * (CHUNK // 8)


def produce_until_full(wire: WireClient, topic: str) -> int:
    """The number of batches that were taken; large ones are refused first, then small ones too."""
    taken = 0
    for size in (CHUNK, CHUNK // 10, CHUNK // 100, CHUNK // 1000):
        while (told := wire.produce(topic, batch_of(value(taken)[:size])))["error_code"] == "none":
            assert told["base_offset"] == taken
            taken += 1
        assert (told["error_code"], told["base_offset"]) == (STORAGE_ERROR, -1)
    return taken


def require_whole(wire: WireClient, topic: str, first: int, end: int) -> None:
    """Every record that was acknowledged is there, and nothing else."""
    offset = first
    while offset < end:
        told = wire.fetch(topic, 0, offset)
        assert (told["error_code"], told["high_watermark"]) == ("none", end)
        for _, batch in iter_batches(told["records"]):
            for each in batch.records():
                assert each.offset == offset
                assert each.value
                assert value(each.offset).startswith(each.value)
                offset += 1


def test_a_full_disk_refuses_appends_and_leaves_nothing_half_written(
    running: RunningBroker, wire: WireClient, disk: Path
) -> None:
    wire.create("t")
    taken = produce_until_full(wire, "t")
    assert taken > 100
    require_whole(wire, "t", 0, taken)
    segments = sorted((disk / "logs" / "t-0").glob("*.log"))
    assert len(segments) > 5
    for each in segments:
        data = each.read_bytes()
        assert sum(batch.size_bytes for _, batch in iter_batches(data)) == len(data)
    assert running.broker.replicas.logs.context.failures.offline == {}
    assert wire.directories()[str(disk / "logs")]["error_code"] == "none"


def test_a_new_producer_whose_first_batch_did_not_fit_begins_with_it_when_there_is_room(
    wire: WireClient, disk: Path
) -> None:
    """librdkafka reports the batches before an acknowledged one as delivered."""
    wire.create("t")
    first = stored_log.batch_of(*[value(0)] * 3, producer=(7, 0, 0))
    second = stored_log.batch_of(b"small", producer=(7, 0, 3))
    ballast = fill(disk, leave_bytes=CHUNK)
    assert wire.produce("t", first)["error_code"] == STORAGE_ERROR
    assert wire.produce("t", second)["error_code"] == STORAGE_ERROR
    assert wire.produce("t", batch_of(b"small"))["base_offset"] == 0, "it would fit"
    ballast.unlink()
    assert wire.produce("t", second)["error_code"] == STORAGE_ERROR
    assert wire.produce("t", first)["base_offset"] == 1
    assert wire.produce("t", second)["base_offset"] == 4


def test_deleted_records_give_room_on_a_full_disk(running: RunningBroker, wire: WireClient) -> None:
    wire.create("t")
    taken = produce_until_full(wire, "t")
    assert wire.delete_records("t", 0, taken // 2)["low_watermark"] == taken // 2
    running.advance(minutes=10, compact=False)
    running.advance(minutes=10, compact=False)
    told = wire.produce("t", batch_of(value(taken)))
    assert (told["error_code"], told["base_offset"]) == ("none", taken)
    require_whole(wire, "t", taken // 2, taken + 1)


def test_retention_gives_room_on_a_full_disk(running: RunningBroker, wire: WireClient) -> None:
    wire.create("t", retention_bytes=4_000_000)
    taken = produce_until_full(wire, "t")
    running.advance(minutes=10, compact=False)
    running.advance(minutes=10, compact=False)
    assert wire.produce("t", batch_of(value(taken)))["base_offset"] == taken
    start = wire.delete_records("t", 0, 0)["low_watermark"]
    assert 0 < start < taken
    require_whole(wire, "t", start, taken + 1)


def test_a_limit_of_free_space_gives_room_and_is_set_while_the_disk_is_full(
    running: RunningBroker, wire: WireClient
) -> None:
    wire.create("t")
    wire.create("u")
    assert wire.produce("u", batch_of(value(0)))["error_code"] == "none"
    taken = produce_until_full(wire, "t")
    # As a change of the broker's record, which does not fit the disk, would set it.
    logs = running.broker.replicas.logs
    logs.broker = BrokerConfig({**logs.broker.all, "cordwood.log.dir.free.bytes.min": 8_000_000})
    running.advance(minutes=10, compact=False)
    running.advance(minutes=10, compact=False)
    assert logs.context.fs.free_bytes(logs.directories[0].path) >= 8_000_000
    assert wire.produce("t", batch_of(value(taken)))["base_offset"] == taken
    start = wire.delete_records("t", 0, 0)["low_watermark"]
    assert 0 < start < taken // 2
    require_whole(wire, "t", start, taken + 1)
    require_whole(wire, "u", 0, 1)


def test_a_deleted_topic_gives_room_on_a_full_disk(
    running: RunningBroker, wire: WireClient
) -> None:
    wire.create("t")
    wire.create("u")
    produce_until_full(wire, "t")
    assert wire.produce("u", batch_of(value(0)))["error_code"] == STORAGE_ERROR
    assert wire.delete("t") == "none"
    running.advance(minutes=10, compact=False)
    running.advance(minutes=10, compact=False)
    assert wire.produce("u", batch_of(value(0)))["error_code"] == "none"
    require_whole(wire, "u", 0, 1)


def test_a_topic_can_be_deleted_when_not_one_byte_is_left(
    running: RunningBroker, wire: WireClient, disk: Path
) -> None:
    wire.create("t")
    produce_until_full(wire, "t")
    fill(disk)
    for number in range(200):
        refused = wire.create(f"new{number}", name_of_error=True)
        if refused != "none":
            break
    assert refused == STORAGE_ERROR
    assert wire.delete("t") == "none"
    running.advance(minutes=10, compact=False)
    running.advance(minutes=10, compact=False)
    assert wire.create("t", name_of_error=True) == "none"
    assert wire.produce("t", batch_of(value(0)))["base_offset"] == 0


def test_what_the_metadata_log_has_no_room_for_is_refused_and_changes_nothing(
    running: RunningBroker, wire: WireClient, disk: Path
) -> None:
    wire.create("t")
    ballast = fill(disk)
    answers = {
        f"new{number}": wire.create(f"new{number}", 20, name_of_error=True) for number in range(50)
    }
    assert set(answers.values()) <= {"none", STORAGE_ERROR}
    refused = {name for name, told in answers.items() if told == STORAGE_ERROR}
    assert len(refused) > 40
    assert not refused & running.call(lambda it: set(it.metadata.image.topics))
    held = {path.name.rsplit("-", 1)[0] for path in (disk / "logs").iterdir()}
    assert not refused & held
    ballast.unlink()
    assert wire.create("later", name_of_error=True) == "none"
    assert {wire.create(name, name_of_error=True) for name in refused} == {"none"}


def test_a_topic_created_on_a_full_disk_is_served_once_there_is_space(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "control", tmp_path / "logs")
    fs = FaultyFileSystem(faults)
    with (
        RunningBroker(PROPERTIES, log_dir=tmp_path / "logs", engine=NoEngine, fs=fs) as running,
        WireClient(running.port) as wire,
    ):
        faults.begin(Site("make directory", "logs/late-N"), errno.ENOSPC)
        wire.create("late", 3)
        assert faults.failures() > 0
        assert wire.produce("late", batch_of(b"x"))["error_code"] == STORAGE_ERROR
        faults.end()

        def is_served() -> bool:
            answers = [wire.produce("late", batch_of(b"x"), index) for index in range(3)]
            return all(answer["error_code"] == "none" for answer in answers)

        poll_until(is_served, timeout_s=120, what="the partitions are served")
        assert running.broker.replicas.logs.context.failures.offline == {}


def test_a_topic_that_was_created_on_a_full_disk_can_be_deleted_on_it(
    running: RunningBroker, wire: WireClient, disk: Path
) -> None:
    ballast = fill(disk, leave_bytes=60_000)
    wire.create("t", 1)
    fill(disk)
    assert wire.delete("t") == "none"
    running.advance(minutes=10, compact=False)
    running.advance(minutes=10, compact=False)
    assert not [path for path in (disk / "logs").iterdir() if path.name.startswith("t-")]
    assert running.broker.replicas.logs.context.failures.offline == {}
    ballast.unlink(missing_ok=True)


def test_commits_are_refused_for_another_try_when_the_disk_is_full(
    running: RunningBroker, wire: WireClient, disk: Path
) -> None:
    wire.create("t")
    wire.find_coordinator("g")
    assert wire.commit("g", "t", 0, 1) == "none"
    ballast = fill(disk)
    told = [wire.commit("g", "t", 0, n) for n in range(2, 200)]
    last = 2 + told.count("none") - 1
    assert set(told[last:]) == {"not_coordinator"}
    assert wire.committed("g", "t", 0) == last
    ballast.unlink()
    assert wire.commit("g", "t", 0, 1000) == "none"
    assert wire.committed("g", "t", 0) == 1000


def test_a_broker_stops_and_starts_while_its_disk_is_full(disk: Path, tmp_path: Path) -> None:
    broker = ServedBroker(disk / "logs", PROPERTIES)
    broker.log_file = tmp_path / "serve.log"
    with broker, WireClient(broker.port) as wire:
        wire.create("t")
        wire.find_coordinator("g")
        assert wire.commit("g", "t", 0, 5) == "none"
        ballast = fill(disk, leave_bytes=10_000_000)
        taken = produce_until_full(wire, "t")
        wire.close()
        for end in (broker.stop, broker.kill, broker.stop, broker.stop):
            end()
            broker.start()
            require_whole(wire, "t", 0, taken)
            assert wire.produce("t", batch_of(value(taken)))["error_code"] == STORAGE_ERROR
            wire.close()
        assert (disk / "logs" / RESERVE).stat().st_size > 0
        ballast.unlink()
        assert wire.produce("t", batch_of(b"x"))["base_offset"] == taken
        assert wire.committed("g", "t", 0) == 5
    assert not (disk / "logs" / RESERVE).exists()


def test_a_start_that_finds_no_space_says_what_frees_some(disk: Path) -> None:
    log_dir = disk / "logs"
    with ServedBroker(log_dir, PROPERTIES):
        pass
    fill(disk)
    serve = ["-m", "cordwood", "serve", "--log-dir", str(log_dir), "--port", "0"]
    done = subprocess.run(
        [sys.executable, *serve, "--http-port", "-1"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert f"The disk of log directory {log_dir} is full" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("cordwood serve: Error while ")
    assert "the file system is full. Free a few megabytes on that disk" in last
    assert f"`cordwood clean {log_dir} --retention-only`" in last


class TwoDisks:
    """A broker with its metadata log on a full disk, and another directory, which fails."""

    def __init__(self, disk: Path, other: Path, **properties: str) -> None:
        self.disk = disk
        self.other = other
        given = {name.replace("_", "."): value for name, value in properties.items()}
        self.broker = RunningBroker(
            PROPERTIES | given | {"log.dirs": f"{disk / 'logs'},{other}"},
            log_dir=disk / "logs",
            engine=NoEngine,
        )

    def fail(self, wire: WireClient, *, keeps_reserve: bool) -> None:
        wire.create("t", 2)
        wire.produce("t", batch_of(b"x"), 0)
        wire.produce("t", batch_of(b"x"), 1)
        if not keeps_reserve:
            (self.disk / "logs" / RESERVE).unlink()
        fill(self.disk)
        for number in range(200):
            refused = wire.create(f"new{number}", name_of_error=True)
            if refused != "none":
                break
        assert refused == STORAGE_ERROR
        break_directory(self.other)
        self.broker.advance(minutes=2, compact=False)


def test_the_loss_of_another_directory_is_told_while_the_metadata_logs_disk_is_full(
    disk: Path, tmp_path: Path
) -> None:
    disks = TwoDisks(disk, tmp_path / "other")
    with disks.broker as broker, WireClient(broker.port) as wire:
        disks.fail(wire, keeps_reserve=True)

        def is_told() -> bool:
            codes = [each["error_code"] for each in wire.partitions("t").values()]
            return sorted(codes) == ["leader_not_available", "none"]

        poll_until(is_told, timeout_s=120, what="the loss is told")
        assert not broker.node.failure.done()


def test_a_node_gives_up_that_cannot_tell_of_a_loss_in_time(disk: Path, tmp_path: Path) -> None:
    disks = TwoDisks(disk, tmp_path / "other", log_dir_failure_timeout_ms="1500")
    with disks.broker as broker, WireClient(broker.port) as wire:
        disks.fail(wire, keeps_reserve=False)
        codes = {wire.produce("t", batch_of(b"x"), index)["error_code"] for index in (0, 1)}
        assert STORAGE_ERROR in codes
        poll_until(broker.node.failure.done, timeout_s=120, what="the node gives up")
        assert "log.dir.failure.timeout.ms" in broker.node.failure.result()


def test_a_move_to_a_full_disk_ends_and_the_partition_stays(disk: Path, tmp_path: Path) -> None:
    home, target = tmp_path / "home", disk / "logs"
    broker = RunningBroker(
        PROPERTIES | {"log.dirs": f"{home},{target}"}, log_dir=home, engine=NoEngine
    )
    with broker, WireClient(broker.port) as wire:
        wire.create("t", 2)
        index = next(n for n in range(2) if wire.place_of(f"t-{n}") == str(home))
        for number in range(20):
            assert wire.produce("t", batch_of(value(number)), index)["error_code"] == "none"
        ballast = fill(disk, leave_bytes=1_000_000)
        assert wire.move("t", [index], target) == {index: "none"}

        def is_over() -> bool:
            name = f"t-{index}"
            return name not in wire.directories()[str(target)]["partitions"]

        poll_until(is_over, timeout_s=120, what="the move is given up")
        assert wire.place_of(f"t-{index}") == str(home)
        assert broker.broker.replicas.logs.context.failures.offline == {}
        assert wire.produce("t", batch_of(value(20)), index)["base_offset"] == 20
        broker.advance(minutes=5, compact=False)
        broker.advance(minutes=5, compact=False)
        ballast.unlink()
        assert wire.move("t", [index], target) == {index: "none"}
        poll_until(
            lambda: wire.place_of(f"t-{index}") == str(target), timeout_s=120, what="it is there"
        )
        assert len(wire.records("t", index)) == 21
