"""The order of topics and members in the records of a target assignment, as in Java's tables."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest

from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import ConsumerMember
from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex
from cordwood.coordinator.group.consumer.target import new_target
from cordwood.coordinator.group.consumer.topics import TopicFacts

#: Both names are in one bucket of a small table, and both ids.
COLLIDING = {"beta": UUID(int=1 << 9), "gamma": UUID(int=1 << 10)}


@dataclass(frozen=True)
class FixedTopics:
    """Topics of one partition each; all ids are in the same bucket of a small table."""

    ids: dict[str, UUID]
    version: int = 0
    newest_topics_version: int = 0

    def names(self) -> list[str]:
        return list(self.ids)

    def by_name(self, name: str) -> TopicFacts | None:
        return TopicFacts(name, self.ids[name], ((),)) if name in self.ids else None

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return next((self.by_name(name) for name in self.ids if self.ids[name] == topic_id), None)


def assigned_topics(
    names: set[str], matched: set[str], named: tuple[str, ...] | None = None
) -> list[str]:
    topics = FixedTopics({name: UUID(int=16 * ord(name[0])) for name in "abcd"} | COLLIDING)
    group = ConsumerGroup("g")
    group.put_resolved("x", ResolvedRegex(frozenset(matched), 0, 0))
    member = ConsumerMember(member_id="m", topics=frozenset(names), regex="x", named=named)
    _, target = new_target(
        group, member, epoch=1, assignor="uniform", are_alike=True, topics=topics, now_ms=0
    )
    return [topic.name for topic in map(topics.by_id, target) if topic is not None]


def test_names_of_a_request_have_its_order() -> None:
    names = set(COLLIDING)
    assert assigned_topics(names, set()) == ["gamma", "beta"]
    assert assigned_topics(names, set(), ("gamma", "beta")) == ["beta", "gamma"]


def test_larger_of_names_and_matches_comes_first() -> None:
    # The first topic that is assigned comes last in its bucket.
    assert assigned_topics({"a"}, {"b", "c"}) == ["a", "c", "b"]
    assert assigned_topics({"b", "c"}, {"a"}) == ["a", "c", "b"]
    assert assigned_topics({"d"}, {"a"}) == ["d", "a"]


def test_topic_named_and_matched_is_assigned_once() -> None:
    assert assigned_topics({"b"}, {"a", "b", "c"}) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("member_id", "order"),
    [
        # A, a and q share one of 16 slots: q and a in the order of the group's table.
        ("A", "qaAbcdefghij"),
        ("o", "qabcdefghijo"),
    ],
)
def test_member_in_a_static_members_place_comes_last(member_id: str, order: str) -> None:
    group = ConsumerGroup("g")
    for each in "abcdefghijq":
        group.put_member(ConsumerMember(member_id=each))
    group.put_member(ConsumerMember(member_id="k", instance_id="i"))
    updated = ConsumerMember(member_id=member_id, instance_id="i")
    records, _ = new_target(
        group,
        updated,
        epoch=1,
        assignor="uniform",
        are_alike=True,
        topics=FixedTopics({}),
        now_ms=0,
    )
    assert "".join(record.name for record in records) == order


@pytest.mark.parametrize(("known", "written"), [([0], ""), ([], "m")])
def test_target_that_a_static_member_leaves_behind_is_not_written_again(
    known: list[int], written: str
) -> None:
    # As UpdatedMembersAndTargetAssignmentView: the one in its place has it already.
    topics = FixedTopics({"a": UUID(int=1)})
    group = ConsumerGroup("g")
    group.put_member(ConsumerMember(member_id="k", instance_id="i", topics=frozenset("a")))
    group.put_target("k", {UUID(int=1): known} if known else {})
    records, target = new_target(
        group,
        ConsumerMember(member_id="m", instance_id="i", topics=frozenset("a")),
        epoch=1,
        assignor="uniform",
        are_alike=True,
        topics=topics,
        now_ms=0,
    )
    assert {topic: list(each) for topic, each in target.items()} == {UUID(int=1): [0]}
    assert [record.name for record in records[:-1]] == list(written)
