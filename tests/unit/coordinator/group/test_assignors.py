"""The assignors "range" and "uniform": their rules one by one, and what holds for every group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from copy import deepcopy
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.coordinator.group.assignors.range_assignor import assign_range
from cordwood.coordinator.group.assignors.registry import ASSIGNORS, assign_uniform
from cordwood.coordinator.group.assignors.spec import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    are_equal,
    stored_assignment,
)
from cordwood.model.error_codes import ErrorCode

# In a table, topics with these ids are in this order.
A, B, C, D = (UUID(int=number) for number in range(1, 5))

Partitions = dict[UUID, list[int]]


def member(
    *topic_ids: UUID,
    has: Mapping[UUID, Collection[int]] | None = None,
    instance_id: str | None = None,
    name_count: int | None = None,
) -> MemberSpec:
    return MemberSpec(
        subscribed_topic_ids=topic_ids,
        subscribed_name_count=name_count,
        instance_id=instance_id,
        assignment=stored_assignment((has or {}).items()),
    )


def group(*, is_homogeneous: bool = True, **members: MemberSpec) -> GroupSpec:
    return group_of(members, is_homogeneous=is_homogeneous)


def group_of(members: Mapping[str, MemberSpec], *, is_homogeneous: bool) -> GroupSpec:
    assigned: dict[UUID, set[int]] = {}
    for each in members.values():
        for topic_id, partitions in each.assignment.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return GroupSpec(members=members, is_homogeneous=is_homogeneous, assigned=assigned)


def of_uniform(spec: GroupSpec, **counts: int) -> dict[str, Partitions]:
    return listed(assign_uniform(spec, by_id(counts).get))


def of_range(spec: GroupSpec, **counts: int) -> dict[str, Partitions]:
    return listed(assign_range(spec, by_id(counts).get))


def by_id(counts: Mapping[str, int]) -> dict[UUID, int]:
    ids = {"a": A, "b": B, "c": C, "d": D}
    return {ids[name]: count for name, count in counts.items()}


def listed(found: GroupAssignment) -> dict[str, Partitions]:
    return {
        member_id: {topic_id: list(partitions) for topic_id, partitions in assignment.items()}
        for member_id, assignment in found.items()
    }


def sizes(found: GroupAssignment | dict[str, Partitions]) -> dict[str, int]:
    return {each: sum(map(len, assignment.values())) for each, assignment in found.items()}


def test_a_group_may_ask_for_either_and_gets_uniform_by_default() -> None:
    assert list(ASSIGNORS.items()) == [("uniform", assign_uniform), ("range", assign_range)]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_no_members_have_no_assignment(assign: Assignor, is_homogeneous: bool) -> None:
    assert assign(group_of({}, is_homogeneous=is_homogeneous), lambda _: None) == {}


@pytest.mark.parametrize("count", [None, -1])
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_a_topic_that_is_not_there_is_an_error(count: int | None, is_homogeneous: bool) -> None:
    spec = group(m=member(A), is_homogeneous=is_homogeneous)
    with pytest.raises(PartitionAssignorError) as error:
        assign_range(spec, lambda _: count)
    assert str(error.value) == "Member is subscribed to a non-existent topic"
    with pytest.raises(PartitionAssignorError) as error:
        assign_uniform(spec, lambda _: count)
    assert str(error.value) == (
        "Members are subscribed to topic AAAAAAAAAAAAAAAAAAAAAQ which doesn't exist in the topic "
        "metadata."
    )
    assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


# ---- range


def test_range_gives_consecutive_partitions_and_the_first_members_one_more() -> None:
    found = of_range(group(z=member(A), x=member(A), y=member(A)), a=8)
    assert found == {"x": {A: [0, 1, 2]}, "y": {A: [3, 4, 5]}, "z": {A: [6, 7]}}


def test_range_splits_topics_of_one_size_alike() -> None:
    found = of_range(group(x=member(A, B), y=member(B, A)), a=3, b=3)
    assert found == {"x": {A: [0, 1], B: [0, 1]}, "y": {A: [2], B: [2]}}


def test_range_gives_nothing_to_members_behind_the_last_partition() -> None:
    found = of_range(group(x=member(A, B), y=member(A, B), z=member(A, B)), a=1, b=2)
    assert found == {"x": {A: [0], B: [0]}, "y": {B: [1]}, "z": {}}


def test_range_puts_static_members_first_in_the_order_of_their_instance_ids() -> None:
    spec = group(a=member(A), y=member(A, instance_id="2"), z=member(A, instance_id="1"))
    assert of_range(spec, a=3) == {"z": {A: [0]}, "y": {A: [1]}, "a": {A: [2]}}


def test_range_orders_members_as_java_orders_strings() -> None:
    # In UTF-16 the second begins with D83D.
    spec = group_of({"\uffee": member(A), "\U0001f600": member(A)}, is_homogeneous=True)
    assert of_range(spec, a=1) == {"\U0001f600": {A: [0]}, "\uffee": {}}


def test_range_divides_a_topic_among_its_subscribers_alone() -> None:
    spec = group(x=member(A), y=member(A, B), z=member(B), is_homogeneous=False)
    assert of_range(spec, a=3, b=2) == {
        "x": {A: [0, 1]},
        "y": {A: [2], B: [0]},
        "z": {B: [1]},
    }


def test_range_ignores_present_assignments() -> None:
    spec = group(x=member(A, has={A: [1]}), y=member(A, has={A: [0]}))
    assert of_range(spec, a=2) == {"x": {A: [0]}, "y": {A: [1]}}


def test_range_without_topics_gives_each_member_nothing() -> None:
    for is_homogeneous in (True, False):
        assert of_range(group(x=member(), is_homogeneous=is_homogeneous)) == {"x": {}}


# ---- uniform, all members subscribe to the same topics


def test_uniform_balances_all_topics_together() -> None:
    found = of_uniform(group(x=member(A, B), y=member(A, B), z=member(A, B)), a=2, b=6)
    assert found == {"x": {A: [0, 1]}, "y": {B: [0, 1, 2]}, "z": {B: [3, 4, 5]}}


def test_uniform_moves_only_what_a_new_member_gets() -> None:
    x, y = member(A, has={A: [0, 2, 4]}), member(A, has={A: [1, 3, 5]})
    found = of_uniform(group(x=x, y=y, z=member(A)), a=6)
    assert found == {"x": {A: [0, 2]}, "y": {A: [1, 3]}, "z": {A: [4, 5]}}


def test_uniform_leaves_the_extra_partition_with_a_member_that_has_it() -> None:
    x, y = member(A, has={A: [0, 1]}), member(A, has={A: [2, 3, 4]})
    spec = group(x=x, y=y)
    found = assign_uniform(spec, {A: 5}.get)
    assert found["x"] is x.assignment
    assert found["y"] is y.assignment


def test_uniform_gives_the_partitions_of_a_departed_member_to_the_others() -> None:
    x, y = member(A, has={A: [0, 1]}), member(A, has={A: [4, 5]})
    found = of_uniform(group(x=x, y=y), a=6)
    assert found == {"x": {A: [0, 1, 2]}, "y": {A: [3, 4, 5]}}


def test_uniform_drops_topics_without_subscribers() -> None:
    found = of_uniform(group(x=member(B, has={A: [0], B: [0]})), a=1, b=2)
    assert found == {"x": {B: [0, 1]}}


def test_uniform_assigns_new_partitions_of_a_topic() -> None:
    x, y = member(A, has={A: [0]}), member(A, has={A: [1]})
    assert of_uniform(group(x=x, y=y), a=4) == {"x": {A: [0, 2]}, "y": {A: [1, 3]}}


def test_uniform_takes_the_partitions_of_any_target_assignment_for_assigned() -> None:
    spec = GroupSpec(members={"x": member(A)}, is_homogeneous=True, assigned={A: {1}})
    assert of_uniform(spec, a=3) == {"x": {A: [0, 2]}}


def test_uniform_fails_if_partitions_that_are_not_there_take_up_the_quota() -> None:
    with pytest.raises(PartitionAssignorError, match=r"^Partitions were left unassigned$"):
        of_uniform(group(x=member(A, has={A: [7]})), a=1)


def test_uniform_without_topics_assigns_nothing() -> None:
    for is_homogeneous in (True, False):
        spec = group(x=member(has={A: [0]}), is_homogeneous=is_homogeneous)
        assert of_uniform(spec, a=1) == {}


def test_the_order_of_topics_depends_on_names_that_no_topic_has() -> None:
    late = UUID(int=17)
    for name_count, first in ((2, late), (12, B)):
        topics = (B, late)
        spec = group(x=member(*topics, name_count=name_count), y=member(*topics, name_count=2))
        found = assign_uniform(spec, {B: 1, late: 1}.get)
        assert listed(found)["x"] == {first: [0]}


# ---- uniform, members subscribe to different topics


def test_uniform_gives_partitions_to_the_subscriber_that_has_fewest() -> None:
    spec = group(x=member(A), y=member(A, B), is_homogeneous=False)
    assert of_uniform(spec, a=3, b=1) == {"x": {A: [0, 2]}, "y": {A: [1], B: [0]}}


def test_uniform_begins_with_the_topic_that_has_most_partitions_for_each_subscriber() -> None:
    spec = group(x=member(A, B), y=member(A, C), is_homogeneous=False)
    assert of_uniform(spec, a=1, b=2, c=1) == {"x": {B: [0, 1]}, "y": {A: [0], C: [0]}}
    assert of_uniform(spec, a=3, b=1, c=1) == {"x": {B: [0], A: [0, 2]}, "y": {C: [0], A: [1]}}


def test_uniform_compares_topic_ids_as_signed_numbers() -> None:
    negative = UUID(int=1 << 127)
    spec = group(x=member(A, negative), y=member(A, negative), is_homogeneous=False)
    assert listed(assign_uniform(spec, {A: 1, negative: 1}.get)) == {
        "x": {negative: [0]},
        "y": {A: [0]},
    }


def test_uniform_moves_the_last_partitions_of_those_with_most() -> None:
    x = member(A, has={A: [0, 1, 2, 3]})
    spec = group(x=x, y=member(A), z=member(A, B), is_homogeneous=False)
    assert of_uniform(spec, a=4, b=1) == {"x": {A: [0, 1]}, "y": {A: [2, 3]}, "z": {B: [0]}}


def test_uniform_leaves_alone_who_has_most_but_none_of_the_topic() -> None:
    x = member(A, B, has={A: [0, 1, 2, 3, 4, 5]})
    y, z = member(B, has={B: [0, 1, 2]}), member(B)
    found = of_uniform(group(x=x, y=y, z=z, is_homogeneous=False), a=6, b=3)
    assert found == {"x": {A: [0, 1, 2, 3, 4, 5]}, "y": {B: [0, 1]}, "z": {B: [2]}}


def test_uniform_is_content_if_the_subscribers_of_each_topic_differ_by_one() -> None:
    x = member(A, has={A: [0, 1]})
    y = member(A, B, has={A: [2], B: [0, 1]})
    z = member(B, has={B: [2, 3, 4, 5]})
    spec = group(x=x, y=y, z=z, is_homogeneous=False)
    found = assign_uniform(spec, {A: 3, B: 6}.get)
    assert all(found[each] is spec.members[each].assignment for each in "xyz")


def test_uniform_drops_what_a_member_no_longer_subscribes_to() -> None:
    x, y = member(B, has={A: [0, 1]}), member(A, B)
    found = of_uniform(group(x=x, y=y, is_homogeneous=False), a=2, b=2)
    assert found == {"x": {B: [0, 1]}, "y": {A: [0, 1]}}


def test_uniform_fails_at_partitions_that_are_not_there() -> None:
    spec = group(x=member(A, has={A: [3]}), y=member(B), is_homogeneous=False)
    with pytest.raises(PartitionAssignorError, match=r"^Index 3 out of bounds for length 2$"):
        of_uniform(spec, a=2, b=1)


# ---- orders and comparisons of assignments


def test_a_stored_assignment_has_the_order_of_new_tables() -> None:
    late = UUID(int=17)
    found = stored_assignment([(B, [33, 17, 2]), (late, [0])])
    assert list(found) == [late, B]
    assert found[B] == (33, 17, 2)
    assert stored_assignment([(B, list(range(20, 33)))])[B] == (32, *range(20, 32))


def test_assignments_are_equal_in_any_order() -> None:
    assert are_equal({A: (1, 2), B: range(2)}, {B: [1, 0], A: [2, 1]})
    assert not are_equal({A: (1,)}, {A: (2,)})
    assert not are_equal({A: (1,)}, {B: (1,)})
    assert not are_equal({A: (1,)}, {})


# ---- what holds for every group


@st.composite
def groups(
    draw: st.DrawFn, *, is_homogeneous: bool | None = None
) -> tuple[GroupSpec, dict[UUID, int]]:
    """A group with a present assignment in which no partition has two owners."""
    ids = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))
    counts = draw(st.dictionaries(ids, st.integers(0, 12), max_size=5))
    alike = draw(st.booleans()) if is_homogeneous is None else is_homogeneous
    names = draw(st.lists(st.text(max_size=3), min_size=1, max_size=8, unique=True))
    present: dict[str, Partitions] = {name: {} for name in names}
    for topic_id, count in counts.items():
        for partition in range(count):
            owner = draw(st.sampled_from([*names, None]))
            if owner is not None:
                present[owner].setdefault(topic_id, []).append(partition)
    topics = draw(st.permutations(list(counts)))
    chosen = topics[: draw(st.integers(0, len(topics)))]
    if not alike and topics:
        subscriptions = st.lists(st.sampled_from(topics), unique=True)
    else:
        subscriptions = st.just(chosen)
    members = {
        name: MemberSpec(
            subscribed_topic_ids=draw(subscriptions),
            instance_id=draw(st.sampled_from([None, f"static {name}"])),
            assignment=stored_assignment(present[name].items()),
        )
        for name in names
    }
    return group_of(members, is_homogeneous=alike), counts


def again(spec: GroupSpec, found: GroupAssignment) -> GroupSpec:
    """The group once its assignment is stored."""
    members = {
        member_id: MemberSpec(
            subscribed_topic_ids=each.subscribed_topic_ids,
            instance_id=each.instance_id,
            assignment=stored_assignment(found.get(member_id, {}).items()),
        )
        for member_id, each in spec.members.items()
    }
    return group_of(members, is_homogeneous=spec.is_homogeneous)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(drawn=groups())
def test_every_partition_has_one_owner_that_subscribes_to_it(
    assign: Assignor, drawn: tuple[GroupSpec, dict[UUID, int]]
) -> None:
    spec, counts = drawn
    before = deepcopy(spec)
    found = assign(spec, counts.get)
    assert spec == before, "the group was changed"
    owned = Counter(
        (topic_id, partition)
        for member_id, assignment in found.items()
        for topic_id, partitions in assignment.items()
        for partition in partitions
        if topic_id in spec.members[member_id].subscribed_topic_ids
    )
    subscribed = {each for one in spec.members.values() for each in one.subscribed_topic_ids}
    assert owned == {(each, p): 1 for each in subscribed for p in range(counts[each])}
    assert sum(sizes(found).values()) == owned.total()


@given(groups(is_homogeneous=True))
def test_members_with_the_same_topics_differ_by_one_partition_at_most(
    drawn: tuple[GroupSpec, dict[UUID, int]],
) -> None:
    spec, counts = drawn
    found = sizes(assign_uniform(spec, counts.get))
    assert max(found.values(), default=0) - min(found.values(), default=0) <= 1


@given(groups(is_homogeneous=True))
def test_a_member_keeps_what_it_has_up_to_its_quota(
    drawn: tuple[GroupSpec, dict[UUID, int]],
) -> None:
    spec, counts = drawn
    found = assign_uniform(spec, counts.get)
    topics = next(iter(spec.members.values())).subscribed_topic_ids
    quota = sum(counts[topic_id] for topic_id in topics) // len(spec.members)
    for member_id, each in spec.members.items():
        had = {(t, p) for t, partitions in each.assignment.items() for p in partitions}
        had = {(t, p) for t, p in had if t in topics}
        has = {(t, p) for t, ps in found.get(member_id, {}).items() for p in ps}
        assert len(had & has) >= min(len(had), quota)


@given(groups(is_homogeneous=False))
def test_subscribers_of_a_topic_with_two_partitions_more_have_none_of_it_to_give(
    drawn: tuple[GroupSpec, dict[UUID, int]],
) -> None:
    spec, counts = drawn
    found = assign_uniform(spec, counts.get)
    size = sizes(found)
    for topic_id in counts:
        subscribers = [m for m in found if topic_id in spec.members[m].subscribed_topic_ids]
        least = min((size[each] for each in subscribers), default=0)
        for each in subscribers:
            assert size[each] <= least + 1 or topic_id not in found[each]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(drawn=groups())
def test_an_assignment_that_is_computed_again_stays(
    assign: Assignor, drawn: tuple[GroupSpec, dict[UUID, int]]
) -> None:
    spec, counts = drawn
    found = assign(spec, counts.get)
    second = assign(again(spec, found), counts.get)
    assert found.keys() == second.keys()
    assert all(are_equal(found[each], second[each]) for each in found)
