"""A replacement for the process that runs Spark: the same commands and answers, without Spark.

`STAND_IN` in the environment says how it behaves: `unavailable`, `dies at start`, `deaf` (it takes
compactions, and never does anything), or as the real one does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

from cordwood.cleanup.access.commit import IndexStats
from cordwood.cleanup.engine import whole
from cordwood.cleanup.engine.child_session import die_with, end_session, ignore_stop_signals
from cordwood.cleanup.engine.progress_file import ProgressFile
from cordwood.cleanup.engine.spark.child import Line, RemoteOwner
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.testing.in_process_engine import clean_compiled


def _execute(line: Line, message: dict[str, Any], fs: FileSystem) -> None:
    rounds = [LogCompaction.from_json(value) for value in message["rounds"]]
    owner = RemoteOwner(line, message["run"], rounds)
    for compaction in rounds:
        progress = ProgressFile(
            compaction.directory,
            compaction.attempt.token,
            "clean",
            bytes_per_s=compaction.attempt.limits.throttle_bytes,
            fs=fs,
        )
        try:
            found = clean_compiled(compaction, [whole.Lane(progress, progress.wrote)], fs=fs)
        except (CordwoodError, OSError) as error:
            owner.fail(compaction.name, error)
        else:
            utilization = found.keys * 64 / message["table_bytes"]
            owner.indexed(
                compaction.name,
                IndexStats(
                    bytes_read=compaction.size_bytes,
                    elapsed_s=found.elapsed_s,
                    keys=found.keys,
                    utilization=utilization,
                ),
            )
        finally:
            progress.close()
    line.say(of="ended", run=message["run"], gave_up=False)


def main(fs: FileSystem = OS) -> None:
    """Behaves as `STAND_IN` says; the logs are in `fs`."""
    ignore_stop_signals()
    die_with(int(sys.argv[2]))
    line = Line(int(sys.argv[1]))
    mode = os.environ.get("STAND_IN", "")
    line.hear()
    if mode == "unavailable":
        line.say(of="unavailable", reason="there is no Java")
        return
    if mode == "dies at start":
        sys.exit("a bad start")
    machine = subprocess.Popen(["sleep", "600"])
    line.say(of="ready", machine=machine.pid)
    while (message := line.hear()) is not None and message["do"] == "run":
        if mode != "deaf":
            threading.Thread(target=_execute, args=(line, message, fs), daemon=True).start()
    end_session(os.getsid(0), sparing=os.getpid())


if __name__ == "__main__":
    main()
