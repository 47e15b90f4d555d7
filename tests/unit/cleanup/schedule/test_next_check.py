"""The plan of the next check is what that check then does to running logs, with every rule."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.cleanup.rules.group_guard import Consumed
from cordwood.cleanup.schedule.next_check import plan_next_check
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.log_config import LogConfig
from cordwood.storage.broker_trash import BrokerTrash
from support.running_logs import RunningLogs
from support.small_disk import SmallDisk

NAMES = ("a-0", "a-1", "b-0", "b-1", "c-0")
DISK_BYTES = 60_000


def random_config(rng: random.Random) -> LogConfig:
    return LogConfig(
        segment_bytes=1_000,
        segment_ms=rng.choice([50, 1 << 40]),
        retention_ms=rng.choice([-1, 150]),
        retention_bytes=rng.choice([-1, -1, 4_000]),
        cordwood_retention_topic_bytes=rng.choice([-1, 2_000, 6_000]),
        cordwood_segment_roll_idle=rng.random() < 0.5,
        cordwood_retention_groups=rng.choice([(), (), ("g",)]),
        file_delete_delay_ms=rng.choice([0, 60_000]),
    )


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="few"),
        pytest.param(range(100, 200), id="many", marks=pytest.mark.nightly),
    ],
)
def test_what_is_planned_for_the_next_check_is_what_it_does(tmp_path: Path, seeds: range) -> None:
    rules = set()
    for seed in seeds:
        rng = random.Random(seed)
        root = tmp_path / str(seed)
        logs = RunningLogs(
            root,
            {topic: random_config(rng) for topic in "abc"},
            directories=2,
            fs=SmallDisk(root, DISK_BYTES),
            cordwood_log_dir_retention_bytes=rng.choice([-1, 9_000]),
            cordwood_log_dir_free_bytes_min=rng.choice([-1, DISK_BYTES - 12_000]),
        )
        logs.cleaning.groups.source = lambda wanted: {
            partition: Consumed(committed={"g": partition.partition * 10}) for partition in wanted
        }
        for number, name in enumerate(NAMES):
            logs.log(name, directory=number % 2)
        for _ in range(120):
            log = logs.log(rng.choice(NAMES))
            ahead_ms = 1_000 if seed % 2 == 0 and rng.random() < 0.05 else 0
            logs.put(
                log,
                (b"k", rng.randbytes(rng.randrange(50, 400))),
                timestamp=logs.clock.now_ms() + ahead_ms,
            )
            logs.clock.advance(rng.randrange(5))
        chosen = [logs.log(name) for name in NAMES]
        now_ms = logs.clock.now_ms()
        before = [list(log.segments) for log in chosen]
        planned = plan_next_check(logs.cleaning, chosen, now_ms=now_ms)
        assert [list(log.segments) for log in chosen] == before
        (some, *_) = chosen
        alone = plan_next_check(logs.cleaning, [some], now_ms=now_ms)
        assert alone.keys() == {some.topic_partition}
        assert alone[some.topic_partition][1].plan == planned[some.topic_partition][1].plan
        retention_pass(logs.cleaning)
        for log in chosen:
            shared, check = planned[log.topic_partition]
            assert shared.view.topic_partition == log.topic_partition
            after = [(each.base_offset, each.size_bytes) for each in log.segments]
            assert [(each.base_offset, each.size_bytes) for each in check.after.segments] == after
            assert check.after.log_start_offset == log.log_start_offset, seed
            rules |= {each.rule for each in check.plan.expired}
            rules |= {"roll"} if check.before is not shared.view else set()
        assert retention_pass(logs.cleaning) == 0, f"{seed}: a second check finds more"
    assert rules >= {"time", "topic size", "log directory size", "free space", "roll"}


def test_a_trash_counts_as_free_space_and_is_not_emptied_for_a_question(tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes=2_000, retention_ms=-1, file_delete_delay_ms=0, cordwood_trash_ms=1 << 40
    )
    logs = RunningLogs(
        tmp_path,
        {"t": config},
        fs=SmallDisk(tmp_path, DISK_BYTES),
        cordwood_log_dir_free_bytes_min=DISK_BYTES - 20_000,
    )
    trash = BrokerTrash(tmp_path / "trash", logs.directories, fs=logs.manager.context.fs)
    logs.manager.context.trash = trash
    log = logs.log("t-0")

    def put(count: int) -> None:
        for _ in range(count):
            logs.put(log, (b"k", b"v" * 400))
            logs.clock.advance(1)

    def planned() -> int:
        plans = plan_next_check(logs.cleaning, [log], now_ms=logs.clock.now_ms())
        return len(plans[log.topic_partition][1].plan.expired)

    put(60)
    gone = planned()
    assert retention_pass(logs.cleaning) == gone > 0
    logs.manager.context.scheduler.run_due()
    in_trash = trash.size_bytes
    assert in_trash > 0
    assert planned() == 0, "the trash would be emptied first"
    assert trash.size_bytes == in_trash
    assert retention_pass(logs.cleaning) == 0
    put(10)
    gone = planned()
    assert retention_pass(logs.cleaning) == gone > 0
    trash.close()
