"""Brokers on other nodes: sessions, fencing, controlled shutdown, a restart of the controller."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from cordwood.controller.cluster_control import ClusterControl
from cordwood.controller.controller import Controller
from cordwood.metadata.controller_requests import (
    AlteredIsr,
    BrokerRegistration,
    DirectoryAssignment,
    IsrChange,
    NewTopic,
)
from cordwood.metadata.feature_levels import KNOWN_FEATURES
from cordwood.metadata.image import Endpoint, PartitionImage
from cordwood.metadata.quorum.lifecycle import BrokerHeartbeat, BrokerHeartbeatReply
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    DuplicateBrokerRegistrationError,
    InvalidRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
    UnsupportedRequestError,
)
from support.controller_under_test import ControllerUnderTest, names_of, requests_to

SESSION_MS = 9000
CAUGHT_UP = 1 << 40


class Cluster:
    """A controller without a broker of its own, and brokers that are played."""

    def __init__(self, root: Path) -> None:
        self.place = ControllerUnderTest(root / "d")
        self.now_ms = 0.0
        self.controller: Controller = self.place.activated()
        self.control = self._control()

    def _control(self) -> ClusterControl:
        return ClusterControl(
            self.controller, session_timeout_ms=SESSION_MS, monotonic_ms=lambda: self.now_ms
        )

    def restart(self) -> None:
        self.controller.abandon()
        self.controller = self.place.activated()
        self.control = self._control()

    def register(self, broker_id: int, **changes: object) -> int:
        given: dict[str, object] = {
            "broker_id": broker_id,
            "incarnation_id": uuid.uuid4(),
            "endpoints": (Endpoint(name="PLAINTEXT", host="localhost", port=9000 + broker_id),),
            "log_dirs": (uuid.UUID(int=(broker_id << 100) + 1),),
            "features": KNOWN_FEATURES,
        }
        return self.control.register(BrokerRegistration(**(given | changes)))  # type: ignore[arg-type]

    def beat(
        self, broker_id: int, *, offset: int = CAUGHT_UP, **wants: bool
    ) -> BrokerHeartbeatReply:
        heartbeat = BrokerHeartbeat(
            broker_epoch=self.epoch(broker_id),
            metadata_offset=offset,
            wants_fence=wants.get("fence", False),
            wants_shutdown=wants.get("stop", False),
        )
        return self.control.heartbeat(broker_id, heartbeat)

    def serve(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            assert not self.beat(broker_id).is_fenced

    def epoch(self, broker_id: int) -> int:
        return self.controller.image.brokers[broker_id].epoch

    def create(self, *replicas: int, **configs: str) -> None:
        topic = NewTopic(name="t", assignments=[(0, replicas)], configs=configs)
        requests_to(self.controller).create_topics([topic])

    @property
    def partition(self) -> PartitionImage:
        return self.controller.image.topics["t"].partitions[0]

    def is_fenced(self, broker_id: int) -> bool:
        return self.controller.image.brokers[broker_id].fenced

    def leader(self) -> int:
        return self.partition.leader

    def propose(
        self, leader: int, *isr: int, epochs: Mapping[int, int] = MappingProxyType({})
    ) -> ErrorCode:
        """A leader's proposal, with the epochs of registrations that are not the current ones."""
        change = IsrChange(
            self.controller.image.topics["t"].topic_id,
            0,
            self.partition.leader_epoch,
            self.partition.partition_epoch,
            [(each, epochs.get(each, self.epoch(each))) for each in isr],
        )
        (altered,) = self.alter_partitions(leader, [change])
        return altered.error

    def alter_partitions(self, leader: int, changes: Sequence[IsrChange]) -> list[AlteredIsr]:
        """A leader's request, in the epoch of its registration."""
        return self.control.change_for(
            leader, self.epoch(leader), lambda it: it.alter_partitions(leader, changes)
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_broker_is_unfenced_when_it_has_its_own_registration(cluster: Cluster) -> None:
    epoch = cluster.register(1)
    offset = cluster.controller.image.offset
    behind = cluster.beat(1, offset=offset - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = cluster.beat(1, offset=offset)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert cluster.controller.image.brokers[1].epoch == epoch


def test_a_silent_broker_is_fenced_after_its_session_and_others_lead(cluster: Cluster) -> None:
    cluster.serve(1, 2, 3)
    cluster.create(1, 2, 3)
    cluster.now_ms = SESSION_MS
    cluster.beat(2)
    cluster.beat(3)
    cluster.control.fence_expired()
    assert cluster.leader() == 1, "its session has just not ended"
    cluster.now_ms += 1
    cluster.control.fence_expired()
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2, 3))
    assert cluster.partition.leader_epoch == 1
    assert cluster.is_fenced(1)
    # It comes back, and is put into the ISR by the leader alone.
    cluster.beat(1)
    assert cluster.partition.isr == (2, 3)
    assert cluster.propose(2, 1, 2, 3) is ErrorCode.NONE
    assert set(cluster.partition.isr) == {1, 2, 3}


