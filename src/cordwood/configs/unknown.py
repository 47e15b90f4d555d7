"""Names in a server.properties that nothing in a broker asks for: misspelled, or others'.

Kafka's `KafkaConfig` takes unknown names in silence: plugins read theirs from the same file.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Final

from cordwood.configs.names import advise_on_broker_name, is_misnamed_broker_setting
from cordwood.configs.static_topics import PREFIX as STATIC_TOPIC_PREFIX
from cordwood.configs.table import TOPIC_SETTINGS, broker_settings, dynamic_settings

_LIKENESS_MIN: Final = 0.8
_NOWHERE: Final = "neither Kafka 4.4 nor Cordwood has a setting of that name"

_OF_PARTS: Final = {
    "allow.everyone.if.no.acl.found",
    "metrics.jmx.exclude",
    "metrics.jmx.include",
    "super.users",
}
"""What Kafka's StandardAuthorizer and JmxReporter read, which `KafkaConfig` does not define."""

_PREFIXES: Final = (
    STATIC_TOPIC_PREFIX,
    "config.providers.",
    "confluent.",
    "cruise.control.",
    "kafka.csv.metrics.",
    "listener.name.",
    "rlmm.config.",
    "rsm.config.",
)
"""Settings of listeners, of Kafka's plugins, and of programs that often share a broker's file."""

_PLUGINS: Final = (
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "kafka.metrics.reporters",
    "metric.reporters",
    "principal.builder.class",
    "remote.log.metadata.manager.class.name",
    "remote.log.storage.manager.class.name",
)
"""Settings that name classes, which read their own settings from the same file."""

_PLUGIN_PREFIXES: Final = (
    "remote.log.storage.manager.impl.prefix",
    "remote.log.metadata.manager.impl.prefix",
)


def unknown_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Each name that nothing asks for, with advice on it, in the order given.

    Where a plugin is named, only names are unknown that are like a known one.
    """
    known = broker_settings().keys() | _OF_PARTS
    prefixes = (
        *_PREFIXES,
        *(properties[each] for each in _PLUGIN_PREFIXES if properties.get(each)),
    )
    has_plugin = any(properties.get(each) for each in _PLUGINS)
    found = {}
    for name in properties:
        if name in known or name.startswith(prefixes):
            continue
        advice = _advice_on(name, known)
        if advice or not has_plugin:
            found[name] = advice or _NOWHERE
    return found


def _advice_on(name: str, known: Collection[str]) -> str:
    """Advice on a name; empty if no name is similar."""
    if is_misnamed_broker_setting(name):
        return advise_on_broker_name(name)
    if name in dynamic_settings():
        return f"{name} can be set for a running broker only"
    if name in TOPIC_SETTINGS:
        return f"{name} can be set for a topic only"
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_LIKENESS_MIN)
    return f"did you mean {near[0]}?" if near else ""
