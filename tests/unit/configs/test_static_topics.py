"""Own settings of single topics in a broker's properties."""

from __future__ import annotations

import pytest

from cordwood.configs.levels import Level
from cordwood.configs.sources import Sources, resolve_topic
from cordwood.configs.static_topics import property_name, static_topics
from cordwood.configs.table import LOG_BROKER_SETTINGS, OWN_PREFIX, TOPIC_SETTINGS, is_own
from cordwood.model.errors import ConfigError

POLICY = "cordwood.timestamp.future.policy"


def test_a_topics_name_may_contain_dots_and_even_look_like_a_setting() -> None:
    for topic in ("t", "a.b.c", "cordwood.topic", "retention.ms", POLICY):
        found = static_topics({property_name(topic, POLICY): "append-time"}, source="s")
        assert found == {topic: {POLICY: "append-time"}}


def test_other_properties_are_left_alone() -> None:
    properties = {"log.dirs": "/a", "cordwood.cleaner.spark.idle.ms": "1", POLICY: "kafka"}
    assert static_topics(properties, source="s") == {}


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("cordwood.topic.t.retention.ms", "1", "does not end with a setting that can be set so"),
        (f"cordwood.topic.{POLICY}", "kafka", "does not end with a setting that can be set so"),
        (f"cordwood.topic.a b.{POLICY}", "kafka", "a b"),
        (f"cordwood.topic.t.{POLICY}", "newest", "must be one of: kafka, append-time"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_file_and_key(
    key: str, value: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        static_topics({key: value}, source="server.properties")
    assert complaint in str(caught.value)
    assert "server.properties" in str(caught.value)
    assert key in str(caught.value)


def test_the_level_is_between_the_topics_own_and_the_brokers() -> None:
    properties = {property_name("t", POLICY): "append-time", POLICY: "kafka"}
    sources = Sources(server_properties=properties, defaults=True)
    for topic, value, key in (("t", "append-time", property_name("t", POLICY)), ("u", None, None)):
        found = resolve_topic(sources, topic, node_id=1)
        assert found is not None
        assert found.config.cordwood_timestamp_future_policy == (value or "kafka")
        assert found.origin[POLICY].level is Level.STATIC_BROKER
        assert found.origin[POLICY].key == (key or POLICY)
    above = Sources(server_properties=properties, defaults=True, topic_set={"t": {POLICY: "kafka"}})
    found = resolve_topic(above, "t", node_id=1)
    assert found is not None
    assert found.config.cordwood_timestamp_future_policy == "kafka"
    assert found.origin[POLICY].level is Level.TOPIC


def test_every_own_setting_of_topics_is_off_by_default_and_has_a_broker_setting() -> None:
    own = [setting for name, setting in TOPIC_SETTINGS.items() if is_own(name)]
    assert own
    for setting in own:
        assert setting.name.startswith(OWN_PREFIX)
        if setting.name == "cordwood.trash.ms":  # which has no effect without a directory
            assert LOG_BROKER_SETTINGS["cordwood.trash.dir"].default is None
        else:
            assert setting.default in ("kafka", "offset", -1, False, (), ""), setting.name
        assert [each.name for each in setting.broker_names] == [setting.name]
