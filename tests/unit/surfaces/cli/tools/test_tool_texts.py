from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.model.topic_partition import TopicPartition
from cordwood.surfaces.cli.tools.config_texts import split_settings
from cordwood.surfaces.cli.tools.delete_records import parse_offsets
from cordwood.surfaces.cli.tools.filters import BadTopicError, TopicFilter, require_legal_name
from cordwood.surfaces.cli.tools.get_offsets import parse_moment, parse_rule
from cordwood.surfaces.cli.tools.group_offsets import (
    BadMomentError,
    parse_datetime,
    parse_duration,
    parse_numbered,
    parse_plans,
)
from cordwood.surfaces.cli.tools.java_order import java_order, partition_hash, text_hash
from cordwood.surfaces.cli.tools.tool import ToolError
from cordwood.surfaces.cli.tools.topic_describe import parse_topic_id
from cordwood.surfaces.cli.tools.topics import parse_assignment, parse_configs


def test_settings_are_divided_by_commas_outside_brackets() -> None:
    assert split_settings("a=1,b=[x,y], c = z,d=") == {"a": "1", "b": "x,y", "c": "z", "d": ""}
    assert split_settings("a=[k=v,password=p=q]") == {"a": "k=v,password=p=q"}


@pytest.mark.parametrize("text", ["a", "a=1,b", "a=b=c"])
def test_settings_must_be_pairs(text: str) -> None:
    with pytest.raises(ToolError, match="all configs to be added must be in the format"):
        split_settings(text)


def test_filters_match_whole_names_and_any_of_several() -> None:
    wanted = TopicFilter(" 'a.*, __consumer_offsets' ")
    assert wanted.allows("abc")
    assert not wanted.allows("cab")
    assert wanted.allows("__consumer_offsets")
    assert not wanted.allows("__consumer_offsets", exclude_internal=True)
    with pytest.raises(BadTopicError, match=r"^\[ is an invalid regex\.$"):
        TopicFilter("[")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a" * 250, "ä"])
def test_names_that_no_topic_can_have_are_refused(name: str) -> None:
    with pytest.raises(BadTopicError, match="Topic name is invalid: "):
        require_legal_name(name)


def test_other_names_are_not() -> None:
    require_legal_name("a.b_c-9" + "x" * 242)


A1, A5, B1 = TopicPartition("a", 1), TopicPartition("a", 5), TopicPartition("b", 1)


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ("a", [A1, A5]),
        ("a:1", [A1]),
        ("a:1-5", [A1]),
        ("a:2-", [A5]),
        (":-5", [A1, B1]),
        ("[ab]:1", [A1, B1]),
    ],
)
def test_rules_name_partitions_and_ranges_without_their_ends(
    rule: str, meant: list[TopicPartition]
) -> None:
    assert [tp for tp in (A1, A5, B1) if parse_rule(rule)(tp)] == meant


def test_a_rule_that_is_none_is_refused() -> None:
    with pytest.raises(ToolError, match="Invalid rule specification: a:x"):
        parse_rule("a:x")


def test_moments_are_words_or_numbers() -> None:
    assert [parse_moment(text) for text in ("latest", "earliest", "-3", "17")] == [-1, -2, -3, 17]
    with pytest.raises(ToolError, match=r"Malformed time argument soon\."):
        parse_moment("soon")


def test_offsets_are_read_from_json() -> None:
    text = '{"partitions": [{"topic": "a", "partition": 1, "offset": -1}], "version": 1}'
    assert parse_offsets(text) == {A1: -1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "The input string is not a valid JSON"),
        ("[]", "Expected JSON object, received []"),
        ("{}", "Missing partitions field"),
        ('{"version": 3, "partitions": []}', "Not supported version field value 3"),
        ('{"partitions": {}}', "Expected JSON array, received {}"),
        ('{"partitions": [{"topic": "a", "partition": 1}]}', "No such field exists: `offset`"),
        (
            '{"partitions": [{"topic": 1, "partition": 1, "offset": 1}]}',
            "Expected `String` value, received 1",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 1, "offset": true}]}',
            "Expected `Long` value, received true",
        ),
    ],
)
def test_other_json_is_refused(text: str, said: str) -> None:
    with pytest.raises(ToolError) as caught:
        parse_offsets(text)
    assert str(caught.value) == said


