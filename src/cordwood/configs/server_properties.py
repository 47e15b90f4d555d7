"""The settings in server.properties, validated before the broker starts.

What Kafka would refuse is refused. So is a setting that Cordwood cannot fulfil: one that requires
encryption, authentication, authorization or tiered storage, or a controller beside others, must
not be ignored silently. Other settings without effect are accepted, and described as by Kafka.

Differs: without `listeners` the broker listens on loopback only; `node.id`, `process.roles` and
`controller.listener.names` are optional.

Source: kafka.server.KafkaConfig, Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from cordwood.configs.broker_config import (
    BrokerConfig,
)
from cordwood.configs.checks import require_quorum, require_sound
from cordwood.configs.levels import LISTENER_KEY
from cordwood.configs.listeners import ADVERTISE_REACHED, listener_protocols, listeners_of
from cordwood.configs.resource import (
    Texts,
)
from cordwood.configs.static_topics import StaticTopics, static_topics
from cordwood.configs.table import broker_settings, is_own
from cordwood.configs.texts import parse_texts
from cordwood.configs.topic_values import require_ordered_lags, topic_defaults
from cordwood.configs.unknown import unknown_settings
from cordwood.configs.value import format_value
from cordwood.model.errors import ConfigError, UnknownSettingError, UnsupportedSettingError
from cordwood.model.security_protocol import SecurityProtocol

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_GIVEN: Final[Texts] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
}
#: What a single broker without a server.properties runs with, as Kafka's sample files for one do.
#: Kafka's defaults are three replicas, and a new group waits three seconds for more members.
SINGLE_BROKER_DEFAULTS: Final[Texts] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_NO_PLUGINS: Final = "remove it: Java classes cannot be loaded"
_REFUSED: Final[Mapping[str, str]] = {
    "alter.config.policy.class.name": _NO_PLUGINS,
    "authorizer.class.name": "remove it: there is no authorization",
    "client.quota.callback.class": _NO_PLUGINS,
    "config.providers": "write the values themselves",
    "create.topic.policy.class.name": _NO_PLUGINS,
    "delegation.token.secret.key": "remove it: delegation tokens are not supported",
    "principal.builder.class": _NO_PLUGINS,
    "remote.log.storage.system.enable": "set it to false: tiered storage is not supported",
    "security.providers": _NO_PLUGINS,
}
_REFUSED_PREFIXES: Final[Mapping[str, str]] = {
    "sasl.": "remove it: clients are not authenticated",
    "ssl.": "remove it: connections are not encrypted",
}


class BrokerSettings(BrokerConfig):
    """The static settings of a broker: server.properties over Kafka's defaults.

    `given` are the properties without those of single topics and unknown ones of Cordwood's own,
    with both `node.id` and `broker.id`; `static_topics` are those of single topics; `source` is the
    file's name for messages; `unknown` has advice on each setting that nothing asks for, and
    `warnings` say so.
    """

    __slots__ = (
        "advertised_controller_listeners",
        "advertised_listeners",
        "advertises_reached",
        "controller_listeners",
        "given",
        "inter_broker_listener",
        "listeners",
        "source",
        "static_topics",
        "unknown",
        "warnings",
    )

    def __init__(
        self, properties: Texts | None = None, *, source: str = "server.properties"
    ) -> None:
        """The settings that result from `properties`; an empty mapping gives Kafka's defaults.

        Raises:
            UnsupportedSettingError: a setting requires an unsupported feature.
            ConfigError: Kafka would not start with a setting.
        """
        self.source = source
        texts = {
            name: text
            for name, text in (properties or {}).items()
            if not is_own(name) or name in broker_settings()
        }
        self.static_topics: StaticTopics = static_topics(properties or {}, source=source)
        self.given: Texts = _completed(texts)
        with _located(source):
            super().__init__(parse_texts(self.given, broker_settings()))
            require_quorum(self)
        self.unknown: Texts = unknown_settings(properties or {})
        self.warnings: tuple[str, ...] = tuple(
            f"{source}: {name} is ignored; {advice}" for name, advice in self.unknown.items()
        )
        self._require_kraft(texts)
        self._require_served()
        with _located(source):
            self._read_listeners()
            self._require_sound()

    def require_known(self) -> None:
        """Raises UnknownSettingError if there is a setting that nothing asks for."""
        if self.unknown:
            raise UnknownSettingError(self.unknown, source=self.source)

    @property
    def is_controller(self) -> bool:
        """Whether this node is its cluster's only controller."""
        return "controller" in self.strings("process.roles")

    @property
    def is_broker(self) -> bool:
        """Whether this node has partitions."""
        return "broker" in self.strings("process.roles")

    @property
    def controller_protocol(self) -> SecurityProtocol:
        """The security protocol of the controllers' listener: the first that is named."""
        name = self.strings("controller.listener.names")[0].upper()
        return listener_protocols(self, self.given)[name]

    @property
    def rack(self) -> str | None:
        """The rack of the broker."""
        return self.text("broker.rack")

    def _require_sound(self) -> None:
        if self.integer("node.id") != self.integer("broker.id"):
            raise ConfigError(
                "`node.id` and `broker.id` must be set to the same value. `broker.id` is "
                "deprecated, please use `node.id` instead."
            )
        require_sound(self)
        # Asked at the start only: a change may well lead there.
        require_ordered_lags(topic_defaults(self.all))

    def _require_kraft(self, texts: Texts) -> None:
        if "zookeeper.connect" in texts and "process.roles" not in texts:
            raise UnsupportedSettingError(
                "zookeeper.connect",
                texts["zookeeper.connect"],
                source=self.source,
                remedy="migrate the cluster to KRaft with Kafka 3.9 first",
            )

    def _require_served(self) -> None:
        keys = broker_settings()
        for name in self.given:
            match = LISTENER_KEY.fullmatch(name)
            base = match[1] if match else name
            remedy = _REFUSED.get(base) or next(
                (why for prefix, why in _REFUSED_PREFIXES.items() if base.startswith(prefix)), None
            )
            value = self.all.get(name)
            is_harmless = name in keys and value in (keys[name].default, "", ())
            if remedy is not None and not is_harmless:
                raise self._unsupported(name, remedy)
        for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
            if self.is_controller and len(self.strings(name)) > 1:
                raise self._unsupported(name, "name only this node: it is its only controller")
        if self.text("security.inter.broker.protocol") != SecurityProtocol.PLAINTEXT.name:
            raise self._unsupported("security.inter.broker.protocol", "set it to PLAINTEXT")

    def _read_listeners(self) -> None:
        controllers = {name.upper() for name in self.strings("controller.listener.names")}
        listed = listeners_of(self, self.given)
        for each in listed:
            self._require_plain("listeners", each.name, each.protocol)
        self.controller_listeners = tuple(each for each in listed if each.name in controllers)
        self.advertised_controller_listeners = self.controller_listeners
        self.listeners = tuple(each for each in listed if each.name not in controllers)
        self.advertised_listeners = self.listeners
        self.advertises_reached = self._read_advertises_reached()
        if self.strings("advertised.listeners"):
            advertised = listeners_of(self, self.given, setting="advertised.listeners")
            self.advertised_listeners = tuple(
                each for each in advertised if each.name not in controllers
            )
            of_controllers = {each.name: each for each in advertised if each.name in controllers}
            self.advertised_controller_listeners = tuple(
                of_controllers.get(each.name, each) for each in self.controller_listeners
            )
        if self.is_broker:
            self.inter_broker_listener = self._inter_broker_listener()
            if not self.is_controller:
                self._require_broker_of_quorum(controllers)
        else:
            self.inter_broker_listener = ""
            self._require_controller_alone()

    def _require_plain(self, setting: str, listener: str, protocol: SecurityProtocol) -> None:
        if protocol is not SecurityProtocol.PLAINTEXT:
            raise self._unsupported(
                setting, f"listener {listener} is {protocol.name}; use PLAINTEXT"
            )

    def _require_controller_alone(self) -> None:
        """Source: KafkaConfig.validateValues, for process.roles=controller."""
        voters = [each.partition("@")[0] for each in self.strings("controller.quorum.voters")]
        if voters and str(self.node_id) not in voters:
            raise ConfigError(
                "requirement failed: If process.roles contains the 'controller' role, the node id "
                f"{self.node_id} must be included in the set of voters "
                f"controller.quorum.voters=Set({', '.join(voters)})"
            )
        if self.listeners:
            raise ConfigError(
                "requirement failed: The listeners config must only contain KRaft controller "
                "listeners from controller.listener.names when process.roles=controller"
            )
        if not self.controller_listeners:
            raise ConfigError(
                "requirement failed: controller.listener.names must contain at least one value "
                "appearing in the 'listeners' configuration when running the KRaft controller role"
            )

    def _require_broker_of_quorum(self, controllers: Collection[str]) -> None:
        """Source: KafkaConfig.validateValues, for process.roles=broker."""
        voters = [each.partition("@")[0] for each in self.strings("controller.quorum.voters")]
        if not voters and not self.strings("controller.quorum.bootstrap.servers"):
            raise ConfigError(
                "If using process.roles, either controller.quorum.bootstrap.servers must contain "
                "the set of bootstrap controllers or controller.quorum.voters must contain a "
                "parseable set of controllers."
            )
        if str(self.node_id) in voters:
            raise ConfigError(
                "requirement failed: If process.roles contains just the 'broker' role, the node id "
                f"{self.node_id} must not be included in the set of voters "
                f"controller.quorum.voters=Set({', '.join(voters)})"
            )
        if not controllers:
            raise ConfigError(
                "requirement failed: controller.listener.names must contain at least one value "
                "when running KRaft with just the broker role"
            )
        if self.controller_listeners:
            raise ConfigError(
                "requirement failed: controller.listener.names must not contain a value appearing "
                "in the 'listeners' configuration when running KRaft with just the broker role"
            )
        protocols = listener_protocols(self, self.given)
        names = [name.upper() for name in self.strings("controller.listener.names")]
        for name in names:
            if name not in protocols:
                raise ConfigError(
                    f"Controller listener with name {name} defined in controller.listener.names "
                    "not found in listener.security.protocol.map  (an explicit security mapping "
                    "for each controller listener is required if listener.security.protocol.map "
                    "is non-empty, or if there are security protocols other than PLAINTEXT in use)"
                )
        # The others are not used: the controllers' addresses are those of the first.
        self._require_plain("controller.listener.names", names[0], self.controller_protocol)

    def _inter_broker_listener(self) -> str:
        names = [each.name for each in self.advertised_listeners]
        listed = {each.name for each in self.listeners}
        if not names:
            raise ConfigError(
                "requirement failed: There must be at least one broker advertised listener. "
                "Perhaps all listeners appear in controller.listener.names?"
            )
        name = self.text("inter.broker.listener.name")
        chosen = name.upper() if name else names[0]
        if chosen not in names:
            raise ConfigError(
                "requirement failed: inter.broker.listener.name must be a listener name defined in "
                "advertised.listeners. The valid options based on currently configured listeners "
                f"are {','.join(names)}"
            )
        if not listed.issuperset(names):
            raise ConfigError(
                "requirement failed: advertised.listeners listener names must be equal to or a "
                "subset of the ones defined in listeners. "
                f"Found {','.join(names)}. The valid options based on the current configuration "
                f"are {','.join(each.name for each in self.listeners)}"
            )
        hosts = {each.host for each in self.advertised_listeners}
        if "0.0.0.0" in hosts and not self.advertises_reached:  # noqa: S104
            raise ConfigError(
                "requirement failed: advertised.listeners cannot use the nonroutable meta-address "
                "0.0.0.0. Use a routable IP address."
            )
        return chosen

    def _read_advertises_reached(self) -> bool:
        """Whether clients get the address that they reached; only a broker that is alone can do so.

        Raises:
            ConfigError: it is not alone, or addresses are advertised.
        """
        if not self.flag(ADVERTISE_REACHED):
            return False
        if not (self.is_broker and self.is_controller) or self.controller_listeners:
            raise ConfigError(
                f"{ADVERTISE_REACHED}=true is for a broker that is alone in its cluster: other "
                "nodes need one address of each. Set advertised.listeners, or give --advertise"
            )
        if self.strings("advertised.listeners"):
            raise ConfigError(f"{ADVERTISE_REACHED}=true and advertised.listeners are both set")
        return True

    def _unsupported(self, name: str, remedy: str) -> UnsupportedSettingError:
        text = self.given.get(name)
        if text is None:
            value = self.all.get(name)
            text = "" if value is None else format_value(value)
        if name in broker_settings() and broker_settings()[name].is_sensitive:
            text = "[hidden]"
        return UnsupportedSettingError(name, text, source=self.source, remedy=remedy)


@contextmanager
def _located(source: str) -> Iterator[None]:
    """Adds the name of the file to errors."""
    try:
        yield
    except UnsupportedSettingError:
        raise
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _completed(texts: Texts) -> dict[str, str]:
    """The properties with implied ones added: `node.id` and `broker.id` stand for each other."""
    given = {**_GIVEN, **texts}
    number = texts.get("node.id", texts.get("broker.id", "1"))
    return {"node.id": number, "broker.id": number, **given}
