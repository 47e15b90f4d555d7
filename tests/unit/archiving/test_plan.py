"""Plans of a run that archives, as cases and as random histories of a log."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.archiving.plan import (
    NO_EPOCH,
    ArchivePlan,
    DivergedArchiveError,
    LocalLog,
    LocalSegment,
    epoch_of,
    plan_archive,
)
from cordwood.storage.archives.manifest import ArchiveManifest, LeaderEpoch
from support.archives import archived_segment, manifest_of

FIRST: Final = (LeaderEpoch(epoch=0, start_offset=0),)


def local_segment(
    base: int, after: int, *, is_active: bool = False, size: int = 10
) -> LocalSegment:
    return LocalSegment(
        path=f"/data/t-0/{base:020d}.log",
        base_offset=base,
        next_base_offset=after,
        size_bytes=size,
        modified_ns=1,
        largest_timestamp=-1,
        is_active=is_active,
    )


def local(
    *bounds: int,
    active: bool = False,
    start: int | None = None,
    epochs: tuple[LeaderEpoch, ...] = FIRST,
    size: int = 10,
) -> LocalLog:
    """The log whose segments have these bounds; the last of them may be the active one."""
    segments = [local_segment(base, after, size=size) for base, after in pairwise(bounds)]
    if active:
        segments[-1] = replace(segments[-1], is_active=True)
    return LocalLog(
        segments=tuple(segments),
        log_start_offset=start if start is not None else (bounds[0] if bounds else 0),
        cleaner_offset=None,
        leader_epochs=epochs,
    )


def in_archive(
    *bounds: int,
    active: bool = False,
    start: int | None = None,
    end: int = 0,
    epochs: tuple[LeaderEpoch, ...] = FIRST,
) -> ArchiveManifest:
    """The manifest whose segments have these bounds."""
    return manifest_of(
        *(archived_segment(base, after) for base, after in pairwise(bounds)),
        has_active_segment=active,
        log_start_offset=start if start is not None else (bounds[0] if bounds else 0),
        end_offset=bounds[-1] if bounds else end,
        leader_epochs=epochs,
    )


def bases(plan: ArchivePlan) -> tuple[list[int], list[int], int, int]:
    """Bases that stay, and that are copied, and the offsets that the archive then has."""
    return (
        [each.base_offset for each in plan.kept],
        [each.base_offset for each in plan.copied],
        plan.log_start_offset,
        plan.end_offset,
    )


@pytest.mark.parametrize(
    ("log", "archived", "expected"),
    [
        pytest.param(local(0, 10, 20), None, ([], [0, 10], 0, 20), id="the first time"),
        pytest.param(local(5, 10, start=7), None, ([], [5], 7, 10), id="the first time, from 7"),
        pytest.param(local(), None, ([], [], 0, 0), id="an empty log"),
        pytest.param(local(start=9), None, ([], [], 9, 9), id="an empty log that begins at 9"),
        pytest.param(
            local(0, 10, 20, 30), in_archive(0, 10, 20), ([0, 10], [20], 0, 30), id="what is new"
        ),
        pytest.param(
            local(0, 10, 20), in_archive(0, 10, 20), ([0, 10], [], 0, 20), id="nothing is new"
        ),
        pytest.param(
            local(), in_archive(0, 10, 20), ([0, 10], [], 0, 20), id="the log was emptied"
        ),
        pytest.param(
            local(10, 20, 30), in_archive(0, 10, 20), ([0, 10], [20], 0, 30), id="less retained"
        ),
        pytest.param(
            local(20, 30), in_archive(0, 10, 20), ([0, 10], [20], 0, 30), id="all others deleted"
        ),
        pytest.param(
            local(25, 30), in_archive(0, 10, 20), ([0, 10], [25], 0, 30), id="some never archived"
        ),
        pytest.param(local(25, 30), in_archive(end=20), ([], [25], 0, 30), id="none archived"),
        pytest.param(
            local(0, 20, 30), in_archive(0, 10, 20), ([0, 10], [20], 0, 30), id="compacted since"
        ),
        pytest.param(
            local(0, 30), in_archive(0, 10, 20), ([], [0], 0, 30), id="all compacted into one"
        ),
        pytest.param(
            local(10, 30, 40),
            in_archive(0, 10, 20),
            ([0], [10, 30], 0, 40),
            id="compacted over the end of the archive",
        ),
        pytest.param(
            local(12, 40),
            in_archive(0, 10, 11, 13, 20, start=3),
            None,
            id="begins inside an archived segment",
        ),
        pytest.param(
            local(0, 10, 15, active=True, size=99),
            in_archive(0, 10, 13, active=True),
            ([0], [10], 0, 15),
            id="the active one has grown",
        ),
        pytest.param(
            local(0, 10, 13, active=True),
            in_archive(0, 10, 13, active=True),
            ([0, 10], [], 0, 13),
            id="the active one is as it was",
        ),
        pytest.param(
            local(0, 10, 20, 22, active=True),
            in_archive(0, 10, 13, active=True),
            ([0], [10, 20], 0, 22),
            id="the active one was closed",
        ),
        pytest.param(
            local(0, 10, 13),
            in_archive(0, 10, 13, active=True),
            ([0], [10], 0, 13),
            id="the active one was closed at once",
        ),
        pytest.param(
            local(0, 10),
            in_archive(0, 10, 13, active=True),
            ([0, 10], [], 0, 13),
            id="the active one is not looked at",
        ),
        pytest.param(
            local(0, 20, 30),
            in_archive(0, 10, 13, active=True),
            ([], [0, 20], 0, 30),
            id="the active one was closed and compacted",
        ),
        pytest.param(
            local(20, 30),
            in_archive(0, 10, 13, active=True),
            ([0, 10], [20], 0, 30),
            id="the active one was closed and deleted",
        ),
        pytest.param(
            local(0, 10, 12, active=True),
            in_archive(0, 10, 13, active=True),
            ([0, 10], [], 0, 13),
            id="the active one was truncated",
        ),
        pytest.param(
            local(0, 10, 10, active=True),
            in_archive(0, 10, 10, active=True),
            ([0, 10], [], 0, 10),
            id="the active one is empty still",
        ),
        pytest.param(
            local(0, 10, 14, active=True, size=99),
            in_archive(0, 10, 10, active=True),
            ([0], [10], 0, 14),
            id="the active one was empty",
        ),
        pytest.param(
            local(0, 2_147_483_000, 4_294_967_000, 4_294_967_001, active=True),
            in_archive(0, 2_147_483_000),
            ([0], [2_147_483_000, 4_294_967_000], 0, 4_294_967_001),
            id="offsets far apart",
        ),
    ],
)
def test_plans(
    log: LocalLog,
    archived: ArchiveManifest | None,
    expected: tuple[list[int], list[int], int, int] | None,
) -> None:
    if expected is None:
        with pytest.raises(DivergedArchiveError, match="t-0: its segment 12 begins inside"):
            plan_archive(log, archived, name="t-0")
        return
    plan = plan_archive(log, archived, name="t-0")
    assert bases(plan) == expected
    assert plan.copied_bytes == sum(each.size_bytes for each in plan.copied)


@pytest.mark.parametrize(
    ("log", "archived", "gap"),
    [
        (local(25, 30), in_archive(0, 20), (20, 25)),
        (local(25, 30), in_archive(end=20), (20, 25)),
        (local(20, 30), in_archive(0, 20), None),
        (local(10, 30), in_archive(0, 10, 20), None),
        (local(25, 30), None, None),
        (local(), in_archive(0, 20), None),
    ],
)
def test_offsets_that_were_deleted_before_they_were_archived_are_told(
    log: LocalLog, archived: ArchiveManifest | None, gap: tuple[int, int] | None
) -> None:
    assert plan_archive(log, archived, name="t-0").gap == gap


def epochs(*starts: tuple[int, int]) -> tuple[LeaderEpoch, ...]:
    return tuple(LeaderEpoch(epoch=epoch, start_offset=start) for epoch, start in starts)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (epochs((0, 0), (2, 15)), epochs((0, 0), (1, 15))),
        (epochs((0, 0), (2, 15)), epochs((0, 0))),
        (epochs((3, 0)), epochs((4, 0))),
    ],
)
def test_a_log_of_another_leader_is_refused(
    here: tuple[LeaderEpoch, ...], there: tuple[LeaderEpoch, ...]
) -> None:
    log, archived = local(0, 10, 20, 30, epochs=here), in_archive(0, 10, 20, epochs=there)
    with pytest.raises(DivergedArchiveError, match="t-0: offset 19 is of leader epoch"):
        plan_archive(log, archived, name="t-0")


@pytest.mark.parametrize(
    ("here", "there", "joined"),
    [
        (epochs((0, 0), (1, 15), (2, 25)), epochs((0, 0), (1, 15)), [(0, 0), (1, 15), (2, 25)]),
        (epochs((1, 18), (2, 30)), epochs((0, 0), (1, 15)), [(0, 0), (1, 15)]),
        (epochs((0, 0)), epochs(), [(0, 0)]),
        (epochs(), epochs((0, 0), (1, 15)), [(0, 0), (1, 15)]),
    ],
)
def test_leader_epochs_of_both_are_joined(
    here: tuple[LeaderEpoch, ...],
    there: tuple[LeaderEpoch, ...],
    joined: list[tuple[int, int]],
) -> None:
    log, archived = local(0, 10, 20, 30, epochs=here), in_archive(0, 10, 20, epochs=there)
    plan = plan_archive(log, archived, name="t-0")
    assert [(each.epoch, each.start_offset) for each in plan.leader_epochs] == joined


def test_the_first_plan_has_the_epochs_of_what_is_copied() -> None:
    log = local(0, 10, 20, epochs=epochs((0, 0), (1, 19), (2, 20)))
    plan = plan_archive(log, None, name="t-0")
    assert [(each.epoch, each.start_offset) for each in plan.leader_epochs] == [(0, 0), (1, 19)]


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, NO_EPOCH), (4, NO_EPOCH), (5, 1), (8, 1), (9, 3), (1 << 40, 3)]
)
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epoch_of(epochs((1, 5), (3, 9)), offset) == epoch


# ---- random histories


class Log:
    """A log whose segments have bounds and the offsets that are left of its records."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.bounds = [0, 0]
        self.records: dict[int, int] = {}
        self.epochs = [(0, 0)]
        self.version = 0

    @property
    def end(self) -> int:
        return self.bounds[-1]

    def append(self) -> None:
        """Records at the end, some of them after a gap."""
        for _ in range(self.rng.randint(1, 5)):
            at = self.end + self.rng.choice([0, 0, 0, 3, 1 << 31])
            self.records[at] = at
            self.bounds[-1] = at + 1

    def roll(self) -> None:
        if self.bounds[-1] > self.bounds[-2]:
            self.bounds.append(self.end)

    def compact(self) -> None:
        """Some of the closed segments lose records; groups of them become one."""
        closed = len(self.bounds) - 2
        if closed < 1:
            return
        first = self.rng.randrange(closed)
        after = self.rng.randint(first + 1, closed)
        low, high = self.bounds[first], self.bounds[after]
        for offset in [each for each in self.records if low <= each < high]:
            if self.rng.random() < 0.5:
                del self.records[offset]
        del self.bounds[first + 1 : after]

    def delete_oldest(self) -> None:
        if len(self.bounds) > 2:
            del self.bounds[0]
            for offset in [each for each in self.records if each < self.bounds[0]]:
                del self.records[offset]

    def new_leader(self) -> None:
        epoch = self.epochs[-1][0] + 1
        self.epochs = [each for each in self.epochs if each[1] < self.end]
        self.epochs.append((epoch, self.end))

    def seen(self, *, has_active: bool) -> LocalLog:
        bounds = self.bounds if has_active else self.bounds[:-1]
        segments = [
            local_segment(
                base,
                after,
                is_active=has_active and after == self.end and number == len(bounds) - 2,
                size=sum(base <= each < after for each in self.records),
            )
            for number, (base, after) in enumerate(pairwise(bounds))
        ]
        return LocalLog(
            segments=tuple(segments),
            log_start_offset=self.bounds[0],
            cleaner_offset=None,
            leader_epochs=epochs(*self.epochs),
        )


