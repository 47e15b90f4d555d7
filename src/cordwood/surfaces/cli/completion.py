"""Completion by Tab behind a flag: names of settings, topics and groups of a broker, files.

A shell asks while somebody types, so that a broker has a second to answer, and an error completes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.settings import ClientSettings
from cordwood.configs.table import LOG_BROKER_SETTINGS, TOPIC_SETTINGS
from cordwood.model.errors import CordwoodError
from cordwood.surfaces.cli.tools import table
from cordwood.surfaces.cli.tools.options import FLAG, Option

_ANSWER_MS: Final = 1000
_SERVERS: Final = "--bootstrap-server"
_FILES: Final = frozenset({"FILE", "FILE,...", "DIR"})


class Completion(NamedTuple):
    """A completion for a shell, as click's CompletionItem; `type` may be `file`."""

    value: str
    help: str = ""
    type: str = "plain"


def complete_tool(name: str, typed: Sequence[str], incomplete: str) -> list[Completion]:
    """Completions in a command line of one of Kafka's tools.

    Args:
        name: the tool's.
        typed: the whole words behind the tool's name.
        incomplete: the word that is being typed; may be empty.
    """
    options = table.options(name)
    flag, equals, value = incomplete.partition("=")
    if equals and flag.startswith("-"):
        option = _named(options, flag)
        # The shell replaces the whole word.
        found = _values(option, typed, value) if option else []
        return [each._replace(value=f"{flag}={each.value}") for each in found]
    if incomplete.startswith("-"):
        flags = [Completion(f"--{option.name}", option.text) for option in options]
        return [each for each in flags if each.value.startswith(incomplete)]
    option = _named(options, typed[-1]) if typed else None
    return _values(option, typed, incomplete) if option else []


def _named(options: Sequence[Option], word: str) -> Option | None:
    """The option of a word such as `--topic`, if a value follows it."""
    name = word.lstrip("-") if word.startswith("-") else ""
    return next((each for each in options if each.name == name and each.arity != FLAG), None)


def _values(option: Option, typed: Sequence[str], incomplete: str) -> list[Completion]:
    if option.name in {"config", "add-config"} and option.placeholder not in _FILES:
        return complete_setting(incomplete, closed_by="=")
    if option.name == "delete-config":
        return complete_setting(incomplete)
    if option.placeholder in _FILES:
        return [Completion(incomplete, type="file")]
    ask = _ASKED.get(option.name)
    return _at_broker(typed, ask, incomplete) if ask else []


def complete_setting(incomplete: str, *, closed_by: str = "") -> list[Completion]:
    """The settings of topics that begin with a text; of a list, the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [
        Completion(f"{before}{comma}{name}{closed_by}")
        for name in TOPIC_SETTINGS
        if name.startswith(last)
    ]


def complete_set(incomplete: str) -> list[str]:
    """Completions of `--set [TOPIC:]KEY=VALUE`; settings of the broker only without a topic."""
    topic, colon, typed = incomplete.rpartition(":")
    names = TOPIC_SETTINGS if colon else {**TOPIC_SETTINGS, **LOG_BROKER_SETTINGS}
    return [f"{topic}{colon}{name}=" for name in names if name.startswith(typed)]


def _topics(admin: Admin) -> list[str]:
    return [topic.name for topic in admin.topics()]


def _groups(admin: Admin) -> list[str]:
    return [group.group_id for group in admin.groups()]


_ASKED: Mapping[str, Callable[[Admin], list[str]]] = {
    "topic": _topics,
    "topic-list": _topics,
    "group": _groups,
}


def _at_broker(
    typed: Sequence[str], ask: Callable[[Admin], list[str]], incomplete: str
) -> list[Completion]:
    """The names that a broker of `--bootstrap-server` has; none if it does not answer."""
    servers = _servers(typed)
    if servers is None:
        return []
    settings = ClientSettings(
        bootstrap_servers=servers,
        client_id="completion",
        name="completion",
        api_timeout_ms=_ANSWER_MS,
        request_timeout_ms=_ANSWER_MS,
    )
    try:
        with ClusterClient(settings, warn=lambda _: None) as cluster:
            names = ask(Admin(cluster))
    except CordwoodError:
        return []
    return [Completion(name) for name in sorted(names) if name.startswith(incomplete)]


def _servers(typed: Sequence[str]) -> str | None:
    """The addresses that were typed, behind the flag or behind its `=`."""
    for number, word in enumerate(typed):
        if word == _SERVERS and number + 1 < len(typed):
            return typed[number + 1]
        if word.startswith(f"{_SERVERS}="):
            return word.partition("=")[2]
    return None
