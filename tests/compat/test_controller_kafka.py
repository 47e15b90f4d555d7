"""A metadata log that goes from a real Kafka to Cordwood and back, and is the same for both."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from cordwood.configs.resource import ConfigChange
from cordwood.controller.controller import Controller
from cordwood.format.clean_shutdown import build_clean_shutdown
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.metadata.controller_requests import (
    BrokerRegistration,
    CreatedTopic,
    DirectoryAssignment,
    NewPartitions,
    QuotaChange,
)
from cordwood.metadata.controller_requests import NewTopic as NewTopicHere
from cordwood.metadata.formatting import (
    format_directories,
    read_directory,
    read_previous_broker_epoch,
)
from cordwood.metadata.image import Endpoint, MetadataImage
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.replay import read_metadata_image
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.model.clock import SystemClock
from cordwood.model.uuids import fresh_uuid, uuid_text
from support.applied import wait_until_applied
from support.controller_under_test import put_together, requests_to
from support.kafka import RealKafka
from support.kafka_programs import kafka_tool
from support.ports import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

CLUSTER_ID = "Y29yZHdvb2QtdGVzdHMtMQ"
METADATA = "__cluster_metadata-0"
NODE_ID = 1
CLOCK = SystemClock()
SNAPSHOTS_OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "600"}

Described = dict[str, tuple[str, dict[int, int], dict[str, str]]]
"""Topics by name: id, leaders of partitions, settings of their own."""


def run(tool: str, *args: str) -> str:
    """The output of one of Kafka's tools; it has to succeed."""
    done = kafka_tool(tool, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def described_by(admin: AdminClient) -> Described:
    """The topics as a client of Kafka sees them."""
    names = sorted(name for name in admin.list_topics(timeout=120).topics)
    if not names:
        return {}
    topics = admin.describe_topics(TopicCollection(names))
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    settings = {
        resource.name: {
            entry.name: entry.value for entry in future.result().values() if entry.source == 1
        }
        for resource, future in configs.items()
    }
    found: Described = {}
    for name, future in topics.items():
        topic = future.result()
        high, low = (
            topic.topic_id.get_most_significant_bits(),
            topic.topic_id.get_least_significant_bits(),
        )
        topic_id = uuid.UUID(bytes=struct.pack(">qq", high, low))
        leaders = {each.id: each.leader.id for each in topic.partitions}
        found[name] = (uuid_text(topic_id), leaders, settings[name])
    return found


def described_in(image: MetadataImage) -> Described:
    """The topics of an image, in the same form; those who lead while the broker serves."""
    return {
        name: (
            uuid_text(topic.topic_id),
            {number: each.replicas[0] for number, each in topic.partitions.items()},
            dict(image.topic_config(name)),
        )
        for name, topic in image.topics.items()
    }


def opened(log_dirs: list[Path]) -> Controller:
    """Cordwood's controller on directories that a real Kafka has stopped on."""
    properties = [read_directory(log_dir) for log_dir in log_dirs]
    ids = [each.directory_id for each in properties if each and each.directory_id]
    assert len(ids) == len(log_dirs)
    controller = Controller.open(
        metadata_dir=log_dirs[0],
        node_id=NODE_ID,
        directory_ids=ids,
        clock=CLOCK,
    )
    controller.register_broker(
        BrokerRegistration(
            broker_id=NODE_ID,
            incarnation_id=fresh_uuid(controller.context.rng),
            endpoints=(Endpoint(name="PLAINTEXT", host="localhost", port=9092),),
            log_dirs=tuple(ids),
            previous_broker_epoch=read_previous_broker_epoch(log_dirs),
        )
    )
    controller.unfence()
    return controller


def closed(controller: Controller, log_dirs: list[Path]) -> None:
    """A clean stop, as it is also noted beside the logs."""
    controller.close()
    for log_dir in log_dirs:
        (log_dir / ".kafka_cleanshutdown").write_bytes(
            build_clean_shutdown(controller.broker_epoch)
        )


def changed_here(log_dirs: list[Path]) -> Described:
    """Makes, changes and deletes in Cordwood's controller, with a snapshot between."""
    controller = opened(log_dirs)
    made = requests_to(controller).create_topics(
        [
            NewTopicHere(name="here", num_partitions=2, configs={"retention.ms": "7000"}),
            NewTopicHere(name="gone-here"),
        ]
    )
    assert all(isinstance(each, CreatedTopic) for each in made), made
    assert requests_to(controller).delete_topics(["gone-here", "kafkas-2"]) == [None, None]
    changes = [
        ConfigChange(resource_type=2, name="kafkas", values={"cleanup.policy": "compact"}),
        ConfigChange(resource_type=2, name="here", values={"max.message.bytes": "2000000"}),
    ]
    assert requests_to(controller).alter_configs(changes[:1]) == [None]
    snapshots = SnapshotGenerator(
        controller.log, settings=controller.settings, context=controller.context
    )
    loader = MetadataLoader(controller.log)
    loader.install(snapshots)
    loader.catch_up()
    snapshots.write()
    assert requests_to(controller).alter_configs(changes[1:]) == [None]
    quota = QuotaChange(entity={"user": "here"}, ops=[("producer_byte_rate", 1024.0)])
    assert requests_to(controller).alter_client_quotas([quota]) == [None]
    assert requests_to(controller).create_partitions([NewPartitions(topic="here", count=3)]) == [
        None
    ]
    found = described_in(controller.image)
    closed(controller, log_dirs)
    return found


def changed_there(kafka: RealKafka, admin: AdminClient) -> None:
    """Makes, changes and deletes in a real Kafka."""
    topics = [
        NewTopic("kafkas", 3, 1, config={"min.insync.replicas": "1", "retention.ms": "5000"}),
        NewTopic("kafkas-2", 1, 1),
        NewTopic("gone", 1, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result()
    for future in admin.delete_topics(["gone"]).values():
        future.result()
    server = ["--bootstrap-server", kafka.bootstrap_servers, "--alter"]
    user = ["--entity-type", "users", "--entity-name", "u"]
    run("configs", *server, "--add-config", "consumer_byte_rate=2048", *user)
    run("configs", *server, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=x]", *user)
    topic = ["--entity-type", "topics", "--entity-name", "kafkas-2"]
    run("configs", *server, "--add-config", "segment.ms=60000", *topic)
    broker = ["--entity-type", "brokers", "--entity-default"]
    run("configs", *server, "--add-config", "log.cleaner.threads=1", *broker)
    wait_until_applied(kafka.port)


def require_no_errors(kafka: RealKafka) -> None:
    """No error is in what Kafka has logged since its start."""
    assert kafka.errors_since_start == []


def require_same_bytes(directory: Path) -> None:
    """Each batch of a log and of its snapshots is what Cordwood would write."""
    count = 0
    for path in [*directory.glob("*.log"), *directory.glob("*.checkpoint")]:
        data = path.read_bytes()
        for position, batch in iter_batches(data):
            assert isinstance(batch, RecordBatch)
            original = data[position : position + batch.header.size_bytes]
            assert put_together(batch) == original, (path.name, batch.header.base_offset)
            count += 1
    assert count > 10


def quotas_in(image: MetadataImage) -> dict[str, dict[str, float]]:
    """Quotas of single users by name."""
    return {
        str(dict(entity)["user"]): dict(quotas) for entity, quotas in image.client_quotas.items()
    }


def test_a_log_of_a_real_kafka_is_read_changed_and_read_again(tmp_path: Path) -> None:
    with RealKafka(tmp_path) as kafka:
        admin = kafka.start(SNAPSHOTS_OFTEN)
        changed_there(kafka, admin)
        seen = described_by(admin)
        kafka.stop()
        (log_dir,) = kafka.log_dirs
        directory = log_dir / METADATA
        assert list(directory.glob("*.checkpoint")), "Kafka has written snapshots"
        require_same_bytes(directory)

        controller = opened(kafka.log_dirs)
        assert described_in(controller.image) == seen
        assert set(seen) == {"kafkas", "kafkas-2"}
        assert quotas_in(controller.image) == {"u": {"consumer_byte_rate": 2048.0}}
        assert controller.image.configs[4, ""]["log.cleaner.threads"] == "1"
        assert [name for _, name in controller.image.scram_credentials] == ["u"]
        partition = controller.image.topics["kafkas"].partitions[0]
        assert (partition.leader, partition.isr, partition.recovery_state) == (1, (1,), 0)
        closed(controller, kafka.log_dirs)

        expected = changed_here(kafka.log_dirs)
        admin = kafka.start()
        assert described_by(admin) == expected
        assert set(expected) == {"kafkas", "here"}
        server = ["--bootstrap-server", kafka.bootstrap_servers]
        told = run("configs", *server, "--describe", "--entity-type", "users")
        assert "'here' are producer_byte_rate=1024.0" in told
        assert "SCRAM credential configs for user-principal 'u' are SCRAM-SHA-256" in told
        require_no_errors(kafka)
        kafka.stop()
        assert described_in(read_metadata_image(directory)) == expected


def test_what_cordwood_formats_a_real_kafka_goes_on_with(tmp_path: Path) -> None:
    log_dirs = [tmp_path / "d1", tmp_path / "d2"]
    controller_port = free_port()
    format_directories(
        log_dirs,
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        clock=CLOCK,
        controller_endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=controller_port)],
    )
    with RealKafka(tmp_path / "kafka", log_dirs=log_dirs) as kafka:
        kafka.properties = dynamic_quorum(kafka, controller_port)
        admin = kafka.start()
        changed_there(kafka, admin)
        seen = described_by(admin)
        require_no_errors(kafka)
        kafka.stop()
        require_same_bytes(log_dirs[0] / METADATA)

        expected = changed_here(log_dirs)
        assert expected.keys() - {"here"} == seen.keys() - {"kafkas-2"}
        admin = kafka.start()
        assert described_by(admin) == expected
        quorum = run(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            *("--bootstrap-server", kafka.bootstrap_servers, "describe", "--status"),
        )
        assert f'CurrentVoters:          [{{"id": {NODE_ID}, "directoryId": ' in quorum
        require_no_errors(kafka)
        kafka.stop()


def test_a_controller_that_never_saw_a_real_kafka_hands_over_to_one(tmp_path: Path) -> None:
    log_dirs = [tmp_path / "d1", tmp_path / "d2"]
    controller_port = free_port()
    format_directories(
        log_dirs,
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        clock=CLOCK,
        controller_endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=controller_port)],
    )
    controller = opened(log_dirs)
    requests_to(controller).create_topics([NewTopicHere(name="t", num_partitions=2)])
    topic = controller.image.topics["t"]
    second = controller.directory_ids[1]
    controller.assign_directories(
        1, [DirectoryAssignment(topic.topic_id, number, second) for number in (0, 1)]
    )
    closed(controller, log_dirs)
    with RealKafka(tmp_path / "kafka", log_dirs=log_dirs) as kafka:
        kafka.properties = dynamic_quorum(kafka, controller_port)
        admin = kafka.start()
        assert set(described_by(admin)) == {"t"}
        require_no_errors(kafka)
        kafka.kill()
    assert (log_dirs[1] / "t-0").is_dir()
    assert not (log_dirs[0] / "t-0").exists()
    again = opened(log_dirs)
    partition = again.image.topics["t"].partitions[0]
    assert (partition.leader, partition.directories) == (1, (second,))
    again.abandon()


