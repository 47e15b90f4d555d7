"""A random schedule of a group with clients of both protocols, which may change its protocol.

After each event the change of the group is compared with what the model allows, and the clients'
own views of their partitions with each other. At the end, without failures, the group must be at
rest with every client that may be a member, and every partition owned once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import LeavingMember
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import JOIN_EPOCH
from cordwood.coordinator.group.settings import ConsumerGroupSettings, MigrationPolicy
from cordwood.model.error_codes import ErrorCode
from support.group_schedules.base import GroupSchedule, ScheduleParameters
from support.group_schedules.classic_client import ClassicClient, Phase
from support.group_schedules.client import Beat, Client, Life, Partitions, Subscription
from support.group_schedules.mixed_model import Codes, MixedModel, View, view_of
from support.groups_under_test import GroupRun

_TOPICS: Final = ("t", "u")
_SESSION_MS: Final = 10_000
_REBALANCES_MS: Final = (6_000, 12_000)
_BEAT_MS: Final = 3_000
_ROUNDS: Final = 12
_ROUNDS_MAX: Final = 60
#: Requests that a client may need in a round, from joining to its partitions.
_ACTS: Final = 5
_FAILS, _IS_LOST = 0.06, 0.08
_PARAMETERS: Final = ScheduleParameters(
    events=50,
    topics=_TOPICS,
    partitions_max=5,
    partitions_more=3,
    instances=("i", "j"),
    steps_ms=(0, 1_000, 3_000, 6_000),
    fails=_FAILS,
    is_static=0.3,
)
_UNWRITTEN: Final[Codes] = frozenset({ErrorCode.NOT_COORDINATOR})

AnyClient = ClassicClient | Client


class MixedSchedule(GroupSchedule[AnyClient]):
    """A coordinator, the clients of one group, and what the model allows."""

    def __init__(self, root: Path, seed: int) -> None:
        """`root` is for the log; the same seed makes the same schedule."""
        super().__init__(root, seed, _PARAMETERS)
        self.moves: set[str] = set()
        policy = self._random.choice([*MigrationPolicy, MigrationPolicy.BIDIRECTIONAL])
        self._classic_share = self._random.choice((0.5, 0.5, 0.8, 1.0))
        delay_ms = self._random.choice((0, 3_000))
        self.trace.append(f"policy={policy.value} delay={delay_ms} classic={self._classic_share}")
        self.run = GroupRun(
            self.broker,
            initial_rebalance_delay_ms=delay_ms,
            consumer=ConsumerGroupSettings(
                session_timeout_ms=_SESSION_MS, assignment_interval_ms=0, migration_policy=policy
            ),
        )
        self.model = MixedModel(policy)
        self._counts: dict[str, int] = {}
        self._has_failed = False
        self._downgraded_epoch = 0
        self._put_topic(_TOPICS[0])

    def _events(self) -> Sequence[tuple[int, Callable[[], None]]]:
        return (
            (6, self._come),
            (36, self._act_one),
            (16, self._act_all),
            (4, self._subscribe),
            (5, self._leave),
            (4, self._crash),
            (4, self._wake),
            (4, self._come_back),
            (4, self._change_topics),
            (14, self._pass_time),
            (2, self._reload),
        )

    # ---- clients

    def _topic_names(self) -> frozenset[str]:
        return frozenset(self._random.sample(_TOPICS, self._random.choice((1, 1, 2))))

    def _enter(self, instance_id: str | None) -> None:
        number, timeout_ms = next(self._numbers), self._random.choice(_REBALANCES_MS)
        client: AnyClient
        if self._is(self._classic_share):
            client = ClassicClient(
                name=f"c{number}",
                topics=self._topic_names(),
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=timeout_ms,
                instance_id=instance_id,
            )
        else:
            client = Client(
                member_id=f"m{number}",
                subscription=Subscription(self._topic_names()),
                timeout_ms=timeout_ms,
                instance_id=instance_id,
            )
        self.clients.append(client)
        self._act(client)

    def _act_one(self) -> None:
        client = self._chosen()
        if client is not None:
            self._act(client)

    def _subscribe(self) -> None:
        client = self._chosen()
        if isinstance(client, ClassicClient):
            client.subscribe(self._topic_names())
        elif client is not None:
            client.subscribe(Subscription(self._topic_names()))
        if client is not None:
            self._act(client)

    def _come_back(self) -> None:
        """A static client is started again, perhaps with the other protocol."""
        used = {each.instance_id for each in self._active()}
        found = sorted({each.instance_id for each in self.clients if each.instance_id} - used)
        if found:
            self._enter(self._random.choice(found))

    def _leave(self) -> None:
        client = self._chosen()
        if isinstance(client, ClassicClient):
            self._leave_classic(client)
        elif client is not None:
            has_joined = client.epoch != JOIN_EPOCH
            for_a_while = client.instance_id is not None and self._is(0.5)
            beat = client.leave(for_a_while=for_a_while)
            if has_joined:
                self._beat(client, beat, leaves=not for_a_while)

    # ---- requests

    def _act(self, client: AnyClient, *, is_calm: bool = False) -> None:
        """The next request of a client; its records may fail and its answer be lost."""
        if isinstance(client, Client):
            code = self._beat(client, client.beat(), is_calm=is_calm)
            self._hear_consumer(client, code)
            return
        client.notice(self.broker.image.topics)
        if client.is_waiting:
            return
        requests = {Phase.JOIN: self._join, Phase.SYNC: self._sync, Phase.HEARTBEAT: self._alive}
        requests[client.phase](client, is_calm=is_calm)

    def _beat(
        self, client: Client, beat: Beat, *, leaves: bool = False, is_calm: bool = False
    ) -> int:
        expected = self.model.codes_of_beat(beat)
        answer = self._failing(lambda: self.run.beat(**beat.fields), is_calm=is_calm)
        self._note(client, "beat", beat.epoch, answer.error_code, expected)
        self._follow(by=beat.member_id, leaves=leaves, is_consumer=True)
        if not is_calm and self._is(_IS_LOST):
            self.trace.append("  (the answer is lost)")
            client.miss()
        else:
            client.take(answer)
        code: int = answer.error_code
        return code

    def _hear_consumer(self, client: Client, code: int) -> None:
        if code == ErrorCode.NONE and client.member_id in self.model.view.members:
            member = self.model.view.members[client.member_id]
            is_level = member.epoch == self.model.view.epoch and not client.has_to_report
            self.model.hear(client.member_id, _SESSION_MS, client.timeout_ms, is_level=is_level)

    def _join(self, client: ClassicClient, *, is_calm: bool) -> None:
        expected = self.model.codes_of_join(client.member_id, client.instance_id)
        fields = client.join(self.broker.image.topics)
        answers = self._failing(lambda: self.run.join(**fields), is_calm=is_calm)
        self._asked(client, "join", answers, expected, is_calm=is_calm)

    def _sync(self, client: ClassicClient, *, is_calm: bool) -> None:
        key = (client.member_id, client.instance_id, client.generation_id)
        expected = self.model.codes_of_sync(*key)
        fields = client.sync(self.broker.image.topics)
        answers = self._failing(lambda: self.run.sync(**fields), is_calm=is_calm)
        self._asked(client, "sync", answers, expected, is_calm=is_calm)

    def _asked(
        self,
        client: ClassicClient,
        what: str,
        answers: list[Any],
        expected: Codes,
        *,
        is_calm: bool,
    ) -> None:
        """A request was sent; its answer has come, or will come."""
        client.answers = answers
        before, member_id = self.model.view, client.member_id
        seen_ms = self.model.seen_ms(member_id)
        code = answers[0].error_code if answers else None
        self._note(client, what, client.generation_id, code, expected)
        joined = [each.member_id for each in answers if what == "join"]
        self._follow(by=(joined or [client.member_id])[0], instance_id=client.instance_id)
        if answers and not is_calm and self._is(_IS_LOST):
            self.trace.append("  (the answer is lost)")
            client.answers = None
            if what == "sync":
                client.fail(ErrorCode.REBALANCE_IN_PROGRESS)
        self._deliver()
        if self._is_read_only(what, before):
            self.model.unsee(member_id, seen_ms)

    def _is_read_only(self, what: str, before: View) -> bool:
        """Whether a member was answered what a classic group has already: its session continues."""
        view, state = self.model.view, before.state
        is_same = not before.is_consumer and not view.is_consumer and before.epoch == view.epoch
        is_repeated = what == "join" and state is GroupState.COMPLETING_REBALANCE
        return is_same and (state is GroupState.STABLE or is_repeated)

    def _alive(self, client: ClassicClient, *, is_calm: bool) -> None:
        key = (client.member_id, client.instance_id, client.generation_id)
        expected = self.model.codes_of_heartbeat(*key)
        code = self._failing(
            lambda: self.run.heartbeat(
                client.member_id, client.generation_id, group_instance_id=client.instance_id
            ),
            is_calm=is_calm,
        )
        self._note(client, "heartbeat", client.generation_id, code, expected)
        self._follow()
        if code == ErrorCode.NONE:
            self._hear(client, is_level=self.model.view.epoch == client.generation_id)
        else:
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._hear(client, is_level=False)
            client.fail(code)

    def _leave_classic(self, client: ClassicClient) -> None:
        client.life, client.owned = Life.GONE, frozenset()
        if not client.member_id:
            return
        expected = self.model.codes_of_leave(client.member_id, client.instance_id)
        leaving = LeavingMember(client.member_id, client.instance_id)
        (answer,) = self.run.leave(leaving)
        self._note(client, "leave", client.generation_id, answer.error_code, expected)
        self._follow(by=client.member_id, leaves=True)

    def _failing(self, ask: Callable[[], Any], *, is_calm: bool) -> Any:
        """The answer of a request whose records may not be written."""
        self._has_failed = not is_calm and self._is(_FAILS)
        self._fail(fails=self._has_failed)
        answer = ask()
        self._fail(fails=False)
        return answer

    def _note(
        self, client: AnyClient, what: str, epoch: int, code: int | None, expected: Codes
    ) -> None:
        """Traces a request, and checks its error code."""
        fails, self._has_failed = self._has_failed, False
        said = "waits" if code is None else ErrorCode(code).name
        member_id = client.member_id or client.instance_id
        self.trace.append(f"{client.name} {what} {member_id} {epoch}{' fails' * fails}: {said}")
        allowed = expected | _UNWRITTEN if fails else expected
        assert code is None or code in allowed, f"the error code is none of {sorted(allowed)}"

    # ---- what follows

    def _deliver(self, at_ms: int | None = None) -> None:
        """Clients take the answers that have come since `at_ms`, and send nothing yet."""
        for client in self.clients:
            if not isinstance(client, ClassicClient) or not client.answers:
                continue
            if client.life is not Life.ACTIVE:
                client.answers = None  # it has not heard it
                client.fail(ErrorCode.REBALANCE_IN_PROGRESS)
                continue
            was_sync = client.phase is Phase.SYNC
            code = client.take(self._topic_ids())
            is_level = was_sync and self.model.view.epoch == client.generation_id
            self.trace.append(f"  {client.name} is answered {ErrorCode(code or 0).name}")
            if code == ErrorCode.NONE and client.member_id in self.model.view.members:
                self._hear(client, is_level=is_level, at_ms=at_ms)

    def _topic_ids(self) -> Mapping[str, UUID]:
        return {name: topic.topic_id for name, topic in self.broker.image.topics.items()}

    def _hear(self, client: ClassicClient, *, is_level: bool, at_ms: int | None = None) -> None:
        self.model.hear(
            client.member_id,
            client.session_timeout_ms,
            client.rebalance_timeout_ms,
            is_level=is_level,
            at_ms=at_ms,
        )

    def _follow(self, *, since_ms: int | None = None, **event: Any) -> None:
        """Compares the change of the group since a time with what the event may do."""
        self.run.groups.runtime.partitions.check_invariants()
        before = self.model.view
        view = view_of(self._described(ClassicGroup), self.consumer_group())
        if before.members and view.members and before.is_consumer is not view.is_consumer:
            self.moves.add("upgrade" if view.is_consumer else "downgrade")
            if not view.is_consumer:
                self._downgraded_epoch = view.epoch
        if not view.members:
            self._downgraded_epoch = 0  # the next group begins with generation 0
        self.model.follow(view, **event)
        for member_id in view.members.keys() - self.model.standing.keys():
            self.model.hear(member_id, _SESSION_MS, min(_REBALANCES_MS), is_level=False)
        if view != before:
            self.model.disturb(self.model.now_ms if since_ms is None else since_ms)

    def consumer_group(self) -> ConsumerGroup | None:
        """The consumer group as the coordinator has it."""
        return self._described(ConsumerGroup)

    # ---- topics, time, and the coordinator

    def _partitions_before(self, name: str) -> int:
        """A topic that is created again has no fewer partitions than before.

        Classic members name topics without their ids, and the uniform assignor fails, as Kafka's,
        if a member has a partition that its topic does not have.
        """
        return self._counts.get(name, 0)

    def _notify(self, name: str) -> None:
        super()._notify(name)
        self._counts[name] = max(self._counts.get(name, 0), super()._partitions_before(name))
        self.model.disturb(self.model.now_ms)

    def _advance(self, ms: int, *, fails: bool = False) -> None:
        self.trace.append(f"{ms} ms pass{' and fail' * fails}")
        self._pass(ms, fails=fails)
        begun_ms = self.model.now_ms
        self.model.now_ms += ms
        self._follow(since_ms=begun_ms, has_time_passed=True)
        self._deliver(begun_ms)

    def _reload(self) -> None:
        super()._reload()
        self.model.restart()
        self._follow()
        self._deliver()

    # ---- checks

    def check(self) -> None:
        """No partition has two owners that are members, by their own views."""
        owners: dict[tuple[UUID, int], str] = {}
        view = self.model.view
        for client in self.clients:
            member = view.members.get(client.member_id)
            if member is None or member.is_classic is not isinstance(client, ClassicClient):
                continue
            if isinstance(client, ClassicClient) and self._is_left_behind(client):
                continue
            for partition in client.owned:
                other = owners.setdefault(partition, client.name)
                assert other == client.name, f"{other} and {client.name} own {partition}"

    def _is_left_behind(self, client: ClassicClient) -> bool:
        """Whether a member that has not joined since may have what another has, as in Kafka.

        A classic group begins a generation without a static member that is away. A downgrade gives
        members their targets; if the group is upgraded again before they join, these are taken for
        what they have.
        """
        view, generation = self.model.view, client.generation_id
        is_away = client.instance_id is not None and not view.is_consumer
        return (is_away and generation != view.epoch) or generation < self._downgraded_epoch

    def _settle(self) -> None:
        self.trace.append("settle")
        self._change_static()
        self._come_to_rest()
        self._change_subscriptions()
        self._come_to_rest()
        self._check_rest()

    def _come_to_rest(self) -> None:
        before, rounds = None, 0
        while rounds <= _ROUNDS or before != self._state():
            before = self._state()
            self._advance(_BEAT_MS)
            for _ in range(_ACTS):
                for client in self._active():
                    self._act(client, is_calm=True)
                self.check()
            self._join_again_if_unassigned()
            rounds += 1
            assert rounds < _ROUNDS_MAX, "the group does not come to rest"

    def _change_static(self) -> None:
        """Static clients join with other metadata.

        One that has come back has the partitions of its predecessor, without a rebalance (KIP-345),
        even if it subscribes to other topics, or these have changed.
        """
        for client in self._active():
            if isinstance(client, ClassicClient) and client.instance_id is not None:
                client.change += 1
                client.rejoin()

    def _change_subscriptions(self) -> None:
        """Static consumers subscribe to other topics.

        One that upgrades the group in the place of a classic member with the same subscription
        begins no rebalance: all keep what they had, which is nothing before a SyncGroup, and the
        hash of the topics is that of now (ConsumerGroup.fromClassicGroup).
        """
        every = frozenset(_TOPICS)
        for client in self._active():
            if isinstance(client, Client) and client.instance_id is not None:
                names = every if client.subscription.names != every else frozenset(_TOPICS[:1])
                client.subscribe(Subscription(names))

    def _join_again_if_unassigned(self) -> None:
        """A client joins again if the group has no target assignment of its epoch.

        In a consumer group, heartbeats of classic members do not compute one: where only such
        members remain, it waits for a JoinGroup, as in Kafka.
        """
        view = self.model.view
        is_classic = all(each.is_classic for each in view.members.values())
        clients = [each for each in self._active() if isinstance(each, ClassicClient)]
        if view.is_consumer and is_classic and clients and view.assignment_epoch < view.epoch:
            self.trace.append(f"{clients[0].name} joins again")
            clients[0].rejoin()

    def _state(self) -> object:
        return (self.model.view, [(each.name, each.owned) for each in self._active()])

    def _check_rest(self) -> None:
        view = self.model.view
        may_enter = view.is_consumer or not view.is_classic or self.model.policy.upgrades
        lets_in = self.model.lets_classic_in
        inside = [
            each
            for each in self._active()
            if (lets_in if isinstance(each, ClassicClient) else may_enter)
        ]
        assert set(view.members) == {each.member_id for each in inside}, "members and clients"
        if inside and not view.is_consumer:
            assert view.state is GroupState.STABLE, f"the group is {view.state}"
        held = [partition for each in inside for partition in each.owned]
        assert len(held) == len(set(held)), "a client has what another has"
        assert set(held) == self._subscribed(inside), "what is subscribed to is assigned"
        self._reload()
        assert self.model.view == view, "a load finds another group"

    def _subscribed(self, clients: Sequence[AnyClient]) -> Partitions:
        return self._partitions_of(
            name
            for each in clients
            for name in (
                each.topics if isinstance(each, ClassicClient) else each.subscription.names
            )
        )
