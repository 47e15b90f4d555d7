"""The settings of a broker that transactions obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Settings of transactions; the defaults are Kafka's, times in ms.

    Source: org.apache.kafka.coordinator.transaction.TransactionStateManagerConfig,
    TransactionLogConfig.
    """

    max_timeout_ms: int = 15 * _MS_PER_MINUTE
    id_expiration_ms: int = 7 * 24 * 60 * _MS_PER_MINUTE
    abort_interval_ms: int = 10_000
    """How often transactions are looked at that may have timed out."""
    expiration_interval_ms: int = 60 * _MS_PER_MINUTE
    """How often transactional ids are looked at that may have expired."""
    topic_partitions: int = 50
    request_timeout_ms: int = 30_000
    is_two_phase_commit_enabled: bool = False

    @classmethod
    def of(cls, values: Mapping[str, object]) -> TransactionSettings:
        """Settings from a broker's properties, parsed or as text, with Kafka's defaults."""
        given: dict[str, Any] = {
            field: int(str(values[name]))
            for field, name in _PROPERTIES.items()
            if values.get(name) is not None
        }
        two_phase_commit = str(values.get("transaction.two.phase.commit.enable") or False)
        return cls(**given, is_two_phase_commit_enabled=two_phase_commit.lower() == "true")


#: The property of each field that is a number.
_PROPERTIES: Mapping[str, str] = {
    "max_timeout_ms": "transaction.max.timeout.ms",
    "id_expiration_ms": "transactional.id.expiration.ms",
    "abort_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "expiration_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "topic_partitions": "transaction.state.log.num.partitions",
    "request_timeout_ms": "request.timeout.ms",
}
