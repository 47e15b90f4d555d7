"""Config requests in a fixed order, for a real Kafka and for Cordwood, whose answers must agree.

The broker asked is node 1 with the topics `orders` and `plain`, and the static settings of
`STATIC_PROPERTIES` beside what it takes to run. Kinds of resources: 2 topic, 4 broker, 8 its
loggers, 16 client metrics, 32 group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from support.config_client import Change

TOPICS: Final = ("orders", "plain")
STATIC_PROPERTIES: Final[Mapping[str, str]] = {
    "log.retention.hours": "0048",
    "log.roll.jitter.hours": "1",
    "log.roll.ms": "86400000",
    "log.roll.hours": "12",
    "log.cleanup.policy": " delete , compact",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.flush.scheduler.interval.ms": "60000",
    "my.own.key": "kept",
    "listener.name.plaintext.max.connections": "700",
    "max.connections.per.ip.overrides": "127.0.0.1:50",
    "ssl.endpoint.identification.algorithm": "",
    "group.share.max.size": "100",
    "group.consumer.session.timeout.ms": "46000",
    "compression.type": "lz4",
}

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

_EVERYTHING: Final = (
    (TOPIC, "orders"),
    (TOPIC, "plain"),
    (BROKER, "1"),
    (BROKER, ""),
    (CLIENT_METRICS, "subscription"),
    (CLIENT_METRICS, "none"),
    (GROUP, "readers"),
    (GROUP, "none"),
)
_NOWHERE: Final = (
    (TOPIC, "nowhere"),
    (TOPIC, ""),
    (TOPIC, "a b"),
    (TOPIC, ".."),
    (TOPIC, "x" * 250),
    (BROKER, "2"),
    (BROKER, "x"),
    (BROKER, "01"),
    (BROKER, "-1"),
    (LOGGER, ""),
    (LOGGER, "x"),
    (LOGGER, "2"),
    (CLIENT_METRICS, ""),
    (GROUP, ""),
)

Answer = Any
Step = tuple[str, Any]


class Asked(Protocol):
    """A broker that answers config requests: `ConfigClient`, or one without a socket."""

    def describe(
        self,
        *resources: tuple[int, str],
        keys: Sequence[str] | None = None,
        documentation: bool = False,
        synonyms: bool = True,
    ) -> list[dict[str, Any]]:
        """DescribeConfigs."""

    def alter(
        self, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False
    ) -> list[dict[str, Any]]:
        """IncrementalAlterConfigs."""

    def replace(
        self,
        *resources: tuple[int, str, Sequence[tuple[str, str | None]]],
        validate_only: bool = False,
    ) -> list[dict[str, Any]]:
        """AlterConfigs."""

    def resources(self, *kinds: int) -> dict[str, Any]:
        """ListConfigResources."""

    def create(
        self, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> dict[str, Any]:
        """CreateTopics."""


def play(broker: Asked, *, settle: Any = None) -> Iterator[tuple[str, Any]]:
    """Steps of the scenario, in words, and the answers; `settle` waits until changes are in."""
    for what, arguments in steps():
        kind, _, _ = what.partition(" ")
        match kind:
            case "describe":
                answer: Any = broker.describe(*arguments)
            case "keys":
                resources, keys = arguments
                answer = broker.describe(*resources, keys=keys, synonyms=False)
            case "alter" | "try":
                answer = broker.alter(*arguments, validate_only=kind == "try")
            case "replace" | "try-replace":
                answer = broker.replace(*arguments, validate_only=kind == "try-replace")
            case "create":
                answer = broker.create("new", arguments, validate_only=True)
            case _:
                answer = broker.resources(*arguments)
        if kind in {"alter", "replace"} and settle is not None:
            settle()
        yield what, answer


def steps() -> Iterator[Step]:
    """The requests: each a kind with what it is about, and the arguments."""
    yield "describe everything at first", _EVERYTHING
    yield "describe nowhere", _NOWHERE
    yield "keys some", (_EVERYTHING, ["retention.ms", "log.retention.ms", "interval.ms", "no.such"])
    yield "keys none", (_EVERYTHING, [])
    yield "resources all", ()
    yield "resources topics and brokers", (TOPIC, BROKER)
    yield "resources unknown", (7,)
    yield from _creations("at first")
    yield from _tries()
    yield from _changes()


def _tries() -> Iterator[Step]:
    for key, values in _TOPIC_VALUES.items():
        for value in values:
            yield (
                f"try topic {key}={value}",
                [(TOPIC, "orders", [Change(key, value)])],
            )
    for name in ("1", ""):
        for key, values in _BROKER_VALUES.items():
            for value in values:
                yield f"try broker {name!r} {key}={value}", [(BROKER, name, [Change(key, value)])]
    for kind, table in ((CLIENT_METRICS, _CLIENT_METRICS_VALUES), (GROUP, _GROUP_VALUES)):
        for key, values in table.items():
            for value in values:
                yield f"try {kind} {key}={value}", [(kind, "some", [Change(key, value)])]
    for number, resources in enumerate(_ODD):
        yield f"try odd {number} {resources}", resources
    for number, (kind, name, settings) in enumerate(_REPLACEMENTS):
        yield f"try-replace {number} {(kind, name, settings)}", [(kind, name, settings)]


def _creations(when: str) -> Iterator[Step]:
    for settings in _NEW_TOPICS:
        yield f"create {when} {settings}", settings


def _changes() -> Iterator[Step]:
    for number, resources in enumerate(_LASTING):
        yield f"alter {number} {resources}", resources
        if number % 6 == 5:
            yield f"describe after {number}", _EVERYTHING
    yield "describe after all changes", _EVERYTHING
    yield "resources all, later", ()
    yield from _creations("later")
    yield "replace topic", [(TOPIC, "orders", [("retention.bytes", "5000")])]
    yield "replace broker", [(BROKER, "1", [("log.retention.ms", "700000")])]
    yield "replace group", [(GROUP, "readers", [])]
    yield "replace metrics", [(CLIENT_METRICS, "subscription", [("interval.ms", "200")])]
    yield "describe after replacements", _EVERYTHING
    yield "replace cluster default", [(BROKER, "", [])]
    yield "replace cluster default with its own", [(BROKER, "", [("min.insync.replicas", "1")])]
    yield "describe at the end", _EVERYTHING
    yield "resources all, at the end", ()


_NEW_TOPICS: Final[Sequence[Mapping[str, str | None]]] = (
    {},
    {"cleanup.policy": " compact ", "segment.bytes": "2097152", "retention.ms": "05"},
    {"internal.segment.bytes": "1000", "leader.replication.throttled.replicas": "*"},
    {"retention.ms": "x"},
    {"foo": "bar"},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    {"cleanup.policy": ""},
)

_TOPIC_VALUES: Final[Mapping[str, Sequence[str | None]]] = {
    "cleanup.policy": (
        "delete", "compact", "compact,delete", "", "delete,delete", "none", " compact , delete ",
        "compact,,delete", "Compact", None,
    ),
    "retention.ms": (
        "-1", "0", "-2", "x", "", "9223372036854775807", "9223372036854775808", "1.5", " 7 ", "+5",
        "0x10", "1_000",
    ),
    "retention.bytes": ("-5", "abc", "1024"),
    "segment.bytes": ("1048575", "1048576", "2147483647", "2147483648", "14"),
    "internal.segment.bytes": ("100",),
    "segment.ms": ("0", "1"),
    "segment.jitter.ms": ("-1", "0"),
    "segment.index.bytes": ("3", "4"),
    "index.interval.bytes": ("-1",),
    "min.cleanable.dirty.ratio": ("-0.1", "1.1", "NaN", "0.5f", "x", "1e-5", "1"),
    "max.compaction.lag.ms": ("0", "1"),
    "min.compaction.lag.ms": ("-1", "10"),
    "delete.retention.ms": ("-1",),
    "file.delete.delay.ms": ("-1",),
    "max.message.bytes": ("-1", "0"),
    "compression.type": ("lzo", "gzip", "GZIP", "none", "", " zstd "),
    "compression.gzip.level": ("0", "10", "-1", "9"),
    "compression.lz4.level": ("18", "0"),
    "compression.zstd.level": ("23", "-131073"),
    "message.timestamp.type": ("createtime", "LogAppendTime"),
    "message.timestamp.before.max.ms": ("-1",),
    "message.timestamp.after.max.ms": ("-1",),
    "preallocate": ("yes", "TRUE", "false"),
    "flush.messages": ("0",),
    "flush.ms": ("-1",),
    "min.insync.replicas": ("0", "5"),
    "unclean.leader.election.enable": ("true", "1"),
    "leader.replication.throttled.replicas": ("*", "0:1,1:2", "x", "0:1,", "", "*,0:1"),
    "follower.replication.throttled.replicas": ("0-1",),
    "remote.storage.enable": ("true", "false"),
    "remote.log.copy.disable": ("true",),
    "remote.log.delete.on.disable": ("true",),
    "local.retention.ms": ("-3", "-1", "10"),
    "local.retention.bytes": ("-3", "10"),
    "message.format.version": ("3.0",),
    "log.retention.ms": ("1",),
    "foo": ("bar",),
    "": ("x",),
}  # fmt: skip

_BROKER_VALUES: Final[Mapping[str, Sequence[str | None]]] = {
    "log.retention.ms": ("0", "-1", "1000", "-5", "x", ""),
    "log.retention.minutes": ("5",),
    "log.retention.bytes": ("1",),
    "log.segment.bytes": ("1000", "2097152"),
    "log.roll.ms": ("0", "1"),
    "log.roll.jitter.ms": ("-1",),
    "log.flush.interval.ms": ("-1", "5"),
    "log.cleaner.threads": ("0", "2", "3", "100"),
    "log.cleaner.dedupe.buffer.size": ("1048576", "2097152"),
    "log.cleaner.io.buffer.size": ("0", "100"),
    "log.cleaner.io.buffer.load.factor": ("0.5", "x"),
    "log.cleaner.io.max.bytes.per.second": ("-1", "1e6"),
    "log.cleaner.backoff.ms": ("-1", "1"),
    "log.cleaner.enable": ("false",),
    "log.cleaner.min.compaction.lag.ms": ("5",),
    "log.cleaner.max.compaction.lag.ms": ("0", "3"),
    "log.cleanup.policy": ("compact", "none", ""),
    "num.io.threads": ("8", "9", "1", "2", "0"),
    "num.network.threads": ("4", "5", "0"),
    "num.replica.fetchers": ("2", "3"),
    "num.recovery.threads.per.data.dir": ("5", "1"),
    "background.threads": ("5", "21"),
    "message.max.bytes": ("-1", "2000"),
    "max.connections": ("0", "-1", "10"),
    "max.connections.per.ip": ("0", "-1"),
    "max.connections.per.ip.overrides": ("x", "127.0.0.1:5", "bad host:1", "a:b", ""),
    "max.connection.creation.rate": ("0", "-1", "100"),
    "listener.name.plaintext.max.connections": ("5", "x"),
    "listener.name.plaintext.ssl.keystore.location": ("/nowhere",),
    "ssl.keystore.location": ("/nowhere",),
    "sasl.jaas.config": ("x",),
    "log.dirs": ("/elsewhere",),
    "node.id": ("1",),
    "auto.create.topics.enable": ("true",),
    "leader.replication.throttled.rate": ("-1", "100", "x"),
    "follower.replication.throttled.rate": ("100",),
    "replica.alter.log.dirs.io.max.bytes.per.second": ("5",),
    "cordoned.log.dirs": ("/elsewhere", ""),
    "metric.reporters": ("no.such.Class", ""),
    "min.insync.replicas": ("2", "0"),
    "producer.id.expiration.ms": ("0", "1"),
    "transaction.partition.verification.enable": ("false", "x"),
    "transactional.id.expiration.ms": ("10",),
    "compression.type": ("lzo", "zstd"),
    "compression.gzip.level": ("0",),
    "log.message.timestamp.type": ("x", "LogAppendTime"),
    "log.local.retention.ms": ("-1", "1", "999999999999"),
    "log.local.retention.bytes": ("-1",),
    "remote.log.reader.threads": ("0", "100", "11"),
    "remote.log.manager.copy.max.bytes.per.second": ("0", "1"),
    "remote.log.index.file.cache.total.size.bytes": ("0", "5"),
    "unclean.leader.election.enable": ("true",),
    "group.consumer.assignment.interval.ms": ("-1", "2000", "20000"),
    "group.coordinator.cached.buffer.max.bytes": ("1", "1048576"),
    "group.consumer.session.timeout.ms": ("50000",),
    "config.providers": ("x",),
    "advertised.listeners": ("PLAINTEXT://127.0.0.1:1",),
    "listener.security.protocol.map": ("PLAINTEXT:SSL,CONTROLLER:PLAINTEXT", "x", "a:PLAINTEXT"),
    "listener.name.plaintext.sasl.jaas.config": ("x",),
    "listener.name.other.max.connections": ("3",),
    "listener.name.plaintext.num.io.threads": ("3",),
    "listener.name.plaintext.foo": ("3",),
    "cordwood.metrics.port": ("3",),
    "log.preallocate": ("true", "x"),
    "log.index.size.max.bytes": ("3", "100"),
    "log.index.interval.bytes": ("0",),
    "log.flush.interval.messages": ("0", "1"),
    "log.cleaner.delete.retention.ms": ("5",),
    "log.cleaner.min.cleanable.ratio": ("0.9", "2"),
    "log.segment.delete.delay.ms": ("-1", "5"),
    "log.message.timestamp.after.max.ms": ("5",),
    "group.streams.assignment.interval.ms": ("15001", "7"),
    "share.coordinator.cached.buffer.max.bytes": ("524288",),
    "remote.log.manager.follower.thread.pool.size": ("5", "4"),
    "follower.fetch.last.tiered.offset.enable": ("true",),
    "sasl.enabled.mechanisms": ("PLAIN",),
    "ssl.client.auth": ("required", "x"),
    "principal.builder.class": ("no.such.Class",),
    "foo": ("bar",),
    "my.own.key": ("other",),
    "": ("x",),
}

_CLIENT_METRICS_VALUES: Final[Mapping[str, Sequence[str | None]]] = {
    "interval.ms": ("99", "100", "3600000", "3600001", "x"),
    "match": (
        "client_id=abc", "foo=bar", "client_id", "client_id=[", "client_id=a=b", "",
        "client_id=a,client_software_name=b", "client_id=a,client_id=b",
    ),
    "metrics": ("", "*", "a,b", "a,a", "a,,b"),
    "foo": ("bar",),
}  # fmt: skip

_GROUP_VALUES: Final[Mapping[str, Sequence[str | None]]] = {
    "consumer.session.timeout.ms": ("1", "45000", "60001", "x"),
    "consumer.heartbeat.interval.ms": ("1", "5000", "15001", "60000"),
    "consumer.assignment.interval.ms": ("0", "15001", "-1"),
    "share.session.timeout.ms": ("1", "60001"),
    "share.heartbeat.interval.ms": ("1", "15001"),
    "share.record.lock.duration.ms": ("1", "60001", "20000"),
    "share.delivery.count.limit": ("1", "2", "11"),
    "share.partition.max.record.locks": ("1", "99", "10001"),
    "share.auto.offset.reset": (
        "latest", "earliest", "none", "by_duration:PT1H", "by_duration:x", "by_duration:-PT1H", "",
        "LATEST", "by_duration",
    ),
    "share.isolation.level": ("read_committed", "x", "READ_COMMITTED"),
    "share.renew.acknowledge.enable": ("x", "false"),
    "share.assignment.interval.ms": ("15001",),
    "streams.session.timeout.ms": ("1", "60001"),
    "streams.heartbeat.interval.ms": ("1", "15001"),
    "streams.num.standby.replicas": ("-1", "2", "3"),
    "streams.initial.rebalance.delay.ms": ("-1", "5"),
    "streams.assignment.interval.ms": ("15001",),
    "foo": ("bar",),
}  # fmt: skip

_ODD: Final[Sequence[list[tuple[int, str, list[Change]]]]] = (
    [(TOPIC, "nowhere", [Change("retention.ms", "1")])],
    [(TOPIC, "nowhere", [Change("retention.ms", "x")])],
    [(TOPIC, "", [Change("retention.ms", "1")])],
    [(TOPIC, "a b", [Change("retention.ms", "1")])],
    [(TOPIC, "orders", [])],
    [(TOPIC, "nowhere", [])],
    [(TOPIC, "orders", [Change("retention.ms", None, DELETE)])],
    [(TOPIC, "orders", [Change("retention.ms", "7", DELETE)])],
    [(TOPIC, "orders", [Change("foo", None, DELETE)])],
    [(TOPIC, "orders", [Change("cleanup.policy", "compact", APPEND)])],
    [(TOPIC, "orders", [Change("cleanup.policy", "none", APPEND)])],
    [(TOPIC, "orders", [Change("cleanup.policy", "delete", SUBTRACT)])],
    [(TOPIC, "orders", [Change("cleanup.policy", None, APPEND)])],
    [(TOPIC, "orders", [Change("retention.ms", "1", APPEND)])],
    [(TOPIC, "orders", [Change("retention.ms", "1", SUBTRACT)])],
    [(TOPIC, "orders", [Change("foo", "1", APPEND)])],
    [(TOPIC, "orders", [Change("retention.ms", "1", 7)])],
    [(TOPIC, "orders", [Change("retention.ms", "1"), Change("retention.ms", "2")])],
    [(TOPIC, "orders", [Change("retention.ms", None), Change("segment.ms", None)])],
    [(TOPIC, "orders", [Change("retention.ms", "x"), Change("cleanup.policy", "y")])],
    [(TOPIC, "orders", [Change("retention.ms", "x"), Change("foo", "y")])],
    [
        (TOPIC, "orders", [
            Change("min.compaction.lag.ms", "9"), Change("max.compaction.lag.ms", "5"),
        ]),
    ],
    [
        (TOPIC, "orders", [
            Change("remote.storage.enable", "true"), Change("cleanup.policy", "compact"),
        ]),
    ],
    [
        (TOPIC, "orders", [Change("retention.ms", "1")]),
        (TOPIC, "nowhere", [Change("retention.ms", "1")]),
        (TOPIC, "plain", [Change("retention.ms", "x")]),
        (BROKER, "1", [Change("log.retention.ms", "x")]),
        (BROKER, "", [Change("log.retention.ms", "5")]),
    ],
    [(BROKER, "2", [Change("log.retention.ms", "1")])],
    [(BROKER, "x", [Change("log.retention.ms", "1")])],
    [(BROKER, "-1", [Change("log.retention.ms", "1")])],
    [(BROKER, "01", [Change("log.retention.ms", "1")])],
    [(BROKER, "1", [])],
    [(BROKER, "1", [Change("log.retention.ms", None)])],
    [(BROKER, "1", [Change("log.retention.ms", None, DELETE)])],
    [(BROKER, "1", [Change("log.dirs", None, DELETE)])],
    [(BROKER, "1", [Change("foo", None, DELETE)])],
    [(BROKER, "1", [Change("log.cleanup.policy", "compact", APPEND)])],
    [(BROKER, "1", [Change("log.cleanup.policy", "delete", SUBTRACT)])],
    [(BROKER, "1", [Change("log.retention.ms", "1", APPEND)])],
    [(BROKER, "1", [Change("log.retention.ms", "1", SUBTRACT)])],
    [(BROKER, "1", [Change("foo", "1", APPEND)])],
    [(BROKER, "1", [Change("log.retention.ms", "1", 9)])],
    [(BROKER, "1", [Change("log.dirs", "/x"), Change("node.id", "2")])],
    [(BROKER, "1", [Change("log.retention.ms", "x"), Change("log.segment.bytes", "y")])],
    [
        (BROKER, "1", [
            Change("log.cleaner.min.compaction.lag.ms", "9"),
            Change("log.cleaner.max.compaction.lag.ms", "5"),
        ]),
    ],
    [(BROKER, "1", [Change("log.cleanup.policy", "compact,x", APPEND)])],
    [(BROKER, "", [Change("log.cleanup.policy", "compact", APPEND)])],
    [(BROKER, "1", [Change("listeners", "PLAINTEXT://127.0.0.1:1", APPEND)])],
    [(BROKER, "1", [Change("ssl.cipher.suites", "a", APPEND)])],
    [(BROKER, "1", [Change("retention.ms", "5")])],
    [(BROKER, "", [Change("min.insync.replicas", None, DELETE)])],
    [(BROKER, "1", [Change("min.insync.replicas", None, DELETE)])],
    [(LOGGER, "1", [Change("root", "LOUD")])],
    [(LOGGER, "1", [Change("root", "INFO")])],
    [(LOGGER, "1", [Change("root", "info")])],
    [(LOGGER, "1", [Change("no.such.Logger", "INFO")])],
    [(LOGGER, "1", [Change("no.such.Logger", None, DELETE)])],
    [(LOGGER, "1", [Change("root", None, DELETE)])],
    [(LOGGER, "1", [Change("root", None)])],
    [(LOGGER, "1", [Change("root", "INFO", APPEND)])],
    [(LOGGER, "1", [Change("root", "INFO", SUBTRACT)])],
    [(LOGGER, "2", [Change("root", "INFO")])],
    [(LOGGER, "x", [Change("root", "INFO")])],
    [(LOGGER, "", [Change("root", "INFO")])],
    [(CLIENT_METRICS, "", [Change("interval.ms", "100")])],
    [(CLIENT_METRICS, "some", [Change("metrics", "a", APPEND)])],
    [(CLIENT_METRICS, "some", [Change("interval.ms", "1", APPEND)])],
    [(CLIENT_METRICS, "some", [Change("interval.ms", None, DELETE)])],
    [(CLIENT_METRICS, "some", [])],
    [(GROUP, "", [Change("consumer.session.timeout.ms", "45000")])],
    [(GROUP, "some", [Change("consumer.session.timeout.ms", "1", APPEND)])],
    [(GROUP, "some", [Change("foo", None, DELETE)])],
    [
        (GROUP, "some", [
            Change("consumer.session.timeout.ms", "45000"),
            Change("consumer.heartbeat.interval.ms", "15000"),
        ]),
    ],
    [(0, "x", [Change("a", "b")])],
    [(1, "x", [Change("a", "b")])],
    [(64, "x", [Change("a", "b")])],
)  # fmt: skip

_REPLACEMENTS: Final[Sequence[tuple[int, str, list[tuple[str, str | None]]]]] = (
    (TOPIC, "orders", [("retention.ms", "1000")]),
    (TOPIC, "orders", [("retention.ms", "x")]),
    (TOPIC, "orders", [("retention.ms", None)]),
    (TOPIC, "orders", [("foo", "x")]),
    (TOPIC, "orders", [("retention.ms", "1"), ("retention.ms", "2")]),
    (TOPIC, "nowhere", [("retention.ms", "1")]),
    (TOPIC, "orders", []),
    (BROKER, "1", [("log.retention.ms", "0")]),
    (BROKER, "1", [("log.dirs", "/x")]),
    (BROKER, "2", [("log.retention.ms", "1")]),
    (BROKER, "", [("log.retention.ms", "1")]),
    (BROKER, "1", [("foo", "x")]),
    (LOGGER, "1", [("root", "INFO")]),
    (CLIENT_METRICS, "some", [("interval.ms", "1")]),
    (GROUP, "some", [("consumer.session.timeout.ms", "1")]),
    (99, "some", [("a", "b")]),
)

_LASTING: Final[Sequence[list[tuple[int, str, list[Change]]]]] = (
    [(TOPIC, "orders", [Change("retention.ms", " 1000 "), Change("cleanup.policy", "compact")])],
    [(TOPIC, "orders", [Change("cleanup.policy", "delete", APPEND)])],
    [(TOPIC, "orders", [Change("segment.bytes", "2097152"), Change("min.insync.replicas", "1")])],
    [(TOPIC, "orders", [Change("leader.replication.throttled.replicas", "0:1,0:2")])],
    [(TOPIC, "orders", [Change("internal.segment.bytes", "1000000")])],
    [(TOPIC, "plain", [Change("preallocate", "TRUE"), Change("flush.ms", "7000")])],
    [(BROKER, "", [Change("log.retention.ms", "500000"), Change("log.segment.bytes", "3145728")])],
    [(BROKER, "1", [Change("log.retention.ms", "600000"), Change("log.roll.ms", "3600000")])],
    [(BROKER, "1", [Change("num.io.threads", "8"), Change("message.max.bytes", "2000000")])],
    [(BROKER, "", [Change("message.max.bytes", "3000000"), Change("log.flush.interval.ms", "9")])],
    [(BROKER, "1", [Change("leader.replication.throttled.rate", "1000")])],
    [(BROKER, "1", [Change("listener.name.plaintext.max.connections", "800")])],
    [(BROKER, "", [Change("log.cleaner.threads", "2"), Change("foo", "bar")])],
    [(BROKER, "1", [Change("foo", "per broker"), Change("my.own.key", "changed")])],
    [(BROKER, "", [Change("log.cleaner.io.max.bytes.per.second", "1e6")])],
    [(BROKER, "1", [Change("log.cleanup.policy", "delete")])],
    [(BROKER, "1", [Change("listener.name.plaintext.ssl.key.password", "secret")])],
    [(CLIENT_METRICS, "subscription", [Change("metrics", "a.,b."), Change("interval.ms", "900")])],
    [(CLIENT_METRICS, "subscription", [Change("match", "client_id=abc")])],
    [(GROUP, "readers", [Change("consumer.session.timeout.ms", "47000")])],
    [(GROUP, "readers", [Change("share.auto.offset.reset", "earliest")])],
    [(BROKER, "", [Change("group.consumer.assignment.interval.ms", "2000")])],
    [(BROKER, "1", [Change("num.io.threads", "17")])],
    [(BROKER, "1", [Change("num.io.threads", None, DELETE)])],
    [(BROKER, "1", [Change("log.roll.ms", None, DELETE)])],
    [(BROKER, "", [Change("log.cleaner.threads", "5")])],
    [(BROKER, "1", [Change("log.cleaner.threads", "4")])],
    [(BROKER, "", [Change("log.retention.ms", "0")])],
    [(BROKER, "1", [Change("log.retention.ms", None, DELETE)])],
    [(BROKER, "1", [Change("max.connections.per.ip", "0")])],
    [(BROKER, "1", [Change("max.connections.per.ip.overrides", "")])],
    [(BROKER, "1", [Change("listener.name.plaintext.ssl.endpoint.identification.algorithm", "")])],
    [(TOPIC, "orders", [Change("cleanup.policy", "compact", SUBTRACT)])],
    [(TOPIC, "orders", [Change("cleanup.policy", "delete", SUBTRACT)])],
    [(TOPIC, "orders", [Change("retention.ms", None, DELETE)])],
    [(TOPIC, "plain", [Change("retention.ms", "-7")])],
    [(CLIENT_METRICS, "subscription", [Change("metrics", "c.", APPEND)])],
)
