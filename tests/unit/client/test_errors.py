from __future__ import annotations

import pytest

from cordwood.client.errors import RefusedError, require
from cordwood.model.error_codes import ErrorCode


def test_a_brokers_own_words_come_before_kafkas() -> None:
    error = RefusedError(36, "Topic 'a' already exists.")
    assert str(error) == "Topic 'a' already exists."
    assert error.described == (
        "org.apache.kafka.common.errors.TopicExistsException: Topic 'a' already exists."
    )


def test_an_empty_message_is_a_message() -> None:
    assert str(RefusedError(3, "")) == ""
    assert str(RefusedError(3)) == "This server does not host this topic-partition."


def test_an_invalid_record_is_told_by_the_class_that_kafka_has_elsewhere() -> None:
    assert RefusedError(87).java_class == "org.apache.kafka.common.InvalidRecordException"


def test_an_unknown_code_is_an_unknown_error() -> None:
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    error = RefusedError(9999)
    assert (error.code, error.code_name) == (9999, "UNKNOWN_SERVER_ERROR")


def test_only_codes_other_than_0_are_errors() -> None:
    require(0, "nothing")
    with pytest.raises(RefusedError, match="metadata is stale"):
        require(129)
