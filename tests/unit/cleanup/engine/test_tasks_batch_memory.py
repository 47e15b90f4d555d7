"""Memory of one batch: bounded, whatever it expands to, with an error where it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.engine.spark.task_limits import TaskLimits
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

MIB = 1 << 20
LIMIT_BYTES = 40 * MIB

_CLEAN = """
import json, re, sys
from contextlib import contextmanager
from pathlib import Path
from cordwood.configs.log_config import LogConfig
from support.in_process_engine import CompiledEngine, clean_in_process

limit, now_ms = int(sys.argv[1]), int(sys.argv[2])

@contextmanager
def engine():
    yield CompiledEngine(batch_bytes_max=limit)

def peak_bytes():
    # ru_maxrss would begin with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024

found = []
for root in map(Path, sys.argv[3:]):
    names = [path.name.rpartition("-")[0] for path in root.iterdir() if path.is_dir()]
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    report = clean_in_process(
        root, dict.fromkeys(names, config), now_ms=now_ms, force=True, engine=engine
    )
    found.append({
        "peak_bytes": peak_bytes(),
        "partitions": {p.topic: [str(p.status), p.reason] for p in report.partitions},
    })
print(json.dumps(found))
"""


def log_of(codec: Codec, mebibytes: int) -> LogBuilder:
    """A small batch, and one of that many records of a MiB each, of which a key has two."""
    log = LogBuilder(f"{codec.config_name}-0")
    log.batch([(b"k", b"v"), (b"old", b"v")], codec=codec)
    records = [
        Record(2 + number, NOW_MS - 1000, b"%d" % (number // 2), bytes(MIB - 100))
        for number in range(mebibytes)
    ]
    log.append(build_batch(records, base_offset=2, codec=codec))
    log.roll()
    log.put(b"end", b"v")
    return log


def clean(limit_bytes: int, *roots: Path) -> list[dict[str, Any]]:
    """Cleans one directory after the other, in one process; how each came out, and the peak."""
    done = subprocess.run(
        [sys.executable, "-c", _CLEAN, str(limit_bytes), str(NOW_MS), *map(str, roots)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def sizes(root: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_size for path in sorted(root.glob(f"*/{0:020d}.log"))}


@pytest.mark.parametrize("codec", Codec)
def test_batch_takes_no_more_memory_than_it_may_or_is_refused(tmp_path: Path, codec: Codec) -> None:
    name = codec.config_name
    small = write_log_dir(tmp_path / "small", [log_of(codec, 1)])
    large = write_log_dir(tmp_path / "large", [log_of(codec, 36)])
    huge = write_log_dir(tmp_path / "huge", [log_of(codec, 96)])
    before = {root: sizes(root) for root in (large, huge)}
    first, second, third = clean(LIMIT_BYTES, small, large, huge)

    assert first["partitions"][name][0] == second["partitions"][name][0] == "cleaned"
    assert sizes(large)[name + "-0"] < before[large][name + "-0"]
    status, reason = third["partitions"][name]
    assert status == "failed"
    assert f"huge/{name}-0/{0:020d}.log: a batch larger than the {LIMIT_BYTES} bytes" in reason
    assert "--memory" in reason
    position = len(log_of(codec, 1).segments[0].batches[0])
    assert reason.endswith(f" at byte {position}")
    assert sizes(huge) == before[huge]

    # A task reads into one buffer, and rewrites from one to another.
    for found in (second, third):
        assert found["peak_bytes"] - first["peak_bytes"] < 2 * LIMIT_BYTES + 24 * MIB


@pytest.mark.parametrize("gibibytes", [1, 2, 8])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_table_and_batch_of_a_task_fit_its_share_of_the_memory(gibibytes: int, slots: int) -> None:
    share = (gibibytes << 30) // (slots + 1) - 220 * MIB
    limits = TaskLimits.within(gibibytes << 30, slots)
    assert limits.batch_bytes_max is not None
    if share > 64 * MIB:
        assert 2 * limits.batch_bytes_max <= max(share, 32 * MIB)
    assert limits.batch_bytes_max >= 16 * MIB


@pytest.mark.nightly
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_batch_of_a_gibibyte_in_a_megabyte_takes_no_more_memory_than_it_may(
    tmp_path: Path, codec: Codec
) -> None:
    small = write_log_dir(tmp_path / "small", [log_of(codec, 1)])
    huge = write_log_dir(tmp_path / "huge", [log_of(codec, 1024)])
    assert sizes(huge)[f"{codec.config_name}-0"] < 2 * MIB
    first, second = clean(57 * MIB, small, huge)
    assert second["partitions"][codec.config_name][0] == "failed"
    assert second["peak_bytes"] - first["peak_bytes"] < 2 * 57 * MIB + 24 * MIB
