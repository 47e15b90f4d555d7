"""SIGKILL at every change to a file of an erasure in running logs; the next run completes it.

At every step either the old segment is there or the new one, and the erasure is known as begun.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from support.erasing import KEY, VALUE, erasable_log, kept_records, sweep
from support.erasing_online import erase_running_here, running_logs
from support.killing import OWNER, TASK, KillableCleanings
from support.log_builder import write_log_dir

CONFIGS = {"kept": LogConfig(retention_ms=-1, index_interval_bytes=100)}


@pytest.mark.parametrize(
    ("side", "every"),
    [
        (OWNER, 23),
        (TASK, 23),
        pytest.param(OWNER, 1, marks=pytest.mark.nightly),
        pytest.param(TASK, 1, marks=pytest.mark.nightly),
    ],
)
def test_killed_at_a_step_the_log_is_whole_and_the_next_run_completes_it(
    tmp_path: Path, side: str, every: int
) -> None:
    before = tmp_path / "before"
    write_log_dir(before / "logs-0", [erasable_log("kept-0", codecs=(Codec.ZSTD, Codec.NONE))])
    kept = kept_records(before / "logs-0" / "kept-0")
    with KillableCleanings() as killable:
        first = shutil.copytree(before, tmp_path / "first")
        killable.erase(first, "kept", CONFIGS, kill_at=None, is_online=True)
        whole = shutil.copytree(before, tmp_path / "whole")
        steps = killable.erase(whole, "kept", CONFIGS, is_online=True).steps
        assert steps[side] > 30
        for step in range(1, steps[side] + 1, every):
            work = shutil.copytree(before, tmp_path / f"{side}-{step}")
            ended = killable.erase(work, "kept", CONFIGS, side=side, kill_at=step, is_online=True)
            assert ended.killed, step
            partition = work / "logs-0" / "kept-0"
            with running_logs(work, CONFIGS) as logs:
                assert kept_records(partition) == kept, f"step {step} of the {side}"
                result = erase_running_here(logs, "kept")
                assert result.failed == {}, step
                assert sweep(work, KEY, VALUE) == [], step
            assert kept_records(partition) == kept, step
            shutil.rmtree(work)
