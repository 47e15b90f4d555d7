"""The services of a node that its handlers use, be it a broker or a controller.

Source: kafka.server.SharedServer, the parameters of kafka.server.ControllerApis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar

from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_channel import AdminChannel
from cordwood.serving.authorizer import AllowAll, Authorizer
from cordwood.serving.forwarding import Forwarding
from cordwood.serving.node_thread import NodeThread


class Role(Enum):
    """The role of a node at a listener (process.roles)."""

    BROKER = auto()
    CONTROLLER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """Services for the event loop's thread.

    Attributes:
        role: whether they serve the listeners of brokers or of controllers.
        node_id: the id of this node.
        cluster_id: the id of the cluster, as clients see it.
        thread: runs functions on the event loop's thread; has the clock and the slices.
        settings: of server.properties.
        configs: settings of topics, brokers and other resources, with dynamic ones.
        metadata: the metadata of the cluster, as far as this node has loaded it.
        admin: carries out clients' requests to the controller; None if it is on another node.
        forwarding: sends such requests to a controller on another node; None without one.
        authorizer: decides what clients may do.
        api_versions: the lowest and highest version of each served API by key, both inclusive.
    """

    role: ClassVar[Role]
    node_id: int
    cluster_id: str
    thread: NodeThread
    settings: BrokerSettings
    configs: EffectiveConfigs
    metadata: MetadataCache
    admin: AdminChannel | None
    forwarding: Forwarding | None
    authorizer: Authorizer = field(default_factory=AllowAll)
    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
