from __future__ import annotations

from cordwood.surfaces.dump.java_map import JavaHashMap


def order(keys: list[str]) -> list[str]:
    found: JavaHashMap[list[int]] = JavaHashMap()
    for key in keys:
        found.compute_if_absent(key, list)
    return [key for key, _ in found.items()]


def test_single_letters_come_by_their_code() -> None:
    # "a".hashCode() is 97, and 97 & 15 is 1.
    assert order(["c", "p", "a", "b"]) == ["p", "a", "b", "c"]


def test_the_newest_of_a_bucket_comes_first() -> None:
    # "Aa" and "BB" have the same hash in Java.
    assert order(["Aa", "BB"]) == ["BB", "Aa"]


def test_the_table_doubles_at_the_call_after_three_quarters_are_passed() -> None:
    thirteen = list("defghijklmnop")
    assert order(thirteen) != order([*thirteen, "d"])
    assert order([*thirteen, "d"]) == sorted(thirteen)


def test_values_are_kept() -> None:
    found: JavaHashMap[list[int]] = JavaHashMap()
    for index in range(100):
        found.compute_if_absent(f"key {index % 30}", list).append(index)
    assert len(found) == 30
    assert dict(found.items())["key 7"] == [7, 37, 67, 97]
