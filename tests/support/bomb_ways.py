"""Ways on which the records of a batch are decompressed, each in a process of its own.

Run as `python -m support.bomb_ways WAY BOUND NOW_MS DIRECTORY...`. For each directory it prints the
result, and how much memory the way took at its peak, as JSON in the last line. A directory D has
partitions 0 and 1 of `TOPIC`, and a metadata log with the topic's settings; D.batch and D.sound
have a batch each.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cordwood.cleanup.estimate.estimate import estimate_compaction
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import CordwoodError
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.surfaces.cli.entry import run
from support.bombs import KEY
from support.in_process_engine import clean_in_process
from support.log_under_test import new_log

TOPIC = "t"
BOMB, SOUND = f"{TOPIC}-0", f"{TOPIC}-1"


def settings(bound: int) -> dict[str, str]:
    """The settings of the topic."""
    return {
        "cleanup.policy": "compact",
        "max.message.bytes": str(100 << 20),
        "max.decompressed.message.bytes": str(bound),
        "message.timestamp.before.max.ms": str((1 << 63) - 1),
    }


def gone(way: str, bound: int, now_ms: int, *roots: Path) -> list[dict[str, Any]]:
    """Goes a way with each directory: its `result`, and the `taken_bytes` at the peak."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "support.bomb_ways"),
            *(way, str(bound), str(now_ms), *map(str, roots)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


class _Ways:
    def __init__(self, bound: int, now_ms: int) -> None:
        self._bound = bound
        self._now_ms = now_ms
        self._config = LogConfig(
            cleanup_policy=frozenset({"compact"}),
            max_message_bytes=100 << 20,
            max_decompressed_message_bytes=bound,
            message_timestamp_before_max_ms=(1 << 63) - 1,
        )
        self.by_name: Mapping[str, Callable[[Path], object]] = {
            "produce": self.produce,
            "look up": self.look_up,
            "clean": self.clean,
            "estimate": self.estimate,
            "erase": lambda root: _command(
                *("erase", root, "--topic", TOPIC, "--key", KEY.decode(), "--json")
            ),
            "verify": lambda root: _command("verify", root, "--json"),
            "dump-log": self.dump_log,
            "explain": lambda root: self.question("explain", root, "--key", "k"),
            "explain sound": lambda root: self.question(
                "explain", root, "--record", f"{TOPIC}:1:0"
            ),
            "explain due": lambda root: self.question("explain", root, *_TTL),
            "advise due": lambda root: self.question("advise", root, *_TTL),
            "whatif": lambda root: self.question(
                "whatif", root, "--set", f"{TOPIC}:delete.retention.ms=1", "--estimate"
            ),
        }

    def _log_in(self, root: Path, name: str) -> PartitionLog:
        fields = {each: getattr(self._config, each) for each in LogConfig.__dataclass_fields__}
        return new_log(root, name=name, **fields)

    def produce(self, root: Path) -> list[str]:
        """The offset of the batch beside the directory or its error, and that of a sound one."""
        log = self._log_in(root.with_name(root.name + ".new"), BOMB)
        batches = (root.with_name(root.name + each).read_bytes() for each in (".batch", ".sound"))
        return [_text_of(partial(_appended, log, batch)) for batch in batches]

    def look_up(self, root: Path) -> list[str]:
        """Looks up the time of the record, and an earlier one."""
        log = self._log_in(root, BOMB)
        return [
            _text_of(partial(log.reader.list_offset, time_ms, isolation=Isolation.LOG_END))
            for time_ms in (self._now_ms - 1000, self._now_ms - 2000)
        ]

    def clean(self, root: Path, **options: Any) -> dict[str, list[str]]:
        """The status of each partition, and the reason."""
        configs = {TOPIC: self._config}
        report = clean_in_process(root, configs, now_ms=self._now_ms, force=True, **options)
        return {
            f"{each.topic}-{each.partition}": [str(each.status), each.reason]
            for each in report.partitions
            if each.topic == TOPIC
        }

    def estimate(self, root: Path) -> dict[str, str]:
        """The estimates of a dry run, or the errors."""
        found = {}

        def noted(compaction: Any, **options: Any) -> Any:
            try:
                estimate = estimate_compaction(compaction, **options)
            except CordwoodError as error:
                found[compaction.name] = str(error)
                raise
            found[compaction.name] = "estimated"
            return estimate

        self.clean(root, dry_run=True, estimator=noted)
        return found

    def dump_log(self, root: Path) -> dict[str, Any]:
        """Prints the first segment of both partitions."""
        files = ",".join(str(root / name / f"{0:020d}.log") for name in (SOUND, BOMB))
        bound = ("--max-decompressed-message-bytes", self._bound)
        return _command("dump-log", "--print-data-log", *bound, "--files", files)

    def question(self, name: str, root: Path, *arguments: object) -> dict[str, Any]:
        """Asks a question about the directory."""
        topic = () if "--record" in arguments or name == "whatif" else ("--topic", TOPIC)
        return _command(name, root, *topic, *arguments, "--now", self._now_ms, "--json")


#: With it, all records of the topic are read to know when something of it is due.
_TTL = ("--set", f"{TOPIC}:cordwood.record.ttl.header=ttl")


def _appended(log: PartitionLog, batch: bytes) -> int:
    return log.append_as_leader(batch).last_offset


def _text_of(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except CordwoodError as error:
        return f"{type(error).__name__}: {error}"


def _command(*arguments: object) -> dict[str, Any]:
    """The exit code of a command, and what it printed."""
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            code = run([str(each) for each in arguments])
            sys.stderr.flush()
        finally:
            for descriptor, old in enumerate(kept, 1):
                os.dup2(old, descriptor)
                os.close(old)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return {"code": code, "out": texts[0], "err": texts[1]}


def _status_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None, status
    return int(found[1]) * 1024


def _measured(way: Callable[[], object]) -> dict[str, Any]:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what is now
    before = _status_bytes("VmRSS")
    result = way()
    return {"result": result, "taken_bytes": _status_bytes("VmHWM") - before}


def main() -> None:
    """Goes the way with each directory."""
    name, bound, now_ms, *roots = sys.argv[1:]
    way = _Ways(int(bound), int(now_ms)).by_name[name]
    found = [_measured(partial(way, Path(root))) for root in roots]
    print(json.dumps(found))  # noqa: T201  # the answer


if __name__ == "__main__":
    main()
