"""Calls about the settings and the quotas of a cluster.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import NotSupportedError, require
from cordwood.configs.levels import Level
from cordwood.configs.resource import ConfigResource
from cordwood.protocol.data import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

SET, DELETE = 0, 1
"""The operations on a setting (AlterConfigOp.OpType)."""

_SOURCES: Final[Mapping[int, str]] = {level.code: level.kafka_name for level in Level}
"""The sources of a setting's value (DescribeConfigsResponse.ConfigSource)."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs; None stands for the default entity."""


class ConfigSynonym(NamedTuple):
    """A place that would set a config if those before it did not."""

    name: str
    value: str | None
    source: str


class ConfigFacts(NamedTuple):
    """A config's value and where it comes from."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """True if it is not set."""
        return self.source == "DEFAULT_CONFIG"


class Configs:
    """Calls about settings and quotas, on a cluster that the caller closes."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def describe(
        self, kind: ConfigResource, name: str, *, keys: Sequence[str] | None = None
    ) -> list[ConfigFacts]:
        """The configs of a resource with these keys, or all, in the broker's order."""
        return self.describe_all(kind, [name], keys=keys)[name]

    def describe_all(
        self,
        kind: ConfigResource,
        names: Sequence[str],
        *,
        include_synonyms: bool = True,
        keys: Sequence[str] | None = None,
    ) -> dict[str, list[ConfigFacts]]:
        """The configs of several resources with these keys, or all; only one broker is named."""
        if not names:
            return {}
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=keys
                )
                for name in names
            ],
            include_synonyms=include_synonyms,
        )
        answer = self._cluster.call(request, node_id=self._node(kind, names[0]))
        found = {}
        for result in answer.results:
            require(result.error_code, result.error_message)
            found[result.resource_name] = [_config_facts(config) for config in result.configs]
        return found

    def alter(
        self, kind: ConfigResource, name: str, changes: Sequence[tuple[str, int, str | None]]
    ) -> None:
        """Changes configs of a resource: (name, `SET` or `DELETE`, value)."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name=key, config_operation=operation, value=value
                        )
                        for key, operation, value in changes
                    ],
                )
            ]
        )
        node = self._node(kind, name)
        answer = self._cluster.call(request, node_id=node)
        for result in answer.responses:
            require(result.error_code, result.error_message)

    def _node(self, kind: ConfigResource, name: str) -> int | None:
        """The broker that alone knows the resource; None for any."""
        if kind not in {ConfigResource.BROKER, ConfigResource.BROKER_LOGGER} or not name:
            return None
        Admin(self._cluster).describe_cluster()
        return int(name)

    def resources(self, kind: ConfigResource) -> list[str]:
        """The names of the resources of a kind that have configs."""
        version = 0 if kind is ConfigResource.CLIENT_METRICS else 1
        if not self._cluster.supports(ListConfigResourcesRequest, version):
            raise NotSupportedError("The node does not support LIST_CONFIG_RESOURCES")
        answer = self._cluster.call(ListConfigResourcesRequest(resource_types=[kind]))
        require(answer.error_code)
        return [resource.resource_name for resource in answer.config_resources]

    def describe_quotas(
        self, components: Sequence[tuple[str, int, str | None]]
    ) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """Quotas of exactly those kinds of entities: (type, 0 name | 1 default | 2 any, name)."""
        request = DescribeClientQuotasRequest(
            components=[
                DescribeClientQuotasRequest.ComponentData(
                    entity_type=kind, match_type=match, match=name
                )
                for kind, match, name in components
            ],
            strict=True,
        )
        answer = self._cluster.call(request)
        require(answer.error_code, answer.error_message)
        return [
            (
                tuple((part.entity_type, part.entity_name) for part in entry.entity),
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Sets quotas of an entity, or removes those whose value is None."""
        request = AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[
                        AlterClientQuotasRequest.EntityData(entity_type=k, entity_name=name)
                        for k, name in entity
                    ],
                    ops=[
                        AlterClientQuotasRequest.OpData(
                            key=key, value=value or 0.0, remove=value is None
                        )
                        for key, value in changes.items()
                    ],
                )
            ]
        )
        answer = self._cluster.call(request)
        for entry in answer.entries:
            require(entry.error_code, entry.error_message)


def _config_facts(
    config: DescribeConfigsResponse.DescribeConfigsResourceResult,
) -> ConfigFacts:
    return ConfigFacts(
        config.name,
        config.value,
        _SOURCES.get(config.config_source, "UNKNOWN"),
        config.is_sensitive,
        config.read_only,
        tuple(
            ConfigSynonym(each.name, each.value, _SOURCES.get(each.source, "UNKNOWN"))
            for each in config.synonyms
        ),
    )
