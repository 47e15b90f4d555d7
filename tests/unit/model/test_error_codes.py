from __future__ import annotations

from cordwood.model import kafka_errors
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_only_none_has_no_exception_and_no_message() -> None:
    assert [code for code in ErrorCode if not code.exception] == [ErrorCode.NONE]
    assert [code for code in ErrorCode if not code.message] == [ErrorCode.NONE]


def test_every_error_raised_has_a_code_of_the_table() -> None:
    raised = [
        error
        for error in vars(kafka_errors).values()
        if isinstance(error, type) and issubclass(error, KafkaError)
    ]
    assert len(raised) > 40
    assert all(isinstance(error.code, ErrorCode) for error in raised)
