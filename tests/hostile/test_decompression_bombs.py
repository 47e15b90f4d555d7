"""One record of many zeros, in each codec, on every way that decompresses it: memory and result.

Each way is gone twice in a process of its own, with a small record and with the bomb; what the
second takes more at its peak is the bomb's. Beside the bomb is a sound log, which is worked on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.compression import Codec
from cordwood.format.record_batch import RecordBatch, parse_batch
from support.bombs import body_bytes, bomb
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

MIB = 1 << 20
COMPRESSED = [codec for codec in Codec if codec]
#: What a way may take beside the bound: buffers of blocks, and of the codecs.
_BESIDE_BYTES = 48 * MIB
#: Ways of programs that do not know the bound, and how often the record is in memory on them.
_UNBOUNDED = {"verify": 1.5, "dump": 3.5}

WAYS = ("append", "look up", "clean", "estimate", "erase", *_UNBOUNDED)

_CHILD = """
import json, re, sys
from pathlib import Path

from cordwood.cleanup.estimate.estimate import estimate_compaction
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import CordwoodError
from cordwood.storage.log.log_reader import Isolation
from cordwood.surfaces.cli.entry import run
from support.bombs import KEY
from support.erasing import erase_here
from support.in_process_engine import clean_in_process
from support.log_under_test import new_log

way, bound, now_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    max_message_bytes=100 << 20,
    max_decompressed_message_bytes=bound,
    message_timestamp_before_max_ms=(1 << 63) - 1,
)
configs = {"bomb": config, "sound": config}

def peak():
    # ru_maxrss would begin with the peak of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def text_of(call):
    try:
        return str(call())
    except CordwoodError as error:
        return f"{type(error).__name__}: {error}"

def append(root):
    log = new_log(root, name="new-0", **{
        name: getattr(config, name) for name in LogConfig.__dataclass_fields__
    })
    batch = root.with_name(root.name + ".batch").read_bytes()
    return text_of(lambda: log.append_as_leader(batch).last_offset)

def look_up(root):
    log = new_log(root, name="bomb-0", **{
        name: getattr(config, name) for name in LogConfig.__dataclass_fields__
    })
    return text_of(lambda: log.reader.list_offset(now_ms - 1000, isolation=Isolation.LOG_END))

def clean(root, **options):
    report = clean_in_process(root, configs, now_ms=now_ms, force=True, **options)
    return {p.topic: [str(p.status), p.reason] for p in report.partitions}

def estimate(root):
    found = {}
    def noted(compaction, **options):
        try:
            return estimate_compaction(compaction, **options)
        except CordwoodError as error:
            found[compaction.name] = str(error)
            raise
    clean(root, dry_run=True, estimator=noted)
    return found

def erase(root):
    def failed():
        return dict(
            erase_here(root, "bomb", keys=[KEY], configs=configs, now_ms=now_ms).failed
        )
    return text_of(failed)

def command(*arguments):
    return [run(list(arguments))]

def verify(root):
    return command("verify", str(root))

def dump(root):
    file = root / "bomb-0" / f"{0:020d}.log"
    return command("dump-log", "--deep-iteration", "--files", str(file))

ways = {
    "append": append, "look up": look_up, "clean": clean, "estimate": estimate, "erase": erase,
    "verify": verify, "dump": dump,
}
found = []
for root in map(Path, sys.argv[4:]):
    found.append({"result": ways[way](root), "peak_bytes": peak()})
print(json.dumps(found))
"""


def write(root: Path, codec: Codec, zeros: int) -> Path:
    """A log with the record, a sound one beside it, and the batch of it alone."""
    data = bomb(codec, zeros, offset=1, timestamp=NOW_MS - 1000)
    logs = []
    for name in ("bomb-0", "sound-0"):
        log = LogBuilder(name)
        log.batch([(b"k", b"old")], codec=codec, timestamp=NOW_MS - 2000)
        if name == "bomb-0":
            log.append(data)
        log.batch([(b"k", b"new")], codec=codec, timestamp=NOW_MS - 3000)
        log.roll()
        log.put(b"end", b"v", timestamp=NOW_MS - 500)
        logs.append(log)
    write_log_dir(root, logs)
    root.with_name(root.name + ".batch").write_bytes(bomb(codec, zeros, timestamp=NOW_MS - 1000))
    return root


def gone(way: str, bound: int, *roots: Path) -> list[dict[str, Any]]:
    """The results of a way with the logs of each directory, and the peaks so far."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, way, str(bound), str(NOW_MS), *map(str, roots)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("zeros", "bound"),
    [
        pytest.param(64 * MIB, MIB, id="64 MiB"),
        pytest.param(1024 * MIB, 16 * MIB, id="1 GiB", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.config_name)
def test_a_record_over_the_bound_takes_little_and_stops_nothing_else(
    tmp_path: Path, codec: Codec, zeros: int, bound: int, way: str
) -> None:
    small = write(tmp_path / "small", codec, 1000)
    large = write(tmp_path / "large", codec, zeros)
    file = large / "bomb-0" / f"{0:020d}.log"
    before = file.read_bytes()
    first, second = gone(way, bound, small, large)
    taken, result = second["peak_bytes"] - first["peak_bytes"], second["result"]
    # A row of a table, for the one who runs it with -s.
    print(f"{codec.config_name:>6} {zeros >> 20:5} MiB {way:>8} {taken / MIB:8.1f} MiB {result}")
    assert file.read_bytes() == before
    if way in _UNBOUNDED:
        assert taken < _UNBOUNDED[way] * zeros + _BESIDE_BYTES
        assert result == [0]
        return
    assert taken < 2 * bound + _BESIDE_BYTES
    declared = (
        f"Invalid record size: {body_bytes(zeros)} exceeds the configured maximum record size of "
        f"{bound}"
    )
    if way == "append":
        assert result == f"InvalidRecordError: {declared}."
    elif way == "clean":
        assert first["result"] == {"bomb": ["cleaned", ""], "sound": ["cleaned", ""]}
        status, reason = result.pop("bomb")
        assert result == {"sound": ["cleaned", ""]}
        assert status == "failed"
        assert reason.endswith("Raise max.decompressed.message.bytes of the topic")
    else:
        text = json.dumps(result)
        assert declared in text or f"the {bound} bytes of max.decompressed.message.bytes" in text


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.config_name)
def test_what_is_made_here_is_what_kafka_would_read(codec: Codec) -> None:
    for zeros in (200_000, 1 << 20):
        batch = parse_batch(bomb(codec, zeros, offset=7, timestamp=3))
        assert isinstance(batch, RecordBatch)
        batch.require_valid()
        (record,) = batch.records()
        assert (record.offset, record.timestamp, record.key) == (7, 3, b"bomb")
        assert record.value == bytes(zeros)
