"""One request to a broker over a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.testing.broker import RunningBroker
from support.requests import request_of


def ask(
    running: RunningBroker, api: str, fields: dict[str, Any], version_max: int | None = None
) -> Any:
    """The answer, in the newest version that the broker has, or in at most `version_max`."""

    async def call() -> Any:
        node = NodeConnection(
            lambda: NodeAddress("127.0.0.1", running.port), client_id="test", timeout_s=60
        )
        try:
            return await node.call(request_of(api, fields), version_max=version_max)
        finally:
            node.close()

    return asyncio.run(call())
