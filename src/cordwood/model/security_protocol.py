"""Kafka's security protocols, as listeners and clients name them."""

from __future__ import annotations

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """Whether connections are encrypted and authenticated; the number is that of a registration.

    Source: org.apache.kafka.common.security.auth.SecurityProtocol.
    """

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3
