"""Sends proposed ISRs to the controller: all that wait in one request, one request at a time.

Source: org.apache.kafka.server.partition.DefaultAlterPartitionManager (4.3.0); KIP-497, KIP-903.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.replication.leadership import IsrProposal, LedPartition
from cordwood.client.errors import ClientError
from cordwood.model.error_codes import ErrorCode

_log = logging.getLogger(__name__)

_RETRY_S = 0.05
_TIMEOUT_MS = 30_000
_RECOVERED = 0


class LedBy(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: UUID
    partition: int


class AsksController(Protocol):
    """Sends a request to the active controller."""

    def __call__(self, api: str, fields: Mapping[str, Any], *, timeout_ms: float) -> Awaitable[Any]:
        """The answer; raises ClientError without one."""


class AnsweredIsr(NamedTuple):
    """What the controller has of a partition now; `partition.replicas` is empty: it is not said."""

    key: LedBy
    proposal: IsrProposal
    partition: LedPartition | None
    error: ErrorCode


class IsrChanges:
    """The proposals that are not answered; for the event loop's thread.

    A partition has one proposal at a time. A newer one takes its place unless that is on its way:
    then it is sent next.
    """

    def __init__(
        self,
        ask: AsksController,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        answered: Callable[[AnsweredIsr], None],
    ) -> None:
        """Nothing is proposed yet.

        Args:
            ask: reaches the active controller.
            broker_id: of this broker.
            broker_epoch: of its registration.
            answered: gets each answer.
        """
        self._ask = ask
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._answered = answered
        self._waiting: dict[LedBy, IsrProposal] = {}
        self._sending: asyncio.Task[None] | None = None

    def propose(self, key: LedBy, proposal: IsrProposal) -> None:
        """Sends a proposal, soon; `answered` gets what becomes of it."""
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

    async def _send(self, sent: Mapping[LedBy, IsrProposal]) -> bool:
        """Whether the request as a whole was answered without an error."""
        try:
            answer = await self._ask("alter_partition", self._request(sent), timeout_ms=_TIMEOUT_MS)
        except ClientError as error:
            _log.warning("The ISRs of %d partitions were not proposed: %s", len(sent), error)
            return False
        if answer.error_code:
            name = ErrorCode.of(answer.error_code).name
            _log.warning("The ISRs of %d partitions were refused with %s", len(sent), name)
            return False
        found = {
            LedBy(topic.topic_id, each.partition_index): each
            for topic in answer.topics
            for each in topic.partitions
        }
        for key, proposal in sent.items():
            each = found.get(key)
            if each is None:
                self._waiting.setdefault(key, proposal)
            else:
                self._answered(_read(key, proposal, each))
        return len(found) >= len(sent)

    def _request(self, sent: Mapping[LedBy, IsrProposal]) -> dict[str, Any]:
        topics: dict[UUID, list[dict[str, Any]]] = {}
        for key, proposal in sent.items():
            topics.setdefault(key.topic_id, []).append(
                {
                    "partition_index": key.partition,
                    "leader_epoch": proposal.leader_epoch,
                    "new_isr": [broker_id for broker_id, _ in proposal.isr],
                    "new_isr_with_epochs": [
                        {"broker_id": broker_id, "broker_epoch": epoch}
                        for broker_id, epoch in proposal.isr
                    ],
                    "leader_recovery_state": _RECOVERED,
                    "partition_epoch": proposal.partition_epoch,
                }
            )
        return {
            "broker_id": self._broker_id,
            "broker_epoch": self._broker_epoch(),
            "topics": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in topics.items()
            ],
        }


def _read(key: LedBy, proposal: IsrProposal, answer: Any) -> AnsweredIsr:
    error = ErrorCode.of(answer.error_code)
    if error is not ErrorCode.NONE:
        return AnsweredIsr(key, proposal, None, error)
    partition = LedPartition(
        leader_epoch=answer.leader_epoch,
        partition_epoch=answer.partition_epoch,
        replicas=(),
        isr=tuple(answer.isr),
    )
    return AnsweredIsr(key, proposal, partition, error)
