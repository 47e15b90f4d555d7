"""Replication throttles: the rate over the last windows, and which partitions count."""

from __future__ import annotations

import pytest

from cordwood.broker.replication.throttles import (
    FOLLOWER,
    LEADER,
    ByteRate,
    ReplicationThrottle,
    ReplicationThrottles,
)
from cordwood.configs.resource import ConfigResource

NODE_ID = 2
RATE, REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"


class Time:
    """Moved by hand, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


def test_bytes_of_a_moment_count_for_a_window(time: Time) -> None:
    rate = ByteRate(time, windows=11, window_s=1)
    assert rate.value() == 0
    rate.record(500)
    assert rate.value() == 500
    time.now_s += 0.5
    rate.record(500)
    assert rate.value() == 1000
    time.now_s += 3.5
    assert rate.value() == 250
    time.now_s += 7
    assert rate.value() == 0


def test_old_windows_no_longer_count(time: Time) -> None:
    rate = ByteRate(time, windows=2, window_s=1)
    for _ in range(10):
        rate.record(100)
        time.now_s += 1
    assert rate.value() == 100 / 1  # that of the last second
    rate.record(100)
    assert rate.value() == 200 / 1


def throttle(time: Time, side: str = LEADER) -> ReplicationThrottle:
    return ReplicationThrottle(side, ByteRate(time, windows=11, window_s=1))


def topics(text: str) -> dict[str, dict[str, str]]:
    return {"t": {REPLICAS: text}}


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("*", {0, 1, 2}),
        ("0:2,1:1,2:2", {0, 2}),
        ("0:1", set()),
        ("", set()),
        (" 1:2", {1}),
    ],
)
def test_replicas_of_this_broker_count(time: Time, text: str, counted: set[int]) -> None:
    under_test = throttle(time)
    under_test.update_replicas(topics(text), NODE_ID)
    assert {index for index in range(3) if under_test.counts("t", index)} == counted
    assert not under_test.counts("other", 0)


def test_replica_waits_while_the_rate_is_used_up(time: Time) -> None:
    under_test = throttle(time)
    under_test.update_replicas(topics("0:2"), NODE_ID)
    under_test.record(10_000)
    assert not under_test.holds_back("t", 0), "no rate is set"
    under_test.update_rate([{RATE: "1000"}, {RATE: "5"}])
    assert under_test.holds_back("t", 0)
    assert not under_test.holds_back("t", 1), "it is not throttled"
    time.now_s += 9.9
    assert under_test.holds_back("t", 0)
    time.now_s += 0.2
    assert not under_test.holds_back("t", 0)
    under_test.update_replicas({}, NODE_ID)
    under_test.record(100_000)
    assert not under_test.holds_back("t", 0)


@pytest.mark.parametrize("text", [{}, {RATE: "none"}], ids=["no rate", "no number"])
def test_without_a_rate_nothing_waits(time: Time, text: dict[str, str]) -> None:
    under_test = throttle(time)
    under_test.update_replicas(topics("*"), NODE_ID)
    under_test.update_rate([{RATE: "1"}])
    under_test.record(100)
    assert under_test.is_exceeded
    under_test.update_rate([text])
    assert not under_test.is_exceeded


def test_each_side_has_its_own_settings(time: Time) -> None:
    both = ReplicationThrottles(time, windows=11, window_s=1)
    configs = {(int(ConfigResource.TOPIC), "t"): {REPLICAS: "*"}, (4, "t"): {REPLICAS: "0:1"}}
    both.update([{f"{FOLLOWER}.replication.throttled.rate": "1"}], configs, NODE_ID)
    for side in (both.leader, both.follower):
        side.record(100)
    assert both.leader.counts("t", 0)
    assert not both.leader.is_exceeded
    assert both.follower.is_exceeded
    assert not both.follower.counts("t", 0)
