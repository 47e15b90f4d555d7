"""The APIs of a controller: its own handlers, and those of brokers for what brokers forward.

Source: org.apache.kafka.common.protocol.ApiKeys.apisForListener(CONTROLLER), Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cordwood.broker.handlers import (
    acls,
    alter_client_quotas,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_topics,
    describe_configs,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    list_partition_reassignments,
    sasl,
    unregister_broker,
    update_features,
)
from cordwood.controller_apis import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    config_changes,
    describe_cluster,
    envelope,
    fetch,
    fetch_snapshot,
)
from cordwood.serving.api import Api

#: APIs that a client may use at a controller, directly or through a broker.
_OF_CLIENTS: tuple[Api[Any], ...] = (
    *acls.APIS,
    *config_changes.APIS,
    *delegation_tokens.APIS,
    *sasl.APIS,
    alter_client_quotas.API,
    alter_partition_reassignments.API,
    api_versions.API,
    create_partitions.API,
    create_topics.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_quorum.API,
    describe_user_scram_credentials.API,
    elect_leaders.API,
    list_partition_reassignments.API,
    unregister_broker.API,
    update_features.API,
)
_OF_NODES: tuple[Api[Any], ...] = (
    allocate_producer_ids.API,
    alter_partition.API,
    assign_replicas_to_dirs.API,
    broker_heartbeat.API,
    broker_registration.API,
    envelope.API,
    fetch.API,
    fetch_snapshot.API,
)


def controller_apis() -> dict[int, Api[Any]]:
    """The served APIs by key."""
    return _by_key((*_OF_CLIENTS, *_OF_NODES))


def forwarded_apis() -> dict[int, Api[Any]]:
    """Those that may be in an Envelope; what is not forwardable is refused before."""
    return _by_key(_OF_CLIENTS)


def _by_key(apis: Iterable[Api[Any]]) -> dict[int, Api[Any]]:
    found: dict[int, Api[Any]] = {}
    for each in apis:
        assert each.key not in found, f"two handlers of API {each.key}"
        found[each.key] = each
    return found
