"""Quotas of clients: Kafka's checks, and the records.

Source: org.apache.kafka.controller.ClientQuotaControlManager, QuotaConfig; KIP-546, KIP-612.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

from cordwood.controller.cluster_view import RECORDS_MAX, ClusterView
from cordwood.controller.host_lookup import HostText, classify_host
from cordwood.metadata.controller_requests import QuotaChange
from cordwood.metadata.image import QuotaEntity
from cordwood.metadata.records import Records, quota_record
from cordwood.model.kafka_errors import InvalidRequestError, KafkaError, PolicyViolationError
from cordwood.model.pauses import in_steps

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1

#: The highest value of each key by kind of entity, None for numbers with a fraction.
_USER_KEYS: Mapping[str, tuple[str, int] | None] = {
    "producer_byte_rate": ("LONG", _LONG_MAX),
    "consumer_byte_rate": ("LONG", _LONG_MAX),
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Mapping[str, tuple[str, int] | None] = {"connection_creation_rate": ("INT", _INT_MAX)}


def alter_client_quotas(
    view: ClusterView, changes: Sequence[QuotaChange], known_hosts: Container[str]
) -> tuple[Records, list[KafkaError | None]]:
    """The records for changed quotas, and the error of each entity that is refused.

    `known_hosts` are the names among `hosts_to_look_up` that have an address.

    Raises:
        PolicyViolationError: the change needs more than 10,000 records.
    """
    records: Records = []
    by_entity: dict[QuotaEntity, KafkaError | None] = {}
    for change in in_steps(changes, every=8):
        entity = change.key
        if entity in by_entity:
            by_entity[entity] = _ignored(change)
            continue
        try:
            records += _records_of(view, change, known_hosts)
        except KafkaError as error:
            by_entity[entity] = error
        else:
            by_entity[entity] = None
    if len(records) > RECORDS_MAX:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")
    return records, [by_entity[each.key] for each in changes]


def hosts_to_look_up(changes: Sequence[QuotaChange]) -> list[str]:
    """The host names in changes of IP quotas; they must be looked up before the change."""
    names = [each.entity[IP] for each in changes if set(each.entity) == {IP}]
    return [name for name in names if name and classify_host(name) is HostText.NAME]


def _records_of(view: ClusterView, change: QuotaChange, known_hosts: Container[str]) -> Records:
    keys = _keys_of(change, known_hosts)
    if len({key for key, _ in change.ops}) < len(change.ops):
        raise _ignored(change)
    current = view.image.client_quotas.get(change.key, {})
    records: Records = []
    for key, value in change.ops:
        if value is None:
            if key in current:
                records.append(quota_record(change.key, key, None))
            continue
        _require_value(keys, key, value)
        if current.get(key) != value:
            records.append(quota_record(change.key, key, value))
    return records


def _keys_of(
    change: QuotaChange, known_hosts: Container[str]
) -> Mapping[str, tuple[str, int] | None]:
    """The keys that an entity may have a quota of."""
    if not change.entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    found = change.entity
    for kind, name in found.items():
        if kind not in {USER, CLIENT_ID, IP}:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP not in found:
        return _USER_KEYS
    if len(found) > 1:
        # The missing blank is Kafka's.
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    name = found[IP]
    if name is not None and not _is_known(name, known_hosts):
        raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_known(name: str, known_hosts: Container[str]) -> bool:
    kind = classify_host(name)
    return kind is HostText.ADDRESS or (kind is HostText.NAME and name in known_hosts)


def _require_value(keys: Mapping[str, tuple[str, int] | None], key: str, value: float) -> None:
    if key not in keys:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise InvalidRequestError(f"Quota {key} must be a finite number")
    if value <= 0.0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    limit = keys[key]
    if limit is None:
        return
    kind, highest = limit
    if value > float(highest):  # as Kafka compares: the highest LONG is 2^63 then
        article = "an" if kind == "INT" else "a"
        raise InvalidRequestError(f"Proposed value for {key} is too large for {article} {kind}.")
    if abs(value % 1.0) > 1e-6:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")


def _ignored(change: QuotaChange) -> InvalidRequestError:
    """Kafka's error for a duplicate entity, or an entity with a duplicate key."""
    entries = ", ".join(
        f"{kind}={'null' if name is None else name}" for kind, name in change.in_kafkas_order
    )
    return InvalidRequestError(
        f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})"
    )
