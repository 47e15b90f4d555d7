"""The broker of a cluster that listens at a bootstrap address.

No answer of Kafka's names the broker that gives it. But a broker describes its own settings alone,
and refuses those of another with INVALID_REQUEST.

Source: kafka.server.ConfigHelper.describeConfigs (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import BrokerEndpoint, ClusterClient
from cordwood.client.errors import NotSupportedError, RefusedError
from cordwood.configs.resource import ConfigResource
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import DescribeConfigsRequest


class AddressedBroker(NamedTuple):
    """The broker at the bootstrap address, with those of its settings that were asked for.

    `nodes` are all brokers of its cluster, at the listener that was reached.
    """

    broker: BrokerEndpoint
    nodes: Sequence[BrokerEndpoint]
    cluster_id: str | None
    configs: Mapping[str, str | None]


def find_addressed(cluster: ClusterClient, keys: Sequence[str]) -> AddressedBroker | None:
    """The broker at the first bootstrap address that answers; None if it is none of its cluster's.

    Args:
        cluster: not used yet, so that only bootstrap addresses are known.
        keys: of its settings.

    Raises:
        ClientError: no broker answers, or it refuses.
    """
    address = cluster.any_node()
    try:
        facts = Admin(cluster).describe_cluster(include_fenced=True)
    except NotSupportedError:
        facts = Admin(cluster).describe_cluster()
    answer = cluster.call(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=ConfigResource.BROKER,
                    resource_name=str(node.id),
                    configuration_keys=list(keys),
                )
                for node in facts.nodes
            ],
        ),
        node_id=address,
    )
    named = {str(node.id): node for node in facts.nodes}
    for result in answer.results:
        if result.error_code == ErrorCode.INVALID_REQUEST:
            continue
        if result.error_code:
            raise RefusedError(int(result.error_code), result.error_message)
        configs = {config.name: config.value for config in result.configs}
        return AddressedBroker(named[result.resource_name], facts.nodes, facts.cluster_id, configs)
    return None
