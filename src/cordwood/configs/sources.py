"""Resolution of settings: by level first, then by source, as in Kafka.

The levels in order of precedence:

1. topic: `--set TOPIC:KEY`, then the config file's `topics`, then the metadata log;
2. static topic: `cordwood.topic.TOPIC.KEY` of `server.properties`, for Cordwood's own settings;
3. dynamic broker: the metadata log, for this broker's id;
4. dynamic cluster default: the metadata log, for all brokers;
5. static broker: `--set KEY`, then the config file's `broker`, then `server.properties`;
6. Kafka's default.

Inside a level milliseconds come before minutes before hours, whatever the source. Kafka does so by
merging the levels: a dynamic value removes all its coarser forms at lower levels. Only the finest
form of a setting is dynamic; the others are ignored in the metadata log.

A topic that no source describes has no settings: a missing file must never mean that its records
may be deleted after seven days.

Source: kafka.server.DynamicBrokerConfig.updateCurrentConfig, KafkaConfig.extractLogConfigMap and
validateValues, LogConfig.fromProps and validateValues, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.internal_topics import INTERNAL_TOPIC_CREATION
from cordwood.configs.levels import METADATA_LOG, Level, Origin, merge, topic_origins
from cordwood.configs.log_config import LogConfig
from cordwood.configs.names import (
    advise_on_broker_name,
    advise_on_topic_name,
    is_misnamed_broker_setting,
)
from cordwood.configs.resource import ConfigResource, RecordedSettings
from cordwood.configs.static_topics import StaticTopics, property_name, static_topics
from cordwood.configs.table import (
    BROKER_NAME_OF_TOPIC_SETTING,
    LOG_BROKER_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
)
from cordwood.configs.topic_values import (
    MAX_LAG,
    MIN_LAG,
    complaint_of_lags,
    complaints_of_defaults,
    parse_topic,
    topic_defaults,
)
from cordwood.configs.value import Value, format_value
from cordwood.model.errors import ConfigError
from cordwood.model.topic_names import ALL_TOPICS

SET_OPTION = "--set"
CREATION = "as Kafka creates it"

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTopic:
    """The settings in force for one topic, and for each, by Kafka's name, where it comes from."""

    topic: str
    config: LogConfig
    origin: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBroker:
    """The settings in force for one broker; `origin` names only what some source sets."""

    config: BrokerConfig
    origin: Mapping[str, Origin]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All given settings, validated: every name is known, every value is accepted by Kafka.

    `topic_set` and `broker_set` are of `--set`, the former with `ALL_TOPICS` for all topics;
    `file_topics` and `file_broker` are of the config file;
    `defaults` means that Kafka's defaults describe any topic. The `*_name` are for messages.

    Raises:
        ConfigError: an unknown name or an invalid value, except in the metadata log.
    """

    topic_set: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_set: Mapping[str, str] = field(default_factory=dict)
    file_topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file_broker: Mapping[str, str] = field(default_factory=dict)
    server_properties: Mapping[str, str] = field(default_factory=dict)
    metadata: RecordedSettings | None = None
    defaults: bool = False
    config_file_name: str = "--config-file"
    server_properties_name: str = "--server-properties"
    static_topics: StaticTopics = field(init=False)
    warnings: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        for topics, name in (
            (self.topic_set, SET_OPTION),
            (self.file_topics, self.config_file_name),
        ):
            for topic, settings in topics.items():
                for key, value in settings.items():
                    _parse_topic_setting(key, value, where=_where(name, key, value, topic=topic))
        static_of_topics = static_topics(self.server_properties, source=self.server_properties_name)
        object.__setattr__(self, "static_topics", static_of_topics)
        static = _static_settings(self, with_set=True)
        _require_sound_broker(static)
        object.__setattr__(self, "warnings", tuple(_static_warnings(self, static)))

    def describes(self, topic: str) -> bool:
        """Whether these sources describe the cleanup of `topic`.

        The properties of a server alone do not: overrides of the topic would be unknown. Nor do
        broker settings describe Kafka's internal topics, or any topic if they concern other things
        than topics.
        """
        if self.defaults or topic in self.topic_set or topic in self.file_topics:
            return True
        if self.metadata is not None and topic in self.metadata.topics:
            return True
        given = self.broker_set.keys() | self.file_broker.keys()
        return not topic.startswith("__") and any(_bears_on_topics(key) for key in given)


def settings_of_topic(settings: Mapping[str, Mapping[str, str]], topic: str) -> dict[str, str]:
    """The settings that options give a topic: its own, and before them those of `ALL_TOPICS`.

    The latter are not for topics that begin with two underscores.
    """
    of_all = _NOTHING if topic.startswith("__") else settings.get(ALL_TOPICS, _NOTHING)
    return {**of_all, **settings.get(topic, _NOTHING)}


def resolve_topic(sources: Sources, topic: str, *, node_id: int | None) -> ResolvedTopic | None:
    """The settings in force for `topic` on the broker `node_id`; None if no source describes it.

    Broker settings of `--set` never apply to topics that begin with two underscores. Internal
    topics that the metadata log does not list get the settings with which Kafka creates them.

    Raises:
        ConfigError: the metadata log has a value that Kafka refuses, or the minimum compaction lag
            is above the maximum.
    """
    if not sources.describes(topic):
        return None
    warnings: list[str] = []
    own = _topic_settings(sources, topic, warnings)
    broker = _broker_settings(
        sources, node_id, with_set=not topic.startswith("__"), warnings=warnings
    )
    origin = topic_origins(own, broker)
    texts = {name: each.value for name, each in own.items()}
    values = parse_topic(texts, topic_defaults(_parsed(broker)))
    # Kafka checks them when a topic's settings change, and not again when a broker's change later.
    if any(
        origin[name].level is Level.TOPIC and origin[name].source != METADATA_LOG
        for name in (MIN_LAG, MAX_LAG)
    ):
        _require_ordered_lags(values, origin)
    return ResolvedTopic(
        topic=topic,
        config=LogConfig.from_values(values),
        origin=origin,
        warnings=tuple(warnings),
    )


def resolve_broker(sources: Sources, *, node_id: int | None) -> ResolvedBroker:
    """The settings in force for the broker `node_id`.

    Raises:
        ConfigError: the metadata log has a value that Kafka refuses.
    """
    warnings: list[str] = []
    given = _broker_settings(sources, node_id, with_set=True, warnings=warnings)
    values = _parsed(given)
    if node_id is not None:
        values["node.id"] = node_id
    return ResolvedBroker(
        config=BrokerConfig(values),
        origin=given,
        warnings=tuple(warnings),
    )


def _parsed(given: Mapping[str, Origin]) -> dict[str, Value | None]:
    """The values of a broker's settings, which have been checked."""
    return {name: LOG_BROKER_SETTINGS[name].parse(each.value) for name, each in given.items()}