class Copy:
    """The archive of a `Log`: its manifest, and the records that each archived segment has."""

    def __init__(self) -> None:
        self.manifest: ArchiveManifest | None = None
        self.records: dict[int, frozenset[int]] = {}
        self.lost: set[int] = set()

    def archive(self, log: Log, *, has_active: bool) -> None:
        plan = plan_archive(log.seen(has_active=has_active), self.manifest, name="t-0")
        before = self.manifest
        kept = {each.base_offset: self.records[each.base_offset] for each in plan.kept}
        copied = {
            each.base_offset: frozenset(
                at for at in log.records if each.base_offset <= at < each.next_base_offset
            )
            for each in plan.copied
        }
        assert not set(kept) & set(copied)
        self.records = {**kept, **copied}
        self.manifest = manifest_of(
            *plan.kept,
            *(
                archived_segment(each.base_offset, each.next_base_offset, size=each.size_bytes)
                for each in plan.copied
            ),
            has_active_segment=(
                plan.copied[-1].is_active
                if plan.copied
                else before is not None and before.has_active_segment
            ),
            log_start_offset=plan.log_start_offset,
            end_offset=plan.end_offset,
            leader_epochs=plan.leader_epochs,
        )
        self.require_sound(before, plan)

    def require_sound(self, before: ArchiveManifest | None, plan: ArchivePlan) -> None:
        after = self.manifest
        assert after is not None
        for one, two in pairwise(after.segments):
            assert one.next_base_offset <= two.base_offset
        starts = [each.start_offset for each in after.leader_epochs]
        assert starts == sorted(set(starts))
        gap = plan.gap or (0, 0)
        holes = {
            (one.next_base_offset, two.base_offset)
            for one, two in pairwise(after.segments)
            if one.next_base_offset < two.base_offset
        }
        if before is None:
            assert not holes
            return
        assert after.log_start_offset == before.log_start_offset
        assert after.end_offset >= before.end_offset
        had = {
            (one.next_base_offset, two.base_offset)
            for one, two in pairwise(before.segments)
            if one.next_base_offset < two.base_offset
        }
        assert holes <= {*had, gap}


@given(st.integers(0, 1 << 32), st.integers(20, 150))
def test_an_archive_never_loses_what_it_had_and_never_overlaps(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    log, copy = Log(rng), Copy()
    written: set[int] = set()
    deleted_unseen: set[int] = set()
    compacted: set[int] = set()
    changes = [log.append, log.roll, log.compact, log.delete_oldest, log.new_leader]
    for _ in range(steps):
        before = set(log.records)
        change = rng.choices([*changes, None], [8, 4, 2, 1, 1, 4])[0]
        if change is None:
            copy.archive(log, has_active=rng.random() < 0.3)
        else:
            change()
        gone = before - set(log.records)
        written |= set(log.records)
        if change == log.compact:
            compacted |= gone
        elif change == log.delete_oldest:
            end = copy.manifest.end_offset if copy.manifest else 0
            deleted_unseen |= {each for each in gone if each >= end or copy.manifest is None}
        if copy.manifest is not None:
            there = {each for records in copy.records.values() for each in records}
            expected = {each for each in written if each < copy.manifest.end_offset}
            assert there <= expected
            assert expected - there <= compacted | deleted_unseen
