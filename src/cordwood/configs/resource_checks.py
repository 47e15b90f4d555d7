"""Validation of the settings of a topic, a group and a client metrics subscription.

A resource may have a setting recorded that this version does not know: one that a later version
has, or an earlier one had. A change that does not touch it leaves it alone (KAFKA-19851); the
checks get its name in `kept`.

Source: org.apache.kafka.storage.internals.log.LogConfig.validate, GroupConfig.validate,
org.apache.kafka.server.metrics.ClientMetricsConfigs.validate, Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.resource import (
    Texts,
)
from cordwood.configs.table import (
    GROUP_BOUNDS,
    TOPIC_SETTINGS,
    Settings,
    client_metrics_settings,
    group_settings,
)
from cordwood.configs.texts import parse_texts
from cordwood.configs.topic_values import parse_topic, require_ordered_lags
from cordwood.configs.value import Value
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidConfigError, InvalidRequestError

_INTERVAL: Final = "interval.ms"
_TAGS: Final = "streams.rack.aware.assignment.tags"
_ASSIGNOR: Final = "streams.assignor.name"
_ASSIGNORS: Final = "group.streams.assignors"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 3_600_000
_ATTRIBUTES: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def require_topic(
    configs: EffectiveConfigs, texts: Texts, *, kept: Collection[str] = frozenset()
) -> None:
    """Checks all settings of a topic.

    Args:
        configs: the values of the broker, the defaults of topics.
        texts: all settings of the topic as they are to be.
        kept: the names of those that were recorded before, with the same value.

    Raises:
        InvalidConfigError: an unknown name that is not in `kept`, an invalid value, or values that
            contradict each other.
    """
    unknown = _unknown(texts, TOPIC_SETTINGS, kept)
    if unknown:
        raise InvalidConfigError(f"Unknown topic config name: {unknown[0]}")
    try:
        values = parse_topic(texts, configs.topic_defaults)
        require_ordered_lags(values)
    except ConfigError as error:
        raise InvalidConfigError(str(error)) from error
    if values["remote.storage.enable"]:
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def require_group(
    configs: EffectiveConfigs, texts: Texts, *, kept: Collection[str] = frozenset()
) -> None:
    """Checks all settings of a group, against the bounds that the broker sets.

    `kept` is as in `require_topic`.

    Raises:
        InvalidConfigError: an unknown name, or a value outside the bounds.
        ConfigError: an invalid value.
    """
    unknown = _unknown(texts, group_settings(), kept)
    if unknown:
        raise InvalidConfigError(f"Unknown group config name: {unknown[0]}")
    tags = _elements(texts.get(_TAGS) or "")
    if len(tags) > len({*tags}):
        raise InvalidConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    values = parse_texts(texts, group_settings())
    for name, bound in GROUP_BOUNDS.items():
        if name in texts:
            _require_bounded(configs.values, name, _whole(values, name), bound)
    assignor, assignors = values[_ASSIGNOR], configs.values.strings(_ASSIGNORS)
    if _ASSIGNOR in texts and assignor not in assignors:
        raise InvalidConfigError(
            f"{_ASSIGNOR} '{assignor}' is not a registered task assignor. Registered assignors "
            f"are: [{', '.join(assignors)}]."
        )
    for protocol in ("consumer", "share", "streams"):
        session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
        if session not in texts and heartbeat not in texts:
            continue
        span, period = (
            _whole(values, name) if name in texts else configs.values.integer(f"group.{name}")
            for name in (session, heartbeat)
        )
        if span <= period:
            raise InvalidConfigError(f"{session} must be greater than {heartbeat}")
    if str(values[_DEAD_LETTERS] or "").startswith("__"):
        raise InvalidConfigError(f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")


def _require_bounded(broker: BrokerConfig, name: str, value: int, bound: str) -> None:
    """Checks a setting of a group against the broker's bounds, as far as it has them."""
    least, most = (
        broker.integer(each) if each in broker.all else None
        for each in (bound.format("min"), bound.format("max"))
    )
    if least is not None and most is not None:
        if not least <= value <= most:
            raise InvalidConfigError(f"{name} must be in the range {least} to {most} inclusive.")
    elif most is not None and value > most:
        raise InvalidConfigError(f"{name} must be less than or equal to {most}")
    elif least is not None and value < least:
        raise InvalidConfigError(f"{name} must be greater than or equal to {least}")


def _elements(text: str) -> list[str]:
    """The elements of a list, before anything is made of them."""
    return re.split(r"\s*,\s*", text.strip(), flags=re.ASCII) if text.strip() else []


def require_client_metrics(name: str, texts: Texts, *, kept: Collection[str] = frozenset()) -> None:
    """Checks all settings of a subscription of client metrics.

    `kept` is as in `require_topic`.

    Raises:
        InvalidRequestError: it has no name, an unknown setting, or a wrong interval.
        InvalidConfigError: an invalid pattern.
        ConfigError: an invalid value.
    """
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    unknown = _unknown(texts, client_metrics_settings(), kept)
    if unknown:
        raise InvalidRequestError(f"Unknown client metrics configuration: {unknown[0]}")
    values = parse_texts(texts, client_metrics_settings())
    interval = _whole(values, _INTERVAL)
    if not _INTERVAL_MS_MIN <= interval <= _INTERVAL_MS_MAX:
        raise InvalidRequestError(
            f"Invalid value {interval} for {_INTERVAL}, interval must be between 100 and 3600000 "
            "(1 hour)"
        )
    patterns = values["match"]
    assert isinstance(patterns, tuple), patterns
    for pattern in patterns:
        if not _is_pattern(pattern):
            raise InvalidConfigError(f"Illegal client matching pattern: {pattern}")


def _unknown(texts: Texts, known: Settings, kept: Collection[str]) -> list[str]:
    return [name for name in texts if name not in known and name not in kept]


def _is_pattern(text: str) -> bool:
    """Whether `text` is a client attribute with a regular expression."""
    parts = text.rstrip("=").split("=") if text.rstrip("=") else []
    if len(parts) != 2 or parts[0].strip() not in _ATTRIBUTES:
        return False
    try:
        re.compile(parts[1].strip())
    except re.error:
        return False
    return True


def _whole(values: Mapping[str, Value | None], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), name
    return value