def dynamic_quorum(kafka: RealKafka, controller_port: int) -> dict[str, str]:
    """The properties of a node whose voters are in its directories."""
    controller = f"127.0.0.1:{controller_port}"
    return {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},CONTROLLER://{controller}",
    }


def masked(data: bytes, known: Mapping[bytes, bytes]) -> bytes:
    """A snapshot's bytes without times and checksums, and with ids replaced."""
    out = bytearray(data)
    for position, batch in iter_batches(data):
        assert isinstance(batch, RecordBatch)
        for start, size in ((17, 4), (27, 16)):  # CRC; base and maximum timestamp
            out[position + start : position + start + size] = bytes(size)
    found = bytes(out)
    for old, new in known.items():
        found = found.replace(old, new)
    return found


def test_directories_are_formatted_as_kafkas_tool_does_it(tmp_path: Path) -> None:
    theirs = [tmp_path / "kafka" / name for name in ("d1", "d2")]
    ours = [tmp_path / "cordwood" / name for name in ("d1", "d2")]
    for log_dir in theirs:
        log_dir.mkdir(parents=True)
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"log.dirs={','.join(str(each) for each in theirs)}\n"
    )
    run("storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--standalone")
    format_directories(
        ours,
        node_id=NODE_ID,
        cluster_id=CLUSTER_ID,
        clock=CLOCK,
        controller_endpoints=[Endpoint(name="CONTROLLER", host="127.0.0.1", port=9093)],
        # Kafka's defaults; ours are those that are served.
        features={
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        },
    )

    def contents(root: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in sorted(root.rglob("*")):
            if not path.is_file():
                continue
            name, mode = str(path.relative_to(root)), path.stat().st_mode & 0o777
            data: object = path.read_bytes()
            if path.suffix == ".checkpoint":
                known = {}
                properties = read_directory(root / name.partition("/")[0])
                assert properties is not None
                assert properties.directory_id is not None
                known[properties.directory_id.bytes] = b"directory id...."
                data = masked(path.read_bytes(), known)
                header = re.escape(b"\x16")  # the value's length, then version, time, tags
                data = re.sub(header + rb"\x00\x00.{8}\x00", b"header", data, count=1, flags=re.S)
            elif path.name == "meta.properties":
                lines = path.read_text().splitlines()
                data = {
                    line.partition("=")[0]: line.partition("=")[2]
                    for line in lines
                    if not line.startswith(("#", "directory.id"))
                }
            found[name] = (mode, data)
        return found

    assert contents(tmp_path / "cordwood") == contents(tmp_path / "kafka")
