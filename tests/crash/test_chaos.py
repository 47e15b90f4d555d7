"""Chaos: a broker is killed, its disk fills, its topics change, under load; Kafka reads the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.failing_disks import may_mount, small_disk
from support.soaks.chaos import Chaos

REASON = may_mount()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(bool(REASON), reason=REASON),
]


@pytest.mark.parametrize(
    ("seconds", "megabytes", "calm_s"),
    [
        pytest.param(20, 200, [0.5, 1, 2], id="short"),
        pytest.param(3600, 1200, [2, 5, 10, 30], marks=pytest.mark.nightly, id="hour"),
    ],
)
def test_nothing_is_lost_altered_or_duplicated(
    tmp_path: Path, kafka_jars: Path, seconds: int, megabytes: int, calm_s: list[float]
) -> None:
    del kafka_jars
    with small_disk(tmp_path / "disk", megabytes=megabytes) as disk:
        outcome = Chaos(disk, seed=seconds, calm_s=calm_s).run(seconds)
    print(outcome.summary())
    assert outcome.complaints == []
    assert outcome.acknowledged > 50 * seconds
    assert outcome.compactions > seconds // 60
