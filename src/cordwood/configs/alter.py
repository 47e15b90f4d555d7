"""Changes of settings, checked as Kafka checks them before they are written down.

A broker's own are checked by the broker against all its settings, the others by the controller
against those of their resource. Each resource of a request succeeds or fails for itself.

Source: kafka.server.ConfigAdminManager, ControllerConfigurationValidator,
org.apache.kafka.controller.ConfigurationControlManager, DynamicBrokerConfig.validateConfigs,
Kafka 4.3; KIP-133, KIP-339, KIP-412, KIP-966.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cordwood.configs.broker_config import (
    BrokerConfig,
)
from cordwood.configs.checks import require_reachable, require_sound
from cordwood.configs.describe import parse_node_id
from cordwood.configs.effective import (
    EffectiveConfigs,
    is_per_broker,
    is_store_of_keys,
    usable,
)
from cordwood.configs.levels import LISTENER_KEY, lay_over
from cordwood.configs.listeners import (
    listeners_of,
    require_controller_listener,
    require_same_listeners,
)
from cordwood.configs.min_isr import require_min_isr_may_change
from cordwood.configs.resource import (
    ConfigChange,
    ConfigResource,
    NewCluster,
    Texts,
)
from cordwood.configs.resource_checks import (
    require_client_metrics,
    require_group,
    require_topic,
)
from cordwood.configs.table import (
    TOPIC_SETTINGS,
    Dynamic,
    Settings,
    broker_settings,
    dynamic_settings,
)
from cordwood.configs.texts import (
    changed,
    named,
    parse_texts,
)
from cordwood.configs.value import ConfigType
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedRequestError,
)
from cordwood.model.topic_names import require_topic_name

_log = logging.getLogger(__name__)

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATION_NAMES: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
_ELR_FEATURE: Final = "eligible.leader.replicas.version"
_KNOWN_CLASSES: Final = "org.apache.kafka."

Outcome = ConfigChange | KafkaError | None
"""The record to write, the error that refuses it, or None if there is nothing to write."""


class Alteration(NamedTuple):
    """One setting of a request: `operation` is that of IncrementalAlterConfigs."""

    name: str
    value: str | None
    operation: int = SET


class Resource(NamedTuple):
    """One resource of a request."""

    kind: int
    name: str
    alterations: Sequence[Alteration]


def check_changes(
    configs: EffectiveConfigs,
    resources: Sequence[Resource],
    *,
    replaces: bool,
    validate_only: bool,
    is_broker: bool = True,
) -> list[Outcome]:
    """The result of a request for each resource.

    A broker checks the settings of brokers and loggers first, and changes levels of loggers at once
    unless `validate_only`. A controller gets what a broker has checked. Both check the rest.

    Args:
        configs: the settings in effect.
        resources: of the request.
        replaces: whether settings that are not named are removed (AlterConfigs).
        validate_only: whether nothing is to be changed.
        is_broker: whether a broker got the request, or a controller.
    """
    times = Counter((resource.kind, resource.name) for resource in resources)
    outcomes: list[Outcome] = []
    for resource in resources:
        if times[resource.kind, resource.name] > 1:
            outcomes.append(InvalidRequestError("Each resource must appear at most once."))
            continue
        try:
            _require_well_formed(resource)
            if is_broker and resource.kind == ConfigResource.BROKER_LOGGER and not replaces:
                _change_levels(configs, resource, validate_only=validate_only)
                outcomes.append(None)
                continue
            check = _check_at_broker if is_broker else _check_at_controller
            check(configs, resource, replaces=replaces)
            outcomes.append(_checked_by_both(configs, resource, replaces=replaces))
        except KafkaError as error:
            _log.info("Changing the settings of %s %s: %s", resource.kind, resource.name, error)
            outcomes.append(error)
    return outcomes


def supposing(configs: EffectiveConfigs, resources: Sequence[Resource]) -> EffectiveConfigs:
    """The settings as they would be after IncrementalAlterConfigs; nothing is changed.

    Raises:
        KafkaError: that request would refuse a resource, the first of them.
    """
    changed = {}
    for outcome in check_changes(configs, resources, replaces=False, validate_only=True):
        if isinstance(outcome, KafkaError):
            raise outcome
        if outcome is not None:
            texts = {**configs.recorded(outcome.resource_type, outcome.name), **outcome.values}
            changed[outcome.resource_type, outcome.name] = {
                name: text for name, text in texts.items() if text is not None
            }
    image = configs.image
    return EffectiveConfigs(
        configs.settings,
        NewCluster(
            topics=image.topics,
            configs={**image.configs, **changed},
            brokers=image.brokers,
            controllers=image.controllers,
            features=image.features,
        ),
    )


def _check_at_broker(configs: EffectiveConfigs, resource: Resource, *, replaces: bool) -> None:
    match resource.kind:
        case ConfigResource.BROKER:
            _check_broker(configs, resource, replaces=replaces)
        case ConfigResource.TOPIC | ConfigResource.CLIENT_METRICS | ConfigResource.GROUP:
            pass
        case _:
            raise InvalidRequestError(f"Unknown resource type {resource.kind}")


def _check_at_controller(configs: EffectiveConfigs, resource: Resource, *, replaces: bool) -> None:
    """Source: ControllerApis.authorizeAlterResource, ControllerConfigurationValidator.validate."""
    match resource.kind:
        case ConfigResource.BROKER:
            if resource.name:
                _require_broker(configs, resource.name)
        case ConfigResource.TOPIC | ConfigResource.CLIENT_METRICS | ConfigResource.GROUP:
            pass
        case ConfigResource.BROKER_LOGGER:
            raise InvalidRequestError(f"Unexpected resource type {resource.kind}.")
        case _:
            raise UnsupportedRequestError(f"Unknown resource type {resource.kind}.")


def _require_broker(configs: EffectiveConfigs, name: str) -> None:
    """Source: ConfigurationControlManager's existence checker; ConfigAdminManager."""
    try:
        broker_id = parse_node_id(name)
    except ValueError:
        raise InvalidRequestError("Unable to parse broker name as a base 10 number.") from None
    if broker_id < 0:
        raise InvalidRequestError("Invalid negative broker ID.")
    if broker_id not in configs.image.brokers and broker_id not in configs.image.controllers:
        raise BrokerIdNotRegisteredError(f"No node with id {broker_id} found.")


