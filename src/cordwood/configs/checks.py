"""Kafka's rules between a broker's settings, at its start and after each change.

The texts are Kafka's, including `requirement failed` of Scala's `require`.

Source: kafka.server.KafkaConfig.validateValues, GroupCoordinatorConfig, ShareGroupConfig,
org.apache.kafka.server.DynamicThreadPool, kafka.server.DynamicLogConfig, LogCleaner,
kafka.network.SocketServer, Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from cordwood.configs.broker_config import (
    BrokerConfig,
    parse_counts,
)
from cordwood.configs.topic_values import complaints_of_defaults, topic_defaults
from cordwood.model.errors import ConfigError

_JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
_HOST = re.compile(r"([0-9a-zA-Z\-%._:]*)")
_WHOLE = re.compile(r"[+-]?\d{1,10}")
_ADDRESS = re.compile(r"(?:[a-zA-Z]+://)?\[?[0-9a-zA-Z\-%._:]*\]?:(\d{1,9})")
_PORT_MAX: Final = 65_535
_MIB: Final = 1 << 20
_ASSIGNORS: Final = "group.consumer.assignors"
_ASSIGNOR_CLASSES: Final = "org.apache.kafka.coordinator.group.assignor"

CONSUMER_ASSIGNORS: Final[Mapping[str, str]] = {
    "uniform": "uniform",
    "range": "range",
    f"{_ASSIGNOR_CLASSES}.UniformAssignor": "uniform",
    f"{_ASSIGNOR_CLASSES}.RangeAssignor": "range",
}
"""The name of each assignor of consumer groups, by what stands for it in a setting."""
_THREADS: Final = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "num.network.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)
_BOUNDED: Final = (
    ("group.consumer.", "heartbeat.interval.ms"),
    ("group.consumer.", "session.timeout.ms"),
    ("group.consumer.", "assignment.interval.ms"),
    ("group.share.", "heartbeat.interval.ms"),
    ("group.share.", "session.timeout.ms"),
    ("group.share.", "assignment.interval.ms"),
    ("group.streams.", "heartbeat.interval.ms"),
    ("group.streams.", "session.timeout.ms"),
    ("group.streams.", "assignment.interval.ms"),
    ("group.share.", "delivery.count.limit"),
    ("group.share.", "record.lock.duration.ms"),
    ("group.share.", "partition.max.record.locks"),
)


def require_sound(values: BrokerConfig) -> None:
    """Checks the settings of a broker against one another.

    Raises:
        ConfigError: Kafka would refuse them.
    """
    for complaint in _complaints(values):
        raise ConfigError(complaint)


def require_reachable(old: BrokerConfig, new: BrokerConfig, names: Collection[str]) -> None:
    """Checks that a running broker can go from `old` to `new`, which differ in `names`.

    Raises:
        ConfigError: it cannot.
    """
    for complaint in _obstacles(old, new, names):
        raise ConfigError(complaint)


def require_quorum(values: BrokerConfig) -> None:
    """Checks that the controllers are named as `id@host:port` and `host:port`.

    Raises:
        ConfigError: they are not.

    Source: org.apache.kafka.raft.QuorumConfig.parseVoterConnections and parseBootstrapServers.
    """
    voters = "controller.quorum.voters"
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    for entry in values.strings(voters):
        number, at, address = entry.partition("@")
        if not at or "@" in address:
            raise ConfigError(f"Invalid configuration value for {voters}. {form}")
        if not _WHOLE.fullmatch(number):
            raise ConfigError(f"Failed to parse voter ID as an integer from {number}")
        _require_address(
            address,
            f"Failed to parse host name from entry {entry} for the configuration {voters}. {form}",
        )
    servers = "controller.quorum.bootstrap.servers"
    for entry in values.strings(servers):
        _require_address(
            entry,
            f"Failed to parse host name from {entry} for the configuration {servers}. "
            'Each entry should be in the form "{host}:{port}"',
        )


def _require_address(text: str, complaint: str) -> None:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ConfigError(complaint)
    if int(match[1]) > _PORT_MAX:
        raise ConfigError(f"port out of range:{match[1]}")


def _complaints(values: BrokerConfig) -> Iterator[str]:
    yield from _complaints_of_groups(values)
    for complaint in (*_complaints_of_logs(values), *_complaints_of_replicas(values)):
        yield f"requirement failed: {complaint}"
    yield from _complaints_of_connections(values)


def _complaints_of_groups(values: BrokerConfig) -> Iterator[str]:
    known: set[str] = set()
    for text in values.strings(_ASSIGNORS):
        name = CONSUMER_ASSIGNORS.get(text)
        if name is None:
            yield f"Invalid value {text} for configuration {_ASSIGNORS}: Class cannot be found"
        elif name in known:
            yield (
                f"Invalid value {text} for configuration {_ASSIGNORS}: Assignor name '{name}' is "
                "already registered by another configured assignor. Assignor names, whether "
                "built-in or custom, must be unique"
            )
        else:
            known.add(name)
    for prefix, name in _BOUNDED:
        least, most, usual = f"{prefix}min.{name}", f"{prefix}max.{name}", f"{prefix}{name}"
        for lower, upper, complaint in (
            (least, most, f"{most} must be greater than or equal to {least}"),
            (least, usual, f"{usual} must be greater than or equal to {least}"),
            (usual, most, f"{usual} must be less than or equal to {most}"),
        ):
            if values.integer(lower) > values.integer(upper):
                yield complaint
    for kind in ("standby", "warmup"):
        replicas, most = f"group.streams.num.{kind}.replicas", f"group.streams.max.{kind}.replicas"
        if values.integer(replicas) > values.integer(most):
            yield f"{replicas} must be less than or equal to {most}"
    interval, least = (f"group.streams.{each}task.offset.interval.ms" for each in ("", "min."))
    if values.integer(interval) < values.integer(least):
        yield f"{interval} must be greater than or equal to {least}"


def _complaints_of_logs(values: BrokerConfig) -> Iterator[str]:
    for _, complaint in complaints_of_defaults(topic_defaults(values.all)):
        yield complaint
    dirs = values.log_dirs
    cordoned = values.strings("cordoned.log.dirs")
    if "*" in cordoned:
        if len(cordoned) > 1:
            yield "When cordoned.log.dirs is set to *, it must not contain other values"
    elif missing := [each for each in cordoned if each not in dirs]:
        yield (
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {','.join(missing)}"
        )


def _complaints_of_replicas(values: BrokerConfig) -> Iterator[str]:
    threads = values.integer("log.cleaner.threads")
    if threads == 0:
        # The text of Java's own exception.
        raise ConfigError("/ by zero")
    if values.integer("log.cleaner.dedupe.buffer.size") // threads <= _MIB:
        yield "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    wait = values.integer("replica.fetch.wait.max.ms")
    if wait > values.integer("replica.socket.timeout.ms"):
        yield (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms"
            " to prevent unnecessary socket timeouts"
        )
    if wait > values.integer("replica.lag.time.max.ms"):
        yield (
            "replica.fetch.wait.max.ms should always be less than or equal to "
            "replica.lag.time.max.ms to prevent frequent changes in ISR"
        )


def _complaints_of_connections(values: BrokerConfig) -> Iterator[str]:
    if 0 < values.integer("queued.max.request.bytes") < values.integer("socket.request.max.bytes"):
        yield (
            "requirement failed: queued.max.request.bytes must be larger or equal to "
            "socket.request.max.bytes"
        )
    overrides = parse_counts(values.text("max.connections.per.ip.overrides") or "")
    if values.integer("max.connections.per.ip") == 0 and not overrides:
        yield (
            "requirement failed: max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set."
        )
    if invalid := [host for host in overrides if not _HOST.fullmatch(host)]:
        yield ("max.connections.per.ip.overrides contains invalid addresses : " + ",".join(invalid))
    idle = values.integer("connections.max.idle.ms")
    delay = values.integer("connection.failed.authentication.delay.ms")
    if 0 <= idle <= delay:
        yield (
            f"requirement failed: connection.failed.authentication.delay.ms={delay} should always "
            f"be less than connections.max.idle.ms={idle} to prevent failed authentication "
            "responses from timing out"
        )


def _obstacles(old: BrokerConfig, new: BrokerConfig, names: Collection[str]) -> Iterator[str]:
    reporters = new.strings("metric.reporters")
    if "metric.reporters" in names and any(each != _JMX_REPORTER for each in reporters):
        yield (
            "Validation of dynamic config update of Set(metric.reporters) failed with class "
            "class kafka.server.DynamicMetricsReporters"
        )
    for name in _THREADS:
        if name in names:
            yield from _obstacles_of_threads(name, old.integer(name), new.integer(name))
    yield from _obstacles_of_local_retention(new, names)
    rate = "max.connection.creation.rate"
    if rate in names and new.integer(rate) <= 0:
        yield f"Invalid {rate} {new.integer(rate)}"
    yield from _obstacles_of_cleaner(old, new, names)


def _obstacles_of_threads(name: str, old: int, new: int) -> Iterator[str]:
    complaint = f"Dynamic thread count update validation failed for {name}={new}"
    if new != old:
        if new <= 0:
            yield f"{complaint}, value should be at least 1"
        if new < old // 2:
            yield f"{complaint}, value should be at least half the current value {old}"
        if new > old * 2:
            yield f"{complaint}, value should not be greater than double the current value {old}"


def _obstacles_of_cleaner(
    old: BrokerConfig, new: BrokerConfig, names: Collection[str]
) -> Iterator[str]:
    if "log.cleaner.threads" not in names:
        return
    before, after = old.integer("log.cleaner.threads"), new.integer("log.cleaner.threads")
    if after < before // 2:
        yield f"Log cleaner threads cannot be reduced to less than half the current value {before}"
    if after > before * 2:
        yield (
            "Log cleaner threads cannot be increased to more than double the current value "
            f"{before}"
        )


def _obstacles_of_local_retention(new: BrokerConfig, names: Collection[str]) -> Iterator[str]:
    if not any(name.startswith(("log.", "message.max", "compression.")) for name in names):
        return
    topics = topic_defaults(new.all)
    for local, total, name in (
        ("log.local.retention.ms", "log.retention.ms", "retention.ms"),
        ("log.local.retention.bytes", "log.retention.bytes", "retention.bytes"),
    ):
        bound, value = topics[name], new.integer(local)
        assert isinstance(bound, int), name
        if bound < 0 or value == -2:
            continue
        if value == -1:
            yield (
                f"Invalid value -1 for configuration {local}: Value must not be -1 as "
                f"{total} value is set as {bound}."
            )
        if value > bound:
            yield (
                f"Invalid value {value} for configuration {local}: Value must not be more than "
                f"{total} property value: {bound}"
            )
