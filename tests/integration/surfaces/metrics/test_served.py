"""Metrics of a running broker after actions on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.metadata.image import MetadataImage
from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.metrics.metric import MetricType
from cordwood.surfaces.metrics.table import METRICS
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import CompiledEngine
from support.kafka import poll_until
from support.scrape import Probe, probed
from support.wire import Wire

TOPIC = "kafka_server_brokertopicmetrics_"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    # The clock is the test's: the cleaner's own threads find nothing to do before it is moved.
    properties = {
        "offsets.topic.num.partitions": "1",
        "log.cleaner.backoff.ms": "3600000",
        "cordwood.trash.dir": str(tmp_path / "trash"),
    }
    log_dir = tmp_path / "logs"
    with RunningBroker(properties, log_dir=log_dir, engine=CompiledEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def client(broker: RunningBroker, **settings: str) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }


def create(broker: RunningBroker, topic: str, partitions: int = 1, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient(client(broker))
    for done in admin.create_topics([NewTopic(topic, partitions, 1, config=named)]).values():
        done.result()


def produce(
    broker: RunningBroker, topic: str, *values: bytes, key: bytes | None = b"k", **settings: str
) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer = Producer(client(broker, linger_ms="5", **settings))
    for value in values:
        producer.produce(topic, value, key=key, on_delivery=note)
    assert producer.flush(120) == 0
    return errors


def consume(broker: RunningBroker, topic: str, count: int) -> Consumer:
    """A member of the group `g` that has read and committed so many records."""
    consumer = Consumer(
        client(broker, group_id="g", auto_offset_reset="earliest", enable_auto_commit="false")
    )
    consumer.subscribe([topic])
    read = consumer.consume(count, 120)
    assert len(read) == count
    consumer.commit(asynchronous=False)
    return consumer


def test_every_metric_of_the_table_is_served(broker: RunningBroker, probe: Probe) -> None:
    create(broker, "table", cleanup_policy="compact", cordwood_retention_groups="readers")
    assert produce(broker, "table", b"v") == [None]
    consumer = consume(broker, "table", 1)
    producer = Producer(client(broker, transactional_id="open"))
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce("table", b"v", key=b"k")
    assert producer.flush(120) == 0
    scrape = probe.scrape()
    producer.abort_transaction(120)
    consumer.close()
    for metric in METRICS:
        name = f"{metric.name}_count" if metric.type is MetricType.SUMMARY else metric.name
        assert name in scrape.names, metric.name
        family = scrape.families[metric.name.removesuffix("_total")]
        assert family.documentation == metric.help
        assert family.type == metric.type.value
        allowed = {*metric.labels, "is_future", "cluster_id"}
        assert all(labels.keys() <= allowed for labels in scrape.labels(name))
    assert scrape.value("process_resident_memory_bytes") > 1_000_000


def test_records_produced_are_counted_by_topic_and_in_all(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "orders", partitions=2)
    create(broker, "others")
    produce(broker, "orders", *[b"v" * 100] * 30)
    produce(broker, "others", *[b"v"] * 5)
    scrape = probe.scrape()
    assert scrape.value(f"{TOPIC}messagesin_total", topic="orders") == 30
    assert scrape.value(f"{TOPIC}messagesin_total", topic="others") == 5
    assert scrape.value(f"{TOPIC}messagesin_total") == 35
    logs = broker.broker.replicas.logs.logs()
    size = sum(log.size_bytes for log in logs if log.topic_partition.topic == "orders")
    assert scrape.value(f"{TOPIC}bytesin_total", topic="orders") == size > 3000
    requests = scrape.value(f"{TOPIC}totalproducerequests_total", topic="orders")
    assert 1 <= requests <= 30
    for log in logs:
        labels = {
            "topic": log.topic_partition.topic,
            "partition": str(log.topic_partition.partition),
        }
        assert scrape.value("kafka_log_log_logendoffset", **labels) == log.log_end_offset
        assert scrape.value("kafka_log_log_size", **labels) == log.size_bytes
        assert scrape.value("kafka_log_log_numlogsegments", **labels) == 1


def test_fetches_of_followers_are_counted_apart_from_those_of_consumers(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "orders")
    nothing = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    follower = {"replica_id": 2, "replica_epoch": -1}
    with Wire(broker.port) as wire:
        for version, sender in ((12, {"replica_id": -1}), (16, {}), (12, {"replica_id": 2})):
            wire.ask("fetch", version, nothing | sender)
        wire.ask("fetch", 16, nothing | {"replica_state": follower})
    scrape = probe.scrape()
    name = "kafka_network_requestmetrics_requests_total"
    for request, count in (("FetchConsumer", 1), ("FetchFollower", 1), ("Fetch", 2)):
        counts = [scrape.value(name, request=request, version=each) for each in ("12", "16")]
        assert counts == [count, count], request


def test_a_consumer_shows_in_bytes_out_requests_connections_and_groups(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "orders")
    produce(broker, "orders", *[b"v"] * 10)
    consumer = consume(broker, "orders", 10)
    scrape = probe.scrape()
    size = scrape.value("kafka_log_log_size", topic="orders", partition="0")
    assert scrape.value(f"{TOPIC}bytesout_total", topic="orders") == size
    group = "kafka_coordinator_group_groupmetadatamanager_"
    assert scrape.value(f"{group}numgroups") == 1
    assert scrape.value(f"{group}numgroupsstable") == 1
    assert scrape.value(f"{group}numoffsets") == 1
    counted = "kafka_server_group_coordinator_metrics_"
    assert scrape.value(f"{counted}offset_commit_count") >= 1
    assert scrape.value(f"{counted}group_completed_rebalance_count") == 1
    assert scrape.value(f"{counted}consumer_group_rebalance_count") == 0
    assert scrape.value(f"{TOPIC}messagesin_total", topic="__consumer_offsets") >= 2
    for request in ("Fetch", "FetchConsumer", "JoinGroup"):
        times = "kafka_network_requestmetrics_totaltimems"
        happened = scrape.value(f"{times}_count", request=request)
        assert happened >= 1
        assert scrape.value(f"{times}_sum", request=request) > 0
        assert scrape.value(times, request=request, quantile="0.99") > 0
        by_version = [
            scrape.value("kafka_network_requestmetrics_requests_total", **labels)
            for labels in scrape.labels("kafka_network_requestmetrics_requests_total")
            if labels["request"] == request
        ]
        assert sum(by_version) == happened
    here = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    open_now = scrape.value("kafka_server_socket_server_metrics_connection_count", **here)
    assert open_now >= 1
    software = scrape.labels("kafka_server_socket_server_metrics_connections_software")
    assert any("confluent" in labels["clientSoftwareName"] for labels in software)
    consumer.close()
    poll_until(
        lambda: probe.scrape().value(f"{group}numgroupsempty") == 1,
        timeout_s=120,
        what="the end of the group's only member",
    )
    assert probe.scrape().value(f"{group}numgroupsstable") == 0


def test_a_topic_that_is_deleted_has_no_values_any_more(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "orders")
    produce(broker, "orders", b"v")
    before = probe.scrape()
    assert len([name for name in before.names if "orders" in str(before.labels(name))]) > 10
    admin = AdminClient(client(broker))
    for done in admin.delete_topics(["orders"]).values():
        done.result()
    scrape = probe.scrape()
    assert not [name for name in scrape.names if "orders" in str(scrape.labels(name))]
    assert scrape.value(f"{TOPIC}messagesin_total") == 1
    assert scrape.value("kafka_controller_kafkacontroller_globaltopiccount") == 0


def test_names_that_clients_make_up_leave_no_trace(broker: RunningBroker, probe: Probe) -> None:
    def ask(node: object) -> None:
        metrics = broker.broker.metrics
        assert not metrics.topics, node

    errors = produce(
        broker, "nothing", b"v", allow_auto_create_topics="false", message_timeout_ms="500"
    )
    assert errors[0] is not None
    broker.call(ask)


def test_a_record_without_key_for_a_compacted_topic_is_counted_as_refused(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "table", cleanup_policy="compact")
    errors = produce(broker, "table", b"v", key=None)
    assert [error.code() for error in errors if error] == [KafkaError.INVALID_RECORD]
    scrape = probe.scrape()
    assert scrape.value(f"{TOPIC}nokeycompactedtopicrecords_total") == 1
    assert scrape.value(f"{TOPIC}failedproducerequests_total", topic="table") == 1
    assert scrape.value(f"{TOPIC}failedproducerequests_total") == 1
    assert scrape.find(f"{TOPIC}messagesin_total", topic="table") is None


def test_a_batch_that_is_too_large_counts_its_bytes_and_is_no_failure_of_the_broker(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "small", max_message_bytes="500")
    errors = produce(broker, "small", b"v" * 1000)
    assert [error.code() for error in errors if error] == [KafkaError.MSG_SIZE_TOO_LARGE]
    scrape = probe.scrape()
    assert scrape.value(f"{TOPIC}bytesrejected_total", topic="small") > 1000
    assert scrape.value(f"{TOPIC}failedproducerequests_total") == 0
    assert scrape.value(f"{TOPIC}totalproducerequests_total", topic="small") == 1


def test_records_of_batches_that_are_packed_anew_are_counted(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "zipped", compression_type="lz4")
    produce(broker, "zipped", *[b"v" * 50] * 7)
    value = probe.scrape().value(f"{TOPIC}producemessageconversions_total", topic="zipped")
    assert value == 7


def test_a_partition_that_cannot_be_cleaned_counts_as_one(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "table", cleanup_policy="compact")
    produce(broker, "table", b"v")
    directory = {"logDirectory": str(broker.log_dir)}
    name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    assert probe.scrape().value(name, **directory) == 0
    log = broker.broker.replicas.logs.require(TopicPartition("table", 0))
    broker.node.cleaner.manager.mark_uncleanable(log, "a reason")
    assert probe.scrape().value(name, **directory) == 1


def test_a_directory_that_fails_is_shown_with_its_replicas(
    broker: RunningBroker, probe: Probe, tmp_path: Path
) -> None:
    create(broker, "orders", partitions=3)
    directory = {"logDirectory": str(tmp_path / "logs")}
    before = probe.scrape()
    assert before.value("kafka_server_replicamanager_partitioncount") == 3
    assert before.value("kafka_server_replicamanager_leadercount") == 3
    assert before.value("kafka_log_logmanager_logdirectoryoffline", **directory) == 0
    broker.broker.replicas.logs.context.failures.fail(tmp_path / "logs", "the disk is gone")
    after = probe.scrape()
    assert after.value("kafka_log_logmanager_logdirectoryoffline", **directory) == 1
    assert after.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert after.value("kafka_server_replicamanager_offlinereplicacount") == 3
    assert after.value("kafka_server_replicamanager_leadercount") == 0
    assert after.value("kafka_server_replicamanager_partitioncount") == 3


def test_a_fetch_that_waits_is_in_the_purgatory_until_its_time_is_up(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "orders")
    consumer = Consumer(
        client(broker, group_id="g", auto_offset_reset="earliest", fetch_wait_max_ms="100")
    )
    consumer.subscribe(["orders"])
    expired = "kafka_server_delayedfetchmetrics_expires_total"
    seen = False
    for _ in range(2_400):  # two minutes
        assert consumer.poll(0.05) is None
        scrape = probe.scrape()
        waiting = scrape.value(
            "kafka_server_delayedoperationpurgatory_numdelayedoperations", delayedOperation="Fetch"
        )
        watched = scrape.value(
            "kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch"
        )
        # The two are read one after the other: a fetch may come or go between them.
        assert {waiting, watched} <= {0, 1}
        seen = seen or waiting == watched == 1
        if seen and scrape.value(expired, fetcherType="consumer"):
            break
    else:
        pytest.fail("no fetch waited")
    consumer.close()


def test_the_cluster_of_the_image_is_counted(broker: RunningBroker, probe: Probe) -> None:
    create(broker, "orders", partitions=3)
    create(broker, "table", cleanup_policy="compact")
    image: MetadataImage = broker.call(lambda each: each.metadata.image)
    scrape = probe.scrape()
    controller = "kafka_controller_kafkacontroller_"
    assert scrape.value(f"{controller}globaltopiccount") == 2
    assert scrape.value(f"{controller}globalpartitioncount") == 4
    assert scrape.value(f"{controller}activebrokercount") == 1
    assert scrape.value(f"{controller}fencedbrokercount") == 0
    assert scrape.value(f"{controller}offlinepartitionscount") == 0
    assert scrape.value("kafka_server_raftmetrics_high_watermark") == image.next_offset
    level = {"featureName": "metadataVersion"}
    assert scrape.value("kafka_server_metadataloader_finalizedlevel", **level) == 30
    cluster = {"cluster_id": broker.broker.cluster_id}
    assert scrape.value("kafka_server_kafkaserver_clusterid", **cluster) == 1


def test_scrapes_go_on_while_topics_come_and_go(broker: RunningBroker, probe: Probe) -> None:
    async def scrape_all() -> list[float]:
        scrapes = [asyncio.to_thread(probe.scrape) for _ in range(8)]
        changes = [asyncio.to_thread(create, broker, f"t{number}", 5) for number in range(4)]
        found = await asyncio.gather(*scrapes)
        await asyncio.gather(*changes)
        return [each.value("kafka_server_kafkaserver_brokerstate") for each in found]

    assert asyncio.run(scrape_all()) == [3.0] * 8
