"""Requests to the active controller, wherever it is: each is sent until that one has answered.

Source: org.apache.kafka.server.NodeToControllerChannelManagerImpl, NodeToControllerRequestThread
(4.3.0); KIP-590.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from cordwood.client.errors import DisconnectedError, TimedOutError
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.client.session import Versions, api_key
from cordwood.client.transport import Transports
from cordwood.format.messages.message import R, Request
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.apis import APIS

_log = logging.getLogger(__name__)

_BACKOFF_S = 0.1
_TIMEOUT_S = 30.0


class ActiveController:
    """The leader of the metadata quorum, as its broker asks it; for the event loop's thread.

    A request may be carried out although no answer came, and is then sent again: each is such that
    this does no harm, or its answer says so.
    """

    def __init__(
        self,
        address: Callable[[], NodeAddress | None],
        *,
        client_id: str,
        clock: Clock,
        transports: Transports | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            address: where the leader is now; None while that is not known.
            client_id: what requests say of their sender.
            clock: for the time until requests are given up.
            transports: of this node.
        """
        self._leader = NodeConnection(
            address, client_id=client_id, timeout_s=_TIMEOUT_S, transports=transports
        )
        self._clock = clock

    @property
    def versions(self) -> Versions:
        """The versions of the controller's APIs; empty before it has answered."""
        return self._leader.versions

    async def ask(
        self, request: Request[R], *, timeout_ms: float, version_max: int | None = None
    ) -> R:
        """The answer of the active controller; its error, unless NOT_CONTROLLER, is the caller's.

        Args:
            request: an object of its class in `protocol.data`.
            timeout_ms: for how long it is tried.
            version_max: the highest version to use.

        Raises:
            TimedOutError: no controller has answered in time.
            NotSupportedError: the controller has no version of the API in common with this client.
        """
        name = APIS[api_key(request)].snake_name
        deadline = self._clock.monotonic_s() + timeout_ms / 1000
        while True:
            left_s = deadline - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimedOutError(f"no controller has answered {name} in {timeout_ms:.0f} ms")
            try:
                answer = await self._leader.call(request, version_max=version_max, timeout_s=left_s)
            except (DisconnectedError, TimedOutError) as error:
                _log.debug("No answer to %s from the controller: %s", name, error)
            else:
                if not _is_of_another_controller(answer):
                    return answer
            await asyncio.sleep(min(_BACKOFF_S, max(left_s, 0)))

    def close(self) -> None:
        """Closes the connection: requests that wait are tried again, and fail."""
        self._leader.close()


def _is_of_another_controller(answer: Any) -> bool:
    """Whether a node answered that is not the active controller; CreateTopics says so per topic."""
    answers = [answer, *getattr(answer, "topics", ())]
    return any(getattr(each, "error_code", 0) == ErrorCode.NOT_CONTROLLER for each in answers)
