"""The fields of an error in a response.

Source: org.apache.kafka.common.requests.ApiError.
"""

from __future__ import annotations

from cordwood.model.kafka_errors import KafkaError, UnknownServerError


def error_fields(error: KafkaError | None) -> dict[str, object]:
    """An error's code and text; an unexpected one, or one without a text of its own, has none."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    is_unexpected = error.code == UnknownServerError.code
    return {
        "error_code": error.code,
        "error_message": None if is_unexpected else str(error) or None,
    }
