"""The tests' own engine ends its task whenever a signal comes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cordwood.model.config import LogConfig
from cordwood.storage.replace import STAGED_SUFFIX
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=24)


def test_a_signal_that_is_handled_while_the_task_starts_ends_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder("t-0")
    log.put(b"a", b"1")
    log.put(b"a", b"2")
    log.roll()
    log.put(b"a", b"end")
    root = write_log_dir(tmp_path / "logs", [log])
    start, tasks = threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("task of "):
            tasks.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True)
    assert [task.is_alive() for task in tasks] == [False]
    assert not list(root.rglob(f"*{STAGED_SUFFIX}"))
