"""A coordinator's answer to a request, available immediately if it is committed, or later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from cordwood.format.messages.message import Message
from cordwood.serving.api import Encoded, Response
from cordwood.serving.node_thread import NodeThread

A = TypeVar("A")


class CoordinatorAnswer(Generic[A]):
    """Callback for the coordinator's answer, called once."""

    def __init__(self, thread: NodeThread) -> None:
        """Nothing is answered yet."""
        self._loop = thread.loop
        self._answers: list[A] = []
        self._later: asyncio.Future[A] | None = None

    def __call__(self, answer: A) -> None:
        """Answers; has no effect if the client has disconnected."""
        if self._later is None:
            self._answers.append(answer)
        elif not self._later.done():
            self._later.set_result(answer)

    @property
    def is_there(self) -> bool:
        """Whether the answer is available already."""
        return bool(self._answers)

    def now(self) -> A:
        """The answer; requires that it is available."""
        return self._answers[0]

    async def value(self) -> A:
        """The answer, when it is there."""
        if self._answers:
            return self._answers[0]
        if self._later is None:
            self._later = self._loop.create_future()
        return await self._later

    def response(self, fields: Callable[[A], Message | Encoded]) -> Response:
        """The response of a request that has this answer alone."""
        if self._answers:
            return fields(self._answers[0])
        self._later = self._loop.create_future()
        return self._respond(fields)

    async def _respond(self, fields: Callable[[A], Message | Encoded]) -> Message | Encoded:
        return fields(await self.value())