def test_a_live_broker_keeps_its_id(cluster: Cluster) -> None:
    cluster.serve(1)
    with pytest.raises(DuplicateBrokerRegistrationError):
        cluster.register(1)
    cluster.now_ms = SESSION_MS + 1
    cluster.register(1)


def test_a_request_with_the_epoch_of_an_earlier_registration_is_refused(cluster: Cluster) -> None:
    cluster.serve(1)
    old = cluster.epoch(1)
    cluster.now_ms = SESSION_MS + 1
    cluster.register(1)
    with pytest.raises(StaleBrokerEpochError):
        cluster.control.change_for(1, old, lambda it: it.alter_partitions(1, []))
    with pytest.raises(StaleBrokerEpochError):
        cluster.control.change_for(9, 0, lambda it: it.allocate_producer_ids(9, 0))


def test_a_controlled_shutdown_ends_when_all_know_the_new_leaders(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    begun = cluster.beat(1, stop=True)
    assert (begun.is_fenced, begun.should_shut_down) == (False, False)
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2,))
    moved_at = cluster.controller.image.offset
    cluster.beat(2, offset=moved_at - 1)
    assert not cluster.beat(1, stop=True).should_shut_down
    cluster.beat(2, offset=moved_at)
    ended = cluster.beat(1, stop=True)
    assert (ended.is_fenced, ended.should_shut_down) == (True, True)
    assert cluster.is_fenced(1)


def test_a_broker_that_has_crashed_is_no_eligible_leader(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2, **{"min.insync.replicas": "2"})
    for broker_id in (2, 1):
        cluster.beat(broker_id, fence=True)
    assert (cluster.partition.leader, set(cluster.partition.elr)) == (-1, {1, 2})
    cluster.now_ms = SESSION_MS + 1
    cluster.register(2)  # with no epoch of a clean stop
    assert cluster.partition.elr == (1,)
    cluster.beat(2)
    assert cluster.leader() == -1, "it may lack committed records"
    cluster.beat(1)
    assert cluster.leader() == 1


def test_a_restarted_controller_gives_each_broker_a_session(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    cluster.now_ms = SESSION_MS * 10.0
    cluster.restart()
    cluster.control.fence_expired()
    assert not cluster.is_fenced(1)
    cluster.now_ms += SESSION_MS
    cluster.beat(2)
    cluster.now_ms += 1
    cluster.control.fence_expired()
    assert cluster.is_fenced(1), "it was lost with the controller"
    assert cluster.leader() == 2


def test_isrs_have_only_brokers_that_are_alive(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    assert cluster.propose(2, 1, 2) is ErrorCode.INVALID_REQUEST
    assert cluster.propose(1, 2) is ErrorCode.INVALID_REQUEST
    cluster.beat(2, fence=True)
    assert cluster.partition.isr == (1,)
    assert cluster.propose(1, 1, 2) is ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_in_a_lost_directory_leaves_the_isr(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    topic_id = cluster.controller.image.topics["t"].topic_id
    assigned = [DirectoryAssignment(topic_id, 0, uuid.UUID(int=1 << 90))]
    errors = cluster.control.change_for(
        1, cluster.epoch(1), lambda it: it.assign_directories(1, assigned)
    )
    assert errors == [ErrorCode.NONE]
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2,))


def test_leaders_return_to_the_preferred_replicas(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    cluster.beat(1, fence=True)
    cluster.beat(1)
    assert cluster.propose(2, 1, 2) is ErrorCode.NONE
    cluster.control.elect_preferred_leaders()
    assert cluster.leader() == 1
    before = len(cluster.place.batches())
    cluster.control.elect_preferred_leaders()
    assert len(cluster.place.batches()) == before


def test_an_unclean_leader_is_elected_where_that_is_allowed(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    cluster.beat(2, fence=True)
    assert cluster.partition.isr == (1,)
    cluster.beat(1, fence=True)
    cluster.beat(2)
    cluster.control.elect_unclean_leaders()
    assert cluster.leader() == -1
    requests_to(cluster.controller).create_topics(
        [
            NewTopic(
                name="u",
                assignments=[(0, (2, 1))],
                configs={"unclean.leader.election.enable": "true"},
            )
        ]
    )
    assert cluster.controller.image.topics["u"].partitions[0].leader == 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"log_dirs": ()}, InvalidRegistrationError),
        ({"log_dirs": (uuid.UUID(int=2),)}, InvalidRegistrationError),
        ({"features": {}}, UnsupportedRequestError),
        (
            {"features": {n: v for n, v in KNOWN_FEATURES.items() if n != "metadata.version"}},
            InvalidRegistrationError,
        ),
        ({"features": {**KNOWN_FEATURES, "transaction.version": (0, 1)}}, UnsupportedRequestError),
    ],
)
def test_a_bad_registration_changes_nothing(
    cluster: Cluster, changes: dict[str, object], error: type[Exception]
) -> None:
    before = cluster.place.batches()
    with pytest.raises(error):
        cluster.register(1, **changes)
    assert cluster.place.batches() == before


