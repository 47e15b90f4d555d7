"""A cluster of controllers and brokers of Kafka and of Cordwood on loopback.

`MixedCluster` is a context manager that leaves nothing running.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster_broker import ClusterBroker
from support.cluster_controller import ClusterController
from support.kafka import poll_until
from support.kafka_cluster import CONTROLLER_ID, KafkaBroker, KafkaController
from support.kafka_programs import KAFKA_4_3

WAIT_S: Final = 120.0

_RELEASE: Final = "4.3"
"""The metadata version of a new cluster: nodes of all versions can join it."""

Broker = KafkaBroker | ClusterBroker
Controller = KafkaController | ClusterController


class MixedCluster:
    """The controllers, and the brokers by their ids; a node has its directory at `root / id`."""

    def __init__(
        self,
        root: Path,
        *,
        kafka: Collection[int] = (),
        cordwood: Collection[int] = (),
        properties: Mapping[str, str] | None = None,
        properties_of: Mapping[int, Mapping[str, str]] | None = None,
        versions: Mapping[int, str] | None = None,
        session_timeout_ms: int = 3000,
        controllers: int = 1,
        has_own_controller: bool = False,
        **own: Any,
    ) -> None:
        """Nothing runs yet.

        Args:
            root: where all files are.
            kafka: the ids of Kafka's brokers.
            cordwood: those of Cordwood's.
            properties: of every broker.
            properties_of: of single brokers.
            versions: of Kafka, of its nodes by their ids, where they are not 4.3; the ids of
                controllers begin at `CONTROLLER_ID`.
            session_timeout_ms: `broker.session.timeout.ms` of all nodes.
            controllers: how many of Kafka's there are.
            has_own_controller: whether the controller is Cordwood's instead.
            own: arguments of each `ClusterBroker`.
        """
        session = {"broker.session.timeout.ms": str(session_timeout_ms)}
        self.root = root
        self._versions = versions or {}
        self.controllers: list[KafkaController] | list[ClusterController]
        if has_own_controller:
            own_flags = own.get("flags", ())
            self.controllers = [
                ClusterController(root / "controller-0", properties=session, flags=own_flags)
            ]
        else:
            self.controllers = [
                KafkaController(
                    root / f"controller-{n}",
                    node_id=CONTROLLER_ID + n,
                    properties=session,
                    **self._version_of(CONTROLLER_ID + n),
                )
                for n in range(controllers)
            ]
            if controllers > 1:
                KafkaController.be_quorum(self.controllers)
        self.brokers: dict[int, Broker] = {}
        self._first = [*((each, False) for each in kafka), *((each, True) for each in cordwood)]
        self._properties = {"broker.heartbeat.interval.ms": "500", **(properties or {}), **session}
        self._properties_of = properties_of or {}
        self._own = own
        self._stack = ExitStack()

    def _version_of(self, node_id: int) -> dict[str, Any]:
        """The arguments of a node of Kafka's that say which."""
        version = self._versions.get(node_id, KAFKA_4_3)
        return {"version": version, "release": None if version == KAFKA_4_3 else _RELEASE}

    # ---- brokers

    @property
    def controller(self) -> Controller:
        """The first controller."""
        return self.controllers[0]

    def __enter__(self) -> Self:
        try:
            for each in self.controllers:
                self._stack.enter_context(each)
                each.launch()
            for each in self.controllers:
                poll_until(each.serving, timeout_s=WAIT_S, what="the start of a controller")
            self._stack.callback(self._end)
            for node_id, is_cordwood in self._first:
                self.start(node_id, cordwood=is_cordwood)
            self.admin = AdminClient(self.client())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        """Stops what runs, Kafka's brokers first; without a controller nothing can stop cleanly."""
        brokers = sorted(self.brokers.values(), key=lambda each: isinstance(each, ClusterBroker))
        try:
            if any(each.is_running for each in self.controllers):
                for broker in brokers:
                    if broker.is_running:
                        broker.stop()
        finally:
            for broker in brokers:
                if broker.is_running:
                    broker.kill()

    def start(self, node_id: int, *, cordwood: bool) -> None:
        """Starts a node, which does not run, on its directory."""
        properties = {**self._properties, **self._properties_of.get(node_id, {})}
        root = self.root / str(node_id)
        broker: Broker
        if cordwood:
            broker = ClusterBroker(
                root, self.controller, node_id, properties=properties, **self._own
            )
        else:
            broker = KafkaBroker(
                root, self.controller, node_id, properties=properties, **self._version_of(node_id)
            )
        self.brokers[node_id] = broker
        broker.start()

    def replace(self, node_id: int, *, cordwood: bool) -> None:
        """Stops a node, and starts the other kind on its directory, until all is in sync."""
        self.brokers[node_id].stop()
        self.start(node_id, cordwood=cordwood)
        self.wait_until_in_sync()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.bootstrap_servers for each in self.brokers.values())

    def client(
        self, settings: Mapping[str, Any] | None = None, *, node_id: int | None = None
    ) -> dict[str, Any]:
        """A librdkafka configuration for one broker, or for all."""
        servers = self.bootstrap_servers
        if node_id is not None:
            servers = self.brokers[node_id].bootstrap_servers
        return {"bootstrap.servers": servers, "log_level": 0, **(settings or {})}

    # ---- topics

    def create_topic(
        self,
        name: str,
        replicas: Sequence[Sequence[int]],
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a topic with these replicas of each partition, and waits until they are in sync."""
        topic = NewTopic(
            name,
            len(replicas),
            replica_assignment=[list(each) for each in replicas],
            config=dict(configs or {}),
        )
        poll_until(lambda: self._is_made(topic), timeout_s=WAIT_S, what=f"{name} is made")
        self.wait_until_in_sync(name)

    def _is_made(self, topic: NewTopic) -> bool:
        """Whether the controller makes a topic; not while it has none of its brokers unfenced.

        A controller that has just started fences brokers that take long to find it.
        """
        try:
            self.admin.create_topics([topic])[topic.topic].result()
        except KafkaException as error:
            if "are fenced or in controlled shutdown" in str(error):
                return False
            raise
        return True

    def spread(self, partitions: int) -> list[list[int]]:
        """A replica of each partition on every broker, the leaders in turn."""
        ids = sorted(self.brokers)
        return [ids[n % len(ids) :] + ids[: n % len(ids)] for n in range(partitions)]

    def isr(self, name: str, partition: int = 0, *, node_id: int | None = None) -> set[int]:
        """The replicas in sync, as a broker has them, or any broker; empty without an answer."""
        topic = self._topics(node_id).get(name)
        found = None if topic is None else topic.partitions.get(partition)
        return set() if found is None else set(found.isrs)

    def leaders(self, name: str, *, node_id: int | None = None) -> dict[int, int]:
        """The leader of each partition, as a broker has it, or any; empty without an answer."""
        topic = self._topics(node_id).get(name)
        return {} if topic is None else {n: each.leader for n, each in topic.partitions.items()}

    def _topics(self, node_id: int | None) -> Mapping[str, Any]:
        admin = self.admin if node_id is None else AdminClient(self.client(node_id=node_id))
        try:
            topics: Mapping[str, Any] = admin.list_topics(timeout=20).topics
        except KafkaException:
            return {}
        return topics

    def is_in_sync(self, *names: str) -> bool:
        """Whether each running broker has these topics, and all replicas of all topics in sync.

        Brokers learn of a change one after the other: what one has answered says nothing of what
        the next one does.
        """
        running = [node_id for node_id, each in self.brokers.items() if each.is_running]
        seen = [self._topics(node_id) for node_id in running]
        return all(
            bool(topics)
            and set(names) <= topics.keys()
            and all(
                partition.leader >= 0 and set(partition.isrs) == set(partition.replicas)
                for topic in topics.values()
                for partition in topic.partitions.values()
            )
            for topics in seen
        )

    def wait_until_in_sync(self, *names: str) -> None:
        """Waits until `is_in_sync`."""
        what = f"all replicas of {', '.join(names) or 'all topics'} are in sync"
        poll_until(lambda: self.is_in_sync(*names), timeout_s=WAIT_S, what=what)

    # ---- replicas

    def logs(self, topic: str, partition: int) -> dict[int, bytes]:
        """The bytes of a partition's segments, on each broker that has it."""
        return {
            node_id: b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
            for node_id, broker in self.brokers.items()
            for log_dir in broker.log_dirs
            if (directory := log_dir / f"{topic}-{partition}").is_dir()
        }

    def has_equal_logs(self, topic: str, partitions: int) -> bool:
        """Whether the replicas of each partition are the same bytes."""
        return all(len(set(self.logs(topic, each).values())) == 1 for each in range(partitions))
