"""The brokers of a cluster: the answers of `cordwood cluster` and `broker-api-versions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cordwood.client.cluster_client import BrokerEndpoint
from cordwood.client.session import api_name
from cordwood.model.documents import CamelCase


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterId(CamelCase):
    """The id of a cluster."""

    cluster_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisteredBroker:
    """The id of a broker that is no longer registered."""

    unregistered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisteredController:
    """The id of a controller that is no longer registered."""

    unregistered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """A broker and where it is."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEndpoint(BrokerAddress):
    """A broker or a controller, as `type` says, and whether it is fenced."""

    fenced: bool
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersions:
    """The versions of an API that a broker serves; `name` is None for one that is not known."""

    key: int
    name: str | None
    min: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerApis(BrokerAddress):
    """A broker and the APIs that it serves."""

    apis: Sequence[ApiVersions]


def address_of(node: BrokerEndpoint) -> BrokerAddress:
    """The address of a broker."""
    return BrokerAddress(id=node.id, host=node.host, port=node.port, rack=node.rack)


def endpoint_of(node: BrokerEndpoint, *, is_fenced: bool, kind: str) -> ClusterEndpoint:
    """The address of a node of that kind."""
    return ClusterEndpoint(
        id=node.id, host=node.host, port=node.port, rack=node.rack, fenced=is_fenced, type=kind
    )


def apis_of(node: BrokerEndpoint, versions: Mapping[int, tuple[int, int]]) -> BrokerApis:
    """A broker with the first and the last version of each API, by its key."""
    return BrokerApis(
        id=node.id,
        host=node.host,
        port=node.port,
        rack=node.rack,
        apis=[
            ApiVersions(key=key, name=api_name(key), min=low, max=high)
            for key, (low, high) in sorted(versions.items())
        ],
    )