def _checked_by_both(
    configs: EffectiveConfigs, resource: Resource, *, replaces: bool
) -> ConfigChange:
    old = configs.recorded(resource.kind, resource.name)
    changes = _replaced(old, resource) if replaces else _altered(old, resource)
    new = {name: text for name, text in {**old, **changes}.items() if text is not None}
    try:
        _check_new(configs, resource, changes, new)
    except ConfigError as error:
        raise InvalidConfigError(str(error)) from error
    return ConfigChange(resource_type=resource.kind, name=resource.name, values=changes)


def _require_well_formed(resource: Resource) -> None:
    names = [each.name for each in resource.alterations]
    if len(set(names)) != len(names):
        raise InvalidRequestError("Error due to duplicate config keys")
    without = [
        each.name
        for each in resource.alterations
        if each.value is None and each.operation != DELETE
    ]
    if without:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(without)}")


# ---- loggers


def _change_levels(configs: EffectiveConfigs, resource: Resource, *, validate_only: bool) -> None:
    own = configs.settings.node_id
    if _node_id(resource.name) != own:
        raise InvalidRequestError(
            f"Unexpected node id. Expected {own}, but received {resource.name}"
        )
    for each in resource.alterations:
        configs.loggers.require_change(each.name, each.value, each.operation)
    if not validate_only:
        for each in resource.alterations:
            configs.loggers.change(each.name, each.value if each.operation == SET else None)


def _node_id(name: str) -> int:
    try:
        return parse_node_id(name)
    except ValueError:
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}") from None


# ---- what the broker checks


def _check_broker(configs: EffectiveConfigs, resource: Resource, *, replaces: bool) -> None:
    own = configs.settings.node_id
    if resource.name and _node_id(resource.name) != own:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {own}, but received {resource.name}"
        )
    for_all = not resource.name
    if replaces:
        texts = {each.name: each.value or "" for each in resource.alterations}
    else:
        # The name as written: another spelling of the number is another resource.
        recorded = configs.recorded(ConfigResource.BROKER, resource.name)
        texts = dict(usable(recorded, for_all=for_all))
        for each in resource.alterations:
            _apply_to_broker(texts, each)
    try:
        require_dynamic(configs, texts, for_all=for_all)
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from error


def _apply_to_broker(texts: dict[str, str], change: Alteration) -> None:
    """One alteration, applied to the settings recorded for a broker.

    Raises:
        InvalidRequestError, InvalidConfigError: the alteration is not possible.

    Source: ConfigAdminManager.prepareIncrementalConfigs.
    """
    match change.operation:
        case 0:
            texts[change.name] = change.value or ""
        case 1:
            texts.pop(change.name, None)
        case 2 | 3:
            key = broker_settings().get(change.name)
            if key is None:
                raise InvalidConfigError(f"Unknown config name: {change.name}")
            if key.rule.kind is not ConfigType.LIST:
                verb = "append" if change.operation == APPEND else "subtract"
                raise InvalidConfigError(
                    f"Config value {verb} is not allowed for config key: {change.name}"
                )
            old = _split(texts.get(change.name, key.default_text))
            texts[change.name] = _combined(old, change)
        case _:
            raise InvalidRequestError(f"Unknown operations type {change.operation}")


