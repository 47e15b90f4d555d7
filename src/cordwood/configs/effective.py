"""The effective settings of this broker, and their watchers.

The recorded settings come from the metadata image; the service applies them over the static
settings. All of it belongs to the event loop's thread.

Source: kafka.server.DynamicBrokerConfig, kafka.server.metadata.DynamicConfigPublisher, Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from cordwood.configs.broker_config import (
    BrokerConfig,
)
from cordwood.configs.levels import (
    LISTENER_KEY,
    METADATA_LOG,
    Level,
    Levels,
    Origin,
    merge,
    topic_origins,
)
from cordwood.configs.log_config import LogConfig
from cordwood.configs.loggers import LoggerLevels
from cordwood.configs.resource import (
    ClusterSettings,
    ConfigResource,
    NewCluster,
    SettingsUpdate,
    Texts,
)
from cordwood.configs.server_properties import BrokerSettings
from cordwood.configs.static_topics import property_name
from cordwood.configs.table import (
    GROUP_BOUNDS,
    Dynamic,
    broker_settings,
    dynamic_settings,
    group_settings,
)
from cordwood.configs.texts import changed, key_of, parse_texts
from cordwood.configs.topic_values import parse_topic, topic_defaults
from cordwood.configs.value import ConfigType, Value
from cordwood.model.errors import ConfigError

_log = logging.getLogger(__name__)

_NOTHING: Final[Texts] = MappingProxyType({})
_CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)

Watcher = Callable[[BrokerConfig, BrokerConfig], None]
"""Called with the values before and after a change."""


class _Subscription(NamedTuple):
    names: frozenset[str]
    watcher: Watcher


class EffectiveConfigs:
    """The effective settings: `values` for the broker, `log_config` for a topic.

    `dynamic` are the settings recorded for this broker, `dynamic_default` those for all brokers,
    both without settings that cannot be changed at run time.
    """

    def __init__(self, settings: BrokerSettings, image: ClusterSettings | None = None) -> None:
        self.settings = settings
        self.image = image or NewCluster()
        self.dynamic: Texts = _NOTHING
        self.dynamic_default: Texts = _NOTHING
        self.values: BrokerConfig = settings
        #: Where this broker's HTTP endpoint is; None where it has none.
        self.http_url: str | None = None
        self.loggers = LoggerLevels()
        self._subscriptions: list[_Subscription] = []
        self._topic_defaults: dict[str, Value] = topic_defaults(settings.all)
        self._log_configs: dict[str, LogConfig] = {}
        self._default_log_config = LogConfig.from_values(self._topic_defaults)
        self._given: Mapping[str, Origin] | None = None
        self._take_broker_records()

    # ---- effective settings

    def log_config(self, topic: str) -> LogConfig:
        """The effective settings of the logs of `topic`.

        Raises:
            ConfigError: its record has a value that Kafka refuses.
        """
        texts = self.recorded(ConfigResource.TOPIC, topic)
        static = self.settings.static_topics.get(topic)
        if static is not None:
            texts = {**static, **texts}
        if not texts:
            return self._default_log_config
        found = self._log_configs.get(topic)
        if found is None:
            found = LogConfig.from_values(parse_topic(texts, self._topic_defaults))
            self._log_configs[topic] = found
        return found

    def new_log_config(self, texts: Texts) -> LogConfig:
        """The settings of the logs of a topic that does not exist yet, of its own settings.

        Raises:
            ConfigError: Kafka would refuse a value.
        """
        return LogConfig.from_values(parse_topic(texts, self._topic_defaults))

    def own_group_integer(self, group: str, name: str) -> int | None:
        """The whole number that `group` has of its own for the setting `name`, or None.

        It is brought into the bounds that the broker sets, which may be others than those at
        the time when the value was recorded.

        Raises:
            ConfigError: its record has a value that Kafka refuses.

        Source: GroupConfig.evaluate.
        """
        text = self.recorded(ConfigResource.GROUP, group).get(name)
        if text is None:
            return None
        value = group_settings()[name].parse(text)
        assert isinstance(value, int), name
        bound = GROUP_BOUNDS.get(name)
        if bound is None:
            return value
        least, most = (self.values.all.get(bound.format(each)) for each in ("min", "max"))
        if isinstance(least, int):
            value = max(value, least)
        return min(value, most) if isinstance(most, int) else value

    def group_values(self, group: str) -> Mapping[str, Value | None]:
        """The values of all settings for `group`."""
        texts = self.recorded(ConfigResource.GROUP, group)
        values: dict[str, Value | None] = {}
        for name, key in group_settings().items():
            if name in texts:
                values[name] = key.parse(texts[name])
            else:
                broker = key.broker_names[0].name if key.broker_names else ""
                value = self.values.all.get(broker, key.default)
                if isinstance(value, tuple) and key.rule.kind is ConfigType.STRING:
                    value = value[0]  # the first of the broker's is the default
                values[name] = value
        return values

    def recorded(self, kind: int, name: str) -> Texts:
        """The settings in the metadata log for a resource, unchanged."""
        return self.image.configs.get((int(kind), name), _NOTHING)

    def topic_origins(self, topic: str) -> dict[str, Origin]:
        """The origin of each setting of a topic that has a value, by name."""
        static = self.settings.static_topics.get(topic, _NOTHING)
        own = {
            name: _origin(property_name(topic, name), text, Level.STATIC_BROKER)
            for name, text in static.items()
        }
        recorded = self.recorded(ConfigResource.TOPIC, topic)
        return topic_origins({**own, **recorded_origins(recorded)}, self.given)

    @property
    def given(self) -> Mapping[str, Origin]:
        """The origin of each setting of the broker that a level gives, by name."""
        if self._given is None:
            self._given = merge(
                [
                    (level, {name: _origin(name, text, level) for name, text in texts.items()})
                    for level, texts in self.levels
                ]
            )
        return self._given

    @property
    def topic_defaults(self) -> Mapping[str, Value]:
        """The values of topics without their own."""
        return self._topic_defaults

    # ---- changes

    def subscribe(self, names: Collection[str], watcher: Watcher) -> None:
        """Calls `watcher` whenever the effective value of one of these broker settings changes.

        Names of no setting, or of one that cannot be changed at run time, are a mistake.
        """
        keys = broker_settings()
        for name in names:
            assert keys[name].dynamic is not Dynamic.NO, name
        self._subscriptions.append(_Subscription(frozenset(names), watcher))

    def on_metadata_update(self, update: SettingsUpdate) -> None:
        """Applies the image of an update, as a `MetadataPublisher`."""
        self.on_image(update.before, update.after)

    def on_image(self, old: ClusterSettings | None, new: ClusterSettings) -> None:
        """Applies a new image; the watchers of changed settings are called before this returns."""
        self.image = new
        if old is not None and old.configs is new.configs:
            return
        self._log_configs.clear()
        self._take_broker_records()

    def effective_texts(self, *, dynamic: Texts, dynamic_default: Texts) -> dict[str, str]:
        """The broker's settings as written, with these records over the static ones."""
        return merge(self._levels(dynamic, dynamic_default))

    @property
    def levels(self) -> Levels[str]:
        """The broker's settings as written, by level."""
        return self._levels(self.dynamic, self.dynamic_default)

    def _levels(self, dynamic: Texts, dynamic_default: Texts) -> Levels[str]:
        return (
            (Level.DYNAMIC_BROKER, dynamic),
            (Level.DYNAMIC_DEFAULT, dynamic_default),
            (Level.STATIC_BROKER, self.settings.given),
        )

    def _take_broker_records(self) -> None:
        dynamic = usable(self.recorded(ConfigResource.BROKER, str(self.settings.node_id)))
        default = usable(self.recorded(ConfigResource.BROKER, ""), for_all=True)
        if dynamic == self.dynamic and default == self.dynamic_default:
            return
        self.dynamic, self.dynamic_default = dynamic, default
        self._given = None
        texts = self.effective_texts(dynamic=dynamic, dynamic_default=default)
        before = self.values
        try:
            self.values = BrokerConfig(parse_texts(texts, broker_settings()))
        except ConfigError:
            _log.exception(
                "The recorded settings of the broker cannot be used; the old ones stay in effect"
            )
            return
        self._topic_defaults = topic_defaults(self.values.all)
        self._default_log_config = LogConfig.from_values(self._topic_defaults)
        self._log_configs.clear()
        names = changed(before.all, self.values.all)
        for each in self._subscriptions:
            if each.names & names:
                each.watcher(before, self.values)