def test_a_partition_that_is_named_twice_is_refused() -> None:
    entry = '{"topic": "a", "partition": 1, "offset": 1}'
    with pytest.raises(ToolError, match="contains duplicate topic partitions: a-1"):
        parse_offsets(f'{{"partitions": [{entry}, {entry}]}}')


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T00:00:00.001Z", 1),
    ],
)
def test_dates_are_utc_unless_they_say(text: str, ms: int) -> None:
    assert parse_datetime(text) == ms


@pytest.mark.parametrize("text", ["2020-01-01", "yesterday", "2020-13-01T00:00:00.000"])
def test_other_dates_are_refused(text: str) -> None:
    with pytest.raises(BadMomentError, match=r"^java\.text\.ParseException: "):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P1D", 86_400_000), ("PT1H2M3.5S", 3_723_500), ("-PT1S", -1000), ("P1DT-1H", 82_800_000)],
)
def test_durations_are_iso_8601(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1Y"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(BadMomentError):
        parse_duration(text)


def test_partitions_of_a_topic_are_numbered() -> None:
    assert parse_numbered("a:1,5") == [A1, A5]
    with pytest.raises(ToolError, match="Invalid partition 'x' specified in topic arg 'a:x''"):
        parse_numbered("a:x")
    with pytest.raises(ToolError, match="expected topic name and partitions"):
        parse_numbered("a:1:2")


def test_plans_name_their_group_or_are_of_the_only_one() -> None:
    assert parse_plans("a,1,7\n", "g") == {"g": {A1: 7}}
    assert parse_plans("g,a,1,7\nh,a,5,8\n", None) == {"g": {A1: 7}, "h": {A5: 8}}
    with pytest.raises(ToolError, match="expected topic,partition,offset"):
        parse_plans("a,x,7\n", "g")


def test_replicas_are_assigned_by_partition() -> None:
    assert parse_assignment("1:2,2:3") == {0: [1, 2], 1: [2, 3]}
    assert parse_assignment("") == {}
    with pytest.raises(ToolError, match="may not contain duplicate entries: 1"):
        parse_assignment("1:1")
    with pytest.raises(ToolError, match="Partition 1 has different replication factor"):
        parse_assignment("1,1:2")


def test_a_topics_settings_are_pairs() -> None:
    assert parse_configs(["a = 1", "b=2"]) == {"a": "1", "b": "2"}
    for text in ("a", "a=", "a=b=c"):
        with pytest.raises(ToolError, match="requirement failed: Invalid topic config"):
            parse_configs([text])


def test_ids_of_topics_are_base64() -> None:
    topic_id = UUID("b1125e3c-d1d4-4e05-87bc-4c7753b7d3d2")
    assert parse_topic_id("sRJePNHUTgWHvEx3U7fT0g") == topic_id
    assert parse_topic_id("A" * 22) is None
    for text in ("x", "abc", "A" * 25):
        with pytest.raises(ToolError):
            parse_topic_id(text)


def test_orders_are_those_of_javas_hash_maps() -> None:
    # What a JVM prints for a HashMap that was given these keys in this order.
    given = ["retention.ms", "a", "zz", "same-16", "orders", "payments", "b"]
    printed = ["zz", "a", "b", "payments", "orders", "retention.ms", "same-16"]
    assert java_order(given, str) == printed
    assert java_order(["orders", "payments", "b"], str, capacity=3) == ["orders", "b", "payments"]
    partitions = [TopicPartition("orders", number) for number in range(14)]
    assert java_order(partitions, partition_hash) == partitions[7:] + partitions[:7]
    assert partition_hash(partitions[3]) == -1008769277 & 0xFFFFFFFF
    assert text_hash("abc") == 96354
