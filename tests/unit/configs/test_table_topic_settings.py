"""Values of topic settings that are taken, and that are refused: scenarios of LogConfigTest."""

from __future__ import annotations

import pytest

from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.model.errors import ConfigError

#: Settings that -1 is a value of.
MINUS_ONE_ALLOWED = {
    "retention.ms",
    "retention.bytes",
    "internal.segment.bytes",
    "compression.gzip.level",
    "compression.zstd.level",
    "cordwood.retention.topic.bytes",
    "cordwood.retention.groups.max.ms",
    "cordwood.retention.groups.max.bytes",
    "local.retention.ms",
    "local.retention.bytes",
    "remote.copy.lag.ms",
    "remote.copy.lag.bytes",
}
NUMBERS = [
    name
    for name, setting in TOPIC_SETTINGS.items()
    if setting.default is None
    or (isinstance(setting.default, int | float) and not isinstance(setting.default, bool))
]


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_is_refused_for_every_number(name: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type"):
        TOPIC_SETTINGS[name].parse("not_a_number")


@pytest.mark.parametrize("name", NUMBERS)
def test_minus_one_is_refused_where_it_means_nothing(name: str) -> None:
    if name in MINUS_ONE_ALLOWED:
        assert TOPIC_SETTINGS[name].parse("-1") == -1
    else:
        with pytest.raises(ConfigError, match="Value must be "):
            TOPIC_SETTINGS[name].parse("-1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanup.policy", "true"),
        ("cleanup.policy", "foobar"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "1.2"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "-1"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "-3"),
        ("compression.gzip.level", "-2"),
        ("compression.lz4.level", "-1"),
        ("compression.zstd.level", "-131073"),
        ("preallocate", "not_a_boolean"),
        ("unclean.leader.election.enable", "not_a_boolean"),
        ("message.timestamp.type", "not_a_type"),
        ("max.message.bytes", "-1"),
        ("max.decompressed.message.bytes", "0"),
        ("max.decompressed.message.bytes", "2147483640"),
    ],
)
def test_values_out_of_bounds_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"configuration {name}: "):
        TOPIC_SETTINGS[name].parse(text)


@pytest.mark.parametrize("kind", ["leader", "follower"])
@pytest.mark.parametrize("text", ["*", "", "100:10", "100:10,12:10", "100:0,"])
def test_throttled_replicas_are_a_star_or_pairs(kind: str, text: str) -> None:
    found = TOPIC_SETTINGS[f"{kind}.replication.throttled.replicas"].parse(text)
    assert found == (tuple(text.split(",")) if text else ())


@pytest.mark.parametrize("kind", ["leader", "follower"])
@pytest.mark.parametrize("text", ["100", "100:", "100:0,10", "100:0,10:", "*,100:10", "a:b"])
def test_other_throttled_replicas_are_refused(kind: str, text: str) -> None:
    name = f"{kind}.replication.throttled.replicas"
    with pytest.raises(ConfigError, match=r"must be the literal '\*' or a list of replicas"):
        TOPIC_SETTINGS[name].parse(text)
