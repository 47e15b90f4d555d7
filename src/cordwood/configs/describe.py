"""The answer to DescribeConfigs: each setting of a resource with the source of its value.

Entries are in Kafka's order, which is that of Java's hash tables.

Source: kafka.server.ConfigHelper, Kafka 4.3; KIP-226, KIP-569, KIP-714, KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from cordwood.configs.effective import EffectiveConfigs, recorded_origins
from cordwood.configs.levels import Level, Origin, Synonym, given_at, synonyms_of, topic_origins
from cordwood.configs.resource import (
    ConfigResource,
    Texts,
)
from cordwood.configs.static_topics import property_name
from cordwood.configs.table import (
    OWN_PREFIX,
    TOPIC_SETTINGS,
    Dynamic,
    Setting,
    Settings,
    broker_settings,
    client_metrics_settings,
    dynamic_settings,
    group_settings,
    is_own,
    settings_of,
)
from cordwood.configs.texts import java_order, key_of
from cordwood.configs.topic_values import parse_topic
from cordwood.configs.value import ConfigType, Value, format_value
from cordwood.model.kafka_errors import (
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.topic_names import require_topic_name

TYPE_CODES: Final[Mapping[ConfigType, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
}
UNKNOWN_TYPE: Final = 0
#: Cordwood's own, read-only: the address of a broker's HTTP endpoint. It is returned only if it is
#: requested by name, so that Kafka's tools list only Kafka's settings.
HTTP_URL: Final = f"{OWN_PREFIX}http.url"
_TRASH_MS: Final = f"{OWN_PREFIX}trash.ms"


_NOTHING: Final[Texts] = MappingProxyType({})


class ConfigEntry(NamedTuple):
    """A setting of a resource with the level of its value, as DescribeConfigs returns it.

    `value` is None if it is secret or unset; `synonyms` come by precedence, the value's own first;
    `type_code` is that of ConfigType.
    """

    name: str
    value: str | None
    level: Level
    type_code: int
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: Sequence[Synonym] = ()
    documentation: str | None = None


def describe(
    configs: EffectiveConfigs,
    kind: int,
    name: str,
    *,
    wanted: Collection[str] | None = None,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """The entries of a resource, with their synonyms; `wanted` are the requested names, None all.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist; the text is empty, as in Kafka.
        InvalidTopicError: the topic name is illegal.
        InvalidRequestError: this broker does not know such a resource.
    """
    match kind:
        case ConfigResource.TOPIC:
            entries = _topic(configs, name, wanted or ())
        case ConfigResource.BROKER:
            entries = _broker(configs, name)
        case ConfigResource.BROKER_LOGGER:
            entries = _loggers(configs, name)
        case ConfigResource.CLIENT_METRICS:
            entries = _client_metrics(configs, name)
        case ConfigResource.GROUP:
            entries = _group(configs, name)
        case _:
            raise InvalidRequestError(f"Unexpected resource type {kind} for resource {name}")
    if wanted:
        entries = [entry for entry in entries if entry.name in wanted]
        if kind == ConfigResource.BROKER and name and HTTP_URL in wanted:
            entries = [entry for entry in entries if entry.name != HTTP_URL]
            entries.append(_http_url_entry(configs))
    if documentation and kind != ConfigResource.BROKER_LOGGER:
        settings = settings_of(kind)
        entries = [
            entry._replace(documentation=settings[entry.name].doc)
            if entry.name in settings
            else entry
            for entry in entries
        ]
    return entries


def describe_new_topic(configs: EffectiveConfigs, texts: Texts) -> list[ConfigEntry]:
    """The entries of a CreateTopics response for a topic with the settings `texts` of its own.

    The controller gives them by name, each as it is written where it stands.

    Source: org.apache.kafka.metadata.KafkaConfigSchema.resolveEffectiveTopicConfig.
    """
    origins = topic_origins(recorded_origins(texts), configs.given)
    entries = []
    for name in sorted(TOPIC_SETTINGS):
        setting = TOPIC_SETTINGS[name]
        origin = origins.get(name)
        level = Level.DEFAULT if origin is None else origin.level
        if setting.internal and level is Level.DEFAULT:
            continue
        text = None if origin is None else _in_own_unit(setting, origin)
        entries.append(_entry(name, text, setting, [Synonym(name, text, level)]))
    return entries


def _in_own_unit(setting: Setting, origin: Origin) -> str:
    """The value as it is written, in the unit of the topic setting."""
    factors = {each.name: each.factor for each in setting.broker_names}
    factor = factors.get(origin.key, 1)
    return origin.value if factor == 1 else str(int(origin.value) * factor)


def _topic(configs: EffectiveConfigs, topic: str, wanted: Collection[str]) -> list[ConfigEntry]:
    """The entries of a topic; of own settings those that are set for it, or `wanted`."""
    require_topic_name(topic)
    if topic not in configs.image.topics:
        raise UnknownTopicOrPartitionError("")
    texts = configs.recorded(ConfigResource.TOPIC, topic)
    static = configs.settings.static_topics.get(topic, _NOTHING)
    values = parse_topic({**static, **texts}, configs.topic_defaults)
    of_broker = {each for _, given in configs.levels for each in given if is_own(each)}
    of_broker.update(_turned_on(configs))
    own = {each for each in (*static, *of_broker, *wanted) if is_own(each)} - texts.keys()
    return [
        _topic_entry(configs, topic, name, values)
        for name in (
            *_internal_or_unknown(TOPIC_SETTINGS, {**texts, **dict.fromkeys(sorted(own), "")}),
            *_names_in(ConfigResource.TOPIC),
        )
    ]


def _topic_entry(
    configs: EffectiveConfigs, topic: str, name: str, values: Mapping[str, Value]
) -> ConfigEntry:
    if name not in TOPIC_SETTINGS:
        return _unknown_entry(name, Level.TOPIC)
    key = TOPIC_SETTINGS[name]
    text = format_value(values[name])
    synonyms = _synonyms(configs, key.broker_names[0].name) if key.broker_names else []
    static = configs.settings.static_topics.get(topic, _NOTHING)
    if name in static:
        value = format_value(key.parse(static[name]))
        synonyms.insert(0, Synonym(property_name(topic, name), value, Level.STATIC_BROKER))
    if name in configs.recorded(ConfigResource.TOPIC, topic):
        synonyms.insert(0, Synonym(name, text, Level.TOPIC))
    return _entry(name, text, key, synonyms)


def _broker(configs: EffectiveConfigs, name: str) -> list[ConfigEntry]:
    if not name:
        return [
            _default_entry(configs, each, text)
            for each, text in _in_java_order(configs.dynamic_default)
        ]
    own = configs.settings.node_id
    if _number(name, "Broker") != own:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {own} or empty string, but received {name}"
        )
    texts = configs.effective_texts(
        dynamic=configs.dynamic, dynamic_default=configs.dynamic_default
    )
    names = _names_in(ConfigResource.BROKER)
    known = frozenset(names)
    unknown = [each for each in java_order(texts) if each not in known]
    turned_on = [each for each in _turned_on(configs) if each not in texts]
    return [
        *(_broker_entry(configs, each, texts[each]) for each in unknown),
        *(_broker_entry(configs, each, _text(configs.values.all[each])) for each in turned_on),
        *(_broker_entry(configs, each, _text(configs.values.all[each])) for each in names),
    ]


def _turned_on(configs: EffectiveConfigs) -> tuple[str, ...]:
    """Own settings that have an effect by their defaults, since another one is set."""
    return (_TRASH_MS,) if configs.settings.trash_dir else ()


def _broker_entry(configs: EffectiveConfigs, name: str, text: str | None) -> ConfigEntry:
    synonyms = _synonyms(configs, name)
    return _entry(name, text, key_of(name), synonyms, read_only=_is_read_only(name))


def _http_url_entry(configs: EffectiveConfigs) -> ConfigEntry:
    text, code = configs.http_url, TYPE_CODES[ConfigType.STRING]
    return ConfigEntry(HTTP_URL, text, Level.STATIC_BROKER, code, is_read_only=True)


def _default_entry(configs: EffectiveConfigs, name: str, text: str) -> ConfigEntry:
    synonyms = [each for each in _synonyms(configs, name) if each.level is Level.DYNAMIC_DEFAULT]
    return _entry(name, text, key_of(name), synonyms, read_only=_is_read_only(name))


def _is_read_only(name: str) -> bool:
    key = dynamic_settings().get(name)
    return key is None or key.dynamic is Dynamic.NO


def _synonyms(configs: EffectiveConfigs, name: str) -> list[Synonym]:
    """The levels at which a broker's setting is set, highest precedence first."""
    names = synonyms_of(name)
    key = key_of(name)
    is_secret = key is None or key.is_sensitive
    defaults = broker_settings()
    found = [
        each._replace(value=None) if is_secret else each for each in given_at(configs.levels, name)
    ]
    for each in names:
        text = defaults[each].default_text if each in defaults else None
        if text is not None:
            found.append(Synonym(each, None if is_secret else text, Level.DEFAULT))
    first = next((place for place, each in enumerate(found) if each.name == name), len(found))
    return found[first:]


