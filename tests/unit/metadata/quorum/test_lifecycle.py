"""The life of a broker in its cluster, from registration to controlled shutdown."""

from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.metadata.quorum.lifecycle import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerLifecycle,
    BrokerState,
    Register,
)
from cordwood.model.error_codes import ErrorCode

DIRECTORY = UUID(int=1 << 70)
FENCED = BrokerHeartbeatReply(is_caught_up=True)
UNFENCED = BrokerHeartbeatReply(is_caught_up=True, is_fenced=False)


@pytest.fixture
def life() -> BrokerLifecycle:
    return BrokerLifecycle(0)


def heartbeat(life: BrokerLifecycle, now_ms: float, offset: int = 50) -> BrokerHeartbeat:
    sent = life.next_request(offset, now_ms)
    assert isinstance(sent, BrokerHeartbeat), sent
    return sent


def until_running(life: BrokerLifecycle) -> BrokerLifecycle:
    """Registered at 0 with epoch 7, unfenced at 20; the next heartbeat is due at 2020."""
    life.next_request(-1, 0)
    life.on_registered(ErrorCode.NONE, 7, 0)
    heartbeat(life, 0)
    life.on_heartbeat(FENCED, 10)
    life.ready_to_unfence()
    assert not heartbeat(life, 10).wants_fence
    life.on_heartbeat(UNFENCED, 20)
    assert life.state is BrokerState.RUNNING
    return life


def test_broker_registers_at_once_and_then_catches_up_every_10_ms(life: BrokerLifecycle) -> None:
    assert life.next_request(-1, 0) == Register()
    life.on_registered(ErrorCode.NONE, 7, 5)
    assert heartbeat(life, 5, -1) == BrokerHeartbeat(
        broker_epoch=7, metadata_offset=-1, wants_fence=True, wants_shutdown=False
    )
    life.on_heartbeat(BrokerHeartbeatReply(), 6)
    assert (life.state, life.is_caught_up) == (BrokerState.STARTING, False)
    assert life.next_request(10, 6) == 10
    heartbeat(life, 16, 12)
    life.on_heartbeat(FENCED, 17)
    assert (life.state, life.is_caught_up) == (BrokerState.RECOVERY, True)


def test_broker_that_is_ready_asks_to_be_unfenced_at_once(life: BrokerLifecycle) -> None:
    until_running(life)
    assert life.next_request(50, 20) == 2000
    assert heartbeat(life, 2020) == BrokerHeartbeat(
        broker_epoch=7, metadata_offset=50, wants_fence=False, wants_shutdown=False
    )
    # The controller has fenced it, for example after a pause: it asks again, and that is all.
    life.on_heartbeat(FENCED, 2021)
    assert life.state is BrokerState.RUNNING


def test_broker_that_is_ready_while_a_heartbeat_is_in_flight_does_not_wait(
    life: BrokerLifecycle,
) -> None:
    life.next_request(-1, 0)
    life.on_registered(ErrorCode.NONE, 7, 0)
    heartbeat(life, 0)
    life.on_heartbeat(FENCED, 1)
    heartbeat(life, 11)
    life.ready_to_unfence()
    life.on_heartbeat(FENCED, 12)
    assert not heartbeat(life, 12).wants_fence


def test_registration_that_is_refused_is_tried_again_until_its_time_is_over(
    life: BrokerLifecycle,
) -> None:
    for now_ms in range(0, 60_000, 2000):
        assert life.next_request(-1, now_ms) == Register()
        assert not life.cannot_register(now_ms)
        life.on_registered(ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1, now_ms)
        assert life.next_request(-1, now_ms) == 2000
    assert life.cannot_register(60_000)


def test_broker_that_has_registered_once_never_gives_up(life: BrokerLifecycle) -> None:
    until_running(life)
    heartbeat(life, 2020)
    life.on_failure(4000)
    assert life.next_request(50, 4000) == 2000
    assert not life.cannot_register(100_000)
    heartbeat(life, 100_000)
    life.on_heartbeat(BrokerHeartbeatReply(error=ErrorCode.STALE_BROKER_EPOCH), 100_000)
    assert life.next_request(50, 100_000) == 2000


def test_failed_directory_is_reported_at_once_and_with_every_heartbeat(
    life: BrokerLifecycle,
) -> None:
    life.directory_failed(DIRECTORY)
    until_running(life)
    assert life.has_reported(DIRECTORY)
    other = UUID(int=2 << 70)
    life.directory_failed(other)
    assert not life.has_reported(other)
    assert heartbeat(life, 30).offline_dirs == (DIRECTORY, other)
    life.on_failure(31)
    assert not life.has_reported(other)
    assert heartbeat(life, 2031).offline_dirs == (DIRECTORY, other)
    life.on_heartbeat(UNFENCED, 2032)
    assert life.has_reported(other)


def test_controlled_shutdown_ends_when_the_controller_says_so(life: BrokerLifecycle) -> None:
    until_running(life)
    life.begin_shutdown()
    life.begin_shutdown()
    assert heartbeat(life, 30).wants_shutdown
    life.on_heartbeat(UNFENCED, 31)
    assert life.next_request(50, 31) == 50
    assert heartbeat(life, 81).wants_shutdown
    life.on_heartbeat(UNFENCED, 82)
    assert life.next_request(50, 82) == 2000
    heartbeat(life, 2082)
    life.on_heartbeat(BrokerHeartbeatReply(should_shut_down=True), 2083)
    assert life.state is BrokerState.SHUTTING_DOWN
    with pytest.raises(ValueError, match="nothing can be sent"):
        life.next_request(50, 3000)


def test_broker_that_does_not_run_yet_ends_at_once(life: BrokerLifecycle) -> None:
    changes = []
    life = BrokerLifecycle(0, on_change=lambda: changes.append(1))
    life.next_request(-1, 0)
    life.begin_shutdown()
    assert life.state is BrokerState.SHUTTING_DOWN
    assert changes


def test_heartbeats_name_the_cordoned_directories_once_the_broker_has_caught_up() -> None:
    cordoned: list[UUID] = []
    life = BrokerLifecycle(0, cordoned=lambda: tuple(cordoned))
    life.next_request(-1, 0)
    life.cordoned_changed()
    life.on_registered(ErrorCode.NONE, 7, 0)
    assert heartbeat(life, 0).cordoned_dirs is None
    life.on_heartbeat(FENCED, 10)
    life.ready_to_unfence()
    assert heartbeat(life, 10).cordoned_dirs == ()
    life.on_heartbeat(UNFENCED, 20)
    assert life.next_request(50, 20) == 2000
    cordoned.append(DIRECTORY)
    life.cordoned_changed()
    assert heartbeat(life, 21).cordoned_dirs == (DIRECTORY,)


def test_heartbeats_name_no_cordoned_directories_where_the_metadata_version_has_none(
    life: BrokerLifecycle,
) -> None:
    until_running(life)
    assert heartbeat(life, 2020).cordoned_dirs is None
