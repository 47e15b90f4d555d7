"""Names that nothing asks for in a server.properties, and those that only look so."""

from __future__ import annotations

import pytest

from cordwood.configs.table import broker_settings
from cordwood.configs.unknown import unknown_settings
from cordwood.model.errors import UnknownSettingError
from cordwood.testing.cluster import Cluster


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("log.retenton.hours", "did you mean log.retention.hours?"),
        ("num.partition", "did you mean num.partitions?"),
        ("auto.create.topic.enable", "did you mean auto.create.topics.enable?"),
        ("cordwood.trash.dirs", "did you mean cordwood.trash.dir?"),
        ("cordwood.cleaner.verfy", "did you mean cordwood.cleaner.verify?"),
        ("retention.ms", "for a broker it is called log.retention.ms"),
        ("zookeeper.session.timeout.ms", "was removed in Kafka 4.0, with ZooKeeper"),
        ("advertised.host.name", "set advertised.listeners"),
        ("leader.replication.throttled.rate", "can be set for a running broker only"),
        ("foo.bar", "neither Kafka 4.4 nor Cordwood has a setting of that name"),
    ],
)
def test_a_name_that_nothing_asks_for_is_said_with_advice(name: str, advice: str) -> None:
    assert advice in unknown_settings({name: "1"})[name]


def test_what_kafka_and_its_parts_and_plugins_read_is_known() -> None:
    names = [
        *broker_settings(),
        "listener.name.external.ssl.keystore.location",
        "listener.name.internal.scram-sha-256.sasl.jaas.config",
        "super.users",
        "allow.everyone.if.no.acl.found",
        "metrics.jmx.include",
        "config.providers.vault.class",
        "config.providers.vault.param.uri",
        "rsm.config.storage.backend.class",
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        "kafka.csv.metrics.dir",
        "confluent.metrics.reporter.bootstrap.servers",
        "cruise.control.metrics.topic.auto.create",
        "cordwood.cleaner.verify",
        "cordwood.topic.orders.cordwood.trash.ms",
    ]
    assert unknown_settings(dict.fromkeys(names, "")) == {}


def test_beside_a_plugin_only_a_name_that_is_like_a_known_one_is_unknown() -> None:
    given = {
        "metric.reporters": "org.example.Reporter",
        "example.reporter.address": "h:1",
        "num.partition": "3",
        "remote.log.storage.manager.impl.prefix": "tiers.",
        "tiers.bucket": "b",
    }
    assert list(unknown_settings(given)) == ["num.partition"]
    assert "example.reporter.address" in unknown_settings({"example.reporter.address": "h:1"})


def test_a_cluster_for_tests_refuses_them() -> None:
    with pytest.raises(UnknownSettingError, match=r"Cluster: unknown settings: num\.partition"):
        Cluster(properties={"num.partition": 3})
