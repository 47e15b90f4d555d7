"""Kafka's controller and Cordwood's answer the same requests of brokers and tools alike.

Records that they write to the metadata log are compared, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from support.cluster_controller import ClusterController
from support.controller_script import Station, differences
from support.kafka import poll_until
from support.kafka_cluster import KafkaController
from support.kafka_programs import KAFKA_4_4

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

STEPS = 300
_START_S = 120.0
_QUIET = {
    # No broker's session ends in a script, and nothing is written by itself.
    "broker.session.timeout.ms": "600000",
    "metadata.max.idle.interval.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": "600000",
    # As the real broker has it here: answers show what differs from a default.
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    "log.segment.delete.delay.ms": "500",
}


@pytest.mark.parametrize(
    "seeds",
    [range(1), pytest.param(range(1, 40), marks=pytest.mark.nightly)],
    ids=["few", "many"],
)
def test_controllers_answer_and_write_alike(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        for kafka, cordwood in stations(tmp_path / str(seed)):
            assert differences(kafka, cordwood, seed, STEPS) == []


def stations(root: Path) -> Iterator[tuple[Station, Station]]:
    """A new controller of each kind."""
    features = {**DEFAULT_FEATURES, "share.version": 1, "streams.version": 1}
    own = ClusterController(root / "cordwood", properties=_QUIET, features=features)
    with (
        KafkaController(
            root / "kafka", properties=_QUIET, version=KAFKA_4_4, release="4.3"
        ) as kafka,
        own,
    ):
        kafka.launch()
        own.start()
        poll_until(kafka.serving, timeout_s=_START_S, what="the start of a controller")
        pair = Station(kafka.port, kafka.log_dirs[0]), Station(own.port, own.log_dir)
        try:
            # Kafka's is active before it has written the bootstrap records.
            poll_until(pair[0].has_begun, timeout_s=_START_S, what="the bootstrap records")
            pair[1].new_records()
            yield pair
        finally:
            for each in pair:
                each.close()
