"""Parts of remote segments: their files are those that Kafka makes of the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.tiered.local_tiered_storage import LocalTieredStorage
from cordwood.storage.tiered.tiered_files import TieredFile, TieredLog
from support.remote_segments import Segment, copied
from support.tiered_golden import TieredGolden

LOG, TOPIC_ID = TopicPartition("orders", 0), UUID(int=7)
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX)


def content(file: TieredFile) -> bytes:
    opened = file.opened()
    data = opened.read_at(opened.size(), 0)
    assert len(data) == file.size_bytes
    return data


class Segments:
    """Segments of a golden topic in remote storage, and runs of them joined into one."""

    def __init__(self, golden: TieredGolden, topic: str, root: Path) -> None:
        (self.source,) = golden.remote_dir.glob(f"{topic}-0-*")
        self.bases = sorted(int(each.name[:20]) for each in self.source.glob(f"*{LOG_SUFFIX}"))
        self.root = root

    def files(self, at: int) -> Mapping[str, bytes]:
        """The files that Kafka has copied of a segment, by suffix."""
        found = self.source.glob(f"{self.bases[at]:020d}-*")
        return {each.suffix: each.read_bytes() for each in found}

    def join(self, segment_id: UUID, numbers: Sequence[int]) -> Segment:
        """Puts a segment that another leader may have made; its indexes are not of use."""
        first, end = self.bases[numbers[0]], self.bases[numbers[-1] + 1]
        (segment,) = copied((segment_id, first, end - 1, {0: first})).readable()
        paths = LocalTieredStorage(self.root).files_of(LOG, TOPIC_ID, segment)
        stem = paths[LOG_SUFFIX].with_suffix("")
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix in SUFFIXES:
            parts = [self.files(each).get(suffix, b"") for each in numbers]
            data = parts[-1] if suffix == PRODUCER_SNAPSHOT_SUFFIX else b"".join(parts)
            stem.with_suffix(suffix).write_bytes(data)
        return segment_id, first, end - 1, {0: first}


@pytest.mark.parametrize("topic", ["also-local", "transactions"])
def test_parts_of_segments_are_as_kafka_would_have_rolled_them(
    golden: TieredGolden, tmp_path: Path, topic: str
) -> None:
    made = Segments(golden, topic, tmp_path / "remote")
    joined = [made.join(UUID(int=1), [0, 1]), made.join(UUID(int=2), [1, 2, 3])]
    directory = tmp_path / str(LOG)
    directory.mkdir()
    (directory / segment_file_name(made.bases[3], LOG_SUFFIX)).touch()
    (directory / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")

    def files(log_start: int | None) -> Mapping[str, TieredFile]:
        return TieredLog(
            log=LOG,
            topic_id=TOPIC_ID,
            directory=directory,
            remote=copied(*joined),
            storage=LocalTieredStorage(made.root),
            log_start=log_start,
        ).files()

    # Segment 2 is the second part: the first leader has copied 0 and 1, and 3 is local.
    found = files(None)
    logs = sorted(name for name in found if name.endswith(LOG_SUFFIX))
    assert logs == [segment_file_name(made.bases[at], LOG_SUFFIX) for at in (0, 2, 3)]
    expected = made.files(2)
    for suffix in SUFFIXES[:3]:
        file = found[segment_file_name(made.bases[2], suffix)]
        assert content(file) == expected[suffix], suffix
    aborted = found[segment_file_name(made.bases[2], TXN_INDEX_SUFFIX)]
    assert content(aborted) == expected.get(TXN_INDEX_SUFFIX, b"")
    assert (topic == "transactions") == bool(content(aborted))
    snapshot = found[segment_file_name(made.bases[2], PRODUCER_SNAPSHOT_SUFFIX)]
    assert content(snapshot) == made.files(1)[PRODUCER_SNAPSHOT_SUFFIX]
    assert segment_file_name(made.bases[4], PRODUCER_SNAPSHOT_SUFFIX) not in found
    assert set(files(made.bases[3])) == {LEADER_EPOCH_CHECKPOINT, logs[-1]}


@pytest.mark.parametrize("missing", ["epochs", "segments"])
def test_without_leader_epochs_or_segments_a_log_is_what_its_broker_has(
    tmp_path: Path, missing: str
) -> None:
    directory = tmp_path / str(LOG)
    directory.mkdir()
    name = LEADER_EPOCH_CHECKPOINT if missing == "segments" else segment_file_name(10, LOG_SUFFIX)
    (directory / name).write_text("0\n1\n0 0\n")
    log = TieredLog(
        log=LOG,
        topic_id=TOPIC_ID,
        directory=directory,
        remote=copied((UUID(int=1), 0, 9, {0: 0})),
        storage=LocalTieredStorage(tmp_path),
        log_start=0,
    )
    assert list(log.files()) == [name]