def _group(configs: EffectiveConfigs, name: str) -> list[ConfigEntry]:
    if not name:
        raise InvalidRequestError("Group name must not be empty")
    texts = configs.recorded(ConfigResource.GROUP, name)
    values = configs.group_values(name)
    entries = []
    for each in (*_names_in(ConfigResource.GROUP), *_internal_or_unknown(group_settings(), texts)):
        if each not in group_settings():
            entries.append(_unknown_entry(each, Level.GROUP))
            continue
        key = group_settings()[each]
        text = _text(values[each])
        synonyms = [Synonym(each, key.default_text, Level.DEFAULT)]
        if key.broker_names:
            synonyms = _synonyms(configs, key.broker_names[0].name)
        if each in texts:
            synonyms.insert(0, Synonym(each, text, Level.GROUP))
        entries.append(_entry(each, text, key, synonyms))
    return entries


def _client_metrics(configs: EffectiveConfigs, name: str) -> list[ConfigEntry]:
    if not name:
        raise InvalidRequestError("Client metrics subscription name must not be empty")
    texts = configs.recorded(ConfigResource.CLIENT_METRICS, name)
    entries = []
    for each in _names_in(ConfigResource.CLIENT_METRICS):
        key = client_metrics_settings()[each]
        text = texts.get(each)
        synonyms = [] if text is None else [Synonym(each, text, Level.CLIENT_METRICS)]
        entries.append(_entry(each, key.default_text if text is None else text, key, synonyms))
    return entries


