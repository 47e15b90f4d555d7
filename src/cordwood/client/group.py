"""A member of a classic consumer group: joins, divides partitions, commits, leaves.

One thread does all: heartbeats go out while records are asked for.

Source: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator, AbstractCoordinator,
RangeAssignor; KIP-62, KIP-394.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import GROUP, ClusterClient, Coordinator
from cordwood.client.consumer import ConsumedRecord, Consumer
from cordwood.client.consumer_protocol import (
    assignment,
    parse_assignment,
    parse_subscription,
    subscription,
)
from cordwood.client.coordinator import committed_offsets, offset_commit_topics
from cordwood.client.errors import ClientError, DisconnectedError, RefusedError, TimedOutError
from cordwood.client.offsets import LATEST
from cordwood.client.retry import Action, action
from cordwood.format.messages.message import R, Request
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
_HEARTBEAT_S = 3.0
_COMMIT_S = 5.0
_PROTOCOL = "range"


def assign_by_range(
    members: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Partitions by member: of each topic a range, those with more coming first.

    `members` are the topics of each member, `partitions` the number of partitions of each topic.
    """
    found: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic in sorted(partitions):
        subscribed = sorted(member for member, topics in members.items() if topic in topics)
        if not subscribed:
            continue
        share, extra = divmod(partitions[topic], len(subscribed))
        begin = 0
        for index, member in enumerate(subscribed):
            end = begin + share + (1 if index < extra else 0)
            found[member] += [TopicPartition(topic, number) for number in range(begin, end)]
            begin = end
    return found


