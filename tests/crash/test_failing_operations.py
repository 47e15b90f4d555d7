"""Every operation on files of a broker, made to fail with ENOSPC, EIO and EACCES in turn.

A broker has two directories, with the metadata log in the one, and the fault in the other: whatever
fails there, the other goes on. A phase is run once to see what it does with files; then once for
each kind of operation on each kind of file, and each error.
"""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.record_batch import Record, build_batch
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.broker import RunningBroker
from support.faulty_filesystem import ERRORS, Faults, FaultyFileSystem, Site
from support.in_process_engine import CompiledEngine
from support.kafka import poll_until
from support.wire import ConnectionClosedError
from support.wire_client import WireClient

PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "log.cleaner.backoff.ms": "31536000000",
    # Retention and compaction happen when a phase has them happen, and at no other time.
    "log.initial.task.delay.ms": "86400000",
    "log.retention.check.interval.ms": "86400000",
    "log.segment.delete.delay.ms": "1000",
    "log.index.size.max.bytes": "4096",
    "log.flush.offset.checkpoint.interval.ms": "60000",
}
TOPICS: dict[str, dict[str, Any]] = {
    "t": {},
    "c": {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.01",
        # Longer than the whole run may take: nothing is due before the clock is advanced.
        "min_compaction_lag_ms": "21600000",
        "internal_segment_bytes": "2000",
    },
    "r": {"internal_segment_bytes": "2000", "retention_bytes": "1"},
    "d": {},
}
GROUP = "g"
VALUE = b"v" * 300