def test_no_op_records_move_the_log_on(cluster: Cluster) -> None:
    cluster.control.write_no_op()
    assert names_of(cluster.place.batches()[-1]) == ["NoOpRecord"]


def test_a_broker_beside_the_controller_is_not_waited_for(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.control = ClusterControl(
        cluster.controller,
        session_timeout_ms=SESSION_MS,
        monotonic_ms=lambda: cluster.now_ms,
        local_broker=1,
    )
    cluster.now_ms = SESSION_MS - 1.0
    cluster.beat(2)
    cluster.create(2, 1)
    assert not cluster.beat(2, stop=True).should_shut_down
    assert cluster.leader() == 1
    assert cluster.beat(2, stop=True).should_shut_down
    with pytest.raises(DuplicateBrokerRegistrationError):
        cluster.register(1)
    with pytest.raises(StaleBrokerEpochError, match="in the process of the controller"):
        cluster.beat(1)
    cluster.now_ms = SESSION_MS * 9.0
    cluster.control.fence_expired()
    assert not cluster.is_fenced(1)


def test_a_replica_is_not_added_in_the_epoch_of_its_registration_before(cluster: Cluster) -> None:
    """KIP-903: it may have lost what the leader has seen it fetch."""
    cluster.serve(1, 2)
    cluster.create(1, 2)
    before = cluster.epoch(2)
    cluster.now_ms = SESSION_MS + 1.0
    cluster.beat(1)
    cluster.control.fence_expired()
    cluster.serve(2)
    refused = cluster.propose(1, 1, 2, epochs={2: before})
    assert (refused, cluster.partition.isr) == (ErrorCode.INELIGIBLE_REPLICA, (1,))
    assert cluster.propose(1, 1, 2) is ErrorCode.NONE
    assert list(cluster.partition.isr) == [1, 2]


def test_a_replica_in_a_controlled_shutdown_is_not_added_to_an_isr(cluster: Cluster) -> None:
    cluster.serve(1, 2)
    cluster.create(1, 2)
    cluster.beat(1, offset=0, stop=True)
    assert not cluster.is_fenced(1)
    assert cluster.partition.isr == (2,)
    assert cluster.propose(2, 1, 2) is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    "wrong",
    [
        {"security_protocol": 77},
        {"security_protocol": -1},
        {"security_protocol": 4},
        {"port": 0},
        {"host": ""},
        {"name": ""},
    ],
    ids=str,
)
def test_a_broker_with_a_listener_that_no_kafka_reads_is_not_registered(
    tmp_path: Path, wrong: Mapping[str, object]
) -> None:
    cluster = Cluster(tmp_path)
    before = cluster.controller.log.end_offset
    listener = {"name": "PLAINTEXT", "host": "localhost", "port": 9001, **wrong}
    with pytest.raises(InvalidRequestError, match="is not a value that"):
        cluster.register(1, endpoints=(Endpoint(**listener),))  # type: ignore[arg-type]
    assert cluster.controller.log.end_offset == before
    assert 1 not in cluster.controller.image.brokers


def test_a_broker_with_a_range_of_feature_levels_below_zero_is_not_registered(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    features = {**KNOWN_FEATURES, "of.tomorrow": (-5, 5)}
    with pytest.raises(InvalidRequestError, match="no range of levels"):
        cluster.register(1, features=features)
    cluster.register(1, features={**KNOWN_FEATURES, "of.tomorrow": (0, 5)})


def test_of_two_listeners_of_one_name_the_last_is_registered(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    first, last = (Endpoint(name="PLAINTEXT", host=host, port=9) for host in ("first", "last"))
    cluster.register(1, endpoints=(first, last))
    assert cluster.controller.image.brokers[1].endpoints == (last,)


@pytest.mark.parametrize("state", [-128, -1, 2, 7, 127])
def test_a_recovery_state_that_there_is_not_is_refused(tmp_path: Path, state: int) -> None:
    cluster = Cluster(tmp_path)
    cluster.serve(1, 2)
    cluster.create(1, 2)
    isr = [(each, cluster.epoch(each)) for each in (1, 2)]
    change = IsrChange(
        cluster.controller.image.topics["t"].topic_id,
        0,
        cluster.partition.leader_epoch,
        cluster.partition.partition_epoch,
        isr,
        state,
    )
    before = cluster.controller.log.end_offset
    (altered,) = cluster.alter_partitions(1, [change])
    assert altered.error is ErrorCode.INVALID_REQUEST
    assert cluster.controller.log.end_offset == before
