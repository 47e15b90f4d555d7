"""The order in which a member's partitions are recorded, which is that of Kafka's maps."""

from __future__ import annotations

from uuid import UUID

import pytest

from cordwood.coordinator.group.consumer.member import ConsumerMember, MemberState
from cordwood.coordinator.group.consumer.reconcile import Reconciliation

# In a table of four buckets the first is in bucket 0, the next two in bucket 1, the last in 2.
TOPICS = [
    UUID("7ec6b2ed-b8aa-438e-8d81-b2c3d522f7a3"),
    UUID("3f0e22b3-b565-409b-a09f-8410960bac02"),
    UUID("8fa0a1eb-be33-46b8-ac6c-cc5ef03c0b03"),
    UUID("ace3ba2c-8aa0-4cd8-b97a-135b3ac8bd3c"),
]


@pytest.mark.parametrize(
    ("revoking", "order"),
    [
        # As java.util.HashMap (JDK 17) has them: a copy of two topics, the others merged into it.
        pytest.param([2, 3], [0, 1, 2, 3], id="a-table-of-four-holds-four"),
        pytest.param([], [3, 1, 0, 2], id="a-copy-of-nothing-has-sixteen-buckets"),
    ],
)
def test_topics_that_a_member_does_not_subscribe_to_any_more_are_recorded_in_kafkas_order(
    revoking: list[int], order: list[int]
) -> None:
    given_up = {TOPICS[number]: {0: 5} for number in revoking}
    member = ConsumerMember(
        member_id="m",
        member_epoch=5,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        assigned={topic: {0: 5} for topic in TOPICS if topic not in given_up},
        revoking=given_up,
    )
    step = Reconciliation(
        target_epoch=5,
        target={},
        subscribed=frozenset(),
        has_topics=True,
        has_subscription_changed=True,
        owned=None,
        partition_epoch=lambda topic, partition: -1,
    )
    after = step.of(member)
    assert after.state is MemberState.UNREVOKED_PARTITIONS
    assert not after.assigned
    assert [TOPICS.index(each) for each in after.revoking] == order
