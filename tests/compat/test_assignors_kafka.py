"""Assignments of random groups against those of Kafka's own assignors."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from support.assignor_groups import JAVA_OF_ANOTHER_ORDER, random_cases, results_of_kafka

pytestmark = pytest.mark.kafka


@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize("number", [1200, pytest.param(60_000, marks=pytest.mark.nightly)])
def test_random_groups_get_the_assignments_of_kafka(number: int) -> None:
    """Topics and partitions in the same order, errors with the same text."""
    cases = random_cases(random.Random(848), number)
    java, of_kafka = results_of_kafka([case for case, _ in cases])
    assert len(of_kafka) == number
    kinds: Counter[tuple[str, bool, bool]] = Counter()
    for (case, ours), theirs in zip(cases, of_kafka, strict=True):
        if java >= JAVA_OF_ANOTHER_ORDER and case.depends_on_java:
            continue
        assert ours == theirs, "\n".join(case.lines())
        kinds[case.assignor, case.is_homogeneous, isinstance(theirs, str)] += 1
    for assignor in ("uniform", "range"):
        for is_homogeneous in (True, False):
            assert kinds[assignor, is_homogeneous, False] > number // 10, kinds
        assert kinds[assignor, True, True] + kinds[assignor, False, True] > 0, kinds
