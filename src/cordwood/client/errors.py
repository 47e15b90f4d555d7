"""Errors between a client and its brokers.

`str()` of each is the text that Kafka's tools show; `described` puts the Java class before it, as
they do where they show an error's cause.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError

_PACKAGE = "org.apache.kafka.common.errors"


class ClientError(CordwoodError):
    """A call that did not succeed."""

    java_class = "org.apache.kafka.common.KafkaException"

    @property
    def described(self) -> str:
        """The class and the text."""
        return f"{self.java_class}: {self}"


class BadAddressError(ClientError):
    """bootstrap.servers that name no host and port, or none that can be resolved."""

    java_class = "org.apache.kafka.common.config.ConfigException"


class UnservedProtocolError(ClientError):
    """A security protocol that this client does not have."""

    java_class = "org.apache.kafka.common.config.ConfigException"


class TimedOutError(ClientError):
    """No broker answered within the time given."""

    java_class = f"{_PACKAGE}.TimeoutException"


class NobodyListensError(ClientError):
    """All bootstrap addresses have refused the first connections."""

    java_class = f"{_PACKAGE}.TimeoutException"


class DisconnectedError(ClientError):
    """The broker closed the connection, or sent bytes that are no answer."""

    java_class = f"{_PACKAGE}.DisconnectException"


class NotSupportedError(ClientError):
    """The broker does not serve the API, or not in a version that this client knows."""

    java_class = f"{_PACKAGE}.UnsupportedVersionException"


class RefusedError(ClientError):
    """A broker's error code, with its message or else Kafka's own for that code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        known = ErrorCode.of(code)
        super().__init__(known.message if message is None else message)
        self.code = code
        self.code_name = known.name
        self.java_class = known.java_class


def require(code: int, message: str | None = None) -> None:
    """Raises RefusedError unless `code` is 0.

    Raises:
        RefusedError: it is not.
    """
    if code:
        raise RefusedError(code, message)
