"""The context of a request to a controller: the client, and the services of the controller.

Source: org.apache.kafka.common.requests.RequestContext, kafka.server.ControllerApis.
"""

from __future__ import annotations

from cordwood.controller.controller_services import ControllerServices
from cordwood.metadata.image import Endpoint
from cordwood.protocol.headers import RequestHeader
from cordwood.serving.request_context import RequestContext
from cordwood.serving.session import Session


class ControllerContext(RequestContext):
    """The context of one request to a controller; `controller` has its services."""

    __slots__ = ("controller",)

    def __init__(
        self, controller: ControllerServices, header: RequestHeader, session: Session
    ) -> None:
        super().__init__(controller, header, session)
        self.controller = controller

    @property
    def leader_endpoints(self) -> list[Endpoint]:
        """The address of the controller on the client's listener."""
        return [each for each in self.controller.endpoints if each.name == self.listener]