def recorded_origins(texts: Texts) -> dict[str, Origin]:
    """The origins of settings that are recorded for a topic."""
    return {name: _origin(name, text, Level.TOPIC) for name, text in texts.items()}


def _origin(name: str, text: str, level: Level) -> Origin:
    source = "server.properties" if level is Level.STATIC_BROKER else METADATA_LOG
    return Origin(value=text, level=level, source=source, key=name)


def usable(texts: Texts, *, for_all: bool = False) -> Texts:
    """The settings of a broker's record that have an effect; `for_all` it is that of all brokers.

    Others are kept where they stand, for nodes that may know more.

    Source: DynamicBrokerConfig.fromPersistentProps and removeInvalidConfigs.
    """
    found: dict[str, str] = {}
    for name, text in texts.items():
        known = dynamic_settings().get(name)
        if known is not None and known.dynamic is Dynamic.NO:
            continue
        if name.startswith("ssl.") and known is not None and is_store_of_keys(name):
            continue
        if for_all and is_per_broker(name):
            continue
        key = key_of(name)
        try:
            if key is not None:
                key.parse(text)
        except ConfigError:
            _log.warning("The recorded setting %s is not valid and is ignored", name)
            continue
        found[name] = text
    return found


def is_per_broker(name: str) -> bool:
    """Whether a setting may be recorded for one broker only."""
    match = LISTENER_KEY.fullmatch(name)
    if match is not None:
        return match[1] not in _CLUSTER_WIDE_OF_LISTENERS
    known = dynamic_settings().get(name)
    return known is not None and known.dynamic is Dynamic.BROKER


def is_store_of_keys(name: str) -> bool:
    """Whether a setting of TLS can be recorded with the prefix of a listener only.

    Source: org.apache.kafka.common.config.SslConfigs.RECONFIGURABLE_CONFIGS.
    """
    return name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