@dataclass(slots=True, kw_only=True)
class GroupConsumer:
    """Reads what the group assigns to this member; `topics` names those to read.

    `warn` is called for offsets that could not be committed.
    """

    cluster: ClusterClient
    consumer: Consumer
    group_id: str
    topics: Callable[[], Sequence[str]]
    warn: Callable[[str], None]
    auto_commit: bool = True
    clock: Clock = field(default_factory=SystemClock)
    _member_id: str = ""
    _generation: int = -1
    _heard_s: float = 0.0
    _committed_s: float = 0.0
    _given: dict[TopicPartition, int] = field(default_factory=dict)

    def poll(self, timeout_ms: int) -> list[ConsumedRecord]:
        """The next records of the partitions that are this member's; none while it is no member.

        It joins as often as it must, with a back-off, until `timeout_ms` is over. What has begun by
        then is ended: a JoinGroup waits for the other members, and every other call has a time of
        its own (`ClusterClient.call`).
        """
        end = self.clock.monotonic_s() + timeout_ms / 1000
        retries = self.cluster.retries(timeout_ms / 1000)
        while not self._is_member():
            if not retries.wait():
                return []
        records = self.consumer.poll(max(0, int((end - self.clock.monotonic_s()) * 1000)))
        self._given = self.consumer.positions
        return records

    def _is_member(self) -> bool:
        """Joins, or sends the heartbeat and the commit that are due; False if it has to join."""
        now = self.clock.monotonic_s()
        try:
            if self._generation < 0:
                self._join()
            elif now >= self._heard_s + _HEARTBEAT_S:
                self._heartbeat()
        except (DisconnectedError, TimedOutError):
            self._generation = -1
        except RefusedError as error:
            if not ErrorCode.of(error.code).is_retriable:
                raise
            self._generation = -1
        if self.auto_commit and self._generation >= 0 and now >= self._committed_s + _COMMIT_S:
            # A refusal may say that the partitions are another member's by now.
            self._commit(self._given)
            self._committed_s = now
        return self._generation >= 0

    def close(self, unread: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits the next offsets (`unread` if records were not used), and leaves the group."""
        if self._generation < 0:
            return
        if self.auto_commit:
            self._commit({**self._given, **(unread or {})})
        if self._generation < 0:
            return
        # A member that cannot leave is removed by the coordinator after its session timeout.
        with suppress(ClientError):
            self._call(self._leave_request(), is_single=True)
        self._generation = -1

    def _leave_request(self) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self._member_id,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id=self._member_id,
                    reason="the consumer is being closed",
                )
            ],
        )

    def _call(
        self, request: Request[R], *, timeout_ms: int | None = None, is_single: bool = False
    ) -> R:
        coordinator = Coordinator(GROUP, self.group_id)
        return self.cluster.call(
            request, coordinator=coordinator, timeout_ms=timeout_ms, is_single=is_single
        )

    def _join(self) -> None:
        """Joins, if no answer says that it has to be done again: then the generation stays -1."""
        answer = self._ask_to_join()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            answer = self._ask_to_join()
        if not self._must_rejoin("join_group", int(answer.error_code)):
            self._sync(answer)

    def _ask_to_join(self) -> JoinGroupResponse:
        topics = sorted(self.topics())
        return self._call(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequest.JoinGroupRequestProtocol(
                        name=_PROTOCOL, metadata=subscription(topics)
                    )
                ],
            ),
            timeout_ms=REBALANCE_TIMEOUT_MS + 5_000,
            is_single=True,
        )

    def _sync(self, joined: JoinGroupResponse) -> None:
        self._member_id = joined.member_id
        assignments: dict[str, list[TopicPartition]] = {}
        if joined.leader == joined.member_id:
            assignments = self._divide(joined.members)
        answer = self._call(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(
                        member_id=member, assignment=assignment(partitions)
                    )
                    for member, partitions in assignments.items()
                ],
            ),
            timeout_ms=REBALANCE_TIMEOUT_MS + 5_000,
        )
        if self._must_rejoin("sync_group", int(answer.error_code)):
            return
        self._generation = joined.generation_id
        self._heard_s = self._committed_s = self.clock.monotonic_s()
        self._begin(parse_assignment(answer.assignment))

    def _divide(
        self, members: Sequence[JoinGroupResponse.JoinGroupResponseMember]
    ) -> dict[str, list[TopicPartition]]:
        subscriptions = {m.member_id: parse_subscription(m.metadata) for m in members}
        wanted = sorted({topic for topics in subscriptions.values() for topic in topics})
        known = {topic.name: len(topic.partitions) for topic in Admin(self.cluster).topics()}
        return assign_by_range(
            subscriptions, {topic: known[topic] for topic in wanted if topic in known}
        )

    def _begin(self, partitions: Sequence[TopicPartition]) -> None:
        committed = committed_offsets(self.cluster, self.group_id, partitions)
        reset = LATEST if self.consumer.reset is None else self.consumer.reset
        self.consumer.assign({tp: committed.get(tp, reset) for tp in partitions})
        self._given = self.consumer.positions

    def _heartbeat(self) -> None:
        answer = self._call(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
            ),
        )
        self._heard_s = self.clock.monotonic_s()
        code = int(answer.error_code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS and self.auto_commit:
            # While the generation is still this member's: it ends with the next JoinGroup.
            self._commit(self._given)
        if self._must_rejoin("heartbeat", code):
            self._join()

    def _must_rejoin(self, api: str, code: int) -> bool:
        """Whether to join again; forgets what the coordinator has forgotten.

        Raises:
            RefusedError: the error is one of the call.
        """
        if not code:
            return False
        follows = action(api, code)
        if follows is None:
            raise RefusedError(code)
        if follows is Action.REJOIN_AS_NEW:
            self._member_id = ""
        self._generation = -1
        return True

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets; `warn` is called if they cannot be committed."""
        if not offsets:
            return
        try:
            ids = {topic.name: topic.topic_id for topic in Admin(self.cluster).topics()}
            answer = self._call(self._commit_request(offsets, ids))
        except ClientError as error:
            self._warn(error)
            return
        codes = {int(p.error_code) for topic in answer.topics for p in topic.partitions}
        for code in sorted(codes - {0}):
            self._warn(RefusedError(code))
            if action("offset_commit", code) in {Action.REJOIN, Action.REJOIN_AS_NEW}:
                self._must_rejoin("offset_commit", code)

    def _warn(self, error: ClientError) -> None:
        self.warn(f"[{self.cluster.settings.name}] auto-commit of offsets failed: {error}")

    def _commit_request(
        self, offsets: Mapping[TopicPartition, int], ids: Mapping[str, UUID | None]
    ) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=offset_commit_topics(offsets, ids),
        )
