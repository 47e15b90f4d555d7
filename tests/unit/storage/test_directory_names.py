"""Names of partitions' directories (LocalLogTest)."""

from __future__ import annotations

import pytest

from cordwood.model.errors import NotALogDirError
from cordwood.model.kafka_errors import InvalidTopicError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import (
    delete_directory_name,
    future_directory_name,
    live_directory_name,
    parse_directory_name,
    stray_directory_name,
)

_ID = "0123456789abcdef0123456789abcdef"


def test_the_name_of_a_directory_to_be_deleted() -> None:
    assert delete_directory_name(TopicPartition("foo", 3), _ID) == f"foo-3.{_ID}-delete"


def test_the_topic_of_249_characters_is_cut_so_that_a_delete_name_has_255() -> None:
    name = delete_directory_name(TopicPartition("n" * 249, 5), _ID)
    assert len(name) == 255
    assert name == "n" * 213 + f"-5.{_ID}-delete"


def test_a_stray_name_is_cut_and_a_future_name_is_not() -> None:
    partition = TopicPartition("n" * 249, 5)
    assert len(stray_directory_name(partition, _ID)) == 255
    assert future_directory_name(partition, _ID) == f"{'n' * 249}-5.{_ID}-future"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_topic-143", (TopicPartition("test_topic", 143), "")),
        (
            f"foo.bar-testtopic-42.{_ID}-delete",
            (TopicPartition("foo.bar-testtopic", 42), "-delete"),
        ),
        (f"t-0.{_ID}-future", (TopicPartition("t", 0), "-future")),
        (f"t-0.{_ID}-stray", (TopicPartition("t", 0), "-stray")),
        ("a.b-c-7", (TopicPartition("a.b-c", 7), "")),
    ],
)
def test_a_name_gives_back_its_partition(name: str, expected: tuple[TopicPartition, str]) -> None:
    assert parse_directory_name(name) == expected


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("an empty name", ""),
        ("no separator", "testtopic"),
        ("no topic", "-3"),
        ("no partition", "topic-"),
        ("a partition that is no number", "topic-1999a"),
        ("a foreign directory", "non_kafka_dir"),
        ("a foreign directory marked for deletion", "non_kafka_dir-delete"),
    ],
)
def test_what_is_no_partition_is_refused_in_kafkas_words(what: str, name: str) -> None:
    with pytest.raises(NotALogDirError, match="is not in the form of topic-partition"):
        parse_directory_name(name, parent="/logs")


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "../../evil", "/etc/evil", "a/b", "a\0b", "x" * 254, "x" * 10_000, "a b"],
    ids=lambda topic: repr(topic)[:20],
)
def test_a_name_that_no_topic_can_have_names_no_directory(topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        live_directory_name(TopicPartition(topic, 0))


def test_a_negative_partition_names_no_directory() -> None:
    with pytest.raises(InvalidTopicError):
        live_directory_name(TopicPartition("t", -1))
