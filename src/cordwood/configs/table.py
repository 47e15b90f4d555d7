"""Every setting of Kafka 4.4 and Cordwood's own: the rows of `settings.tsv` beside this module.

A topic setting has one or more broker settings that give its default to all topics, in order of
precedence (milliseconds before minutes before hours). Settings that begin with `cordwood.` are
Cordwood's own, off by default; the broker setting that gives one of a topic its default has the
same name, and no row. Own settings are described only where they are set, or requested by name, so
that Kafka's tools list what they list at a Kafka.

Rows that matter to logs are parsed at the import, the others at the first use.

Source: org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF, ServerTopicConfigSynonyms,
DynamicBrokerConfig and QuotaConfig, org.apache.kafka.storage.internals.log.LogConfig, GroupConfig,
ClientMetricsConfigs, Kafka 4.4.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from cordwood.configs.resource import ConfigResource
from cordwood.configs.value import ConfigType, Value, ValueRule, format_value, parse_value

OWN_PREFIX: Final = "cordwood."
#: A setting of groups, which comes before the broker's offsets.retention.minutes.
GROUP_OFFSETS_RETENTION: Final = "cordwood.offsets.retention.minutes"
#: The names of a broker's settings that bound a setting of a group, with "min" or "max" in them, of
#: which one may be missing; in the order in which Kafka checks them.
GROUP_BOUNDS: Final[Mapping[str, str]] = {
    "consumer.heartbeat.interval.ms": "group.consumer.{}.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.{}.session.timeout.ms",
    "consumer.assignment.interval.ms": "group.consumer.{}.assignment.interval.ms",
    "share.heartbeat.interval.ms": "group.share.{}.heartbeat.interval.ms",
    "share.session.timeout.ms": "group.share.{}.session.timeout.ms",
    "share.record.lock.duration.ms": "group.share.{}.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.{}.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.{}.partition.max.record.locks",
    "share.assignment.interval.ms": "group.share.{}.assignment.interval.ms",
    "streams.heartbeat.interval.ms": "group.streams.{}.heartbeat.interval.ms",
    "streams.session.timeout.ms": "group.streams.{}.session.timeout.ms",
    "streams.num.standby.replicas": "group.streams.{}.standby.replicas",
    "streams.assignment.interval.ms": "group.streams.{}.assignment.interval.ms",
    "streams.task.offset.interval.ms": "group.streams.{}.task.offset.interval.ms",
    "streams.num.warmup.replicas": "group.streams.{}.warmup.replicas",
}
_COLUMNS = 10
_THROTTLED_REPLICAS = "([0-9]+:[0-9]+)?"
_THROTTLED_REPLICAS_NOTE = (
    "must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)

T = TypeVar("T")


class Dynamic(StrEnum):
    """Whether a broker's setting can be changed while it runs, and for whom."""

    NO = "-"
    BROKER = "broker"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerName:
    """A broker setting that gives another setting its default; times `factor` in its unit."""

    name: str
    factor: int = 1

    def scaled(self, value: Value | None) -> Value | None:
        """A value of the broker setting in the unit of the other one."""
        if self.factor == 1:
            return value
        assert isinstance(value, int), self.name
        return value * self.factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a topic, a broker, a group or a subscription of client metrics.

    `default` None means unset. `internal` ones are not described unless they are set.
    `broker_names` are the broker settings that give its default; the first one that is set wins.
    """

    name: str
    rule: ValueRule
    default: Value | None
    unit: str
    dynamic: Dynamic
    internal: bool
    broker_names: tuple[BrokerName, ...]
    doc: str

    def parse(self, text: str) -> Value:
        """The parsed value of `text`.

        Raises:
            ConfigError: Kafka would refuse it.
        """
        return parse_value(self.name, text, self.rule)

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be changed while a broker runs."""
        return self.dynamic is not Dynamic.NO

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it."""
        return None if self.default is None else format_value(self.default)

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never returned."""
        return self.rule.kind is ConfigType.PASSWORD


Settings = Mapping[str, Setting]
"""Settings by name, in the order of their definition."""


def is_own(name: str) -> bool:
    """Whether a setting is Cordwood's own, which Kafka does not know."""
    return name.startswith(OWN_PREFIX)


