"""A random script of what brokers and tools send to a controller; two controllers get it in step.

Brokers are only played: they register, send heartbeats and ask. A request is made of what each
controller has recorded, so that ids and epochs, which differ, are its own. After each request the
answers are compared, and the records that were written.

What Kafka does not do alike each time, or by mistake, is left out: see `ControllerScript`.

Role: `tests/compat/test_controller_requests_kafka.py` runs it at Kafka and at Cordwood.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cordwood.format.file_names import CLUSTER_METADATA_DIR, META_PROPERTIES
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.metadata.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
)
from cordwood.metadata.replay import read_metadata_image
from support.controller_under_test import LoggedRecord, batches_in
from support.wire import NO_UUID, Plain, Wire

BROKERS: Final = (1, 2, 3, 4)
TOPICS: Final = ("a", "b", "c")
FEATURES: Final = {
    "metadata.version": (7, 33),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
}
_CAUGHT_UP: Final = 1 << 40
_BLANK: Final = frozenset({"throttle_time_ms"})
#: Arrays that Kafka answers in the order of hash maps.
_UNORDERED: Final = frozenset(
    {"topics", "replica_election_results", "partition_result", "responses", "partitions"}
)
_SET, _DELETE = 0, 1

Make = Callable[["Station"], Mapping[str, Any]]


def directory_of(broker_id: int, number: int = 0) -> uuid.UUID:
    """The id of a broker's directory."""
    return uuid.UUID(int=(broker_id << 100) + number + 1)


class Station:
    """A controller: a connection to its port, and its metadata log."""

    def __init__(self, port: int, log_dir: Path) -> None:
        self.wire = Wire(port)
        self._directory = log_dir / CLUSTER_METADATA_DIR
        properties = parse_meta_properties((log_dir / META_PROPERTIES).read_bytes())
        self.cluster_id = properties.cluster_id
        self._seen = 0
        self.image = MetadataImage()
        self._names: dict[str, str] = {}
        self._epochs: dict[int, str] = {-1: "-1"}

    def has_begun(self) -> bool:
        """Whether the records of a first start have been written since the last call."""
        return any(name == "EndTransactionRecord" for name, _ in self.new_records())

    def close(self) -> None:
        """Ends the connection."""
        self.wire.close()

    def ask(self, api: str, version: int, fields: Mapping[str, Any]) -> Plain:
        """The controller's answer."""
        return self.wire.ask(api, version, fields)

    def new_records(self) -> list[LoggedRecord]:
        """The records that were written since the last call, as both controllers must write them.

        Ids of topics and epochs of brokers are named by their order. Kafka's controller registers
        itself some time after it has started.
        """
        data = b"".join(path.read_bytes() for path in sorted(self._directory.glob("*.log")))
        batches = batches_in(data)
        self.image = read_metadata_image(self._directory)
        new = batches[self._seen :]
        self._seen = len(batches)
        for batch in new:
            for name, fields in batch:
                if name == "TopicRecord":
                    self._names[fields["topicId"]] = f"id of {fields['name']}"
                if name == "RegisterBrokerRecord":
                    broker = f"epoch {len(self._epochs)} of broker {fields['brokerId']}"
                    self._epochs.setdefault(fields["brokerEpoch"], broker)
        found = [
            (name, self.normal(fields))
            for batch in new
            for name, fields in batch
            if name != "RegisterControllerRecord"
        ]
        # Kafka takes topics in the order of a hash map.
        runs = itertools.groupby(found, lambda each: each[0] == "PartitionChangeRecord")
        return [
            each
            for is_sorted, run in runs
            for each in (sorted(run, key=repr) if is_sorted else run)
        ]

    def normal(self, value: Any, key: str = "") -> Any:
        """A value of an answer or a record, without what depends on the controller."""
        if isinstance(value, Mapping):
            return {
                name: self.normal(each, name) for name, each in value.items() if name not in _BLANK
            }
        if isinstance(value, list):
            found = [self.normal(each, key) for each in value]
            return sorted(found, key=repr) if key in _UNORDERED else found
        if key in {"brokerEpoch", "broker_epoch"}:
            return self._epochs.get(value, "unknown")
        if key in {"topicId", "topic_id"}:
            return self._names.get(_text(value), "unknown")
        return value

    # ---- what is known

    def broker(self, broker_id: int) -> BrokerImage | None:
        """The registration of a broker."""
        return self.image.brokers.get(broker_id)

    def epoch(self, broker_id: int) -> int:
        """The epoch of a broker; -1 if it is not registered."""
        broker = self.broker(broker_id)
        return -1 if broker is None else broker.epoch

    def topic_id(self, name: str) -> uuid.UUID:
        """The id of a topic; one that nobody has if there is no such topic."""
        topic = self.image.topics.get(name)
        return uuid.UUID(int=7 << 70) if topic is None else topic.topic_id

    def partition(self, name: str, number: int) -> PartitionImage:
        """A partition; one without replicas if there is none."""
        found = self.image.partition(name, number)
        return found or PartitionImage(
            replicas=(), isr=(), leader=-1, leader_epoch=0, partition_epoch=0
        )


