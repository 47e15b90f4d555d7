"""Promises about age and space, kept by the real log under the moved clock, and no looser ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.capture import view_of
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.model.errors import ConfigError
from cordwood.queries.advise.promise import (
    age_promise,
    disk_overhead,
    keep_age,
    keep_size,
    peak_bytes_a_second,
    size_promise,
)
from cordwood.queries.explain.log_facts import Delays
from cordwood.testing.manual_clock import ManualClock
from support.running_logs import RunningLogs, read_records

HOUR_MS = 3_600_000
APPEND_TIME = LogConfig(
    message_timestamp_type="LogAppendTime", cleanup_policy=frozenset({"delete"})
)
CREATE_TIME = replace(APPEND_TIME, message_timestamp_type="CreateTime")


@dataclass
class Simulation:
    """A log and a replica in the lives of their brokers: appends, checks of retention, removals.

    A replica takes a record as soon as it is appended, and its broker checks at other moments.
    """

    root: Path
    config: LogConfig
    delays: Delays
    has_replica: bool = True
    #: When each record was appended, when its last byte was gone, and when it was read last.
    appended_ms: dict[bytes, int] = field(default_factory=dict)
    gone_ms: dict[bytes, int] = field(default_factory=dict)
    read_ms: dict[bytes, int] = field(default_factory=dict)
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        names = ("leader", "replica") if self.has_replica else ("leader",)
        self.brokers = [
            RunningLogs(self.root / name, {"t": self.config}, clock=self.clock) for name in names
        ]
        self.logs = [broker.log("t-0") for broker in self.brokers]
        self.start_ms = self.clock.now_ms()
        self._seen: object = None
        self._readable: set[bytes] = set()

    def run(self, appends: Mapping[int, list[int]], *, first_checks_ms: Sequence[int]) -> None:
        """Lives until every record is gone.

        Args:
            appends: at each ms since the start, how far ahead (ms) the timestamps of records are.
            first_checks_ms: when each broker checks retention first, since the start.
        """
        schedulers = [broker.manager.context.scheduler for broker in self.brokers]
        pending = sorted(appends)
        checks_ms = list(first_checks_ms)
        while pending or self.appended_ms.keys() - self.gone_ms.keys():
            due = [each.next_due_ms() for each in schedulers]
            moments = [*checks_ms, *pending[:1]]
            moments += [max(each - self.start_ms, self.now) for each in due if each is not None]
            moment = min(moments)
            self.clock.advance(moment - self.now)
            if pending and pending[0] == moment:
                for ahead_ms in appends[pending.pop(0)]:
                    self._append(ahead_ms)
            for number, broker in enumerate(self.brokers):
                if moment == checks_ms[number]:
                    retention_pass(broker.cleaning)
                    checks_ms[number] += self.delays.check_ms
            for each in schedulers:
                each.run_due()
            self._look()

    @property
    def now(self) -> int:
        """Ms since the start."""
        return self.clock.now_ms() - self.start_ms

    @property
    def oldest_ms(self) -> int:
        """The largest age that a record had when its last byte went."""
        return max(self.gone_ms[tag] - at for tag, at in self.appended_ms.items())

    @property
    def oldest_read_ms(self) -> int:
        """The largest age at which a consumer read a record."""
        return max(self.read_ms[tag] - at for tag, at in self.appended_ms.items())

    def _append(self, ahead_ms: int) -> None:
        tag = b"<%06d>" % len(self.appended_ms)
        self.appended_ms[tag] = self.now
        leader, *replicas = self.logs
        first = self.brokers[0].put(leader, (None, tag), timestamp=self.clock.now_ms() + ahead_ms)
        for log in replicas:
            log.append_as_follower(leader.reader.read(first, 1 << 20).read())
            log.update_high_watermark(log.log_end_offset)

    def _look(self) -> None:
        names = [sorted(path.name for path in log.directory.iterdir()) for log in self.logs]
        offsets = [(log.log_start_offset, log.log_end_offset) for log in self.logs]
        if (names, offsets) != self._seen:
            self._seen = names, offsets
            self._look_into_files()
        for tag in self._readable:
            self.read_ms[tag] = self.now

    def _look_into_files(self) -> None:
        held = []
        self._readable = set()
        for log in self.logs:
            files = [
                path.read_bytes()
                for path in log.directory.iterdir()
                if path.suffix in {".log", ".deleted"} and ".log" in path.name
            ]
            self.peak_bytes = max(self.peak_bytes, sum(map(len, files)))
            held += files
            self._readable |= {record.value or b"" for record in read_records(log)}
        there = b"".join(held)
        for tag in self.appended_ms.keys() - self.gone_ms.keys():
            if tag not in there:
                self.gone_ms[tag] = self.now


def random_setting(rng: random.Random) -> tuple[LogConfig, Delays]:
    delays = Delays(
        check_ms=rng.choice((60_000, 300_000, HOUR_MS)), file_delete_ms=rng.choice((1, 60_000))
    )
    config = replace(
        rng.choice((APPEND_TIME, CREATE_TIME)),
        segment_ms=rng.choice((HOUR_MS, 24 * HOUR_MS, 168 * HOUR_MS)),
        retention_ms=rng.choice((-1, HOUR_MS, 168 * HOUR_MS)),
        message_timestamp_after_max_ms=rng.choice((0, HOUR_MS)),
        segment_jitter_ms=rng.choice((0, HOUR_MS // 2)),
        segment_bytes=rng.choice((300, 1 << 20)),
        file_delete_delay_ms=delays.file_delete_ms,
    )
    return config, delays


def random_appends(rng: random.Random, config: LogConfig, over_ms: int) -> dict[int, list[int]]:
    ahead = (
        config.message_timestamp_after_max_ms
        if config.message_timestamp_type == "CreateTime"
        else 0
    )
    at = 0
    found: dict[int, list[int]] = {}
    for _ in range(rng.randint(3, 20)):
        at += rng.choice((0, 1, rng.randint(0, over_ms // 5), config.segment_ms))
        late = rng.choice((0, 0, -rng.randint(0, over_ms)))
        found.setdefault(at, []).append(rng.choice((ahead, 0, late)))
    return found


def kept(config: LogConfig, delays: Delays, max_age_ms: int) -> LogConfig:
    """The settings that are advised."""
    promise = keep_age(config, delays, max_age_ms)
    assert promise.bound is not None
    assert promise.bound <= max_age_ms
    changes = dict(promise.changes)
    return replace(
        config,
        segment_ms=changes.get("segment.ms", config.segment_ms),
        retention_ms=changes.get("retention.ms", config.retention_ms),
    )


SEEDS = (*range(12), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(12, 50)))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_gets_older_than_promised_and_looser_settings_break_it(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)  # nothing here is secret
    config, delays = random_setting(rng)
    max_age_ms = rng.choice((6 * HOUR_MS, 24 * HOUR_MS, 168 * HOUR_MS))
    advised = kept(config, delays, max_age_ms)
    bound = age_promise(advised, delays).bound
    assert bound is not None
    life = Simulation(tmp_path / "advised", advised, delays)
    appends = random_appends(rng, advised, max_age_ms)
    life.run(appends, first_checks_ms=[rng.randint(0, delays.check_ms) for _ in range(2)])
    assert life.oldest_ms <= max_age_ms
    assert life.oldest_read_ms <= max_age_ms

    # The worst case reaches the bound, so one more ms of retention breaks the promise.
    ahead_ms = 0
    if advised.message_timestamp_type == "CreateTime":
        ahead_ms = advised.message_timestamp_after_max_ms
    worst = replace(advised, segment_jitter_ms=0, segment_bytes=1 << 20)
    for name, more in (("exact", 0), ("looser", 1)):
        setting = replace(worst, retention_ms=worst.retention_ms + more)
        expires_ms = ahead_ms + setting.segment_ms + setting.retention_ms
        life = Simulation(tmp_path / name, setting, delays, has_replica=False)
        # Appends keep the segment from expiring until it takes no more.
        steps = range(0, setting.segment_ms, setting.retention_ms)
        life.run(
            {at: [ahead_ms] for at in (*steps, setting.segment_ms)},
            first_checks_ms=[expires_ms % delays.check_ms],
        )
        assert life.oldest_ms == bound + more


@pytest.mark.parametrize("seed", range(20))
def test_no_log_takes_more_space_than_promised(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # nothing here is secret
    delays = Delays(check_ms=rng.choice((10_000, 60_000)), file_delete_ms=rng.choice((1, 60_000)))
    config = replace(
        APPEND_TIME,
        retention_bytes=rng.choice((0, 500, 2000)),
        retention_ms=HOUR_MS,
        segment_ms=HOUR_MS,
        segment_bytes=rng.choice((200, 1000)),
        file_delete_delay_ms=delays.file_delete_ms,
    )
    life = Simulation(tmp_path, config, delays, has_replica=False)
    every_ms = rng.choice((1_000, 5_000))
    first_checks_ms = [rng.randint(0, delays.check_ms)]
    life.run({every_ms * n: [0] for n in range(100)}, first_checks_ms=first_checks_ms)
    batch_bytes = 61 + 7 + len(b"<000000>")
    promise = size_promise(config, delays, batch_bytes * 1000 / every_ms)
    assert promise.bound is not None
    assert life.peak_bytes <= promise.bound + batch_bytes


def test_what_no_setting_bounds_is_said() -> None:
    delays = Delays(check_ms=1, file_delete_ms=1)
    for policy, says in (("compact", "newest value"), ("compact,delete", "joins segments")):
        config = replace(APPEND_TIME, cleanup_policy=frozenset(policy.split(",")))
        promise = keep_age(config, delays, HOUR_MS)
        assert promise.bound is None
        assert says in promise.why
        assert not promise.holds_now


def test_a_timestamp_without_a_limit_is_limited() -> None:
    delays = Delays(check_ms=1, file_delete_ms=1)
    config = replace(CREATE_TIME, message_timestamp_after_max_ms=LONG_MAX, retention_ms=HOUR_MS)
    assert "far ahead" in age_promise(config, delays).why
    promise = keep_age(config, delays, 24 * HOUR_MS)
    assert dict(promise.changes)["message.timestamp.after.max.ms"] == HOUR_MS
    assert promise.bound == 24 * HOUR_MS


def test_settings_that_are_tight_enough_stay() -> None:
    config = replace(APPEND_TIME, segment_ms=HOUR_MS, retention_ms=HOUR_MS)
    promise = keep_age(config, Delays(check_ms=1, file_delete_ms=1), 3 * HOUR_MS)
    assert promise.holds_now
    assert promise.bound == 2 * HOUR_MS + 2


def test_an_age_below_the_delays_is_refused() -> None:
    delays = Delays(check_ms=300_000, file_delete_ms=60_000)
    with pytest.raises(ConfigError, match="the delays of the broker alone take 360000"):
        keep_age(APPEND_TIME, delays, 360_001)
    with pytest.raises(ConfigError, match=r"no retention\.bytes keeps"):
        keep_size(APPEND_TIME, delays, 1e6, 1000)


def test_a_size_is_kept_by_the_loosest_retention_bytes() -> None:
    delays = Delays(check_ms=300_000, file_delete_ms=60_000)
    promise = keep_size(APPEND_TIME, delays, 1000, 10 << 30)
    assert promise.bound == 10 << 30
    assert dict(promise.changes) == {"retention.bytes": (10 << 30) - (1 << 30) - 360_000}


def test_the_overhead_of_a_dirty_ratio() -> None:
    assert disk_overhead(replace(APPEND_TIME, min_cleanable_dirty_ratio=0.5)) == 2
    assert disk_overhead(replace(APPEND_TIME, min_cleanable_dirty_ratio=1.0)) is None


def test_the_peak_rate_is_that_of_the_fastest_segment(tmp_path: Path) -> None:

    logs = RunningLogs(tmp_path, {"t": APPEND_TIME})
    log = logs.log("t-0")
    for wait_ms in (1000, 10, 1000):
        logs.put(log, (None, b"v" * 100))
        log.roll()
        logs.clock.advance(wait_ms)
    logs.put(log, (None, b"v" * 100))
    size = log.segments[0].size_bytes
    assert peak_bytes_a_second(view_of(log, None)) == size * 1000 / 10
