"""Bounds of memory and disk of a clean, measured on logs made for it.

The nightly forms have the full sizes; the others show the same on small logs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
NOW_MS = 1_795_241_202_665
MIB = 1 << 20

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def loggen() -> Iterator[ModuleType]:
    """The benchmarks' generator of large logs."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("loggen", ROOT / "benchmarks" / "loggen.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["loggen"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def write_log(
    loggen: ModuleType,
    directory: Path,
    *,
    keys: np.ndarray[Any, Any],
    segment_bytes: int,
    value_bytes: int,
) -> None:
    directory.mkdir(parents=True)
    shape = loggen.Shape(
        records=len(keys), keys=len(keys), value_bytes=value_bytes, segment_bytes=segment_bytes
    )
    writer = loggen.PartitionWriter(directory, shape, first_ms=NOW_MS - len(keys) - 60_000)
    for start in range(0, len(keys), 1_000_000):
        part = keys[start : start + 1_000_000].astype(np.int64)
        writer.append(part, np.zeros(len(part), dtype=np.bool_))
    writer.roll()
    writer.append(keys[:10].astype(np.int64), np.zeros(10, dtype=np.bool_))
    writer.finish()


def clean(
    log_dir: Path, *options: str, while_running: Callable[[int], None] | None = None
) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON document of `cordwood clean`; `while_running` is given its process id."""
    command = [sys.executable, "-m", "cordwood", "clean", str(log_dir), "--json", *options]
    process = subprocess.Popen(
        [*command, "--now", str(NOW_MS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            assert while_running is not None
            while_running(process.pid)

    watcher = threading.Thread(target=watch) if while_running else None
    if watcher:
        watcher.start()
    try:
        out, err = process.communicate(timeout=1500)
    finally:
        stop.set()
        if watcher:
            watcher.join()
    assert out, err
    document: dict[str, Any] = json.loads(out)
    return process.returncode, document


def used_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def _add_used_bytes(sizes: list[int], directory: Path, _: int) -> None:
    sizes.append(used_bytes(directory))


def python_pss(root: int) -> int:
    """Proportional set size, in bytes, of the Python processes in the tree below `root`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
    total, pending = 0, [root]
    while pending:
        process = pending.pop()
        pending += children.get(process, [])
        try:
            name = Path("/proc", str(process), "comm").read_text().strip()
            rollup = Path("/proc", str(process), "smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        if name != "java" and found:
            total += int(found[1]) * 1024
    return total


@pytest.mark.parametrize(
    ("count", "value_bytes"),
    [
        pytest.param(600_000, 96, id="small"),
        pytest.param(30_000_000, 96, id="30M", marks=pytest.mark.nightly),
    ],
)
def test_one_round_takes_any_number_of_keys_in_bounded_memory(
    tmp_path: Path, loggen: ModuleType, count: int, value_bytes: int
) -> None:
    log = tmp_path / "keys-0"
    write_log(
        loggen,
        log,
        keys=np.arange(count),
        segment_bytes=8 * MIB if count < 1e6 else 100 * MIB,
        value_bytes=value_bytes,
    )
    peak = 0

    def measure(process: int) -> None:
        nonlocal peak
        peak = max(peak, python_pss(process))

    # The small form is given so little memory that its keys spill several times over.
    memory = "256MiB" if count < 1e6 else "1GiB"
    code, document = clean(
        log, "--set", "keys:cleanup.policy=compact", "--memory", memory, while_running=measure
    )
    partition = document["partitions"][0]
    assert (code, partition["status"]) == (0, "cleaned"), partition
    assert partition["cleaner_checkpoint"] == count
    # The ten records of the active segment supersede nothing: they are not in the compaction.
    assert partition["records_after"] == partition["records_before"] == count
    assert document["engine"]["jvm_heap"] == "1g"
    print(f"{count} keys, Python processes {peak / MIB:.0f} MiB PSS, {document['engine']}")
    assert peak < 1 << 30


@pytest.mark.parametrize(
    ("total_mib", "segment_mib"),
    [
        pytest.param(96, 4, id="small"),
        pytest.param(2048, 64, id="2GB", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("strict", [False, True], ids=["default", "max-extra-bytes"])
def test_extra_space_is_bounded_by_the_groups_in_flight(
    tmp_path: Path, loggen: ModuleType, total_mib: int, segment_mib: int, strict: bool
) -> None:
    count = total_mib * MIB // 290
    # Every segment loses a tenth of its records, and nearly all of it has to be written again.
    random = np.random.default_rng(5)
    keys = np.arange(count)
    last = count // 10
    keys[random.choice(count - last, last, replace=False)] = keys[-last:]

    options = ["--set", "space:cleanup.policy=compact", "--master", "local[2]"]
    options += ["--set", f"space:segment.bytes={segment_mib * MIB}"]
    if strict:
        options += ["--max-extra-bytes", f"{segment_mib + 1}M"]
    bound = (2 if strict else 4) * segment_mib * MIB + 2 * MIB
    # A busy machine may show nothing of the rewriting of one log: then another is cleaned.
    for turn in range(5):
        log = tmp_path / f"turn-{turn}" / "space-0"
        write_log(loggen, log, keys=keys, segment_bytes=segment_mib * MIB, value_bytes=250)
        before = used_bytes(log)
        sizes = [before]
        look = partial(_add_used_bytes, sizes, log)
        code, document = clean(log, *options, while_running=look)
        assert code == 0, document["partitions"]
        assert used_bytes(log) < before
        more = max(sizes) - before
        print(f"{total_mib} MiB in segments of {segment_mib}: {more / MIB:.1f} MiB more at most")
        assert more <= bound
        if more > segment_mib * MIB // 2:
            return
    pytest.fail("nothing was seen of the rewriting")


@contextmanager
def small_file_system(tmp_path: Path, mib: int) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(f"no tmpfs can be mounted: {done.stderr}")
        pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(mount: Path, leave_bytes: int) -> None:
    free = os.statvfs(mount).f_bavail * os.statvfs(mount).f_frsize
    with (mount / "filler").open("wb") as file:
        file.write(bytes(free - leave_bytes))


def test_on_a_full_disk_retention_frees_space_and_what_fits_is_compacted(
    tmp_path: Path, loggen: ModuleType
) -> None:
    with small_file_system(tmp_path, 96) as disk:
        data = disk / "data"
        data.mkdir()
        old = np.arange(40_000)
        write_log(loggen, data / "expired-0", keys=old, segment_bytes=2 * MIB, value_bytes=250)
        twice = np.tile(np.arange(20_000), 2)
        write_log(loggen, data / "fits-0", keys=twice, segment_bytes=2 * MIB, value_bytes=250)
        # One segment that keeps nearly everything: it needs as much again as it has.
        once = np.arange(130_000)
        once[0] = once[-1]
        write_log(loggen, data / "large-0", keys=once, segment_bytes=64 * MIB, value_bytes=250)
        large_before = {p.name: p.read_bytes() for p in (data / "large-0").iterdir()}
        fill(disk, 64 * 1024)
        options = ["--set", "expired:retention.ms=1000", "--set", "expired:cleanup.policy=delete"]
        for topic in ("fits", "large"):
            options += ["--set", f"{topic}:cleanup.policy=compact"]
            options += [
                "--set",
                f"{topic}:segment.bytes={64 * MIB if topic == 'large' else 2 * MIB}",
            ]
        code, document = clean(data, *options)
        by_topic = {p["topic"]: p for p in document["partitions"]}
        assert by_topic["expired"]["status"] == "cleaned"
        assert by_topic["expired"]["bytes_after"] < by_topic["expired"]["bytes_before"] // 10
        assert by_topic["fits"]["status"] == "cleaned", by_topic["fits"]
        assert by_topic["fits"]["records_after"] == 20_000
        assert by_topic["large"]["status"] == "no space"
        assert "bytes when rewritten" in by_topic["large"]["reason"]
        assert code == 1
        assert {p.name: p.read_bytes() for p in (data / "large-0").iterdir()} == large_before