def require_dynamic(configs: EffectiveConfigs, texts: Texts, *, for_all: bool) -> None:
    """Checks that a broker's record may hold `texts`, and that this broker can use them.

    Raises:
        ConfigError: the record may not hold them, or this broker cannot use them.

    Source: DynamicBrokerConfig.validateConfigs and processReconfiguration.
    """
    keys = dynamic_settings()
    _refuse(
        [name for name in texts if name in keys and keys[name].dynamic is Dynamic.NO],
        "Cannot update these configs dynamically",
    )
    _refuse(
        [name for name in texts if is_store_of_keys(name)],
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
    )
    _require_valid_values(texts)
    if for_all:
        _refuse(
            [name for name in texts if is_per_broker(name)],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    wanted = dict(configs.settings.given)
    for each in (texts, configs.dynamic) if for_all else (configs.dynamic_default, texts):
        lay_over(wanted, each)
    values = BrokerConfig(parse_texts(wanted, broker_settings()))
    listeners = listeners_of(values, wanted)
    require_sound(values)
    require_controller_listener(configs.settings.controller_listeners, listeners, values)
    now = configs.effective_texts(dynamic=configs.dynamic, dynamic_default=configs.dynamic_default)
    names = changed(now, wanted)
    try:
        require_reachable(configs.values, values, names)
        require_same_listeners(
            (*configs.settings.listeners, *configs.settings.controller_listeners), listeners
        )
    except ConfigError as error:
        raise ConfigError(
            f"Invalid value org.apache.kafka.common.config.ConfigException: {error} "
            "for configuration Invalid dynamic configuration"
        ) from error


def _refuse(names: Sequence[str], why: str) -> None:
    if names:
        raise ConfigError(f"{why}: {named(names)}")


def _require_valid_values(texts: Texts) -> None:
    plain = {
        (match[1] if (match := LISTENER_KEY.fullmatch(name)) else name): text
        for name, text in texts.items()
    }
    for name, key in dynamic_settings().items():
        if name not in plain:
            continue
        value = key.parse(plain[name])
        if key.rule.kind is ConfigType.CLASS and not str(value).startswith(_KNOWN_CLASSES):
            raise ConfigError(
                f"Invalid value {value} for configuration {name}: Class {value} could not be found."
            )


# ---- what both check


def _check_new(
    configs: EffectiveConfigs,
    resource: Resource,
    changes: Mapping[str, str | None],
    new: Texts,
) -> None:
    kept = new.keys() - changes.keys()
    match resource.kind:
        case ConfigResource.TOPIC:
            if not resource.name:
                raise InvalidRequestError("Default topic resources are not allowed.")
            require_topic_name(resource.name)
            require_topic(configs, new, kept=kept)
            if resource.name not in configs.image.topics:
                raise UnknownTopicOrPartitionError(f"The topic '{resource.name}' does not exist.")
        case ConfigResource.BROKER:
            has_elr = bool(configs.image.features.get(_ELR_FEATURE, 0))
            require_min_isr_may_change(resource.name, changes, has_elr=has_elr)
        case ConfigResource.CLIENT_METRICS:
            require_client_metrics(resource.name, new, kept=kept)
        case _:
            if not resource.name:
                raise InvalidRequestError("Default group resources are not allowed.")
            require_group(configs, new, kept=kept)


def _replaced(old: Texts, resource: Resource) -> dict[str, str | None]:
    """The changes that leave the resource with the settings of the request alone."""
    is_broker = resource.kind == ConfigResource.BROKER
    changes: dict[str, str | None] = {
        each.name: each.value
        for each in resource.alterations
        if is_broker or old.get(each.name) != each.value
    }
    named_ones = {each.name for each in resource.alterations}
    return changes | dict.fromkeys(name for name in old if name not in named_ones)


def _altered(old: Texts, resource: Resource) -> dict[str, str | None]:
    """The changes of a request's alterations.

    Raises:
        InvalidConfigError: a setting that is no list is to be added to or taken from.
        UnknownServerError: there is no such operation.
    """
    changes: dict[str, str | None] = {}
    for each in resource.alterations:
        before = old.get(each.name)
        match each.operation:
            case 0:
                after = each.value
            case 1:
                after = None
            case 2 | 3:
                after = _combined(_parts(resource.kind, each, before), each)
            case _:
                raise UnknownServerError("")
        # A broker is notified of unchanged values too: files it names may be new.
        if after != before or resource.kind == ConfigResource.BROKER:
            changes[each.name] = after
    return changes


def _parts(kind: int, change: Alteration, before: str | None) -> list[str]:
    tables: Mapping[int, Settings] = {
        int(ConfigResource.TOPIC): TOPIC_SETTINGS,
        int(ConfigResource.BROKER): broker_settings(),
    }
    key = tables.get(kind, {}).get(change.name)
    if key is None or key.rule.kind is not ConfigType.LIST:
        raise InvalidConfigError(
            f"Can't {_OPERATION_NAMES[change.operation]} to key {change.name} because its type is "
            "not LIST."
        )
    return _split(key.default_text if before is None else before)


def _split(text: str | None) -> list[str]:
    return [part for part in (text or "").split(",") if part]


def _combined(old: list[str], change: Alteration) -> str:
    parts = (change.value or "").split(",")
    if change.operation == APPEND:
        return ",".join([*old, *(part for part in parts if part not in old)])
    left = list(old)
    for part in parts:
        if part in left:
            left.remove(part)
    return ",".join(left)
