"""How responses name an error.

Source: org.apache.kafka.common.requests.ApiError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidConfigError, KafkaError, UnknownServerError

T = TypeVar("T")


def error_fields(error: KafkaError | None) -> dict[str, object]:
    """An error's code and text; an unexpected one, or one without a text of its own, has none."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    is_unexpected = error.code == UnknownServerError.code
    return {
        "error_code": error.code,
        "error_message": None if is_unexpected else str(error) or None,
    }


def all_or_error(
    operation: Callable[[], Sequence[T | KafkaError | None]], count: int
) -> Sequence[T | KafkaError | None]:
    """The results of an operation on `count` things; one error that ends it is that of each."""
    try:
        return operation()
    except KafkaError as error:
        return [error] * count


def as_invalid_config(error: ConfigError) -> KafkaError:
    """A setting's error as the protocol has it."""
    return error if isinstance(error, KafkaError) else InvalidConfigError(str(error))
