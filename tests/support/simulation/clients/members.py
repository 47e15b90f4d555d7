"""A member of a group of the consumer protocol (KIP-848): it heartbeats, and commits offsets.

It keeps the protocol's rules: it stops to use a partition before it says that it has, and uses
nothing when it was not heard for its session's timeout, counted from the last heartbeat that was
answered when it was sent, or when no answer has shown within the rebalance timeout that the
coordinator knows which partitions it has given up.

One thing differs from Kafka's consumer. That sends all fields again in the first heartbeat after
one that had no answer, and is then given its whole assignment. If the coordinator carries out the
lost heartbeat only after that, it answers the next one, which has the epoch before, without the
assignment: the member never gets to know it. This member sends all fields for some seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.simulation.clients.client import GROUP, Client, NoAnswerError, name_of
from support.simulation.event_loop import SimulatedLoop
from support.simulation.events import (
    Heard,
    Note,
    OffsetCommitted,
    OffsetFetchAsked,
    OffsetFetched,
    Owned,
    Unacceptable,
)
from support.simulation.history import History

SESSION_S: Final = 2.0
_REBALANCE_MS: Final = 3000
#: Longer than the rebalance timeout: the coordinator has to continue without it.
_STUCK_S: Final = 60.0
#: Longer than a heartbeat may be on its way.
_ALL_FIELDS_S: Final = 8.0
_REJOIN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)
_IMPOSSIBLE: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST})


class Member(Client):
    """See the module; `instance_id` is that of a static member."""

    instance_id: str | None = None
    leave_epoch = -1

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        rng: random.Random,
        history: History,
        *,
        group: str,
        partitions: Sequence[TopicPartition],
        pause_s: float,
    ) -> None:
        """No member yet.

        Args:
            name: of the client.
            loop: the loop.
            rng: of this member.
            history: receives what it uses and commits.
            group: its group.
            partitions: all those of the topics that it subscribes to.
            pause_s: between heartbeats and commits, on average.
        """
        super().__init__(name, loop, rng, history)
        self.group = group
        self.partitions = partitions
        self._topics = sorted({each.topic for each in partitions})
        self._pause_s = pause_s
        self.lives = 0
        #: The coordinator that answered last, and when that heartbeat was sent.
        self.heard_by = -1
        self._coordinator = -1
        self._owned: dict[TopicPartition, int] = {}
        self._numbers = itertools.count()
        #: The coordinator, member id and epoch of each heartbeat that was answered with news.
        self.heard: list[tuple[int, str, int]] = []
        self._given: dict[str, set[TopicPartition]] = {}
        self.is_calm = False
        self._begin_life()

    def _begin_life(self) -> None:
        self.lives += 1
        self._member_id = str(UUID(int=self.rng.getrandbits(128), version=4))
        self._epoch = 0
        self._full_until_s = self.loop.time()
        self._is_lost = False
        self.heard_s = self.loop.time()
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._is_owned_new = True
        #: Until when it holds on to partitions that it is to give up.
        self._gives_up_s = self.loop.time()
        #: When it is fenced, unless it is known by then that it has given up partitions.
        self._revoke_by_s = math.inf

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it uses."""
        return frozenset(self._owned)

    @property
    def is_settled(self) -> bool:
        """Whether it uses what it was assigned, nothing else, and gives nothing up."""
        return self.owned == self._assigned and self.loop.time() >= self._gives_up_s

    def given(self, member_id: str) -> set[TopicPartition]:
        """The partitions that one of its lives was assigned some time."""
        return self._given.setdefault(member_id, set())

    async def run(self) -> None:
        """Stays a member for ever, with some lives."""
        watchdog = asyncio.ensure_future(self._give_up_in_time())
        try:
            while True:
                await self._turn()
                await asyncio.sleep(self._pause_s * (0.5 + self.rng.random()))
        finally:
            watchdog.cancel()

    async def _give_up_in_time(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            if self._owned and self.loop.time() >= self.heard_s + SESSION_S - 0.05:
                self._lose()
            if self._owned and self.loop.time() >= self._revoke_by_s:
                self._use({})  # it is about to be fenced

    def _lose(self) -> None:
        """Uses nothing any more; a new member takes its place."""
        self._use({})
        self._is_lost = True

    async def _turn(self) -> None:
        if self._is_lost:
            self._begin_life()
        try:
            if not self.is_calm and self.rng.random() < 0.02:
                await self._leave()
            if self.loop.time() >= self._gives_up_s:
                self._take_assigned()
            await self._heartbeat()
            for partition in list(self._owned):
                await self._work(partition)
        except NoAnswerError as why:
            self.note(Note(f"has no answer: {why}"))
            self._send_all_fields()
            await self.back_off()

    def _use(self, owned: dict[TopicPartition, int]) -> None:
        if owned.keys() != self._owned.keys():
            self.note(Owned(self.name, self.group, frozenset(owned)))
            self._is_owned_new = True
        self._owned = owned

    # ---- membership

    async def _leave(self) -> None:
        """Leaves, or vanishes silently; a new member takes its place."""
        says_so = self.rng.random() < 0.5
        self._use({})
        member_id, epoch = self._member_id, self._epoch
        self._begin_life()
        if says_so and epoch > 0:
            self.note(Note("leaves"))
            await self._ask(member_id, self.leave_epoch)
        else:
            self.note(Note("vanishes"))

    async def _heartbeat(self) -> None:
        sent_s = self.loop.time()
        answer = await self._ask(self._member_id, self._epoch)
        code = answer.error_code
        if code in _IMPOSSIBLE:
            self.note(Unacceptable(f"a heartbeat of {self.name} is answered {name_of(code)}"))
        if code in _REJOIN:
            self.note(Note(f"a new member takes its place: {name_of(code)}"))
            self._use({})
            self._begin_life()
            return
        if code:
            self.note(Note(f"a heartbeat is refused: {name_of(code)}"))
            self._send_all_fields()
            await self.back_off()
            return
        if self._is_lost or self.loop.time() >= sent_s + SESSION_S - 0.05:
            self._lose()  # the answer is too late: another may have taken its place
            return
        heard_s, self.heard_s = self.heard_s, sent_s
        self.heard_by = self._coordinator
        self.note(Heard(self.name, self._coordinator))
        self._epoch = answer.member_epoch
        heard = self._coordinator, self._member_id, self._epoch
        if heard not in self.heard:
            self.heard.append(heard)
        if answer.assignment is not None:
            self._take(answer.assignment, heard_s)

    def _take(self, assignment: Any, heard_s: float) -> None:
        """Takes an assignment that it had not been given when it was heard before."""
        assigned = frozenset(
            TopicPartition(self.topic_of(each.topic_id), index)
            for each in assignment.topic_partitions
            for index in each.partitions
        )
        self.given(self._member_id).update(assigned)
        if assigned == self._assigned:
            return
        self._assigned = assigned
        if self.loop.time() < self._gives_up_s:
            return  # it continues with that
        if not self.is_calm and self.owned - assigned:
            self._gives_up_s = self.loop.time() + self._revocation_s()
            self._revoke_by_s = heard_s + _REBALANCE_MS / 1000 - 0.1
        if self.loop.time() >= self._gives_up_s:
            self._take_assigned()

    def _revocation_s(self) -> float:
        """Draws the time until it gives partitions up; at times it does not come back."""
        if self.rng.random() < 0.1:
            return _STUCK_S
        return self.rng.choice((0.0, 0.0, 0.5, 1.5)) * self.rng.random()

    def _take_assigned(self) -> None:
        if self.owned != self._assigned and self.loop.time() < self._revoke_by_s:
            self._use({each: self._owned.get(each, -1) for each in sorted(self._assigned)})

    async def _ask(self, member_id: str, epoch: int) -> Any:
        for topic in self._topics:
            await self.topic_id(topic)
        coordinator = self._coordinator = await self.coordinator(GROUP, self.group)
        owned: dict[UUID, list[int]] = {}
        owned_before = list(self._owned)
        for each in owned_before:
            owned.setdefault(await self.topic_id(each.topic), []).append(each.partition)
        is_full = self.loop.time() < self._full_until_s or epoch == 0
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": self.instance_id,
            "topic_partitions": None,
        }
        tells = self._is_owned_new or self.rng.random() < 0.3
        has_given_up = False
        if is_full or (tells and self.loop.time() >= self._gives_up_s):
            fields["topic_partitions"] = [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in owned.items()
            ]
            if not set(owned_before) - self._assigned:  # so it says that it has given them up
                self._gives_up_s = min(self._gives_up_s, self.loop.time())
                has_given_up = True
        if is_full:
            fields |= {
                "rebalance_timeout_ms": _REBALANCE_MS,
                "subscribed_topic_names": list(self._topics),
            }
        answer = await self.call(coordinator, "consumer_group_heartbeat", fields)
        if self.owned == frozenset(owned_before):
            self._is_owned_new = False
        if has_given_up and not answer.error_code:
            self._revoke_by_s = math.inf
        return answer

    def _send_all_fields(self) -> None:
        self._full_until_s = self.loop.time() + _ALL_FIELDS_S

    # ---- offsets

    async def _work(self, partition: TopicPartition) -> None:
        """Commits the next offset of a partition that it uses."""
        offset = self._owned.get(partition)
        if offset is None:
            return
        if offset < 0:
            found = await self._fetch_offset(partition)
            if found is not None and partition in self._owned:
                self._owned[partition] = max(found, 0)
            return
        coordinator = await self.coordinator(GROUP, self.group)
        wanted = offset + 1
        try:
            code = await self.commit(
                coordinator,
                self.group,
                self._member_id,
                self._commit_epoch(),
                partition,
                offset=wanted,
            )
        except NoAnswerError:
            # It may be carried out later, and would take the group back: commits have no numbers.
            # So nothing more is committed by this member.
            self._lose()
            raise
        if code == ErrorCode.NONE:
            self.note(OffsetCommitted(self.group, partition, wanted))
            if partition in self._owned:
                self._owned[partition] = wanted
        elif code in _IMPOSSIBLE:
            self.note(Unacceptable(f"a commit of {self.name} is answered {name_of(code)}"))
        else:
            await self.back_off()

    def _commit_epoch(self) -> int:
        """Its epoch; sometimes the one before, as if it had not had the last answer yet."""
        mine = [epoch for _, member_id, epoch in self.heard if member_id == self._member_id]
        return mine[-2] if len(mine) > 1 and self.rng.random() < 0.3 else self._epoch

    async def _fetch_offset(self, partition: TopicPartition) -> int | None:
        coordinator = await self.coordinator(GROUP, self.group)
        number = next(self._numbers) * 100 + int(self.name[-1])
        fields = {
            "groups": [
                {
                    "group_id": self.group,
                    "member_id": self._member_id,
                    "member_epoch": self._epoch,
                    "topics": [
                        {
                            "name": partition.topic,
                            "topic_id": await self.topic_id(partition.topic),
                            "partition_indexes": [partition.partition],
                        }
                    ],
                }
            ],
            "require_stable": True,
        }
        self.note(OffsetFetchAsked(self.group, partition, number))
        answer = await self.call(coordinator, "offset_fetch", fields)
        group = answer.groups[0]
        if group.error_code:
            await self.back_off()
            return None
        found = group.topics[0].partitions[0]
        if found.error_code:
            await self.back_off()
            return None
        self.note(OffsetFetched(self.group, partition, number, found.committed_offset))
        return int(found.committed_offset)


class StaticMember(Member):
    """A member with an instance id: it leaves for a while, and another one tries to be it.

    While it was heard less than its session's timeout ago, nobody else is given its instance id.
    """

    instance_id = "instance"
    leave_epoch = -2

    async def _turn(self) -> None:
        await super()._turn()
        if self.rng.random() < 0.2 and self.owned:
            with suppress(NoAnswerError):
                await self._try_to_replace()

    async def _try_to_replace(self) -> None:
        heard, coordinator = (self._member_id, self.heard_s), self._coordinator
        fields = {
            "group_id": self.group,
            "member_id": str(UUID(int=self.rng.getrandbits(128), version=4)),
            "member_epoch": 0,
            "instance_id": self.instance_id,
            "topic_partitions": [],
            "rebalance_timeout_ms": _REBALANCE_MS,
            "subscribed_topic_names": self._topics,
        }
        answer = await self.call(coordinator, "consumer_group_heartbeat", fields)
        is_alive = heard[0] == self._member_id and self.loop.time() < heard[1] + SESSION_S - 0.1
        if answer.error_code == ErrorCode.NONE and is_alive:
            self.note(Unacceptable(f"another member takes the place of {self.name}"))
