"""Proposed ISRs on their way to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from cordwood.broker.replication.isr_changes import AnsweredIsr, IsrChanges, LedBy
from cordwood.broker.replication.leadership import IsrProposal
from cordwood.client.errors import TimedOutError
from cordwood.model.error_codes import ErrorCode

ONE, TWO = LedBy(UUID(int=1 << 70), 0), LedBy(UUID(int=2 << 70), 5)


def proposal(epoch: int = 3) -> IsrProposal:
    return IsrProposal(leader_epoch=1, partition_epoch=epoch, isr=((7, 70), (8, -1)))


class Controller:
    """Answers what it is given, each request in turn; or takes all."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Mapping[str, Any]] = []
        self.answered: list[AnsweredIsr] = []
        self.changes = IsrChanges(
            self.ask, broker_id=7, broker_epoch=lambda: 70, answered=self.answered.append
        )

    async def ask(self, api: str, fields: Mapping[str, Any], *, timeout_ms: float) -> Any:
        assert api == "alter_partition"
        self.asked.append(fields)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int) and answer:
            return SimpleNamespace(error_code=answer, topics=[])
        of = answer if isinstance(answer, dict) else {}
        topics = [
            SimpleNamespace(
                topic_id=topic["topic_id"],
                partitions=[
                    SimpleNamespace(
                        partition_index=each["partition_index"],
                        error_code=of.get(each["partition_index"], 0),
                        leader_epoch=each["leader_epoch"],
                        partition_epoch=each["partition_epoch"] + 1,
                        isr=each["new_isr"],
                    )
                    for each in topic["partitions"]
                ],
            )
            for topic in fields["topics"]
        ]
        return SimpleNamespace(error_code=0, topics=topics)

    async def until_answered(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.answered) < count:
                await asyncio.sleep(0.001)


def test_proposals_of_a_turn_are_one_request_and_the_next_ones_wait_for_its_answer() -> None:
    async def run() -> None:
        controller.changes.propose(ONE, proposal())
        controller.changes.propose(TWO, proposal())
        await asyncio.sleep(0)
        controller.changes.propose(ONE, proposal(4))
        await controller.until_answered(3)

    controller = Controller()
    asyncio.run(run())
    assert [len(each["topics"]) for each in controller.asked] == [2, 1]
    first = controller.asked[0]
    assert (first["broker_id"], first["broker_epoch"]) == (7, 70)
    assert first["topics"][1]["partitions"] == [
        {
            "partition_index": 5,
            "leader_epoch": 1,
            "new_isr": [7, 8],
            "new_isr_with_epochs": [
                {"broker_id": 7, "broker_epoch": 70},
                {"broker_id": 8, "broker_epoch": -1},
            ],
            "leader_recovery_state": 0,
            "partition_epoch": 3,
        }
    ]
    assert [each.key for each in controller.answered] == [ONE, TWO, ONE]
    taken = controller.answered[0].partition
    assert taken is not None
    assert (taken.isr, taken.partition_epoch) == ((7, 8), 4)


def test_request_that_fails_as_a_whole_is_sent_again_with_what_is_newer() -> None:
    async def run() -> None:
        controller.changes.propose(ONE, proposal(3))
        await asyncio.sleep(0)
        controller.changes.propose(ONE, proposal(4))
        await controller.until_answered(1)

    controller = Controller(TimedOutError("no answer"), int(ErrorCode.STALE_BROKER_EPOCH))
    asyncio.run(run())
    assert len(controller.asked) == 3
    assert controller.answered[0].proposal.partition_epoch == 4


def test_refusal_of_a_partition_is_its_own() -> None:
    async def run() -> None:
        controller.changes.propose(ONE, proposal())
        controller.changes.propose(TWO, proposal())
        await controller.until_answered(2)

    controller = Controller({5: int(ErrorCode.INELIGIBLE_REPLICA)})
    asyncio.run(run())
    assert [each.error for each in controller.answered] == [
        ErrorCode.NONE,
        ErrorCode.INELIGIBLE_REPLICA,
    ]
    assert controller.answered[1].partition is None


def test_nothing_is_sent_after_the_end() -> None:
    async def run() -> None:
        controller.changes.propose(ONE, proposal())
        await controller.changes.close()
        await asyncio.sleep(0.01)

    controller = Controller()
    asyncio.run(run())
    assert not controller.answered
