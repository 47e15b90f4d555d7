"""Logs that a real Kafka wrote, appended again: every file comes out as Kafka has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.cleanup.plan.request import Resolved
from cordwood.format.file_names import (
    CLUSTER_METADATA_DIR,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.settings import SettingOptions, read_settings
from support.golden import Golden
from support.replay import batches_of, replay


def _partitions(before: Path) -> list[Path]:
    return [d for d in sorted(before.iterdir()) if d.is_dir() and d.name != CLUSTER_METADATA_DIR]


@pytest.fixture(scope="module")
def resolve(golden_a: Golden) -> Callable[[str], Resolved | None]:
    return read_settings(SettingOptions(log_dirs=[golden_a.root / "before"])).resolve


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_replayed_batches_give_every_file_of_kafkas_byte_for_byte(
    golden_a: Golden, tmp_path: Path, resolve: Callable[[str], Resolved | None]
) -> None:
    before = golden_a.root / "before"
    starts = parse_offset_checkpoint((before / LOG_START_OFFSET_CHECKPOINT).read_bytes())
    compared: dict[str, int] = {}
    differing = []
    for source in _partitions(before):
        partition = TopicPartition.parse(source.name)
        found = resolve(partition.topic)
        assert found is not None, partition
        replayed = replay(
            source,
            tmp_path,
            config=found.config,
            now_ms=golden_a.made_at_ms,
            log_start_offset=starts.get(partition, 0),
        )
        ours, kafkas = _files(replayed.directory), _files(source)
        differing += [
            f"{source.name}/{name}"
            for name in sorted(ours.keys() | kafkas.keys())
            if ours.get(name) != kafkas.get(name)
        ]
        for name in kafkas:
            kind = name.rpartition(".")[2]
            compared[kind] = compared.get(kind, 0) + 1
    assert differing == []
    assert compared == {
        "log": 161,
        "index": 161,
        "timeindex": 161,
        "txnindex": 11,
        "snapshot": 160,
        "leader-epoch-checkpoint": 30,
        "metadata": 30,
    }


def test_a_follower_that_takes_the_same_batches_has_the_same_files(
    golden_a: Golden, tmp_path: Path, resolve: Callable[[str], Resolved | None]
) -> None:
    """But for the epoch of a leader that never wrote: a follower learns epochs from batches."""
    count = 0
    for source in _partitions(golden_a.root / "before"):
        found = resolve(TopicPartition.parse(source.name).topic)
        assert found is not None, source
        replayed = replay(
            source, tmp_path, config=found.config, now_ms=golden_a.made_at_ms, leader_epoch=None
        )
        ours, kafkas = _files(replayed.directory), _files(source)
        if source.name in {"empty-0", "delete-records-0"}:
            # No batch names an epoch; records were deleted later, which moves its start.
            ours.pop(LEADER_EPOCH_CHECKPOINT)
            kafkas.pop(LEADER_EPOCH_CHECKPOINT)
        assert ours.keys() == kafkas.keys(), source.name
        assert [name for name in ours if ours[name] != kafkas[name]] == [], source.name
        count += len(ours)
    assert count == 712


def test_the_batches_were_many_and_of_every_kind(golden_a: Golden) -> None:
    headers = [b.header for d in _partitions(golden_a.root / "before") for b in batches_of(d)]
    assert len(headers) > 3_000
    assert {h.codec.config_name for h in headers} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert any(h.is_control for h in headers)
    assert any(h.is_transactional and not h.is_control for h in headers)
    assert {h.timestamp_type for h in headers} == {"CreateTime", "LogAppendTime"}
