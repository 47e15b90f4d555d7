"""The order in which groups are listed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood.coordinator.group.ids import GroupIds
from cordwood.coordinator.timeline import Timeline
from cordwood.format.java_map import string_hash


def ids_of(*group_ids: str) -> GroupIds:
    found = GroupIds(Timeline())
    for each in group_ids:
        found.put(each)
    return found


class Table:
    """Slots as org.apache.kafka.timeline.BaseHashTable has them, moved one by one as it grows."""

    def __init__(self) -> None:
        self.slots: list[list[str]] = [[], []]

    def slot_of(self, group_id: str) -> list[str]:
        hash_code = string_hash(group_id)
        if hash_code >= 2**31:
            hash_code -= 2**32
        mixed = hash_code * -7046029254386353131 % 2**64
        return self.slots[mixed >> (65 - len(self.slots).bit_length())]

    def put(self, group_id: str) -> None:
        size = sum(map(len, self.slots))
        if (size + 1) * 0.75 > len(self.slots):
            before = self.slots
            self.slots = [[] for _ in range(2 * len(before))]
            for each in before:
                for moved in each:
                    self.slot_of(moved).append(moved)
        if group_id not in self.slot_of(group_id):
            self.slot_of(group_id).append(group_id)

    def remove(self, group_id: str) -> None:
        if group_id in self.slot_of(group_id):
            self.slot_of(group_id).remove(group_id)

    def listed(self) -> list[str]:
        return [each for slot in self.slots for each in reversed(slot)]


def test_groups_are_in_the_order_that_kafkas_test_expects() -> None:
    """ListGroupsRequestTest, where it asks for the stable ones: grp-4 before grp-1."""
    found = ids_of(*(f"grp-{number}" for number in range(1, 7))).listed()
    assert [each for each in found if each in {"grp-1", "grp-4"}] == ["grp-4", "grp-1"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40))))
def test_the_order_is_that_of_a_table_of_slots(steps: list[tuple[bool, int]]) -> None:
    ids, table = GroupIds(Timeline()), Table()
    for is_put, number in steps:
        for changed in (ids, table):
            (changed.put if is_put else changed.remove)(f"group-{number}")
        assert ids.listed() == table.listed()


def test_of_groups_of_one_hash_the_newest_is_first() -> None:
    ids = ids_of("Aa", "BB")  # the same hash in Java
    assert ids.listed() == ["BB", "Aa"]
    ids.put("Aa")
    assert ids.listed() == ["BB", "Aa"]
    ids.remove("Aa")
    ids.put("Aa")
    assert ids.listed() == ["Aa", "BB"]


def test_what_is_not_committed_is_not_listed_and_what_is_reverted_is_gone() -> None:
    timeline = Timeline()
    ids = GroupIds(timeline)
    timeline.begin()
    ids.put("Aa")
    timeline.end(1)
    timeline.begin()
    ids.put("BB")
    ids.remove("Aa")
    timeline.end(2)
    assert [ids.listed(at) for at in (0, 1, 2)] == [[], ["Aa"], ["BB"]]
    timeline.begin()
    ids.put("Aa")
    ids.remove("BB")
    timeline.revert()
    assert ids.listed() == ["BB"]
