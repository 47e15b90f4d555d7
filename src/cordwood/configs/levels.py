"""The rules that select one of several given values of a broker's setting.

A level hides the levels below it. Inside a level the synonyms of a setting have an order:
milliseconds come before minutes before hours. Kafka merges the levels, so that a value at a higher
level hides all synonyms of its setting at lower levels. `sources` (stopped logs) and
`effective` (a running broker) both resolve by these functions, and differ in what they give them.

Source: kafka.server.DynamicBrokerConfig.updateCurrentConfig and overrideProps,
org.apache.kafka.server.config.DynamicBrokerConfig.brokerConfigSynonyms,
kafka.server.KafkaConfig.extractLogConfigMap, kafka.server.ConfigHelper, Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Self, TypeVar

from cordwood.configs.table import TOPIC_SETTINGS, BrokerName, Setting

T = TypeVar("T")

LISTENER_KEY: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
"""The name of a setting for one listener; the group is the setting of all listeners."""

_MECHANISM_KEYS: Final = (
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "sasl.login.callback.handler.class",
    "sasl.jaas.config",
    "sasl.login.class",
)
#: This setting is also one of its own: the interval of the scheduler. It hides no other.
_NO_SYNONYM: Final = "log.flush.scheduler.interval.ms"
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    each.name: tuple(name.name for name in setting.broker_names)
    for setting in TOPIC_SETTINGS.values()
    for each in setting.broker_names
    if len(setting.broker_names) > 1 and each.name != _NO_SYNONYM
}


class Level(StrEnum):
    """The levels that give values: a broker's in order of precedence, then other resources'.

    The text is what Cordwood prints, `code` the number in DescribeConfigs, `kafka_name` Kafka's.

    Source: org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource.
    """

    code: int
    kafka_name: str

    def __new__(cls, text: str, code: int, kafka_name: str) -> Self:
        """Builds a member from its row of the table."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.code = code
        member.kafka_name = kafka_name
        return member

    TOPIC = "topic", 1, "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER = "dynamic broker", 2, "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT = "dynamic cluster default", 3, "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER = "static broker", 4, "STATIC_BROKER_CONFIG"
    DEFAULT = "default", 5, "DEFAULT_CONFIG"
    BROKER_LOGGER = "broker logger", 6, "DYNAMIC_BROKER_LOGGER_CONFIG"
    CLIENT_METRICS = "client metrics", 7, "DYNAMIC_CLIENT_METRICS_CONFIG"
    GROUP = "group", 8, "DYNAMIC_GROUP_CONFIG"


class Synonym(NamedTuple):
    """A value that a level gives a setting, under the name that it has there; None if secret."""

    name: str
    value: str | None
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a setting's value: `key` = `value`, at `level`, from `source`."""

    value: str
    level: Level
    source: str
    key: str


Levels = Sequence[tuple[Level, Mapping[str, T]]]
"""Settings of a broker by level, the strongest first."""

KAFKA: Final = "Kafka"
METADATA_LOG: Final = "metadata log"
"""Sources of settings: the defaults, and what is recorded."""


def synonyms_of(name: str, *, of_listener: bool = True) -> tuple[str, ...]:
    """The settings with the same meaning as `name`, itself included; the first that is set wins.

    With `of_listener`, the setting of one listener is followed by that of all listeners.
    """
    if name in _SYNONYMS:
        return _SYNONYMS[name]
    match = LISTENER_KEY.fullmatch(name) if of_listener else None
    if match is None:
        return (name,)
    base = match[1]
    return (name, next((key for key in _MECHANISM_KEYS if base.endswith(key)), base))


def lay_over(values: dict[str, T], above: Mapping[str, T]) -> None:
    """Merges `above` into `values`: a setting in `above` hides all its synonyms in `values`."""
    for name, value in above.items():
        for synonym in synonyms_of(name, of_listener=False):
            values.pop(synonym, None)
        values[name] = value


def merge(levels: Levels[T]) -> dict[str, T]:
    """One mapping of all levels, as Kafka merges them."""
    *above, (_, lowest) = levels
    merged = dict(lowest)
    for _, given in reversed(above):
        lay_over(merged, given)
    return merged


def given_at(levels: Levels[str], name: str) -> Iterator[Synonym]:
    """All texts that levels give to `name` and its synonyms, the strongest first."""
    names = synonyms_of(name)
    for level, given in levels:
        for each in names:
            if each in given:
                yield Synonym(each, given[each], level)


def broker_name_of(setting: Setting, given: Mapping[str, object | None]) -> BrokerName | None:
    """The first broker setting in `given` that is not None and gives the topic setting its value.

    The caller multiplies the value by the `factor` of the result.
    """
    for name in setting.broker_names:
        if given.get(name.name) is not None:
            return name
    return None


def topic_origins(own: Mapping[str, Origin], broker: Mapping[str, Origin]) -> dict[str, Origin]:
    """The origin of each topic setting that has a value.

    Args:
        own: those of the topic alone.
        broker: those of the broker, of all levels merged, by their names as the broker's.
    """
    found: dict[str, Origin] = {}
    for name, setting in TOPIC_SETTINGS.items():
        of_broker = broker_name_of(setting, broker)
        if name in own:
            found[name] = own[name]
        elif of_broker is not None:
            found[name] = broker[of_broker.name]
        elif setting.default_text is not None:
            found[name] = Origin(
                value=setting.default_text, level=Level.DEFAULT, source=KAFKA, key=name
            )
    return found
