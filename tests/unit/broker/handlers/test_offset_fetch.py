"""OffsetFetch of stable offsets, whose answer waits for other replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.handlers import offset_fetch
from cordwood.coordinator.group.offset_requests import CommitPartition, CommitRequest, CommitTopic
from cordwood.model.pauses import is_pausing
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.slices import Slices
from support.groups_under_test import GroupBroker, GroupRun

GROUPS_SINCE = 8


class Context:
    """Of a client that may read all but the group `denied`; notes whether topics are in slices."""

    api_version = GROUPS_SINCE

    def __init__(self, groups: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.slices = Slices(loop)
        thread = SimpleNamespace(loop=loop, slices=self.slices)
        self.broker = SimpleNamespace(groups=groups, thread=thread)
        self.in_slices: set[bool] = set()

    def authorize(self, _operation: AclOperation, kind: ResourceType, name: str) -> bool:
        if kind is ResourceType.TOPIC:
            self.in_slices.add(is_pausing())
        return name != "denied"


@pytest.mark.parametrize("is_long", [True, False])
def test_an_answer_that_has_waited_is_built_as_its_request_was_handled(
    tmp_path: Path, *, is_long: bool
) -> None:
    broker = GroupBroker(tmp_path)
    run = GroupRun(broker)
    broker.is_replicated = True
    topic = CommitTopic("t", (CommitPartition(0, 5),))
    run.groups.commit(CommitRequest(group_id="g", topics=(topic,)), lambda _: None)
    asked = [SimpleNamespace(group_id=name, topics=None) for name in ("denied", "g")]
    request: Any = SimpleNamespace(groups=asked, require_stable=True)

    async def scenario() -> Any:
        context = Context(run.groups, asyncio.get_running_loop())
        given = cast("BrokerContext", context)
        response: Any = offset_fetch.handle(given, request) if not is_long else None
        if is_long:
            response = await context.slices.run(lambda: offset_fetch.handle(given, request))
        assert isinstance(response, Awaitable), "the commit may be lost"
        answer = asyncio.ensure_future(response)
        await asyncio.sleep(0)
        run.commit_log()
        found = await answer
        await context.slices.finish()
        assert context.in_slices == {is_long}
        return found

    denied, found = asyncio.run(scenario()).groups
    assert (denied.group_id, denied.error_code, denied.topics) == ("denied", 30, [])
    assert found.topics[0].partitions[0].committed_offset == 5
