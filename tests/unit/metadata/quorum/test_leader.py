"""The leader of the metadata quorum beside real observers: each gets the leader's log."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cordwood.controller.controller import Controller
from cordwood.metadata.controller_requests import NewTopic
from cordwood.metadata.quorum.leader import QuorumLeader, ReplicaKey
from cordwood.metadata.quorum.observer import LogEnd, OffsetAndEpoch
from cordwood.metadata.records import image_records
from cordwood.metadata.snapshot_file import snapshot_batches, write_snapshot
from cordwood.model.error_codes import ErrorCode
from support.controller_under_test import NODE_ID, ControllerUnderTest, requests_to

OBSERVER = ReplicaKey(7, uuid.UUID(int=7 << 70))
MAX = 1 << 20


class Quorum:
    """A controller, and its log as others fetch it."""

    def __init__(self, root: Path) -> None:
        self.place = ControllerUnderTest(root / "d")
        self.controller: Controller = self.place.serve()
        self.leader = self._leader()

    def _leader(self) -> QuorumLeader:
        return QuorumLeader(self.controller.log, node_id=NODE_ID, now_ms=self.place.clock.now_ms)

    def restart(self) -> None:
        self.controller = self.place.restarted(self.controller)
        self.leader = self._leader()

    @property
    def epoch(self) -> int:
        return self.controller.log.epoch

    @property
    def end(self) -> int:
        return self.controller.log.end_offset

    def write_snapshot(self) -> OffsetAndEpoch:
        image = self.controller.image
        batches = snapshot_batches(
            image_records(image), epoch=image.epoch, now_ms=0, last_contained_ms=0
        )
        write_snapshot(self.place.directory, image.next_offset, image.epoch, batches, self.place.fs)
        return OffsetAndEpoch(image.next_offset, image.epoch)


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    return Quorum(tmp_path)


def at(offset: int, epoch: int) -> LogEnd:
    return LogEnd(offset=offset, epoch=epoch, high_watermark=offset)


def test_a_node_without_records_gets_the_log_from_its_beginning(quorum: Quorum) -> None:
    answer = quorum.leader.fetch(OBSERVER, quorum.epoch, at(0, 0), MAX)
    assert answer.error is ErrorCode.NONE
    assert answer.records == (quorum.place.directory / f"{0:020}.log").read_bytes()
    assert answer.high_watermark == quorum.end
    assert not quorum.leader.fetch(OBSERVER, quorum.epoch, at(quorum.end, 1), MAX).records


def test_the_first_batch_comes_whole(quorum: Quorum) -> None:
    assert quorum.leader.fetch(OBSERVER, quorum.epoch, at(0, 0), 1).records


@pytest.mark.parametrize(
    ("epoch", "end", "error"),
    [
        (0, at(0, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (2, at(0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, at(5, 2), ErrorCode.INVALID_REQUEST),
        (1, at(-1, 0), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_node_that_knows_another_epoch_is_refused(
    quorum: Quorum, epoch: int, end: LogEnd, error: ErrorCode
) -> None:
    answer = quorum.leader.fetch(OBSERVER, epoch, end, MAX)
    assert (answer.error, answer.leader) == (error, (NODE_ID, 1))
    assert not answer.records


def test_a_log_that_differs_is_cut_off_where_the_two_part(quorum: Quorum) -> None:
    first_end = quorum.end
    quorum.restart()
    ended = quorum.controller.log.end_of_epoch(1).end_offset
    assert ended >= first_end
    longer = quorum.leader.fetch(OBSERVER, 2, at(ended + 5, 1), MAX)
    assert longer.diverging == OffsetAndEpoch(ended, 1)
    beyond = quorum.leader.fetch(OBSERVER, 2, at(quorum.end + 5, 2), MAX)
    assert beyond.diverging == OffsetAndEpoch(quorum.end, 2)


def test_a_node_without_records_gets_the_snapshot_if_there_is_one(quorum: Quorum) -> None:
    requests_to(quorum.controller).create_topics([NewTopic(name="t")])
    written = quorum.write_snapshot()
    answer = quorum.leader.fetch(OBSERVER, quorum.epoch, at(0, 0), MAX)
    assert (answer.snapshot_id, answer.records) == (written, b"")
    data = b""
    while True:
        part = quorum.leader.fetch_snapshot(quorum.epoch, written, len(data), 100)
        assert part.error is ErrorCode.NONE
        data += part.data
        if len(data) == part.size_bytes:
            break
    (name,) = quorum.place.snapshots()
    assert data == (quorum.place.directory / name).read_bytes()
    # One with records goes on in the log.
    assert quorum.leader.fetch(OBSERVER, quorum.epoch, at(5, 1), MAX).snapshot_id is None


def test_what_is_no_part_of_a_snapshot_is_refused(quorum: Quorum) -> None:
    written = quorum.write_snapshot()
    missing = OffsetAndEpoch(written.offset - 1, written.epoch)
    assert quorum.leader.fetch_snapshot(1, missing, 0, MAX).error is ErrorCode.SNAPSHOT_NOT_FOUND
    size = quorum.leader.fetch_snapshot(1, written, 0, MAX).size_bytes
    for position in (-1, size):
        answer = quorum.leader.fetch_snapshot(1, written, position, MAX)
        assert answer.error is ErrorCode.POSITION_OUT_OF_RANGE


def test_the_quorum_names_those_that_follow_and_how_far_they_are(quorum: Quorum) -> None:
    quorum.place.clock.advance(1000)
    end = quorum.end
    quorum.leader.fetch(OBSERVER, 1, at(end - 1, 1), MAX)
    (one,) = quorum.leader.observers()
    assert (one.replica_id, one.log_end_offset, one.last_caught_up_ms) == (7, end - 1, -1)
    quorum.place.clock.advance(1000)
    quorum.leader.fetch(OBSERVER, 1, at(end, 1), MAX)
    (one,) = quorum.leader.observers()
    now_ms = quorum.place.clock.now_ms()
    assert (one.log_end_offset, one.last_fetch_ms, one.last_caught_up_ms) == (end, now_ms, now_ms)
    quorum.place.clock.advance(300_001)
    assert quorum.leader.observers() == ()
