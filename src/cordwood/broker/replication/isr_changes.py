"""Sends proposed ISRs to the controller: all that wait in one request, one request at a time.

Source: org.apache.kafka.server.partition.DefaultAlterPartitionManager (4.3.0); KIP-497, KIP-903.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from cordwood.broker.replication.leadership import IsrProposal, LedPartition
from cordwood.metadata.controller_requests import AlteredIsr, IsrChange
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicIdPartition

_log = logging.getLogger(__name__)

_RETRY_S = 0.05

AlterPartitions = Callable[[Sequence[IsrChange]], Awaitable[Sequence[AlteredIsr]]]
"""Sends proposals to the controller: `ControllerChannel.alter_partitions`."""


class AnsweredIsr(NamedTuple):
    """The answer to a proposed ISR; it names no replicas: `partition.replicas` is empty."""

    key: TopicIdPartition
    proposal: IsrProposal
    partition: LedPartition | None
    error: ErrorCode


class IsrChanges:
    """The proposals that are not answered; for the event loop's thread.

    A partition has one proposal at a time. A newer one takes its place unless that is on its way:
    then it is sent next.
    """

    def __init__(self, alter: AlterPartitions, *, answered: Callable[[AnsweredIsr], None]) -> None:
        """Creates a queue without proposed changes.

        Args:
            alter: asks the active controller.
            answered: gets each answer.
        """
        self._alter = alter
        self._answered = answered
        self._waiting: dict[TopicIdPartition, IsrProposal] = {}
        self._sending: asyncio.Task[None] | None = None

    def propose(self, key: TopicIdPartition, proposal: IsrProposal) -> None:
        """Sends a proposal, soon; `answered` gets the result."""
        self._waiting[key] = proposal
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        """Sends nothing more."""
        self._waiting.clear()
        task, self._sending = self._sending, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_all(self) -> None:
        while self._waiting:
            sent, self._waiting = self._waiting, {}
            try:
                is_answered = await self._send(sent)
            except Exception:  # the next proposals are sent
                _log.exception("Error while proposing the ISRs of %d partitions", len(sent))
                is_answered = False
            if not is_answered:
                # What was proposed meanwhile is newer.
                self._waiting = {**sent, **self._waiting}
                await asyncio.sleep(_RETRY_S)
        self._sending = None

    async def _send(self, sent: Mapping[TopicIdPartition, IsrProposal]) -> bool:
        """Whether the request as a whole was answered without an error."""
        changes = [
            IsrChange(*key, each.leader_epoch, each.partition_epoch, each.isr)
            for key, each in sent.items()
        ]
        try:
            answers = await self._alter(changes)
        except KafkaError as error:
            _log.warning("The ISRs of %d partitions were not changed: %s", len(sent), error)
            return False
        for (key, proposal), answer in zip(sent.items(), answers, strict=True):
            self._answered(_read(key, proposal, answer))
        return True


def _read(key: TopicIdPartition, proposal: IsrProposal, answer: AlteredIsr) -> AnsweredIsr:
    if answer.error is not ErrorCode.NONE:
        return AnsweredIsr(key, proposal, None, answer.error)
    partition = LedPartition(
        leader_epoch=answer.leader_epoch,
        partition_epoch=answer.partition_epoch,
        replicas=(),
        isr=tuple(answer.isr),
    )
    return AnsweredIsr(key, proposal, partition, answer.error)
