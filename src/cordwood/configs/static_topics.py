"""Own settings of topics in a broker's properties: `cordwood.topic.NAME.KEY=VALUE`.

A Kafka controller refuses topic settings that Kafka does not have, so a broker under one has them
in its server.properties. They are below a topic's own settings and above the broker's of all
levels. NAME may contain dots: KEY is the own setting, its prefix included, that the rest ends with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.configs.table import OWN_PREFIX, TOPIC_SETTINGS, is_own
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidTopicError
from cordwood.model.topic_names import require_topic_name

PREFIX: Final = f"{OWN_PREFIX}topic."
_OWN: Final = tuple(name for name in TOPIC_SETTINGS if is_own(name))
assert not any(name.endswith(f".{other}") for name in _OWN for other in _OWN), (
    "the end of a property would be two settings"
)

StaticTopics = Mapping[str, Mapping[str, str]]
"""Texts of own settings by topic and name."""


def property_name(topic: str, name: str) -> str:
    """The property that gives `topic` the own setting `name`."""
    return f"{PREFIX}{topic}.{name}"


def static_topics(properties: Mapping[str, str], *, source: str) -> StaticTopics:
    """The settings of topics in `properties`, which may have others too.

    Args:
        properties: of a broker.
        source: its name for messages.

    Raises:
        ConfigError: a property names no topic, no own setting, or has a value that is refused.
    """
    found: dict[str, dict[str, str]] = {}
    for key, value in properties.items():
        if not key.startswith(PREFIX):
            continue
        rest = key.removeprefix(PREFIX)
        name = next((each for each in _OWN if rest.endswith(f".{each}")), None)
        if name is None:
            raise ConfigError(
                f"{source}: {key} does not end with a setting that can be set so; "
                f"{PREFIX}TOPIC.KEY takes {', '.join(_OWN)}"
            )
        topic = rest.removesuffix(f".{name}")
        try:
            require_topic_name(topic)
            TOPIC_SETTINGS[name].parse(value)
        except (ConfigError, InvalidTopicError) as error:
            raise ConfigError(f"{source}, {key}={value}: {error}") from error
        found.setdefault(topic, {})[name] = value
    return found
