"""Work in slices whose client has gone, and work that comes while the broker stops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cordwood.serving.request_errors import UnansweredRequestError
from cordwood.serving.slices import Slices

Scenario = Callable[[Slices], Awaitable[None]]


def reported(scenario: Scenario) -> list[dict[str, Any]]:
    """Errors that asyncio reports while the scenario runs."""
    contexts: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: contexts.append(context))
        slices = Slices(loop)
        await scenario(slices)
        await slices.finish()
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    return contexts


def fails() -> None:
    raise ValueError("the work has failed")


def test_work_gives_its_value_or_its_error() -> None:
    async def scenario(slices: Slices) -> None:
        assert await slices.run(lambda: 7) == 7
        with pytest.raises(ValueError, match="the work has failed"):
            await slices.run(fails)

    assert reported(scenario) == []


def test_after_the_end_work_is_refused() -> None:
    async def scenario(slices: Slices) -> None:
        await slices.finish()
        with pytest.raises(UnansweredRequestError, match="the broker is shutting down"):
            await slices.run(lambda: 7)

    assert reported(scenario) == []


@pytest.mark.parametrize("is_finished", [False, True])
def test_an_error_that_nobody_waits_for_is_not_reported(is_finished: bool) -> None:
    async def scenario(slices: Slices) -> None:
        if is_finished:
            await slices.finish()
        slices.run(fails)

    assert reported(scenario) == []
