"""A mapping of which changed copies share what did not change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood.metadata.persistent_map import PersistentMap

Keys = st.integers(0, 40)
Step = st.tuples(st.dictionaries(Keys, st.integers()), st.sets(Keys))


@given(st.dictionaries(st.integers(0, 400), st.integers(), max_size=300), st.lists(Step))
def test_it_is_what_a_dict_would_be_and_older_copies_stay(
    first: dict[int, int], steps: list[tuple[dict[int, int], set[int]]]
) -> None:
    expected = dict(first)
    versions = [(PersistentMap(first), dict(first))]
    for changes, gone in steps:
        for key in gone:
            expected.pop(key, None)
        expected.update(changes)
        versions.append((versions[-1][0].changed(changes, gone), dict(expected)))
    for found, wanted in versions:
        assert dict(found.items()) == wanted
        assert len(found) == len(wanted)
        assert found == wanted
        for key in range(41):
            assert (key in found) == (key in wanted)
            assert found.get(key) == wanted.get(key)


def test_one_change_of_many_copies_little() -> None:
    many = PersistentMap({number: object() for number in range(10_000)})
    changed = many
    for number in range(60):
        changed = changed.changed({number: object()}, {5000 + number})
    assert changed._shared is many._shared
    assert changed.differing(many) == {*range(60), *range(5000, 5060)}
    assert many.differing(many) == set()


def test_differences_are_found_after_everything_was_copied() -> None:
    many = PersistentMap({number: str(number) for number in range(10)})
    changed = many.changed({number: str(number) for number in range(5, 1000)}, {2})
    assert changed._shared is not many._shared
    assert changed.differing(many) == {2, *range(10, 1000)} | {
        number for number in range(5, 10) if changed[number] is not many[number]
    }


def test_keys_come_in_the_order_they_were_put_in() -> None:
    first = PersistentMap({"b": 1, "a": 2})
    changed = first.changed({"c": 3, "b": 4}).changed({}, {"a"}).changed({"a": 5})
    assert list(changed) == ["b", "a", "c"]
    assert list(first) == ["b", "a"]
