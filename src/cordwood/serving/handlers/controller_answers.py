"""Responses that wait for the controller's answer.

A handler checks its request and asks; when the controller has answered, the response is made in
slices (`cordwood.serving.slices`), for it may be as long as the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from cordwood.format.messages.message import Message
from cordwood.model.kafka_errors import KafkaError
from cordwood.serving.request_context import RequestContext

T = TypeVar("T")


async def after_answer(
    context: RequestContext, asked: Awaitable[T], respond: Callable[[T], Message]
) -> Message:
    """The response that `respond` makes of the controller's answer.

    Raises:
        KafkaError: the controller refuses the request as a whole.
    """
    answer = await asked
    return await context.node.thread.slices.run(lambda: respond(answer))


async def all_or_error(
    asked: Awaitable[Sequence[T | KafkaError | None]], count: int
) -> Sequence[T | KafkaError | None]:
    """The results for `count` things; one error for the whole request is that of each."""
    try:
        return await asked
    except KafkaError as error:
        return [error] * count


async def result_or_error(asked: Awaitable[T]) -> T | KafkaError:
    """The controller's answer, or the error for which it refuses the request as a whole."""
    try:
        return await asked
    except KafkaError as error:
        return error