def _text(value: Any) -> str:
    from cordwood.model.uuids import uuid_text  # noqa: PLC0415

    return uuid_text(value) if isinstance(value, uuid.UUID) else str(value)


class ControllerScript:
    """The requests of a seed, each for any `Station`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  # a script
        self._incarnations: dict[int, uuid.UUID] = {}
        self._serial = 0
        # After a ClearElrRecord Kafka's index of the replicas in ELRs is not right: when a broker
        # is removed, or has crashed, it changes partitions twice. So a script has one or the other.
        self._clears_elr = seed % 2 == 1
        # Kafka's index of the replicas in directories keeps those of deleted topics: when such a
        # directory fails, its controller resigns with "existed in isrMembers, but not in the
        # topics map". So a script has one or the other.
        self._deletes_topics = seed % 4 < 2

    def begin(self) -> list[tuple[str, int, Make]]:
        """The first requests: two brokers that serve, and a topic."""
        found = []
        for broker_id in BROKERS[:2]:
            found += [self._register(broker_id), self._heartbeat(broker_id, "serve")]
        return [*found, self.create_topic()]

    def next(self) -> tuple[str, int, Make]:
        """The name of an API, its version, and what makes the fields of the request."""
        weights = {
            self.register: 2,
            self.heartbeat: 8,
            self.create_topic: 3,
            self.create_partitions: 1,
            self.alter_partition: 10,
            self.elect: 2,
            self.reassign: 3,
            self.assign_directories: 2,
            self.allocate_ids: 1,
            self.unregister: int(not self._clears_elr),
            self.alter_config: 2,
            self.delete_topic: int(self._deletes_topics),
            self.list_reassignments: 1,
        }
        make = self.random.choices(list(weights), list(weights.values()))[0]
        return make()

    def _any(self) -> int:
        return self.random.choice(BROKERS)

    # ---- the life of a broker

    def register(self) -> tuple[str, int, Make]:
        """A registration, good or bad."""
        return self._register(self._any(), self.random.choice(("again", "new", "new", "bad")))

    def _register(self, broker_id: int, kind: str = "new") -> tuple[str, int, Make]:
        rng = self.random
        if kind == "new" or broker_id not in self._incarnations:
            self._serial += 1
            incarnation = uuid.UUID(int=(9 << 100) + self._serial)
        else:
            incarnation = self._incarnations[broker_id]
        self._incarnations[broker_id] = incarnation
        count = rng.choice((1, 1, 2))
        directories = [directory_of(broker_id, number) for number in range(count)]
        features = dict(FEATURES)
        bad = rng.choice(("features", "version", "none", "reserved", "twice", "other", "cluster"))
        is_clean = rng.random() < 0.5 or self._clears_elr
        wrong_cluster = kind == "bad" and bad == "cluster"
        if kind == "bad":
            match bad:
                case "features":
                    features["transaction.version"] = (0, 1)
                case "version":
                    del features["metadata.version"]
                case "none":
                    directories = []
                case "reserved":
                    directories = [LOST_DIRECTORY]
                case "twice":
                    directories = directories[:1] * 2
                case "other":
                    directories = [directory_of(broker_id % len(BROKERS) + 1)]
                case _:
                    pass

        def make(station: Station) -> Mapping[str, Any]:
            return {
                "broker_id": broker_id,
                "cluster_id": "other" if wrong_cluster else station.cluster_id,
                "incarnation_id": incarnation,
                "listeners": [
                    {
                        "name": "PLAINTEXT",
                        "host": "localhost",
                        "port": 9000 + broker_id,
                        "security_protocol": 0,
                    }
                ],
                "features": [
                    {"name": name, "min_supported_version": low, "max_supported_version": high}
                    for name, (low, high) in features.items()
                ],
                "rack": None,
                "is_migrating_zk_broker": False,
                "log_dirs": directories,
                "previous_broker_epoch": station.epoch(broker_id) if is_clean else -1,
            }

        return "broker_registration", 4, make

    def heartbeat(self) -> tuple[str, int, Make]:
        """A heartbeat of any kind."""
        kinds = ("serve", "serve", "serve", "fence", "stop", "stop", "behind", "stale", "cordoned")
        offline = "serve" if self._deletes_topics else "offline"
        return self._heartbeat(self._any(), self.random.choice((*kinds, offline)))

    def _heartbeat(self, broker_id: int, kind: str) -> tuple[str, int, Make]:
        number = self.random.choice((0, 1))

        def make(station: Station) -> Mapping[str, Any]:
            epoch = station.epoch(broker_id)
            directory = directory_of(broker_id, number)
            return {
                "broker_id": broker_id,
                "broker_epoch": epoch - 1 if kind == "stale" else epoch,
                "current_metadata_offset": 1 if kind == "behind" else _CAUGHT_UP,
                "want_fence": kind == "fence",
                "want_shut_down": kind == "stop",
                # A broker whose last directory fails ends, and does not say so.
                "offline_log_dirs": [directory_of(broker_id, 1)] if kind == "offline" else [],
                "cordoned_log_dirs": [directory] if kind == "cordoned" else None,
            }

        return "broker_heartbeat", 2, make

    # ---- topics

    def create_topic(self) -> tuple[str, int, Make]:
        """A topic whose replicas are given, of brokers that may not be there."""
        rng = self.random
        name = rng.choice(TOPICS)
        partitions = [rng.sample(BROKERS, rng.choice((1, 2, 3))) for _ in range(rng.choice((1, 2)))]
        configs: dict[str, str] = {}
        if rng.random() < 0.4 and self._clears_elr:
            configs["min.insync.replicas"] = rng.choice("12")
        if rng.random() < 0.3:
            configs["unclean.leader.election.enable"] = "true"

        def make(station: Station) -> Mapping[str, Any]:
            known = [
                [each for each in replicas if station.broker(each)] or [1]
                for replicas in partitions
            ]
            return {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": -1,
                        "replication_factor": -1,
                        "assignments": [
                            {"partition_index": number, "broker_ids": known[number]}
                            for number in range(len(known))
                        ],
                        "configs": [
                            {"name": key, "value": value} for key, value in configs.items()
                        ],
                    }
                ],
                "timeout_ms": 30_000,
                "validate_only": False,
            }

        return "create_topics", 7, make

    def create_partitions(self) -> tuple[str, int, Make]:
        """More partitions, with given replicas."""
        name = self.random.choice(TOPICS)
        replicas = self.random.sample(BROKERS, self.random.choice((1, 2)))

        def make(station: Station) -> Mapping[str, Any]:
            topic = station.image.topics.get(name)
            count = 1 if topic is None else len(topic.partitions)
            if topic and len({len(each.replicas) for each in topic.partitions.values()}) > 1:
                # Kafka compares with any of the partitions, in the order of a hash map.
                count = -1
            return {
                "topics": [
                    {
                        "name": name,
                        "count": count + 1,
                        "assignments": [{"broker_ids": replicas}],
                    }
                ],
                "timeout_ms": 30_000,
                "validate_only": False,
            }

        return "create_partitions", 3, make

    def delete_topic(self) -> tuple[str, int, Make]:
        """A topic goes."""
        name = self.random.choice(TOPICS)
        fields = {"topics": [{"name": name, "topic_id": NO_UUID}], "timeout_ms": 30_000}
        return "delete_topics", 6, lambda _: fields

    def alter_config(self) -> tuple[str, int, Make]:
        """A setting that has to do with leaders."""
        rng = self.random
        name = rng.choice(TOPICS)
        changes = [
            ("unclean.leader.election.enable", "true"),
            ("unclean.leader.election.enable", "false"),
            ("retention.ms", "x"),
        ]
        if self._clears_elr:
            changes += [("min.insync.replicas", "1"), ("min.insync.replicas", "2")]
        key, value = rng.choice(changes)
        is_deleted = rng.random() < 0.2
        config = {
            "name": key,
            "config_operation": _DELETE if is_deleted else _SET,
            "value": None if is_deleted else value,
        }
        resource = {"resource_type": 2, "resource_name": name, "configs": [config]}
        fields = {"resources": [resource], "validate_only": False}
        return "incremental_alter_configs", 1, lambda _: fields

    # ---- partitions

    def alter_partition(self) -> tuple[str, int, Make]:
        """An ISR that the leader, or another broker, proposes; epochs and members may be wrong."""
        rng = self.random
        name, number = rng.choice(TOPICS), rng.choice((0, 1))
        kind = rng.choice(
            ("good",) * 6
            + ("old leader", "new leader", "old partition", "new partition", "other", "empty")
            + ("old member", "recovering", "foreign", "stale")
        )
        drawn = [rng.random() for _ in BROKERS]
        without_epochs = rng.random() < 0.2

        def make(station: Station) -> Mapping[str, Any]:
            partition = station.partition(name, number)
            leader = partition.leader if partition.leader > 0 else 1
            sender = leader % len(BROKERS) + 1 if kind == "other" else leader
            isr = [
                each
                for each, chance in zip(partition.replicas, drawn, strict=False)
                if each == leader or chance < 0.6
            ]
            if kind == "foreign":
                isr.append(next(each for each in (*BROKERS, 9) if each not in partition.replicas))
            if kind == "empty":
                isr = []
            epochs = {each: -1 if without_epochs else station.epoch(each) for each in (*BROKERS, 9)}
            if kind == "old member" and isr:
                epochs[isr[-1]] -= 1
            shift = {"old leader": -1, "new leader": 1}.get(kind, 0)
            step = {"old partition": -1, "new partition": 1}.get(kind, 0)
            change = {
                "partition_index": number,
                "leader_epoch": partition.leader_epoch + shift,
                "new_isr_with_epochs": [
                    {"broker_id": each, "broker_epoch": epochs[each]} for each in isr
                ],
                "leader_recovery_state": int(kind == "recovering"),
                "partition_epoch": partition.partition_epoch + step,
            }
            return {
                "broker_id": sender,
                "broker_epoch": station.epoch(sender) - (kind == "stale"),
                "topics": [{"topic_id": station.topic_id(name), "partitions": [change]}],
            }

        return "alter_partition", 3, make

    def elect(self) -> tuple[str, int, Make]:
        """An election of one partition, or of all."""
        rng = self.random
        name, number, is_all = rng.choice(TOPICS), rng.choice((0, 1)), rng.random() < 0.3
        asked = None if is_all else [{"topic": name, "partitions": [number]}]
        fields = {
            "election_type": rng.choice((0, 0, 1, 2)),
            "topic_partitions": asked,
            "timeout_ms": 30_000,
        }
        return "elect_leaders", 2, lambda _: fields

    def reassign(self) -> tuple[str, int, Make]:
        """Other replicas, or the end of a reassignment."""
        rng = self.random
        name, number = rng.choice(TOPICS), rng.choice((0, 1))
        target: Sequence[int] | None = rng.sample(BROKERS, rng.choice((1, 2, 3)))
        if rng.random() < 0.3:
            target = None
        change = {"partition_index": number, "replicas": target}
        fields = {
            "timeout_ms": 30_000,
            "allow_replication_factor_change": rng.random() < 0.8,
            "topics": [{"name": name, "partitions": [change]}],
        }
        return "alter_partition_reassignments", 1, lambda _: fields

    def list_reassignments(self) -> tuple[str, int, Make]:
        """Asks for the reassignments in progress."""
        fields = {"timeout_ms": 30_000, "topics": None}
        return "list_partition_reassignments", 0, lambda _: fields

    def assign_directories(self) -> tuple[str, int, Make]:
        """A replica lies in another directory, which may be gone."""
        rng = self.random
        broker_id, name, number = self._any(), rng.choice(TOPICS), rng.choice((0, 1))
        directory = rng.choice(
            (
                directory_of(broker_id),
                directory_of(broker_id, 1),
                directory_of(broker_id, 2),
                LOST_DIRECTORY,
                UNASSIGNED_DIRECTORY,
            )
        )

        def make(station: Station) -> Mapping[str, Any]:
            partitions = [{"partition_index": number}]
            topics = [{"topic_id": station.topic_id(name), "partitions": partitions}]
            return {
                "broker_id": broker_id,
                "broker_epoch": station.epoch(broker_id),
                "directories": [{"id": directory, "topics": topics}],
            }

        return "assign_replicas_to_dirs", 0, make

    # ---- the rest

    def allocate_ids(self) -> tuple[str, int, Make]:
        """A block of producer ids."""
        broker_id = self._any()
        return (
            "allocate_producer_ids",
            0,
            lambda station: {"broker_id": broker_id, "broker_epoch": station.epoch(broker_id)},
        )

    def unregister(self) -> tuple[str, int, Make]:
        """A broker is removed, though it may live."""
        broker_id = self._any()
        return "unregister_broker", 0, lambda _: {"broker_id": broker_id}


def differences(kafka: Station, cordwood: Station, seed: int, steps: int) -> list[str]:
    """Differences between both answers, or writes; it ends with the first one."""
    script = ControllerScript(seed)
    begin = script.begin()
    for step in range(steps):
        api, version, make = begin[step] if step < len(begin) else script.next()
        asked, answers, written = [], [], []
        for station in (kafka, cordwood):
            fields = make(station)
            answer = station.ask(api, version, fields)
            written.append(station.new_records())
            asked.append(station.normal(fields))
            answers.append(station.normal(answer))
        if answers[0] != answers[1] or written[0] != written[1]:
            return [
                f"seed {seed}, step {step}: {api} {asked[0]}",
                f"Kafka: {answers[0]}",
                f"Cordwood: {answers[1]}",
                *(f"Kafka wrote {each}" for each in written[0]),
                *(f"Cordwood wrote {each}" for each in written[1]),
            ]
    return []
