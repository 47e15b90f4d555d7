"""The context of a request to a broker: the client, and the services of the broker.

Source: org.apache.kafka.common.requests.RequestContext.
"""

from __future__ import annotations

from cordwood.broker.broker import Broker
from cordwood.protocol.headers import RequestHeader
from cordwood.serving.request_context import RequestContext
from cordwood.serving.session import Session


class BrokerContext(RequestContext):
    """The context of one request to a broker; `broker` has the services that handlers use."""

    __slots__ = ("broker",)

    def __init__(self, broker: Broker, header: RequestHeader, session: Session) -> None:
        super().__init__(broker, header, session)
        self.broker = broker
