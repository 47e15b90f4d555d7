"""Whether a segment waits for consumer groups before retention removes it: pure functions.

A log may name groups in cordwood.retention.groups. A segment then stays for as long as one of them
has not consumed all of it: its committed offset is below the segment's end, it has committed none,
or its committed offset is not known. What is not known keeps a segment: nothing is lost because a
coordinator did not answer.

Two settings end the wait of a segment: cordwood.retention.groups.max.ms, by the age of its newest
record, and cordwood.retention.groups.max.bytes, by the size of the log without it. From then on
retention does as if there were no groups, and what it removes unread is a `GroupLoss`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cordwood.cleanup.rules.blockers import Blocker, Code
from cordwood.configs.log_config import LogConfig

GROUPS: Final = "cordwood.retention.groups"
MAX_MS: Final = "cordwood.retention.groups.max.ms"
MAX_BYTES: Final = "cordwood.retention.groups.max.bytes"
NOT_ASKED: Final = "its committed offset has not been looked up"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """Position of a group in a partition.

    `committed` is its committed offset: that of the next record it reads. It is None if the group
    has committed none for the partition, or if it is not known, for which `unknown` is the reason.
    """

    group: str
    committed: int | None = None
    unknown: str = ""

    def is_behind(self, end: int) -> bool:
        """Whether it has not consumed all offsets below `end`."""
        return self.committed is None or self.committed < end

    @property
    def text(self) -> str:
        """The position, in words."""
        if self.unknown:
            return f"group {self.group}: {self.unknown}"
        if self.committed is None:
            return f"group {self.group} has committed no offset for this partition"
        return f"group {self.group} has committed offset {self.committed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """The known committed offsets for one partition.

    `committed` has offsets by group, None for a group that has committed none; `unknown` the reason
    why that of a group is not known. `others` is the reason for groups in neither.
    """

    committed: Mapping[str, int | None] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    others: str = NOT_ASKED

    def position(self, group: str) -> GroupPosition:
        """The position of a group."""
        if group in self.committed:
            return GroupPosition(group=group, committed=self.committed[group])
        return GroupPosition(group=group, unknown=self.unknown.get(group, self.others))

    def positions(self, config: LogConfig) -> tuple[GroupPosition, ...]:
        """The positions of the groups that a log with these settings waits for, in their order."""
        return tuple([self.position(group) for group in config.cordwood_retention_groups])


#: No group was asked for its offset, so each is waited for.
NOTHING_KNOWN: Final = Consumed()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoss:
    """Offsets of a partition that retention removes before a group has consumed them.

    Both `first_offset` and `last_offset` are inclusive. There are at most as many records as
    offsets: compaction, and the markers of transactions, leave offsets without one. `setting` is
    what ended the wait. `unknown` is why the group's offset is not known; it may then have consumed
    them.
    """

    group: str
    first_offset: int
    last_offset: int
    setting: str
    unknown: str = ""

    @property
    def offsets(self) -> int:
        """The number of offsets that are lost."""
        return self.last_offset - self.first_offset + 1

    @property
    def text(self) -> str:
        """The loss in words, without the partition."""
        may = "may have lost" if self.unknown else "lost"
        why = f" ({self.unknown})" if self.unknown else ""
        return (
            f"group {self.group} {may} offsets {self.first_offset} to {self.last_offset} (both "
            f"inclusive), at most {self.offsets} records, by {self.setting}{why}"
        )


class GroupGuard:
    """The groups that one log waits for, with their positions as far as known."""

    __slots__ = ("_config", "_high_watermark", "_positions")

    def __init__(self, config: LogConfig, consumed: Consumed, high_watermark: int) -> None:
        """Takes the settings and the high watermark of the log, and what its groups have consumed.

        Where the settings name no group, nothing waits.
        """
        self._config = config
        self._positions = consumed.positions(config) if config.cordwood_retention_groups else ()
        self._high_watermark = high_watermark

    def slowest_behind(self, end: int) -> GroupPosition | None:
        """Of the groups that have not consumed all offsets below `end`, the one furthest behind."""
        behind = [each for each in self._positions if each.is_behind(end)]
        return min(behind, key=_progress, default=None)

    def cap_ms(self, age_from_ms: int) -> int | None:
        """The first moment (ms) at which a segment does not wait any more; None if there is none.

        `age_from_ms` is the moment that its age is counted from.
        """
        limit_ms = self._config.cordwood_retention_groups_max_ms
        return None if limit_ms < 0 else age_from_ms + limit_ms + 1

    def cap(self, age_from_ms: int, left_bytes: int, now_ms: int) -> str | None:
        """The setting by which a segment does not wait any more at `now_ms`; None if it waits.

        `left_bytes` is the size of the log without it and the segments before it.
        """
        until_ms = self.cap_ms(age_from_ms)
        if until_ms is not None and now_ms >= until_ms:
            return MAX_MS
        limit = self._config.cordwood_retention_groups_max_bytes
        return MAX_BYTES if 0 <= limit <= left_bytes else None

    def blocker(self, end: int, age_from_ms: int, left_bytes: int, now_ms: int) -> Blocker | None:
        """The group that the segment up to `end`, exclusive, waits for; None if for none.

        The arguments are those of `slowest_behind` and `cap`.
        """
        slowest = self.slowest_behind(end)
        if slowest is None or self.cap(age_from_ms, left_bytes, now_ms) is not None:
            return None
        return Blocker(
            code=Code.GROUP_GUARD,
            setting=GROUPS,
            offset=slowest.committed,
            until_ms=self.cap_ms(age_from_ms),
            text=f"{slowest.text}{self._lag(slowest)}, and it has offsets up to {end - 1}; "
            f"{self._caps(left_bytes)}",
        )

    def losses(self, start: int, end: int, settings: Sequence[str]) -> tuple[GroupLoss, ...]:
        """The loss of each group where the log start offset moves from `start` to `end`.

        `settings` are those that have ended the wait; without one there is no loss.
        """
        if not settings:
            return ()
        found = []
        for each in self._positions:
            first = start if each.committed is None else max(start, each.committed)
            if first < end:
                found.append(
                    GroupLoss(
                        group=each.group,
                        first_offset=first,
                        last_offset=end - 1,
                        setting=", ".join(dict.fromkeys(settings)),
                        unknown=each.unknown,
                    )
                )
        return tuple(found)

    def _lag(self, position: GroupPosition) -> str:
        if position.committed is None:
            return ""
        return f" (lag {max(0, self._high_watermark - position.committed)})"

    def _caps(self, left_bytes: int) -> str:
        config, caps = self._config, []
        if config.cordwood_retention_groups_max_ms >= 0:
            caps.append(
                f"its newest record is younger than {MAX_MS} "
                f"{config.cordwood_retention_groups_max_ms}"
            )
        limit = config.cordwood_retention_groups_max_bytes
        if limit >= 0:
            caps.append(f"{limit - left_bytes} bytes are missing to {MAX_BYTES} {limit}")
        return " and ".join(caps) if caps else "no limit ends the wait"


def _progress(position: GroupPosition) -> tuple[bool, int]:
    """A key that sorts the furthest behind first; what is not known comes first of all."""
    return not position.unknown, -1 if position.committed is None else position.committed
