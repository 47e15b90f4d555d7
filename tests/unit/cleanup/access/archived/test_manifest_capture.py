"""A log captured by its manifest is the log that its loader finds, with a few requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.archived.manifest_capture import ManifestCapture
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.request import CleanRequest, Resolved
from cordwood.cleanup.schedule.survey import survey
from cordwood.configs.log_config import LogConfig
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.model.clock import FixedClock
from cordwood.storage.archives.mount import mounted_archive
from support.archives import archive_in, archived
from support.golden import Golden
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, random_log

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
DAY_MS = 86_400_000


def captured_in(root: Path, config: LogConfig, *, now_ms: int = NOW_MS) -> list[Captured]:
    request = CleanRequest(
        log_dirs=(root,),
        resolve=lambda _: Resolved(config=config, origin={}),
        now_ms=now_ms,
        dry_run=True,
        producer_expiration_ms=DAY_MS,
    )
    found = survey(request, clock=FixedClock(now_ms))
    return [replace(each, warnings=()) for _, each in found.logs]


def require_equal(root: Path, config: LogConfig, *, now_ms: int = NOW_MS) -> None:
    by_manifest = captured_in(root, config, now_ms=now_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManifestCapture, "is_possible", property(lambda _: False))
        loaded = captured_in(root, config, now_ms=now_ms)
    assert by_manifest == loaded
    assert by_manifest


@pytest.mark.parametrize("has_active", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_manifest_says_what_the_loader_finds(
    tmp_path: Path, seed: int, *, has_active: bool
) -> None:
    log = random_log(seed, Contents(batches=60), name="t-0")
    archive = archive_in(tmp_path / "objects")
    archived(archive, write_log_dir(tmp_path / "logs", [log]), has_active=has_active)
    root = mounted_archive(archive.url).root
    require_equal(root, COMPACT)
    clean_in_process(root, {"t": COMPACT}, now_ms=NOW_MS, force=True)
    require_equal(mounted_archive(archive.url).root, COMPACT)


@pytest.mark.parametrize("stage", ["before", "after", "before-2", "after-2"])
def test_golden_archives_too(golden_a: Golden, tmp_path: Path, stage: str) -> None:
    archive = archive_in(tmp_path / "objects")
    archived(archive, golden_a.root / stage, has_active=True)
    with_snapshots = [each for each in archive.manifests() if each.segments and each.others]
    assert len(with_snapshots) > 20, "these are captured by their manifests"
    require_equal(
        mounted_archive(archive.url).root, COMPACT, now_ms=golden_a.made_at_2_ms + DAY_MS // 2
    )


def test_segments_are_not_opened(tmp_path: Path) -> None:
    requests = []
    for segments in (2, 40):
        log = LogBuilder("t-0")
        for number in range(segments):
            log.batch([(b"k", b"%d" % number)])
            log.roll()
        archive = archive_in(tmp_path / f"objects-{segments}")
        log_dir = write_log_dir(tmp_path / f"logs-{segments}", [log])
        snapshot = log_dir / "t-0" / f"{segments:020d}.snapshot"
        snapshot.write_bytes(build_producer_snapshot([]))
        archived(archive, log_dir)
        found = mounted_archive(archive.url)
        (captured,) = captured_in(found.root, COMPACT)
        assert len(captured.view.segments) == segments + 1
        requests.append(dict(found.archive.store.usage.requests))
    assert requests[0] == requests[1]
