"""Waits until a broker has applied every change that its controller has answered.

A controller answers a change when the change is in the metadata log. A real Kafka's broker reads
that log by itself, a moment later: until then it lists a topic that was deleted, does not lead the
partitions of one that was created, and describes settings as they were.

Source: BrokerMetadataPublisher.onMetadataUpdate, Kafka 4.3. Each update of the metadata is applied
whole before the next one; its first step is the metadata that clients are shown, then follow the
replicas, the coordinators (which forget the offsets of deleted topics) and the dynamic settings.
"""

from __future__ import annotations

import uuid
from typing import Final

from support.kafka import poll_until
from support.wire import Wire

_SECONDS_MAX: Final = 120
_POLL_SECONDS: Final = 0.01
_KEY: Final = "producer_byte_rate"
_RATE: Final = 1e9


def wait_until_applied(port: int) -> None:
    """Returns when the broker at `port` has applied all changes answered before the call.

    A client quota of a user that does not exist is set and removed. When the broker describes the
    quota, the changes before it are shown to clients. The removal is a later update: when it is
    shown too, the update with the quota, and each before it, was applied whole.

    Raises:
        KafkaRunError: the broker did not apply them in time.
    """
    user = f"applied-{uuid.uuid4().hex}"
    with Wire(port, timeout_s=_SECONDS_MAX) as wire:
        for rate in (_RATE, None):
            _set_quota(wire, user, rate)
            poll_until(
                lambda: _has_quota(wire, user) is (rate is not None),  # noqa: B023
                timeout_s=_SECONDS_MAX,
                what="the broker applies what its controller answered",
                interval_s=_POLL_SECONDS,
            )


def _set_quota(wire: Wire, user: str, rate: float | None) -> None:
    change = {"key": _KEY, "value": rate or 0.0, "remove": rate is None}
    entity = [{"entity_type": "user", "entity_name": user}]
    entries = [{"entity": entity, "ops": [change]}]
    (done,) = wire.ask("alter_client_quotas", 1, {"entries": entries})["entries"]
    assert done["error_code"] == "none", done


def _has_quota(wire: Wire, user: str) -> bool:
    component = {"entity_type": "user", "match_type": 0, "match": user}
    found = wire.ask("describe_client_quotas", 1, {"components": [component], "strict": True})
    assert found["error_code"] == "none", found
    return bool(found["entries"])
