"""Settings given on the command line: `--set` and `--config-file`, as text to values.

A config file is JSON or YAML: `{"topics": {NAME: {KEY: VALUE}}, "broker": {KEY: VALUE}}`. A value
is kept as written (YAML's `010` is the text 010, not eight), so that Kafka's own rules parse it; a
list is joined with commas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import yaml

from cordwood.model.errors import ConfigError
from cordwood.model.topic_names import ALL_TOPICS, topic_name_fault

_NULL_TAG = "tag:yaml.org,2002:null"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_SECTIONS = ("topics", "broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The settings of a config file, as text; their names and values are not looked at yet."""

    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    broker: dict[str, str] = field(default_factory=dict)


def parse_set_option(text: str) -> tuple[str | None, str, str]:
    """The topic (None: the broker; `ALL_TOPICS`), key and value of `[TOPIC:]KEY=VALUE`.

    The value is all that follows the first `=`, and may be empty or hold any character.

    Raises:
        ConfigError: there is no `=`, no key, or what stands before the colon is no topic's name.
    """
    left, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: expected [TOPIC:]KEY=VALUE")
    topic, colon, key = left.rpartition(":")
    topic, key = topic.strip(), key.strip()
    if not key:
        raise ConfigError(f"--set {text}: there is no key before the equals sign")
    if not colon:
        return None, key, value
    if topic != ALL_TOPICS:
        require_topic_name(topic, where=f"--set {text}")
    return topic, key, value


def merge_set_options(
    options: Iterable[str],
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The topics' and the broker's settings of all `--set` options.

    Raises:
        ConfigError: one of them is malformed, or one key has two values.
    """
    topics: dict[str, dict[str, str]] = {}
    broker: dict[str, str] = {}
    for option in options:
        topic, key, value = parse_set_option(option)
        settings = broker if topic is None else topics.setdefault(topic, {})
        if settings.setdefault(key, value) != value:
            raise ConfigError(f"--set {option}: {key} was already set to {settings[key]}")
    return topics, broker


def require_topic_name(topic: str, *, where: str) -> None:
    """Checks that `topic` can be the name of a topic.

    Raises:
        ConfigError: it cannot; the text begins with `where`.
    """
    if topic_name_fault(topic) is not None:
        hint = "; a pattern is not allowed here" if set(topic) & set("*?[") else ""
        raise ConfigError(f"{where}: {topic!r} is not a legal topic name{hint}")


def parse_config_file(text: str, *, name: str = "--config-file") -> ConfigFile:
    """The settings in `text`, JSON or YAML.

    `name` is the name of the text in errors.

    Raises:
        ConfigError: it is neither, it has sections other than `topics` and `broker`, a key is
            duplicated, or a value has a wrong type; the message gives the position.
    """
    root = _load(text, name)
    sections = _mapping(root, name) if root is not None else {}
    for section in sections:
        if section not in _SECTIONS:
            raise ConfigError(
                f"{name}: unknown section {section}; there are only {' and '.join(_SECTIONS)}"
            )
    topics: dict[str, dict[str, str]] = {}
    for topic, node in _mapping(sections.get("topics", {}), f"{name}, topics").items():
        require_topic_name(topic, where=f"{name}, topics")
        topics[topic] = _settings(node, f"{name}, topics, {topic}")
    return ConfigFile(
        topics=topics, broker=_settings(sections.get("broker", {}), f"{name}, broker")
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A mapping as it was written: duplicate keys and all."""

    pairs: tuple[tuple[object, object], ...]


def _load(text: str, name: str) -> object:
    """The document as `_Pairs`, lists, texts and None."""
    problem: ValueError | None = None
    if text.lstrip().startswith("{"):
        try:
            return json.loads(
                text,
                object_pairs_hook=lambda pairs: _Pairs(tuple(pairs)),
                parse_int=str,
                parse_float=str,
                parse_constant=str,
            )
        except ValueError as error:
            problem = error
        except RecursionError as error:
            raise ConfigError(f"{name}: nested too deeply") from error
    try:
        return _plain(yaml.compose(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        if problem is not None:
            raise ConfigError(f"{name}: not JSON: {problem}") from error
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        what = getattr(error, "problem", None) or "nested too deeply"
        raise ConfigError(f"{name}{line}: not YAML: {what}") from error


def _plain(node: yaml.Node | None, depth: int = 0) -> object:
    match node:
        case None:
            return None
        # Nothing valid is nested deeper; an alias to its own parent is endless.
        case _ if depth > 4:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=node.start_mark)
        case yaml.MappingNode():
            if any(key.tag == _MERGE_TAG for key, _ in node.value):
                raise yaml.MarkedYAMLError(
                    problem="merge keys (<<) are not allowed", problem_mark=node.start_mark
                )
            return _Pairs(
                tuple(
                    (_plain(key, depth + 1), _plain(value, depth + 1)) for key, value in node.value
                )
            )
        case yaml.SequenceNode():
            return [_plain(item, depth + 1) for item in node.value]
        case _:
            return None if node.tag == _NULL_TAG else str(node.value)


def _mapping(value: object, where: str) -> dict[str, object]:
    if value == {}:
        return {}
    if not isinstance(value, _Pairs):
        raise ConfigError(f"{where}: expected names with values, got {_describe(value)}")
    result: dict[str, object] = {}
    for key, item in value.pairs:
        if not isinstance(key, str):
            raise ConfigError(f"{where}: expected a name, got {_describe(key)}")
        if key in result:
            raise ConfigError(f"{where}: {key} stands twice")
        result[key] = item
    return result


def _settings(value: object, where: str) -> dict[str, str]:
    return {key: _text(item, f"{where}, {key}") for key, item in _mapping(value, where).items()}


def _text(value: object, where: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case list() if all(isinstance(item, str) for item in value):
            return ",".join(value)
        case _:
            raise ConfigError(f"{where}: expected a text or number, got {_describe(value)}")


def _describe(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case _Pairs():
            return "names with values"
        case list():
            return "a list"
        case _:
            return f"{value!r}"
