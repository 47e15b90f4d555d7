"""A cluster of Kafka 4.3 and Cordwood becomes one of Kafka 4.4, node by node, while clients work.

Then the level of metadata.version is raised. What `cordwood features` shows, and how either
controller answers, is what kafka-features and the controller of Kafka 4.4 say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.feature_tools import (
    AT_BROKER,
    AT_CONTROLLER,
    Shown,
    shown_by_cordwood,
    shown_by_kafka,
)
from support.kafka import RealKafka, poll_until
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.mixed_cluster import WAIT_S, Broker, Controller, MixedCluster
from support.served import ServedBroker
from support.soaks.cluster_load import (
    COPIES,
    NUMBERS,
    PARTITIONS,
    TRANSACTIONS,
    ClusterLoad,
    properties_of_load,
)

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

#: A broker that is restarted can register when its session before has ended, in Kafka too.
_SESSION_MS: Final = 5_000
#: What a Kafka that stops may answer to the end of a transaction: it could not write that the one
#: before is complete, so its state is PREPARE_COMMIT again, in which the next epoch is fenced.
#: The records of the transaction are copied in another.
#: Source: kafka.coordinator.transaction.TransactionCoordinator.endTransaction (4.3).
_FENCED: Final = "There is a newer producer with the same transactionalId"
_RAISE: Final = "upgrade --release-version 4.4"
_ONLY_METADATA: Final = "upgrade --feature metadata.version=33"
#: Refused while brokers are Kafka 4.3, under a controller that knows the level. It names any of
#: them: Kafka's goes by the order of a hash table.
_TOO_EARLY: Final = re.compile(
    r".*: Invalid update version 33 for feature metadata\.version\. "
    r"Broker (\d+) only supports versions 7-30"
)
_MAY_DELETE: Final = (
    "Refusing to perform the requested downgrade because it might delete metadata information."
)
#: Why Kafka 4.4 refuses it, and Cordwood in the same words.
_NO_WAY_DOWN: Final = {
    "downgrade --feature metadata.version=32": (
        f"Unsupported metadata.version downgrade from 33 to 32. {_MAY_DELETE}"
    ),
    "downgrade --metadata 4.3-IV0": (
        f"Unsupported metadata.version downgrade from 33 to 30. {_MAY_DELETE}"
    ),
    "downgrade --feature metadata.version=30 --unsafe": (
        "Unsupported metadata.version downgrade from 33 to 30. Unsafe metadata downgrade is not "
        "supported in this version."
    ),
}


@dataclass(frozen=True, slots=True)
class Form:
    """The ids of the brokers, the load, and the versions of Kafka in turn."""

    kafka: tuple[int, ...]
    cordwood: tuple[int, ...]
    members: int
    records_per_second: int
    turns: tuple[str, ...]


FEW: Final = Form((1,), (2,), members=1, records_per_second=100, turns=(KAFKA_4_4,))
#: Before the level is raised, the way back to 4.3 is open.
MANY: Final = Form(
    *((1, 2), (3,)),
    members=2,
    records_per_second=400,
    turns=(KAFKA_4_4, KAFKA_4_3, KAFKA_4_4),
)


class Upgrade:
    """A cluster that is changed under load."""

    def __init__(self, cluster: MixedCluster, load: ClusterLoad, tools: KafkaTools) -> None:
        self.cluster = cluster
        self._load = load
        self._tools = tools

    def restart(self, version: str) -> None:
        """Restarts the controller, then the brokers, in a version of Kafka.

        As long as a broker is older than the controller, the level is not raised.
        """
        cluster = self.cluster
        self._restart(cluster.controller, version)
        old = self._brokers_before(version)
        if old:
            assert self.shown(_RAISE).code == 1
            named = _TOO_EARLY.fullmatch(self.refusal(_ONLY_METADATA))
            assert named
            assert int(named[1]) in old
        for broker in cluster.brokers.values():
            self._restart(broker, version)

    def _restart(self, node: Broker | Controller, version: str) -> None:
        """Stops and starts a node, one of Kafka's in a version; clients go on."""
        if isinstance(node, RealKafka):
            node.stop()
            node.version = version
        else:
            assert node.stop() == 0, node.log
        node.start()
        self.cluster.wait_until_in_sync()
        self._load.wait_for_work()

    def _brokers_before(self, version: str) -> list[int]:
        """The ids of Kafka's brokers that are older."""
        brokers = self.cluster.brokers.items()
        return [
            node_id
            for node_id, broker in brokers
            if isinstance(broker, RealKafka) and broker.version < version
        ]

    def shown(self, line: str) -> Shown:
        """Runs both tools at the brokers, one after the other: they show the same."""
        return self._shown(line, self.cluster.bootstrap_servers, AT_BROKER)

    def _shown(self, line: str, servers: str, at: str) -> Shown:
        found = shown_by_cordwood(servers, line.split(), at=at)
        assert found == shown_by_kafka(self._tools, servers, line.split(), at=at)
        return found

    def refusal(self, line: str) -> str:
        """Runs both tools for a change of one feature, which is refused; returns the reason."""
        found = self.shown(line)
        assert found.code == 1, found
        return found.out[-1]

    def set_level(self, line: str, name: str) -> None:
        """Changes the level, twice; every node says that it has it, and clients work."""
        found = self.shown(line)
        assert found.code == 0, found
        servers = self.cluster.bootstrap_servers
        asked = [
            (f"describe --node-id {each}", servers, AT_BROKER) for each in self.cluster.brokers
        ]
        asked.append(("describe", self.cluster.controller.bootstrap_servers, AT_CONTROLLER))
        for each, servers, at in asked:
            poll_until(
                lambda: _level(shown_by_cordwood(servers, each.split(), at=at)) == name,  # noqa: B023
                timeout_s=WAIT_S,
                what=f"{each} says {name}",
            )
            assert _level(self._shown(each, servers, at)) == name
        self._load.wait_for_work()