class Engine(CompiledEngine):
    """Compactions in this process, on the file system under test."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        super().__init__()
        self.fs = fs


@dataclass
class Bench:
    """A broker over two directories, and what it has acknowledged: keys by partition and offset."""

    root: Path
    faults: Faults
    acknowledged: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    committed: int = -1
    deleted: bool = False
    running: RunningBroker | None = None

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def broker(self) -> RunningBroker:
        assert self.running is not None
        return self.running

    def start(self) -> None:
        fs = FaultyFileSystem(self.faults)
        self.running = RunningBroker(
            PROPERTIES
            | {"log.dirs": f"{self.home},{self.data}", "metadata.log.dir": str(self.home)},
            log_dir=self.home,
            engine=lambda: Engine(fs),
            fs=fs,
        ).start()

    def stop(self) -> None:
        self.broker.stop()
        self.running = None

    def wire(self) -> WireClient:
        return WireClient(self.broker.port)

    def put(self, wire: WireClient, topic: str, partition: int, key: bytes) -> str:
        told = wire.produce(
            topic, build_batch([Record(0, self.broker.clock.now_ms(), key, VALUE)], base_offset=0),
            partition,
        )  # fmt: skip
        if told["error_code"] == "none":
            self.acknowledged.setdefault((topic, partition), {})[told["base_offset"]] = key
        return str(told["error_code"])

    def put_all(self, wire: WireClient, topic: str, count: int) -> dict[int, set[str]]:
        """The errors by partition."""
        found: dict[int, set[str]] = defaultdict(set)
        for n in range(count):
            for partition in (0, 1):
                found[partition].add(self.put(wire, topic, partition, b"%d" % (n % 3)))
        return found

    def failing_partition(self, wire: WireClient, topic: str) -> int:
        found = wire.directories()[str(self.data)]["partitions"]
        return next(n for n in (0, 1) if f"{topic}-{n}" in found)

    @property
    def offline(self) -> set[str]:
        return {path.name for path in self.broker.broker.replicas.logs.context.failures.offline}


Phase = Callable[[Bench, WireClient], str]


def said(found: dict[int, set[str]]) -> str:
    return " ".join(sorted(set().union(*found.values())))


def append(bench: Bench, wire: WireClient) -> str:
    return said(bench.put_all(wire, "t", 2))


def roll(bench: Bench, wire: WireClient) -> str:
    return said(bench.put_all(wire, "c", 12))


def flush(bench: Bench, wire: WireClient) -> str:
    bench.broker.call(lambda it: None)
    for log in bench.broker.broker.replicas.logs.logs():
        try:
            log.flush(force_active=True)
        except CordwoodError as error:
            return type(error).__name__
    return "none"


def checkpoint(bench: Bench, wire: WireClient) -> str:
    bench.broker.advance(minutes=2, compact=False)
    return said(bench.put_all(wire, "t", 1))


def metadata(bench: Bench, wire: WireClient) -> str:
    return wire.create("new", 2, name_of_error=True)


def offsets(bench: Bench, wire: WireClient) -> str:
    error = wire.commit(GROUP, "t", 0, 7)
    bench.committed = 7 if error == "none" else bench.committed
    return error


def clean(bench: Bench, wire: WireClient) -> str:
    bench.broker.clock.advance(7 * 3_600_000)
    bench.broker.node.cleaner.run_once_now()
    return outcome_of_cleaning(bench)


def retain(bench: Bench, wire: WireClient) -> str:
    bench.broker.node.cleaner.retention_once_now()
    bench.broker.advance(minutes=2, compact=False)
    return said(bench.put_all(wire, "r", 1))


def delete(bench: Bench, wire: WireClient) -> str:
    error = wire.delete("d")
    bench.deleted = error == "none"
    bench.broker.advance(minutes=61, compact=False)
    bench.broker.advance(minutes=2, compact=False)
    return error


def outcome_of_cleaning(bench: Bench) -> str:
    runs = bench.broker.node.cleaner.status().last_runs
    return ", ".join(sorted({run.outcome for run in runs})) or "nothing was due"


PHASES: dict[str, Phase] = {
    "append": append,
    "roll": roll,
    "flush": flush,
    "checkpoint": checkpoint,
    "metadata log": metadata,
    "group offsets": offsets,
    "live cleaning": clean,
    "retention": retain,
    "deletion": delete,
}
AROUND = ("shutdown", "start")
#: Where several topics would show the same: only files whose names begin so.
ONLY = {
    "flush": ("t-", "__consumer"),
    "checkpoint": ("data/log", "data/rec", "data/rep", "logs/"),
    "live cleaning": ("c-", "data/c", "logs/"),
    "retention": ("r-", "data/r-"),
    "deletion": ("d-", "data/d-", "data/c"),
    "shutdown": ("t-", "data/", "logs/"),
    "start": ("t-", "data/", "logs/"),
}


def prepare(root: Path, control: Path) -> Bench:
    """Directories in which every phase has something to do."""
    bench = Bench(root, Faults(control, root))
    bench.start()
    with bench.wire() as wire:
        for topic, settings in TOPICS.items():
            wire.create(topic, 2, **settings)
        wire.find_coordinator(GROUP)
        for topic in TOPICS:
            bench.put_all(wire, topic, 14)
        assert wire.commit(GROUP, "t", 0, 3) == "none"
        bench.committed = 3
    bench.stop()
    return bench


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("prepared")
    return prepare(root / "logs", root / "control")


def copy_of(prepared: Bench, root: Path) -> Bench:
    shutil.copytree(prepared.root, root / "logs")
    faults = Faults(root / "control", root / "logs")
    acknowledged = {which: dict(records) for which, records in prepared.acknowledged.items()}
    bench = Bench(root / "logs", faults, acknowledged, prepared.committed)
    # Only the directory without the metadata log fails.
    faults.root = bench.data
    return bench


@dataclass(frozen=True)
class Row:
    """Result of one kind of operation that failed."""

    phase: str
    site: Site
    error: str
    failed: int
    client: str
    directory: str
    afterwards: str
    restart: str

    def __str__(self) -> str:
        where = f"{self.site.kind} {self.site.file}"
        return (
            f"{self.phase:13} | {where:62} | {self.error:6} | {self.client:28} | "
            f"{self.directory:8} | {self.afterwards:24} | {self.restart}"
        )


def sites_of(prepared: Bench, root: Path, phase: str) -> list[Site]:
    """Operations of a phase on files of the directory that is to fail."""
    found = all_sites_of(prepared, root, phase)
    return [site for site in found if site.file.startswith(ONLY.get(phase, ""))]


def all_sites_of(prepared: Bench, root: Path, phase: str) -> list[Site]:
    bench = copy_of(prepared, root)
    if phase == "metadata log":
        bench.faults.root = bench.home / "__cluster_metadata-0"
    if phase == "start":
        bench.faults.watch()
        bench.start()
        found = bench.faults.seen()
        bench.stop()
        return found
    bench.start()
    if phase == "shutdown":
        bench.faults.watch()
        bench.stop()
        return bench.faults.seen()
    with bench.wire() as wire:
        bench.faults.watch()
        PHASES[phase](bench, wire)
        found = bench.faults.seen()
    bench.stop()
    return found


def fail(prepared: Bench, root: Path, phase: str, site: Site, error: str) -> Row:
    """Runs a phase with a fault in it, ends the fault, and restarts; checks all of it."""
    bench = copy_of(prepared, root)
    if phase == "metadata log":
        bench.faults.root = bench.home / "__cluster_metadata-0"
    client, directory, afterwards = "", "online", ""
    try:
        if phase == "start":
            bench.faults.begin(site, ERRORS[error])
            client = started(bench)
        else:
            bench.start()
        if bench.running is not None:
            if phase in PHASES:
                client = run_phase(bench, phase, site, error)
            elif phase == "shutdown":
                bench.faults.begin(site, ERRORS[error])
                bench.stop()
                client = "stopped"
        if bench.running is not None:
            bench.faults.end()
            afterwards = goes_on(bench)
            assert bench.offline <= {"data", "home"}
            directory = "offline" if bench.offline else "online"
    finally:
        failed = bench.faults.failures()
        bench.faults.end()
        if bench.running is not None:
            bench.stop()
    restart = require_whole_after_restart(bench)
    row = Row(phase, site, error, failed, client, directory, afterwards, restart)
    require_as_told(row)
    return row


def started(bench: Bench) -> str:
    try:
        bench.start()
    except CordwoodError as error:
        bench.running = None
        return f"refused: {type(error).__name__}"
    return "started"


def run_phase(bench: Bench, phase: str, site: Site, error: str) -> str:
    with bench.wire() as wire:
        bench.faults.begin(site, ERRORS[error])
        try:
            return PHASES[phase](bench, wire)
        except (ConnectionClosedError, OSError) as closed:
            return f"disconnected: {type(closed).__name__}"


def goes_on(bench: Bench) -> str:
    """Whether what is online serves once the fault has ended."""
    if "home" in bench.offline:  # the metadata log's
        poll_until(bench.broker.node.failure.done, timeout_s=120, what="the broker gives up")
        return "the broker gives up"
    bench.broker.advance(hours=7, compact=False)
    with bench.wire() as wire:
        # What was begun while the fault lasted, as the write of a leader epoch, may fail after it.
        poll_until(partial(serves, bench, wire), timeout_s=60, what="what is online serves")
        offline = bench.offline
        if not offline:
            bench.put_all(wire, "c", 12)
    if offline:
        return "the other directory serves"
    bench.broker.node.cleaner.run_once_now()
    status = bench.broker.node.cleaner.status()
    assert not any(one.uncleanable or one.due for one in status.partitions), status
    return "serves and cleans"


def serves(bench: Bench, wire: WireClient) -> bool:
    """Whether both partitions take a record, or one, where its directory is offline."""
    found = bench.put_all(wire, "t", 1)
    good = sum(errors == {"none"} for errors in found.values())
    return good == (1 if bench.offline else 2)


def require_whole_after_restart(bench: Bench) -> str:
    """Starts without faults: all that was acknowledged is there, and nothing that was staged."""
    bench.start()
    with bench.wire() as wire:
        for (topic, partition), records in bench.acknowledged.items():
            if topic == "d":
                continue
            found = {
                each.offset: each.key
                for each in wire.records(topic, partition, first_of(bench, topic, partition))
            }
            if topic in {"t", "r"}:
                first = min(found, default=max(records) + 1)
                expected = (
                    {o: k for o, k in records.items() if o >= first} if topic == "r" else records
                )
                assert {o: k for o, k in found.items() if o in records} == expected
            else:
                newest = {key: offset for offset, key in sorted(records.items())}
                kept = {key: offset for offset, key in sorted(found.items())}
                assert all(kept[key] >= offset for key, offset in newest.items())
        wire.find_coordinator(GROUP)
        assert wire.committed(GROUP, "t", 0) in {bench.committed, 7}
    bench.stop()
    staged = [path.name for path in bench.root.rglob("*") if path.name.endswith(STAGED)]
    assert not staged
    return "whole"


STAGED = (".staged", ".swap", ".cleaned")


def first_of(bench: Bench, topic: str, partition: int) -> int:
    log = bench.broker.broker.replicas.logs.require(TopicPartition(topic, partition))
    return log.log_start_offset


def require_as_told(row: Row) -> None:
    """The rules that hold for every row."""
    if row.site.file.endswith(".staged"):
        assert row.directory == "online", row
    if row.error == "ENOSPC" and not may_fail_the_directory(row.site):
        assert row.directory == "online", row
    if row.phase == "shutdown":
        assert row.client == "stopped", row


def may_fail_the_directory(site: Site) -> bool:
    """Whether a full disk leaves something that only a restart can put right.

    A sync of a log, after which nobody knows what is on disk, and the renames of a clean's result
    once its sources have lost their names.
    """
    is_put_in_place = site.kind == "rename" and site.file.startswith("c-N/")
    is_staged = site.file.endswith((".staged", ".cleaned", ".swap"))
    return site.kind.startswith("sync") or (is_put_in_place and not is_staged)


def table(prepared: Bench, root: Path, phase: str, error: str) -> Iterator[tuple[Row | None, str]]:
    """Each row, or what does not hold."""
    for number, site in enumerate(sites_of(prepared, root / "sites", phase)):
        where = root / f"{number}"
        try:
            yield fail(prepared, where, phase, site, error), ""
        except AssertionError as wrong:
            yield None, f"{phase} | {site.kind} {site.file} | {error}: {wrong}"
        shutil.rmtree(where)


@pytest.mark.nightly
@pytest.mark.parametrize("error", list(ERRORS))
@pytest.mark.parametrize("phase", [*PHASES, *AROUND])
def test_every_operation_that_fails(
    prepared: Bench, tmp_path: Path, phase: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    with capsys.disabled():
        for row, reason in table(prepared, tmp_path, phase, error):
            print(f"\n{row or reason}", end="", flush=True)
            wrong += [reason] if reason else []
    assert not wrong, "\n".join(wrong)


SOME = [
    ("append", Site("write", "t-N/N.log"), "ENOSPC"),
    ("append", Site("write", "t-N/N.log"), "EIO"),
    ("roll", Site("create", "c-N/N.log"), "EACCES"),
    ("group offsets", Site("write", "__consumer_offsets-N/N.log"), "ENOSPC"),
    ("metadata log", Site("write", "__cluster_metadata-N/N.log"), "ENOSPC"),
    ("live cleaning", Site("rename", "c-N/N.manifest.*.staged"), "ENOSPC"),
    ("live cleaning", Site("create", "c-N/*.announcing.staged"), "EIO"),
    ("live cleaning", Site("write", "c-N/N.log.*.staged"), "EACCES"),
    ("live cleaning", Site("create", "c-N/cordwood.wanted.*.staged"), "ENOSPC"),
    ("live cleaning", Site("rename", "c-N/N.log.swap"), "ENOSPC"),
    ("live cleaning", Site("create", "data/cleaner-offset-checkpoint.tmp"), "ENOSPC"),
    ("shutdown", Site("write", "data/recovery-point-offset-checkpoint.tmp"), "ENOSPC"),
    ("start", Site("remove", "data/.kafka_cleanshutdown"), "EIO"),
]


@pytest.mark.parametrize(("phase", "site", "error"), SOME, ids=lambda it: str(it)[:60])
def test_an_operation_that_fails(
    prepared: Bench, tmp_path: Path, phase: str, site: Site, error: str
) -> None:
    row = fail(prepared, tmp_path, phase, site, error)
    assert row.failed, "the operation was not done: name it as it is now"
    logging.getLogger(__name__).info("%s", row)
