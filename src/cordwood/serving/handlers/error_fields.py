"""The fields of an error in a response.

Source: org.apache.kafka.common.requests.ApiError.
"""

from __future__ import annotations

from cordwood.model.kafka_errors import KafkaError, UnknownServerError


def error_code(error: KafkaError | None) -> int:
    """An error's code; 0 for none."""
    return 0 if error is None else error.code


def error_message(error: KafkaError | None) -> str | None:
    """An error's text; an unexpected one, or one without a text of its own, has none."""
    if error is None or error.code == UnknownServerError.code:
        return None
    return str(error) or None