def _topic_settings(sources: Sources, topic: str, warnings: list[str]) -> dict[str, Origin]:
    """The settings of the topic alone, by name; each from the first source that has it."""
    listed = sources.metadata is not None and topic in sources.metadata.topics
    recorded = _recorded(sources, ConfigResource.TOPIC, topic)
    layers = (
        (SET_OPTION, settings_of_topic(sources.topic_set, topic)),
        (sources.config_file_name, sources.file_topics.get(topic, _NOTHING)),
        (METADATA_LOG, recorded),
        (CREATION, _NOTHING if listed else _settings_at_creation(sources, topic)),
    )
    found: dict[str, Origin] = {}
    for source, settings in layers:
        for key, value in settings.items():
            if key not in TOPIC_SETTINGS and source == METADATA_LOG:
                warnings.append(f"{source}, topic {topic}: {key} is unknown, and ignored")
                continue
            if key in found:
                continue
            _parse_topic_setting(key, value, where=_where(source, key, value, topic=topic))
            found[key] = Origin(value=value, level=Level.TOPIC, source=source, key=key)
    for key, value in sources.static_topics.get(topic, _NOTHING).items():
        origin = Origin(
            value=value,
            level=Level.STATIC_BROKER,
            source=sources.server_properties_name,
            key=property_name(topic, key),
        )
        found.setdefault(key, origin)
    return found


def _settings_at_creation(sources: Sources, topic: str) -> Mapping[str, str]:
    """The settings that Kafka gives one of its own topics when it creates it.

    Source: TopicBasedRemoteLogMetadataManager, Kafka 4.3, and those of `internal_topics`.
    """

    def static(key: str) -> str:
        default = LOG_BROKER_SETTINGS[key].default
        assert default is not None, key
        return sources.server_properties.get(key, format_value(default))

    internal = INTERNAL_TOPIC_CREATION.get(topic)
    if internal is not None:
        return internal.configs_with(static)
    if topic == "__remote_log_metadata":
        return {"cleanup.policy": "delete", "retention.ms": "-1"}
    return _NOTHING


def _broker_settings(
    sources: Sources, node_id: int | None, *, with_set: bool, warnings: list[str]
) -> dict[str, Origin]:
    """The broker's settings of all levels merged, by name."""
    levels = [(Level.STATIC_BROKER, _static_settings(sources, with_set=with_set))]
    dynamic = [(Level.DYNAMIC_DEFAULT, "")]
    if node_id is not None:
        dynamic.append((Level.DYNAMIC_BROKER, str(node_id)))
    for level, name in dynamic:
        given: dict[str, Origin] = {}
        where = f"{METADATA_LOG}, {f'broker {name}' if name else 'all brokers'}"
        for key, value in _recorded(sources, ConfigResource.BROKER, name).items():
            setting = LOG_BROKER_SETTINGS.get(key)
            if setting is None:
                continue
            if not setting.is_dynamic:
                warnings.append(f"{where}: {key} cannot be changed dynamically, and is ignored")
                continue
            _parse(setting, value, where=f"{where}, {key}={value}")
            given[key] = Origin(value=value, level=level, source=METADATA_LOG, key=key)
        levels.insert(0, (level, given))
    merged = merge(levels)
    _require_sound_broker(merged, lags=False)
    return merged


