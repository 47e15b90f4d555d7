"""Settings as they are written, their values, and the order in which Java names them.

Source: kafka.server.KafkaConfig.extractLogConfigMap, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from cordwood.configs.levels import synonyms_of
from cordwood.configs.resource import Texts
from cordwood.configs.table import (
    Setting,
    Settings,
    broker_settings,
    dynamic_settings,
)
from cordwood.configs.value import Value
from cordwood.format.java_map import JavaHashMap


def key_of(name: str) -> Setting | None:
    """The setting `name`, also with a listener's prefix; None if Kafka does not know it."""
    keys = dynamic_settings()
    if name in keys:
        return keys[name]
    return next((keys[each] for each in synonyms_of(name) if each in keys), None)


def parse_texts(texts: Texts, keys: Settings) -> dict[str, Value | None]:
    """The values of all `keys`: those in `texts`, for the others their defaults.

    Raises:
        ConfigError: one that Kafka would refuse, the first in the order of `keys`.
    """
    values = dict(_defaults(keys))
    given = texts.keys() & keys.keys()
    for name in sorted(given, key=_places(keys).__getitem__) if len(given) > 1 else given:
        values[name] = keys[name].parse(texts[name])
    return values


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The names whose values differ, including those in only one of the two."""
    return {
        name
        for name in before.keys() | after.keys()
        if name not in before or name not in after or before[name] != after[name]
    }


def named(names: Iterable[str]) -> str:
    """Names as Java prints a set of them: in brackets, in the order of its hash table."""
    return f"[{', '.join(java_order(names))}]"


def java_order(names: Iterable[str]) -> list[str]:
    """The names in the order in which a java.util.HashMap gives them."""
    table: JavaHashMap[str, None] = JavaHashMap()
    for name in names:
        table.put(name, None)
    return list(table)


def _defaults(keys: Settings) -> Mapping[str, Value | None]:
    return _broker_defaults() if keys is broker_settings() else _defaults_of(keys)


@cache
def _broker_defaults() -> Mapping[str, Value | None]:
    return _defaults_of(broker_settings())


def _defaults_of(keys: Settings) -> Mapping[str, Value | None]:
    return {name: key.default for name, key in keys.items()}


def _places(keys: Settings) -> Mapping[str, int]:
    return {name: place for place, name in enumerate(keys)}
