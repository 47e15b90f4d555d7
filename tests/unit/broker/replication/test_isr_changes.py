"""Proposed ISRs on their way to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from cordwood.broker.replication.isr_changes import AnsweredIsr, IsrChanges
from cordwood.broker.replication.leadership import IsrProposal
from cordwood.metadata.controller_requests import AlteredIsr, IsrChange
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    KafkaError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from cordwood.model.topic_partition import TopicIdPartition

ONE, TWO = TopicIdPartition(UUID(int=1 << 70), 0), TopicIdPartition(UUID(int=2 << 70), 5)


def proposal(epoch: int = 3) -> IsrProposal:
    return IsrProposal(leader_epoch=1, partition_epoch=epoch, isr=((7, 70), (8, -1)))


class Controller:
    """Answers what it is given, each request in turn; or takes all."""

    def __init__(self, *answers: KafkaError | dict[int, ErrorCode]) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[IsrChange]] = []
        self.answered: list[AnsweredIsr] = []
        self.changes = IsrChanges(self.alter, answered=self.answered.append)

    async def alter(self, changes: Sequence[IsrChange]) -> list[AlteredIsr]:
        self.asked.append(changes)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, KafkaError):
            raise answer
        return [
            AlteredIsr(
                answer.get(each.partition, ErrorCode.NONE),
                each.leader_epoch,
                each.partition_epoch + 1,
                [broker_id for broker_id, _ in each.isr],
            )
            for each in changes
        ]

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
    assert [len(each) for each in controller.asked] == [2, 1]
    assert controller.asked[0][1] == IsrChange(TWO.topic_id, 5, 1, 3, ((7, 70), (8, -1)))
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

    controller = Controller(RequestTimedOutError("no answer"), StaleBrokerEpochError("old"))
    asyncio.run(run())
    assert len(controller.asked) == 3
    assert controller.answered[0].proposal.partition_epoch == 4


def test_refusal_of_a_partition_is_its_own() -> None:
    async def run() -> None:
        controller.changes.propose(ONE, proposal())
        controller.changes.propose(TWO, proposal())
        await controller.until_answered(2)

    controller = Controller({5: ErrorCode.INELIGIBLE_REPLICA})
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
