"""The process that executes compactions for a broker, on a Spark session of its own.

It receives commands, and answers, in lines of JSON over a socket that it inherits. It ends when
the other end is closed, and takes every process of its session along.

Run as `python -m cordwood.cleanup.engine.spark.child SOCKET PARENT LOCK`, by
`cordwood.cleanup.engine.spark_child`; LOCK is that of its run directory.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.announcements import wanted_mark
from cordwood.cleanup.access.commit import IndexStats
from cordwood.cleanup.engine.child_session import die_with, end_session, ignore_stop_signals
from cordwood.cleanup.engine.spark.error_text import text_of
from cordwood.cleanup.plan.compaction_values import Manifest, failure_to_json
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.model.clock import pause
from cordwood.model.errors import CordwoodError, EngineError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import ReadBounds, SegmentSource

_NICE = 10
_LOOK_S = 0.2


class Line:
    """The socket to the parent; answers may come from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._reader = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def say(self, **message: Any) -> None:
        """Sends a message."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._socket.sendall(data)

    def hear(self) -> dict[str, Any] | None:
        """The next message; None when the parent is gone."""
        try:
            line = self._reader.readline()
        except OSError:
            return None
        if not line.endswith(b"\n"):
            return None
        message: dict[str, Any] = json.loads(line)
        return message


class RemoteOwner:
    """An `Owner` in another process; `gave_up` says that Spark left a job undone."""

    def __init__(
        self, line: Line, number: int, compactions: Sequence[LogCompaction], fs: FileSystem = OS
    ) -> None:
        self.gave_up = False
        self._line = line
        self._number = number
        self._fs = fs
        self._marks = {r.name: wanted_mark(Path(r.directory), r.attempt.token) for r in compactions}

    def begin(self, names: Sequence[str], phase: str, total: int, done: int) -> None:
        """Sends the phase to the owner's process."""
        self._line.say(of="phase", run=self._number, names=list(names), phase=phase)

    def skip(self, name: str, manifests: Mapping[int, Manifest]) -> None:
        """Sends the manifests of skipped groups."""
        found = {str(number): manifest.to_json() for number, manifest in manifests.items()}
        self._line.say(of="skip", run=self._number, name=name, manifests=found)

    def indexed(self, name: str, index: IndexStats) -> None:
        """Sends the statistics of the index."""
        self._line.say(of="indexed", run=self._number, name=name, index=asdict(index))

    def fail(self, name: str, error: Exception) -> None:
        """Sends the error, and notes whether Spark has given up."""
        from cordwood.cleanup.engine.spark.job import SparkGaveUpError  # noqa: PLC0415  # loaded by now

        self.gave_up |= isinstance(error, SparkGaveUpError)
        self._line.say(of="failed", run=self._number, name=name, failure=failure_to_json(error))

    def is_wanted(self, name: str) -> bool:
        """Whether the compaction's mark exists."""
        return self._fs.exists(self._marks[name])


def _execute(line: Line, spark: Any, message: dict[str, Any], fs: FileSystem) -> None:
    number = message["run"]
    compactions = [LogCompaction.from_json(value) for value in message["rounds"]]
    owner = RemoteOwner(line, number, compactions, fs)
    try:
        spark.execute(compactions, owner)
    except Exception as error:
        for compaction in compactions:
            owner.fail(compaction.name, EngineError(f"{type(error).__name__}: {text_of(error)}"))
        owner.gave_up = True
    line.say(of="ended", run=number, gave_up=owner.gave_up)


def _search(line: Line, runner: Any, message: dict[str, Any]) -> None:
    """Answers a search of an erasure by SQL expressions."""
    from cordwood.cleanup.engine.search.condition import parse_condition  # noqa: PLC0415  # loaded by now
    from cordwood.cleanup.engine.search.search import Searched  # noqa: PLC0415
    from cordwood.cleanup.engine.spark.erase import WhereSearcher  # noqa: PLC0415

    number = message["run"]
    segments = [
        Searched(
            partition=TopicPartition.parse(each["partition"]),
            source=SegmentSource(**each["source"]),
            bounds=ReadBounds(**each["bounds"]),
        )
        for each in message["segments"]
    ]
    try:
        conditions = [parse_condition(each) for each in message["expressions"]]
        searcher = WhereSearcher(runner.session(), conditions, slots=runner.slots)
        found = searcher.find(segments)
    except Exception as error:
        known = isinstance(error, (CordwoodError, OSError))
        failure = error if known else EngineError(f"{type(error).__name__}: {text_of(error)}")
        line.say(of="not found", run=number, failure=failure_to_json(failure))
    else:
        line.say(of="found", run=number, found=[each.to_json() for each in found])


def _watch_machine(line: Line, process: Any) -> None:
    """Ends this process when its virtual machine is gone."""
    while process.poll() is None:
        pause(_LOOK_S)
    line.say(of="broken", reason=f"its virtual machine ended with {process.returncode}")


def _serve(line: Line, orders: dict[str, Any], lock: int, fs: FileSystem) -> None:
    from cordwood.cleanup.engine.spark.session import starting_runner  # noqa: PLC0415

    cores = orders["cores"]
    with starting_runner(
        f"local[{cores}]", jvm_heap=orders["heap"], leads_session=True, locks=[lock]
    ) as started:
        from cordwood.cleanup.engine.spark.job import SparkCompactions  # noqa: PLC0415
        from cordwood.cleanup.engine.spark.runner import RddRunner  # noqa: PLC0415
        from cordwood.cleanup.engine.spark.task_limits import TaskLimits  # noqa: PLC0415

        runner = started()
        assert isinstance(runner, RddRunner), "the master is local"
        machine = runner.context._gateway.proc
        threading.Thread(target=_watch_machine, args=(line, machine), daemon=True).start()
        runner.run(1, lambda _: [])  # the first job takes a second longer than others
        line.say(of="ready", machine=machine.pid)
        while (message := line.hear()) is not None and message["do"] in {"run", "search"}:
            if message["do"] == "search":
                searching = (line, runner, message)
                threading.Thread(target=_search, args=searching, daemon=True).start()
                continue
            # Each compaction has a slot of Spark's to itself, and so the whole table of keys.
            limits = TaskLimits.of_tables(message["table_bytes"])
            spark = SparkCompactions(runner, slots=1, limits=limits, fs=fs)
            work = (line, spark, message, fs)
            threading.Thread(target=_execute, args=work, daemon=True).start()


def main(fs: FileSystem = OS) -> None:
    """Serves until it is stopped, or its parent has ended; the logs are in `fs`."""
    descriptor, parent, lock = map(int, sys.argv[1:4])
    ignore_stop_signals()
    die_with(parent)
    os.nice(_NICE)
    os.set_inheritable(lock, False)
    line = Line(descriptor)
    orders = line.hear()
    if orders is not None:
        try:
            _serve(line, orders, lock, fs)
        except EngineError as error:
            line.say(of="unavailable", reason=str(error))
        except ImportError as error:
            line.say(of="unavailable", reason=f"Spark cannot be imported: {error}")
    end_session(os.getsid(0), sparing=os.getpid())


if __name__ == "__main__":
    main()