def _static_settings(sources: Sources, *, with_set: bool) -> dict[str, Origin]:
    """The static settings of the broker, by their names as the broker's."""
    merged: dict[str, Origin] = {}
    layers = [
        (sources.config_file_name, sources.file_broker),
        (sources.server_properties_name, sources.server_properties),
    ]
    if with_set:
        layers.insert(0, (SET_OPTION, sources.broker_set))
    for source, settings in layers:
        lenient = settings is sources.server_properties
        for key, value, name in _named(settings, source, lenient=lenient):
            _parse(LOG_BROKER_SETTINGS[name], value, where=_where(source, key, value))
            origin = Origin(value=value, level=Level.STATIC_BROKER, source=source, key=name)
            merged.setdefault(name, origin)
    return merged


def _named(
    settings: Mapping[str, str], source: str, *, lenient: bool
) -> Iterator[tuple[str, str, str]]:
    """Keys, values, and the names of the broker settings that the keys map to.

    A lenient source is one that Kafka reads too: unknown names may belong to another program.
    """
    seen: dict[str, str] = {}
    for key, value in settings.items():
        if lenient and key not in LOG_BROKER_SETTINGS:
            continue
        name = key if key in LOG_BROKER_SETTINGS else BROKER_NAME_OF_TOPIC_SETTING.get(key)
        if name is None:
            raise ConfigError(
                _with_advice(
                    f"{_where(source, key, value)}: unknown broker setting {key}",
                    advise_on_broker_name(key),
                )
            )
        if name in seen and settings[seen[name]] != value:
            raise ConfigError(f"{source}: {seen[name]} and {key} are one setting with two values")
        seen[name] = key
        yield key, value, name


def _static_warnings(sources: Sources, static: Mapping[str, Origin]) -> Iterator[str]:
    source = sources.server_properties_name
    for key in sources.server_properties:
        if is_misnamed_broker_setting(key):
            yield _with_advice(f"{source}: {key} is ignored", advise_on_broker_name(key))
    for setting in TOPIC_SETTINGS.values():
        given = [static[name.name] for name in setting.broker_names if name.name in static]
        for weaker in given[1:]:
            if weaker.source != given[0].source:
                yield (
                    f"{weaker.source}: {weaker.key}={weaker.value} has no "
                    f"effect, for {given[0].key}={given[0].value} "
                    f"({given[0].source}) comes before it"
                )


def _require_sound_broker(given: Mapping[str, Origin], *, lags: bool = True) -> None:
    """Kafka's rules between broker settings; the rule on lags applies only at a start."""
    values, origin = topic_defaults(_parsed(given)), topic_origins({}, given)
    for name, complaint in complaints_of_defaults(values):
        raise ConfigError(_at(origin[name], complaint))
    if lags:
        _require_ordered_lags(values, origin)


def _require_ordered_lags(values: Mapping[str, Value], origin: Mapping[str, Origin]) -> None:
    complaint = complaint_of_lags(values)
    if complaint is not None:
        culprit = max(
            (origin[MIN_LAG], origin[MAX_LAG]), key=lambda each: each.level != Level.DEFAULT
        )
        raise ConfigError(_at(culprit, complaint))


def _recorded(sources: Sources, kind: ConfigResource, name: str) -> Mapping[str, str]:
    if sources.metadata is None:
        return _NOTHING
    return sources.metadata.configs.get((kind, name), _NOTHING)


def _bears_on_topics(key: str) -> bool:
    return key in BROKER_NAME_OF_TOPIC_SETTING or any(
        key == name.name for setting in TOPIC_SETTINGS.values() for name in setting.broker_names
    )


def _parse_topic_setting(key: str, value: str, *, where: str) -> Value:
    setting = TOPIC_SETTINGS.get(key)
    if setting is None:
        raise ConfigError(
            _with_advice(f"{where}: Unknown topic config name: {key}", advise_on_topic_name(key))
        )
    return _parse(setting, value, where=where)


def _parse(setting: Setting, value: str, *, where: str) -> Value:
    try:
        return setting.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _where(source: str, key: str, value: str, *, topic: str | None = None) -> str:
    if source == SET_OPTION:
        return f"{source} {topic}:{key}={value}" if topic else f"{source} {key}={value}"
    return f"{source}, topic {topic}, {key}={value}" if topic else f"{source}, {key}={value}"


def _at(origin: Origin, complaint: str) -> str:
    return f"{_where(origin.source, origin.key, origin.value)} ({origin.level}): {complaint}"


def _with_advice(text: str, advice: str) -> str:
    return f"{text}; {advice}" if advice else text
