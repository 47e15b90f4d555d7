"""Values of topic settings, and Kafka's rules between them.

Source: kafka.server.KafkaConfig.extractLogConfigMap and validateValues, LogConfig.validateValues,
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cordwood.configs.levels import broker_name_of
from cordwood.configs.resource import Texts
from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.configs.value import Value
from cordwood.model.errors import ConfigError

MIN_LAG, MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"


def topic_defaults(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """The values that a broker with these settings gives to topics without their own.

    Those that it does not give are Kafka's defaults; unset ones are left out.
    """
    found: dict[str, Value] = {}
    for name, setting in TOPIC_SETTINGS.items():
        value = setting.default
        broker = broker_name_of(setting, values)
        if broker is not None:
            value = broker.scaled(values[broker.name])
        if value is not None:
            found[name] = value
    retention_ms = found["retention.ms"]
    assert isinstance(retention_ms, int), retention_ms
    found["retention.ms"] = max(-1, retention_ms)
    return found


def parse_topic(texts: Texts, defaults: Mapping[str, Value]) -> dict[str, Value]:
    """The values of a topic with the settings `texts` of its own, unknown ones left out.

    Raises:
        ConfigError: one that Kafka would refuse.
    """
    values = dict(defaults)
    for name, key in TOPIC_SETTINGS.items():
        if name in texts:
            values[name] = key.parse(texts[name])
    return values


def complaints_of_defaults(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """The settings that a broker must not give all topics, by name, with Kafka's complaint."""
    if _whole(values, "segment.ms") < 1:
        yield "segment.ms", "log.roll.ms must be greater than or equal to 1"
    if _whole(values, "segment.jitter.ms") < 0:
        yield "segment.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0"
    if values["retention.ms"] == 0:
        yield (
            "retention.ms",
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        )


def complaint_of_lags(values: Mapping[str, Value]) -> str | None:
    """Kafka's complaint where the minimum compaction lag is above the maximum."""
    shortest, longest = _whole(values, MIN_LAG), _whole(values, MAX_LAG)
    if shortest <= longest:
        return None
    return f"conflict topic config setting {MIN_LAG} ({shortest}) > {MAX_LAG} ({longest})"


def require_ordered_lags(values: Mapping[str, Value]) -> None:
    """Checks the two compaction lags of a topic's values.

    Raises:
        ConfigError: the minimum is above the maximum.
    """
    complaint = complaint_of_lags(values)
    if complaint is not None:
        raise ConfigError(complaint)


def _whole(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), name
    return value