def _level(described: Shown) -> str:
    """The finalized level of metadata.version."""
    (row,) = [
        each.split() for each in described.out if each.startswith("Feature: metadata.version ")
    ]
    return row[row.index("FinalizedVersionLevel:") + 1]


@pytest.mark.parametrize(
    ("form", "has_own_controller"),
    [
        pytest.param(FEW, True, id="few, own controller"),
        pytest.param(FEW, False, id="few, kafka", marks=pytest.mark.nightly),
        pytest.param(MANY, True, id="many, own controller", marks=pytest.mark.nightly),
        pytest.param(MANY, False, id="many, kafka", marks=pytest.mark.nightly),
    ],
)
def test_a_cluster_of_kafka_4_3_becomes_one_of_4_4(
    tmp_path: Path, tools_4_4: KafkaTools, form: Form, has_own_controller: bool
) -> None:
    brokers = len(form.kafka) + len(form.cordwood)
    with MixedCluster(
        tmp_path,
        kafka=form.kafka,
        cordwood=form.cordwood,
        properties=properties_of_load(brokers),
        session_timeout_ms=_SESSION_MS,
        has_own_controller=has_own_controller,
    ) as cluster:
        load = ClusterLoad(
            cluster,
            members=form.members,
            records_per_second=form.records_per_second,
            copier_version=KAFKA_4_4,
        )
        load.make_topics()
        with load.working():
            load.wait_for_work()
            upgrade = Upgrade(cluster, load, tools_4_4)
            for version in form.turns:
                upgrade.restart(version)
            upgrade.set_level("upgrade --feature metadata.version=31", "4.4-IV0")
            upgrade.set_level("downgrade --feature metadata.version=30", "4.3-IV0")
            upgrade.set_level(_RAISE, "4.4-IV2")
            for line, expected in _NO_WAY_DOWN.items():
                assert upgrade.refusal(line).endswith(expected)
            upgrade.restart(KAFKA_4_4)
        assert load.complaints() == []
        failures = load.failures()
        fenced = [each for each in failures if _FENCED in each]
        assert len(fenced) <= len(form.kafka) * (len(form.turns) + 1)
        assert [each for each in failures if each not in fenced] == []
        for topic in (NUMBERS, TRANSACTIONS):
            poll_until(
                lambda: cluster.has_equal_logs(topic, PARTITIONS),  # noqa: B023  # called at once
                timeout_s=WAIT_S,
                what=f"the replicas of {topic} are equal",
            )
        poll_until(lambda: cluster.has_equal_logs(COPIES, 1), timeout_s=WAIT_S, what="equal copies")
        for broker in cluster.brokers.values():
            if isinstance(broker, ServedBroker):
                assert " ERROR " not in broker.log
                assert "Traceback" not in broker.log
