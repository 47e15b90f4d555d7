"""Settings of servers and controllers, derived from those of server.properties."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cordwood.configs.broker_config import (
    BrokerConfig,
)
from cordwood.configs.server_properties import BrokerSettings
from cordwood.controller.settings import ControllerSettings
from cordwood.metadata.image import Endpoint
from cordwood.serving.addresses import addresses_of
from cordwood.serving.server import ServerLimits

_log = logging.getLogger(__name__)

_RESERVE_BYTES: Final = 1 << 20
# The metadata log of a cluster grows by 12 MB a day though nothing happens.
_MEMBER_RESERVE_BYTES: Final = 8 << 20


def controller_endpoints(settings: BrokerSettings, ports: Mapping[str, int]) -> list[Endpoint]:
    """The endpoints of the controller's listeners, with the ports that they are bound to."""
    return [
        Endpoint(
            name=each.name,
            host=each.host or "localhost",
            port=each.port or ports[each.name],
            security_protocol=each.protocol,
        )
        for each in settings.advertised_controller_listeners
    ]


def server_limits(values: BrokerConfig, settings: BrokerSettings) -> ServerLimits:
    """The bounds in force; buffers are the system's, which grow at need, unless they are given."""

    def buffer_bytes(name: str) -> int | None:
        size = values.integer(name)
        return size if name in settings.given and size >= 0 else None

    return ServerLimits(
        max_request_bytes=values.socket_request_max_bytes,
        connections_max=values.max_connections,
        connections_max_per_ip=values.max_connections_per_ip,
        connections_max_by_ip=_by_address(values.max_connections_per_ip_overrides),
        connections_max_idle_ms=values.connections_max_idle_ms,
        send_buffer_bytes=buffer_bytes("socket.send.buffer.bytes"),
        receive_buffer_bytes=buffer_bytes("socket.receive.buffer.bytes"),
    )


def _by_address(by_host: Mapping[str, int]) -> dict[str, int]:
    """Numbers by the addresses that the hosts have now."""
    found: dict[str, int] = {}
    for host, number in by_host.items():
        try:
            found.update(dict.fromkeys(addresses_of(host), number))
        except OSError as error:
            _log.warning("max.connections.per.ip.overrides: %s is not known: %s", host, error)
    return found


def controller_settings(settings: BrokerSettings) -> ControllerSettings:
    """The settings of the metadata log, and of a controller if this node is one."""
    return ControllerSettings(
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        min_insync_replicas=settings.min_insync_replicas,
        delete_topic_enable=settings.delete_topic_enable,
        unclean_leader_election=bool(settings.all["unclean.leader.election.enable"]),
        snapshot_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
        retention_bytes=settings.metadata_max_retention_bytes,
        retention_ms=settings.metadata_max_retention_ms,
        segment_bytes=settings.metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
        reserve_bytes=_RESERVE_BYTES if settings.is_controller else _MEMBER_RESERVE_BYTES,
    )