def _unknown_entry(name: str, level: Level) -> ConfigEntry:
    """The entry of a recorded setting that this version does not know: it may be a secret."""
    return _entry(name, None, None, [Synonym(name, None, level)])


def _loggers(configs: EffectiveConfigs, name: str) -> list[ConfigEntry]:
    own = configs.settings.node_id
    if not name:
        raise InvalidRequestError("Broker id must not be empty")
    if _number(name, "Broker") != own:
        raise InvalidRequestError(f"Unexpected broker id, expected {own} but received {name}")
    return [
        ConfigEntry(each, level, Level.BROKER_LOGGER, UNKNOWN_TYPE, documentation="")
        for each, level in configs.loggers.all().items()
    ]


def _entry(
    name: str,
    text: str | None,
    key: Setting | None,
    synonyms: Sequence[Synonym],
    *,
    read_only: bool = False,
) -> ConfigEntry:
    is_secret = key is None or key.is_sensitive
    return ConfigEntry(
        name=name,
        value=None if is_secret else text,
        level=synonyms[0].level if synonyms else Level.DEFAULT,
        type_code=UNKNOWN_TYPE if key is None else TYPE_CODES[key.rule.kind],
        is_read_only=read_only,
        is_sensitive=is_secret,
        synonyms=synonyms,
    )


@cache
def _names_in(kind: ConfigResource) -> tuple[str, ...]:
    """The names that are always returned, in Kafka's order."""
    return tuple(java_order(name for name, key in settings_of(kind).items() if not key.internal))


def _internal_or_unknown(keys: Settings, texts: Texts) -> list[str]:
    """Names of `texts` that Kafka describes although its documentation does not list them.

    Source: ConfigHelper.allConfigs, which adds the originals to those that are not internal.
    """
    return [name for name in java_order(texts) if name not in keys or keys[name].internal]


def _in_java_order(texts: Texts) -> list[tuple[str, str]]:
    return [(name, texts[name]) for name in java_order(texts)]


def _text(value: Value | None) -> str | None:
    return None if value is None else format_value(value)


def _number(name: str, what: str) -> int:
    """A resource's name as the number it must be.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        return parse_node_id(name)
    except ValueError:
        raise InvalidRequestError(f"{what} id must be an integer, but it is: {name}") from None


def parse_node_id(name: str) -> int:
    """The number that Java's Integer.parseInt makes of `name`.

    Raises:
        ValueError: it makes none.
    """
    digits = name[1:] if name[:1] in {"+", "-"} else name
    if not digits.isdecimal() or len(digits) > 64 or not -(2**31) <= int(name) < 2**31:
        raise ValueError(name)
    return int(name)
