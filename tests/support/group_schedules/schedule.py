"""A random schedule of what happens to a group: clients, topics, time, failures, loads.

Every event is one of a client or of the cluster. After each one the coordinator's group is compared
with the model, and the clients' own views of their partitions with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from cordwood.coordinator.group.consumer.member import JOIN_EPOCH, HeartbeatAnswer
from cordwood.coordinator.group.settings import ConsumerGroupSettings
from cordwood.model.error_codes import ErrorCode
from support.group_scenarios.notation import names_text, partitions_text
from support.group_schedules.base import GroupSchedule, ScheduleParameters
from support.group_schedules.client import (
    Beat,
    Client,
    Partitions,
    Subscription,
    partitions_of,
)
from support.group_schedules.model import GroupModel
from support.groups_under_test import GroupRun

_TOPICS: Final = ("t", "u", "v")
#: Each matches a topic that always exists. If a member replaces its expression by one that matches
#: nothing, its partitions stay with it until the next rebalance, as in Kafka.
_REGEXES: Final = ("t", "[tu]", "[tv]|w")
_TIMEOUTS_MS: Final = (3_000, 8_000, 60_000)
_BEAT_MS: Final = 5_000
#: Rounds of heartbeats until every client that has crashed is removed, and all rounds at the end.
_SESSION_ROUNDS: Final = 10
_ROUNDS_MAX: Final = 60
_REPORTS_MAX: Final = 5
_FAILS, _IS_LOST, _IS_SLOW, _HAS_REGEX = 0.08, 0.15, 0.25, 0.25
_PARAMETERS: Final = ScheduleParameters(
    events=60,
    topics=_TOPICS,
    partitions_max=7,
    partitions_more=4,
    instances=("i", "j", "k"),
    steps_ms=(0, 200, 1_000, 3_000, 10_000),
    fails=_FAILS,
    is_static=0.4,
)


class Schedule(GroupSchedule[Client]):
    """A coordinator, the clients of one group, and the model of it."""

    def __init__(self, root: Path, seed: int) -> None:
        """`root` is for the log; the same seed makes the same schedule."""
        super().__init__(root, seed, _PARAMETERS)
        interval_ms = self._random.choice((0, 1_000))
        assignors = self._random.choice((("uniform", "range"), ("range",)))
        self._is_uniform = assignors[0] == "uniform"
        self.trace.append(f"assignors={assignors} interval={interval_ms}")
        settings = ConsumerGroupSettings(assignment_interval_ms=interval_ms, assignors=assignors)
        self.run = GroupRun(self.broker, consumer=settings)
        self.model = GroupModel(interval_ms)
        self._put_topic(_TOPICS[0])

    def _events(self) -> Sequence[tuple[int, Callable[[], None]]]:
        return (
            (6, self._come),
            (30, self._beat),
            (10, self._act_all),
            (8, self._subscribe),
            (4, self._leave),
            (5, self._leave_for_a_while),
            (5, self._crash),
            (6, self._wake),
            (4, self._come_back),
            (6, self._change_topics),
            (14, self._pass_time),
            (4, self._pass_session),
            (2, self._reload),
        )

    # ---- clients

    def _subscription(self) -> Subscription:
        """Draws a subscription; not all of the topics exist."""
        regex = self._random.choice(_REGEXES) if self._is(_HAS_REGEX) else ""
        count = self._random.choice((0, 0, 1) if regex else (1, 2, 2, 3))
        return Subscription(frozenset(self._random.sample(_TOPICS, count)), regex)

    def _enter(self, instance_id: str | None, subscription: Subscription | None = None) -> None:
        client = Client(
            member_id=f"m{next(self._numbers)}",
            subscription=subscription or self._subscription(),
            timeout_ms=self._random.choice(_TIMEOUTS_MS),
            instance_id=instance_id,
        )
        self.clients.append(client)
        self._act(client)

    def _act(self, client: Client) -> None:
        self._send(client)

    def _beat(self) -> None:
        client = self._chosen()
        if client is not None:
            self._send(client, is_slow=self._is(_IS_SLOW))

    def _subscribe(self) -> None:
        client = self._chosen()
        if client is not None:
            client.subscribe(self._subscription())
            self._send(client, is_slow=self._is(_IS_SLOW))

    def _send(self, client: Client, *, is_slow: bool = False, is_calm: bool = False) -> None:
        """A heartbeat, whose answer may be lost and whose records may fail, unless it is calm."""
        answer = self._ask(client.beat(is_slow=is_slow), is_calm=is_calm)
        if not is_calm and self._is(_IS_LOST):
            self.trace.append("  (the answer is lost)")
            client.miss()
        else:
            client.take(answer)

    def _ask(self, beat: Beat, *, is_calm: bool = False) -> HeartbeatAnswer:
        expected = self.model.codes(beat)
        fails = not is_calm and self._is(_FAILS)
        if fails:
            expected.add(ErrorCode.NOT_COORDINATOR)
        self._fail(fails=fails)
        answer = self.run.beat(**beat.fields)
        self._fail(fails=False)
        self.trace.append(f"{self._beat_text(beat)}{' fails' * fails}: {self._answer_text(answer)}")
        assert answer.error_code in expected, f"the error code is none of {expected}"
        if answer.error_code == ErrorCode.NONE:
            self.model.answered(beat, answer, self.group())
        self._match(fails=not is_calm and self._is(_FAILS))
        return answer

    def _match(self, *, fails: bool) -> None:
        """Expressions are matched, if that is due after a heartbeat."""
        self._fail(fails=fails)
        self.run.timers.advance(0)
        self._fail(fails=False)
        self.model.match(self.group())

    def _beat_text(self, beat: Beat) -> str:
        words = [beat.member_id, f"epoch={beat.epoch}"]
        if beat.instance_id is not None:
            words.append(f"instance={beat.instance_id}")
        if beat.subscription is not None:
            words.append(f"topics={names_text(beat.subscription.names)}")
            words.append(f"regex={beat.subscription.regex}")
        if beat.timeout_ms is not None:
            words.append(f"timeout={beat.timeout_ms}")
        if beat.owned is not None:
            words.append(f"owned={self._text(beat.owned)}")
        return " ".join(words)

    def _answer_text(self, answer: HeartbeatAnswer) -> str:
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        if answer.assignment is None:
            return f"epoch={answer.member_epoch}"
        assigned = self._text(partitions_of(answer.assignment))
        return f"epoch={answer.member_epoch} assigned={assigned}"

    def _text(self, partitions: Partitions) -> str:
        names = self.broker.image.topic_names
        topics: dict[str, list[int]] = {}
        for topic_id, number in partitions:
            topics.setdefault(names.get(topic_id, str(topic_id)), []).append(number)
        return partitions_text(topics.items())

    def _leave(self) -> None:
        client = self._chosen()
        if client is not None:
            self._end(client, for_a_while=False)

    def _leave_for_a_while(self) -> None:
        found = [each for each in self._active() if each.instance_id is not None]
        if found:
            self._end(self._random.choice(found), for_a_while=True)

    def _end(self, client: Client, *, for_a_while: bool) -> None:
        """A client ends; one that has not joined says nothing."""
        has_joined = client.epoch != JOIN_EPOCH
        beat = client.leave(for_a_while=for_a_while)
        if has_joined:
            self._ask(beat)

    def _come_back(self) -> None:
        """A static client is started again, perhaps after a crash, perhaps with other topics."""
        used = {each.instance_id for each in self._active()}
        found = [each for each in self.clients if each.instance_id and each.instance_id not in used]
        if found:
            before = self._random.choice(found)
            subscription = before.subscription if self._is(0.8) else self._subscription()
            self._enter(before.instance_id, subscription)

    # ---- topics

    def _notify(self, name: str) -> None:
        self.model.topics = self.broker.image.topics
        super()._notify(name)

    # ---- time, and the coordinator

    def _advance(self, ms: int, *, fails: bool = False) -> None:
        removed = list(self.model.advance(ms, fails=fails))
        self.trace.append(f"{ms} ms pass{' and fail' * fails}, removed: {removed}")
        self._pass(ms, fails=fails)

    def _pass_session(self) -> None:
        """Time for a session to end, in which all clients that can send heartbeats."""
        for _ in range(_SESSION_ROUNDS):
            self._round(fails=self._is(2 * _FAILS))
            self.check()

    def _round(self, *, fails: bool = False) -> None:
        self._advance(_BEAT_MS, fails=fails)
        for client in self._active():
            self._send(client, is_calm=True)
            for _ in range(_REPORTS_MAX):
                if client.has_to_report:  # it does not wait until the next round
                    self._send(client, is_calm=True)

    def _reload(self) -> None:
        super()._reload()
        self.model.reload()

    def group(self) -> ConsumerGroup | None:
        """The group as the coordinator has it."""
        return self._described(ConsumerGroup)

    # ---- checks

    def check(self) -> None:
        """Checks what holds after every event."""
        self.run.groups.runtime.partitions.check_invariants()
        self.model.compare(self.group())
        owners: dict[tuple[UUID, int], str] = {}
        for client in self.clients:
            member = self.model.members.get(client.member_id)
            if member is None or member.is_away:
                continue  # it was removed, and does not know that yet, or has left
            foreign = client.owned - member.held - member.revoking
            assert not foreign, f"{client.member_id} has {foreign}, which is not its own"
            for partition in client.owned:
                other = owners.setdefault(partition, client.member_id)
                assert other == client.member_id, f"{other} and {client.member_id}: {partition}"

    def _settle(self) -> None:
        """Without failures, until every session of a client that has crashed is over."""
        self.trace.append("settle")
        before, rounds = None, 0
        while rounds <= _SESSION_ROUNDS or before != self._state():
            before = self._state()
            self._round()
            self.check()
            rounds += 1
            assert rounds < _ROUNDS_MAX, "the group does not come to rest"
        self._check_rest()

    def _state(self) -> object:
        """All that a load of the group must find."""
        group = self.group()
        if group is None:
            return None
        return (
            *(group.epoch, group.metadata_hash, group.state),
            *(group.assignment_epoch, group.assignment_timestamp_ms),
            *(list(group.members()), group.targets, group.target_owners),
            *(group._static, group.subscriptions.topics, group.resolved),
        )

    def _check_rest(self) -> None:
        group, topics = self.group(), self.broker.image.topics
        active = {each.member_id: each for each in self._active()}
        assert set(self.model.members) == set(active), "the members are the clients"
        if group is None:
            return
        state = ConsumerGroupState.STABLE if active else ConsumerGroupState.EMPTY
        assert group.state is state, f"the group is {group.state}"
        held = [partition for each in active.values() for partition in each.owned]
        assert len(held) == len(set(held)), "a client has what another has"
        for regex, names in self.model.matched.items():
            assert names & topics.keys() == self.model.matches(regex), f"{regex} matches {names}"
        assert set(held) == self._subscribed(), "what is subscribed to is assigned"
        self._check_sizes(list(active.values()))
        before = self._state()
        self._reload()
        self.check()
        assert self._state() == before, "a load finds another state"

    def _subscribed(self) -> Partitions:
        return self._partitions_of(
            name for each in self._active() for name in self.model.names_of(each.subscription)
        )

    def _check_sizes(self, clients: Sequence[Client]) -> None:
        """Members with equal subscriptions have as many partitions, but for one."""
        for subscription in {each.subscription for each in clients}:
            alike = [each for each in clients if each.subscription == subscription]
            kinds = [Counter(topic_id for topic_id, _ in each.owned) for each in alike]
            sizes = [[count.total()] for count in kinds]
            if not self._is_uniform:  # range spreads each topic for itself
                names = self.model.names_of(subscription)
                known = [self.broker.image.topics.get(name) for name in names]
                ids = [topic.topic_id for topic in known if topic is not None]
                sizes = [[count[topic_id] for topic_id in ids] for count in kinds]
            for column in zip(*sizes, strict=True):
                assert max(column) - min(column) <= 1, f"sizes for {subscription}: {column}"
