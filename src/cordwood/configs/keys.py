"""Every setting of Kafka 4.3 by kind of resource, read at the first use.

Those that affect logs are in `configs.table`; the others, and the order of all, are in
`kafka_4_3.tsv` beside this module. Nothing is in both. Cordwood's own are described only where
they are set, or requested by name, so that Kafka's tools list what they list at a Kafka.

Source: org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF, LogConfig, GroupConfig,
ClientMetricsConfigs, org.apache.kafka.server.config.DynamicBrokerConfig and QuotaConfig, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Final

from cordwood.configs.table import (
    BROKER_SETTINGS,
    GROUP_OFFSETS_RETENTION,
    TOPIC_SETTINGS,
    BrokerSetting,
    TopicSetting,
    is_own,
)
from cordwood.configs.value import Kind, Rule, Value, format_value, parse_value

_TABLE = "kafka_4_3.tsv"
_COLUMNS = 8
#: The names of a broker's settings that bound a setting of a group, with "min" or "max" in them.
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
}


class Dynamic(StrEnum):
    """Whether a broker's setting can be changed while it runs, and for whom."""

    NO = "-"
    BROKER = "broker"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One setting. `default` None means unset; `internal` ones are not returned unless set."""

    name: str
    rule: Rule
    default: Value | None
    dynamic: Dynamic
    internal: bool
    doc: str

    def parse(self, text: str) -> Value:
        """The parsed value of `text`.

        Raises:
            ConfigError: Kafka would refuse it.
        """
        return parse_value(self.name, text, self.rule)

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never returned."""
        return self.rule.kind is Kind.PASSWORD

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it."""
        return None if self.default is None else format_value(self.default)


Keys = Mapping[str, ConfigKey]


@cache
def broker_keys() -> Keys:
    """The settings of a broker, as server.properties has them, in the order of their definition."""
    return _tables()["broker"]


@cache
def dynamic_keys() -> Keys:
    """The settings in a broker's records: dynamic settings, and quotas that are only there."""
    tables = _tables()
    return {**tables["broker"], **tables["quota"]}


@cache
def topic_keys() -> Keys:
    """The settings of a topic."""
    return _tables()["topic"]


@cache
def group_keys() -> Keys:
    """The settings of a group: Kafka's and Cordwood's own."""
    own = ConfigKey(
        name=GROUP_OFFSETS_RETENTION,
        rule=Rule(kind=Kind.INT, at_least=-1),
        default=None,
        dynamic=Dynamic.CLUSTER,
        internal=True,
        doc="Minutes after which committed offsets of this group expire, in place of "
        "offsets.retention.minutes. They never expire if it is -1.",
    )
    return {**_tables()["group"], own.name: own}


def broker_name_of_group_setting(name: str) -> str:
    """The setting of a broker whose value a group has that has none of its own.

    Some settings of groups have no such setting; then no broker knows the name.
    """
    return "offsets.retention.minutes" if name == GROUP_OFFSETS_RETENTION else f"group.{name}"


@cache
def client_metrics_keys() -> Keys:
    """The settings of a subscription of client metrics."""
    return _tables()["client"]


@cache
def _tables() -> Mapping[str, Keys]:
    tables: dict[str, dict[str, ConfigKey]] = {}
    text = resources.files(__package__).joinpath(_TABLE).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        assert len(cells) == _COLUMNS, line
        table, name = cells[0], cells[1]
        tables.setdefault(table, {})[name] = _key(table, name, cells[2:])
    tables["topic"].update(_own(TOPIC_SETTINGS))
    tables["broker"].update(_own(BROKER_SETTINGS))
    return tables


def _own(settings: Mapping[str, TopicSetting] | Mapping[str, BrokerSetting]) -> Keys:
    """Cordwood's own settings of a table."""
    return {
        name: ConfigKey(
            name=name,
            rule=setting.rule,
            default=setting.default,
            dynamic=Dynamic.CLUSTER
            if isinstance(setting, TopicSetting) or setting.dynamic
            else Dynamic.NO,
            internal=True,
            doc=setting.doc,
        )
        for name, setting in settings.items()
        if is_own(name)
    }


def _key(table: str, name: str, cells: list[str]) -> ConfigKey:
    kind, default, valid, dynamic, internal, doc = cells
    if kind == "=":
        known = TOPIC_SETTINGS[name] if table == "topic" else BROKER_SETTINGS[name]
        rule, value, doc = known.rule, known.default, known.doc
    else:
        rule = _rule(Kind(kind), valid)
        value = None if default == "\\N" else parse_value(name, default, Rule(kind=rule.kind))
    return ConfigKey(
        name=name,
        rule=rule,
        default=value,
        dynamic=Dynamic(dynamic),
        internal=internal == "internal",
        doc=doc,
    )


def _rule(kind: Kind, valid: str) -> Rule:
    """The rule that a cell says: `1..`, `0..9`, `in a,b`, `in/i a,b`, `text`, `some in a,b`."""
    form, _, listed = valid.rpartition("in ") if "in " in valid else (valid, "", "")
    choices = tuple(listed.split(",")) if listed else ()
    if ".." in valid:
        low, _, high = valid.partition("..")
        return Rule(kind=kind, at_least=_number(low), at_most=_number(high))
    if valid.startswith("in/i "):
        return Rule(kind=kind, choices=tuple(valid[5:].split(",")), any_case=True)
    return Rule(
        kind=kind,
        choices=choices,
        empty_refused=form.strip() in {"some", "text"},
        offset_reset=valid == "reset",
    )


def _number(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)
