"""Names that are not settings of Kafka 4.3, and the names to use instead.

Three kinds: names of older Kafka versions, names that users guess from similar settings, and names
that are valid at the other level (topic or broker).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from cordwood.configs.table import BROKER_NAME_OF_TOPIC_SETTING, LOG_BROKER_SETTINGS, TOPIC_SETTINGS

_LIKENESS_MIN = 0.75
_TIMESTAMP_BOUNDS = (
    "was removed in Kafka 4.0; log.message.timestamp.before.max.ms and "
    "log.message.timestamp.after.max.ms took its place"
)
_FORMAT = "was removed in Kafka 4.0: record batches are always stored in format version 2"
_CONVERSION = "was removed in Kafka 4.0: batches are no longer converted to older formats"
_PER_TOPIC = "was removed in Kafka 0.8.1: set it for the topic instead"
_ZOOKEEPER_PREFIX = "zookeeper."
_ZOOKEEPER = "was removed in Kafka 4.0, with ZooKeeper"


def _guesses() -> dict[str, str]:
    """Broker names that follow from a topic setting's own, where Kafka's differs."""
    renamed: dict[str, str] = {}
    for topic_name, broker_name in BROKER_NAME_OF_TOPIC_SETTING.items():
        for guess in (f"log.{topic_name}", f"log.cleaner.{topic_name}"):
            if guess not in LOG_BROKER_SETTINGS:
                renamed[guess] = broker_name
    return renamed


RENAMED_BROKER_NAMES: Mapping[str, str] = _guesses() | {
    "log.cleaner.min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "log.cleaner.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "log.cleaner.dedup.buffer.size": "log.cleaner.dedupe.buffer.size",
    "log.cleanup.interval.mins": "log.retention.check.interval.ms",
    "log.cleanup.interval.minutes": "log.retention.check.interval.ms",
    "log.retention.check.interval": "log.retention.check.interval.ms",
    "log.default.flush.interval.ms": "log.flush.interval.ms",
    "log.default.flush.scheduler.interval.ms": "log.flush.scheduler.interval.ms",
    "log.delete.delay.ms": "log.segment.delete.delay.ms",
    "log.file.size": "log.segment.bytes",
    "log.flush.interval": "log.flush.interval.messages",
    "log.max.message.size": "message.max.bytes",
    "log.message.max.bytes": "message.max.bytes",
    "log.retention.hour": "log.retention.hours",
    "log.retention.minute": "log.retention.minutes",
    "log.retention.mins": "log.retention.minutes",
    "log.retention.size": "log.retention.bytes",
    "log.roll.hour": "log.roll.hours",
    "log.segment.size": "log.segment.bytes",
    "max.message.size": "message.max.bytes",
    "retention.hours": "log.retention.hours",
    "retention.minutes": "log.retention.minutes",
    "transactional.id.timeout.ms": "transactional.id.expiration.ms",
}
"""Wrong or old names of broker settings, with the right ones."""

REMOVED_BROKER_NAMES: Mapping[str, str] = {
    "advertised.host.name": "was removed in Kafka 3.0: set advertised.listeners",
    "advertised.port": "was removed in Kafka 3.0: set advertised.listeners",
    "broker.id.generation.enable": _ZOOKEEPER,
    "control.plane.listener.name": _ZOOKEEPER,
    "host.name": "was removed in Kafka 3.0: set listeners",
    "inter.broker.protocol.version": "was removed in Kafka 4.0: the metadata version rules",
    "log.file.size.per.topic": _PER_TOPIC,
    "log.flush.intervals.ms.per.topic": _PER_TOPIC,
    "log.message.downconversion.enable": _CONVERSION,
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": _TIMESTAMP_BOUNDS,
    "log.retention.bytes.per.topic": _PER_TOPIC,
    "log.retention.hours.per.topic": _PER_TOPIC,
    "log.retention.size.per.topic": _PER_TOPIC,
    "log.roll.hours.per.topic": _PER_TOPIC,
    "log.segment.bytes.per.topic": _PER_TOPIC,
    "offsets.commit.required.acks": "was removed in Kafka 4.0: commits always need acks=all",
    "port": "was removed in Kafka 3.0: set listeners",
    "reserved.broker.max.id": _ZOOKEEPER,
    "topic.log.retention.hours": _PER_TOPIC,
    "zookeeper.connect": _ZOOKEEPER,
}
"""Removed broker settings, and what replaced them."""

REMOVED_TOPIC_NAMES: Mapping[str, str] = {
    "message.downconversion.enable": _CONVERSION,
    "message.format.version": _FORMAT,
    "message.timestamp.difference.max.ms": _TIMESTAMP_BOUNDS.replace("log.message", "message"),
    "retention.hours": "exists for brokers only; for a topic set retention.ms",
    "retention.minutes": "exists for brokers only; for a topic set retention.ms",
}
"""Topic settings that were removed or never existed, and advice."""

assert not RENAMED_BROKER_NAMES.keys() & LOG_BROKER_SETTINGS.keys(), "a right name called wrong"
assert set(RENAMED_BROKER_NAMES.values()) <= LOG_BROKER_SETTINGS.keys(), "a wrong name advised"
assert not REMOVED_BROKER_NAMES.keys() & LOG_BROKER_SETTINGS.keys(), "a right name called removed"
assert not REMOVED_TOPIC_NAMES.keys() & TOPIC_SETTINGS.keys(), "a right name called removed"

_TOPIC_NAME_OF_BROKER_NAME = {
    broker.name: setting.name
    for setting in TOPIC_SETTINGS.values()
    for broker in setting.broker_names
}


def advise_on_topic_name(name: str) -> str:
    """Advice on `name`, which is no topic setting; empty if no name is similar."""
    if name in REMOVED_TOPIC_NAMES:
        return f"{name} {REMOVED_TOPIC_NAMES[name]}"
    broker_name = RENAMED_BROKER_NAMES.get(name, name)
    if broker_name in _TOPIC_NAME_OF_BROKER_NAME:
        return f"for a topic it is called {_TOPIC_NAME_OF_BROKER_NAME[broker_name]}"
    if broker_name in LOG_BROKER_SETTINGS:
        return f"{broker_name} is a setting of brokers, not of topics"
    return _nearest(name, TOPIC_SETTINGS.keys())


def advise_on_broker_name(name: str) -> str:
    """Advice on `name`, which is no broker setting; empty if no name is similar."""
    if name in REMOVED_BROKER_NAMES:
        return f"{name} {REMOVED_BROKER_NAMES[name]}"
    if name.startswith(_ZOOKEEPER_PREFIX):
        return f"{name} {_ZOOKEEPER}"
    if name in REMOVED_TOPIC_NAMES and name not in RENAMED_BROKER_NAMES:
        return f"{name} {REMOVED_TOPIC_NAMES[name]}"
    if name in RENAMED_BROKER_NAMES:
        return f"its right name is {RENAMED_BROKER_NAMES[name]}"
    if name in BROKER_NAME_OF_TOPIC_SETTING:
        return f"for a broker it is called {BROKER_NAME_OF_TOPIC_SETTING[name]}"
    if name in TOPIC_SETTINGS:
        return f"{name} can be set for a topic only"
    return _nearest(name, LOG_BROKER_SETTINGS.keys() | BROKER_NAME_OF_TOPIC_SETTING.keys())


def is_misnamed_broker_setting(name: str) -> bool:
    """Whether `name` is known to be a wrong name of a broker setting."""
    if name in LOG_BROKER_SETTINGS:
        return False
    return (
        name in RENAMED_BROKER_NAMES
        or name in REMOVED_BROKER_NAMES
        or name in REMOVED_TOPIC_NAMES
        or name in TOPIC_SETTINGS
        or name.startswith(_ZOOKEEPER_PREFIX)
    )


def _nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=_LIKENESS_MIN)
    return f"did you mean {near[0]}?" if near else ""
