"""Complaints of the soak of clusters."""

from __future__ import annotations

import pytest

from support.soaks.cluster_transactions import Outcome, Transactions
from support.soaks.replicas import Dump, difference


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [(Outcome.COMMITTED, {2}), (Outcome.ABORTED, {0}), (Outcome.UNKNOWN, {0, 2})],
)
def test_transactions_are_whole(outcome: Outcome, counts: set[int]) -> None:
    transactions = Transactions(2)
    transactions.outcomes[5] = outcome
    for count in range(3):
        read = [b"[5, %d]" % part for part in range(count)]
        assert (transactions.complaints({0: read}) == []) is (count in counts)


def test_a_record_of_a_transaction_that_is_there_twice_is_reported() -> None:
    transactions = Transactions(2)
    transactions.outcomes[5] = Outcome.COMMITTED
    (found,) = transactions.complaints({0: [b"[5, 0]", b"[5, 0]"], 1: [b"[5, 1]"]})
    assert found == "transaction 5: 2 times in 0"


def dump_of(*records: tuple[int, str, str]) -> Dump:
    found = Dump()
    for offset, key, value in records:
        found.batches[offset] = [f"{key}={value}"]
        found.records.setdefault(key, []).append((offset, value))
    return found


def test_replicas_may_differ_below_the_checkpoint_but_in_the_newest_values() -> None:
    whole = dump_of((0, "a", "1"), (1, "a", "2"), (2, "b", "3"))
    cleaned = dump_of((1, "a", "2"), (2, "b", "3"))
    assert difference({1: whole, 2: cleaned}, 0) != ""
    assert difference({1: whole, 2: cleaned}, 2) == ""
    assert difference({1: whole, 2: dump_of((1, "a", "2"), (2, "b", "4"))}, 2) != ""
    assert difference({1: whole, 2: dump_of((0, "a", "1"), (2, "b", "3"))}, 2) != ""
