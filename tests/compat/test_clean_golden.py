"""`cordwood clean` on golden directories leaves what Kafka's own cleaner left, topic by topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.archives import archive_in, archived, restored
from support.clean import digest_tree, run_clean
from support.compare import require_alike
from support.golden import Golden
from support.kafka_programs import KAFKA_VERSIONS

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("kafka_jars")]

SEEDS = (11, 23, 47, 101, 1009)


@pytest.mark.parametrize("round_number", [1, 2])
def test_each_golden_topic_agrees_with_kafka(
    golden_a: Golden, copy_of: Callable[[Path], Path], round_number: int
) -> None:
    suffix = "" if round_number == 1 else "-2"
    now_ms = golden_a.cleaned_at_ms if round_number == 1 else golden_a.cleaned_at_2_ms
    cleaned = copy_of(golden_a.root / f"before{suffix}")
    run_clean([cleaned], now_ms=now_ms)
    assert len(require_alike(cleaned, golden_a.root / f"after{suffix}")) == 26


def test_second_run_with_the_same_now_changes_no_byte(
    golden_a: Golden, copy_of: Callable[[Path], Path]
) -> None:
    cleaned = copy_of(golden_a.root / "before")
    now_ms = golden_a.cleaned_at_ms
    run_clean([cleaned], now_ms=now_ms)
    once = digest_tree(cleaned)
    run_clean([cleaned], now_ms=now_ms)
    assert digest_tree(cleaned) == once


@pytest.mark.nightly
@pytest.mark.rotated
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("kafka_4_4_jars")
def test_golden_directories_made_anew_agree_with_kafka(
    tmp_path: Path, copy_of: Callable[[Path], Path], seed: int, version: str
) -> None:
    golden = Golden.make(tmp_path / "golden", seed=seed, version=version)
    for suffix, now_ms in (("", golden.cleaned_at_ms), ("-2", golden.cleaned_at_2_ms)):
        cleaned = copy_of(golden.root / f"before{suffix}")
        run_clean([cleaned], now_ms=now_ms)
        after = golden.root / f"after{suffix}"
        require_alike(cleaned, after, except_for=golden.cleaned_first, include_internal=True)


@pytest.mark.parametrize("round_number", [1, 2])
def test_an_archive_that_is_cleaned_and_restored_agrees_with_kafka(
    golden_a: Golden, tmp_path: Path, round_number: int
) -> None:
    suffix = "" if round_number == 1 else "-2"
    now_ms = golden_a.cleaned_at_ms if round_number == 1 else golden_a.cleaned_at_2_ms
    archive = archive_in(tmp_path / "archive")
    archived(archive, golden_a.root / f"before{suffix}", has_active=True)
    run_clean([archive.url], now_ms=now_ms)
    assert restored(archive, tmp_path / "restored").is_complete
    after = golden_a.root / f"after{suffix}"
    assert len(require_alike(tmp_path / "restored", after)) == 26
