from __future__ import annotations

import pytest

from cordwood.configs.config_file import (
    ConfigFile,
    merge_set_options,
    parse_config_file,
    parse_set_option,
)
from cordwood.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("log.retention.ms=5", (None, "log.retention.ms", "5")),
        ("orders:retention.ms=5", ("orders", "retention.ms", "5")),
        ("orders:cleanup.policy=", ("orders", "cleanup.policy", "")),
        ("a.b_c-1:k=x:y=z", ("a.b_c-1", "k", "x:y=z")),
        ("controller.quorum.voters=1@host:9093", (None, "controller.quorum.voters", "1@host:9093")),
        (" orders : retention.ms = 5", ("orders", "retention.ms", " 5")),
    ],
)
def test_set_options(text: str, parsed: tuple[str | None, str, str]) -> None:
    assert parse_set_option(text) == parsed


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("retention.ms", "expected [TOPIC:]KEY=VALUE"),
        ("=5", "there is no key before the equals sign"),
        ("orders:=5", "there is no key before the equals sign"),
        (":retention.ms=5", "'' is not a legal topic name"),
        ("orders*:retention.ms=5", "not a legal topic name; a pattern is not allowed here"),
        ("..:retention.ms=5", "'..' is not a legal topic name"),
        ("a:b:retention.ms=5", "'a:b' is not a legal topic name"),
    ],
)
def test_malformed_set_options(text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_set_option(text)
    assert str(caught.value).startswith(f"--set {text}: ")
    assert refusal in str(caught.value)


def test_set_options_are_merged() -> None:
    assert merge_set_options(["a:x=1", "y=2", "a:z=3", "b:x=4", "y=2"]) == (
        {"a": {"x": "1", "z": "3"}, "b": {"x": "4"}},
        {"y": "2"},
    )


def test_one_key_with_two_values_is_refused() -> None:
    with pytest.raises(ConfigError, match="--set a:x=2: x was already set to 1"):
        merge_set_options(["a:x=1", "a:x=2"])


@pytest.mark.parametrize(
    "text",
    [
        (
            '{"topics": {"orders": {"retention.ms": 10, "preallocate": true, '
            '"cleanup.policy": ["compact", "delete"]}}, "broker": {"log.roll.hours": "1"}}'
        ),
        (
            "topics:\n  orders:\n    retention.ms: 10\n    preallocate: true\n"
            "    cleanup.policy: [compact, delete]\nbroker:\n  log.roll.hours: '1'\n"
        ),
        (
            "{topics: {orders: {retention.ms: 10, preallocate: true, "
            "cleanup.policy: [compact, delete]}}, broker: {log.roll.hours: 1}}"
        ),
    ],
)
def test_json_and_yaml_say_the_same(text: str) -> None:
    assert parse_config_file(text) == ConfigFile(
        topics={
            "orders": {
                "retention.ms": "10",
                "preallocate": "true",
                "cleanup.policy": "compact,delete",
            }
        },
        broker={"log.roll.hours": "1"},
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "topics: {}", '{"broker": {}}'])
def test_nothing_is_nothing(text: str) -> None:
    assert parse_config_file(text) == ConfigFile()


def test_a_topic_may_be_named_without_settings() -> None:
    assert parse_config_file("topics: {orders: {}}") == ConfigFile(topics={"orders": {}})


@pytest.mark.parametrize("value", ["010", "1_000", "1:30", "0x10", "yes", "1.50"])
def test_values_count_as_they_are_written(value: str) -> None:
    assert parse_config_file(f"broker:\n  k: {value}").broker == {"k": value}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("topic: {}", "f.yaml: unknown section topic; there are only topics and broker"),
        ("topics: []", "f.yaml, topics: expected names with values, got a list"),
        ("topics: {a: 5}", "f.yaml, topics, a: expected names with values, got '5'"),
        ("topics: {'a*': {}}", "f.yaml, topics: 'a*' is not a legal topic name"),
        ("broker: {a: 1, a: 2}", "f.yaml, broker: a stands twice"),
        ('{"broker": {"a": 1, "a": 1}}', "f.yaml, broker: a stands twice"),
        ("broker:\n  a:\n", "f.yaml, broker, a: expected a text or number, got nothing"),
        ('{"broker": {"a": null}}', "f.yaml, broker, a: expected a text or number, got nothing"),
        ("broker: {a: {b: 1}}", "f.yaml, broker, a: expected a text or number, got names"),
        ("broker: {a: [[1]]}", "f.yaml, broker, a: expected a text or number, got a list"),
        ("broker: {? [1] : 2}", "f.yaml, broker: expected a name, got a list"),
        ("[1]", "f.yaml: expected names with values, got a list"),
        ("broker: [", "f.yaml, line 1: not YAML"),
        ('{"broker":', "f.yaml: not JSON: Expecting value"),
        ("a: &a {<<: *a}", "f.yaml, line 1: not YAML: merge keys"),
        ("broker: &a [*a]", "f.yaml, line 1: not YAML: nested too deeply"),
        ("[" * 5_000, "f.yaml: not YAML: nested too deeply"),
        ('{"a":' * 100_000, "f.yaml: nested too deeply"),
    ],
)
def test_malformed_config_files(text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config_file(text, name="f.yaml")
    assert str(caught.value).startswith(refusal)
