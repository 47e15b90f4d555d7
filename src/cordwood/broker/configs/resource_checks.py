"""Validation of the settings of a topic, a group and a client metrics subscription.

Source: org.apache.kafka.storage.internals.log.LogConfig.validate, GroupConfig.validate,
org.apache.kafka.server.metrics.ClientMetricsConfigs.validate, Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from cordwood.broker.configs.checks import require_ordered_lags
from cordwood.broker.configs.effective import EffectiveConfigs
from cordwood.broker.configs.keys import (
    GROUP_BOUNDS,
    client_metrics_keys,
    group_keys,
    topic_keys,
)
from cordwood.broker.configs.values import Texts, parse_texts, parse_topic
from cordwood.model.config_values import Value
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidConfigError, InvalidRequestError

_INTERVAL: Final = "interval.ms"
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
    configs: EffectiveConfigs, texts: Texts, *, recorded: Collection[str] = ()
) -> None:
    """Checks all settings of a topic.

    Args:
        configs: of the broker.
        texts: the settings.
        recorded: the names that the topic has already: unknown ones, which a broker of another
            version has written, are left alone (KAFKA-19851).

    Raises:
        InvalidConfigError: an unknown name that is not recorded.
        ConfigError: an invalid value, or values that contradict each other.
    """
    unknown = [name for name in texts if name not in topic_keys() and name not in recorded]
    if unknown:
        raise InvalidConfigError(f"Unknown topic config name: {unknown[0]}")
    values = parse_topic(texts, configs.topic_defaults)
    require_ordered_lags(values)
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def require_group(configs: EffectiveConfigs, texts: Texts) -> None:
    """Checks all settings of a group, against the bounds that the broker sets.

    Raises:
        InvalidConfigError: a name that none has, or a value outside the bounds.
        ConfigError: a value that is refused.
    """
    unknown = [name for name in texts if name not in group_keys()]
    if unknown:
        raise InvalidConfigError(f"Unknown group config name: {unknown[0]}")
    values = parse_texts(texts, group_keys())
    for name, bound in GROUP_BOUNDS.items():
        if name.endswith("assignment.interval.ms") and name not in texts:
            continue
        least, most = bound.format("min"), bound.format("max")
        if least in configs.values.all and _whole(values, name) < configs.values.integer(least):
            raise InvalidConfigError(f"{name} must be greater than or equal to {least}")
        if _whole(values, name) > configs.values.integer(most):
            raise InvalidConfigError(f"{name} must be less than or equal to {most}")
    for protocol in ("consumer", "share", "streams"):
        session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
        if _whole(values, session) <= _whole(values, heartbeat):
            raise InvalidConfigError(f"{session} must be greater than {heartbeat}")


def require_client_metrics(name: str, texts: Texts) -> None:
    """Checks all settings of a subscription of client metrics.

    Raises:
        InvalidRequestError: it has no name, a setting that none is called, or a wrong interval.
        InvalidConfigError: a pattern that is none.
        ConfigError: a value that is refused.
    """
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    for key in texts:
        if key not in client_metrics_keys():
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
    values = parse_texts(texts, client_metrics_keys())
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
