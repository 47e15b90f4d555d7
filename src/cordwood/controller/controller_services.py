"""The services of a controller that its handlers use.

Source: kafka.server.ControllerServer, the parameters of kafka.server.ControllerApis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cordwood.controller.cluster_control import ClusterControl
from cordwood.controller.commit_watch import CommitWatch
from cordwood.metadata.image import Endpoint
from cordwood.metadata.quorum.leader import QuorumLeader
from cordwood.serving.node_services import NodeServices, Role
from cordwood.serving.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerServices(NodeServices):
    """Services of a controller, for the event loop's thread.

    Attributes:
        cluster: the brokers of the cluster.
        quorum: answers those that fetch the metadata log.
        commits: wakes them.
        forwarded: answers a request, without its size, of a client of a broker.
        change: runs an operation of the controller, in slices and after all earlier ones.
        endpoints: where the controller is reached.
    """

    role: ClassVar[Role] = Role.CONTROLLER
    cluster: ClusterControl
    quorum: QuorumLeader
    commits: CommitWatch
    forwarded: Callable[[memoryview, Session], Any]
    change: Callable[[Callable[[], Any]], Awaitable[Any]]
    endpoints: Sequence[Endpoint]