def _read_rows() -> dict[str, dict[str, list[str]]]:
    """The cells of each row, by table and name; a row has all columns."""
    rows: dict[str, dict[str, list[str]]] = {}
    for line in Path(__file__).with_name("settings.tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            # Most cells are in many rows.
            cells = [sys.intern(cell) for cell in line.split("\t")]
            assert len(cells) == _COLUMNS, line
            table = rows.setdefault(cells[0], {})
            assert cells[1] not in table, line
            table[cells[1]] = cells
    return rows


def _setting(cells: list[str]) -> Setting:
    _, name, kind, default, valid, unit, dynamic, flags, broker_names, doc = cells
    if kind == "=":
        return _default_giver(_TOPIC_SETTING_OF[name], name, internal="internal" in flags)
    rule = _rule(ConfigType(kind), valid)
    return Setting(
        name=name,
        rule=rule,
        default=None if default == "\\N" else parse_value(name, default, ValueRule(kind=rule.kind)),
        unit=unit,
        dynamic=Dynamic(dynamic),
        internal="internal" in flags or is_own(name),
        broker_names=tuple(_broker_name(each) for each in broker_names.split()),
        doc=doc,
    )


def _default_giver(topic_setting: Setting, name: str, *, internal: bool) -> Setting:
    """The broker setting that gives a topic setting its default and is nothing else."""
    return Setting(
        name=name,
        rule=topic_setting.rule,
        default=topic_setting.default,
        unit=topic_setting.unit,
        dynamic=Dynamic.CLUSTER,
        internal=internal,
        broker_names=(),
        doc=f"{topic_setting.name} of topics without their own.",
    )


def _broker_name(text: str) -> BrokerName:
    name, _, factor = text.partition("*")
    return BrokerName(name=name, factor=int(factor or 1))


def _rule(kind: ConfigType, valid: str) -> ValueRule:
    """The rule that a cell says.

    Its forms: `1..`, `0..9`, `1..9 or -1`, `in a,b`, `in/i a,b` in any case, `text` and `some` not
    empty, `some in a,b`, `reset` an offset reset policy, `replicas` throttled ones.
    """
    if ".." in valid:
        bounds, _, or_equal = valid.partition(" or ")
        low, _, high = bounds.partition("..")
        return ValueRule(
            kind=kind,
            at_least=_number(low),
            at_most=_number(high),
            or_equal=int(or_equal) if or_equal else None,
        )
    if valid == "replicas":
        return ValueRule(
            kind=kind, element_pattern=_THROTTLED_REPLICAS, element_note=_THROTTLED_REPLICAS_NOTE
        )
    form, _, listed = valid.rpartition(" ") if "," in valid else (valid, "", "")
    return ValueRule(
        kind=kind,
        choices=tuple(listed.split(",")) if listed else (),
        any_case=form == "in/i",
        empty_refused=form in {"some", "some in", "text"},
        offset_reset=form == "reset",
    )


def _number(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)


_ROWS: Final = _read_rows()

TOPIC_SETTINGS: Final[Settings] = {name: _setting(row) for name, row in _ROWS["topic"].items()}
_TOPIC_SETTING_OF: Final = {
    setting.broker_names[0].name: setting
    for setting in TOPIC_SETTINGS.values()
    if setting.broker_names
}
LOG_BROKER_SETTINGS: Final[Settings] = {
    **{
        name: _setting(row)
        for name, row in _ROWS["broker"].items()
        if row[2] == "=" or "logs" in row[7]
    },
    **{
        name: _default_giver(setting, name, internal=True)
        for name, setting in TOPIC_SETTINGS.items()
        if is_own(name)
    },
}
"""The settings of a broker that matter to logs and their cleanup."""

BROKER_NAME_OF_TOPIC_SETTING: Final[Mapping[str, str]] = {
    setting.name: name for name, setting in _TOPIC_SETTING_OF.items()
}
"""For each topic setting that brokers give a default, the broker setting that wins.

Source: org.apache.kafka.server.config.ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS, Kafka 4.4.
"""

assert {
    broker.name for setting in TOPIC_SETTINGS.values() for broker in setting.broker_names
} <= LOG_BROKER_SETTINGS.keys(), "a broker name without a rule"


@cache
def broker_settings() -> Settings:
    """The settings of a broker, as server.properties has them."""
    rows = {
        name: LOG_BROKER_SETTINGS.get(name) or _setting(row)
        for name, row in _ROWS["broker"].items()
    }
    return {**rows, **LOG_BROKER_SETTINGS}


@cache
def dynamic_settings() -> Settings:
    """The settings in a broker's records: dynamic settings, and quotas that are only there."""
    return {**broker_settings(), **_table("quota")}


def settings_of(kind: int) -> Settings:
    """The settings that resources of a kind have, none if it is unknown."""
    match kind:
        case ConfigResource.TOPIC:
            return TOPIC_SETTINGS
        case ConfigResource.BROKER:
            return broker_settings()
        case ConfigResource.GROUP:
            return group_settings()
        case ConfigResource.CLIENT_METRICS:
            return client_metrics_settings()
        case _:
            return {}


@cache
def group_settings() -> Settings:
    """The settings of a group."""
    return _table("group")


@cache
def client_metrics_settings() -> Settings:
    """The settings of a subscription of client metrics."""
    return _table("client")


def topic_default(name: str, kind: type[T]) -> T:
    """The default of a topic setting of the type `kind`."""
    return _default_as(TOPIC_SETTINGS[name], kind)


def broker_default(name: str, kind: type[T]) -> T:
    """The default of a broker setting of the type `kind`."""
    return _default_as(LOG_BROKER_SETTINGS.get(name) or broker_settings()[name], kind)


def _default_as(setting: Setting, kind: type[T]) -> T:
    assert isinstance(setting.default, kind), setting.name
    return setting.default


def _table(name: str) -> Settings:
    return {each: _setting(row) for each, row in _ROWS[name].items()}
