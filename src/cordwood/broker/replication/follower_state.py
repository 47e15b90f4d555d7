"""A follower as the leader of a partition knows it.

Source: kafka.cluster.Replica, ReplicaState (4.3.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UNKNOWN_OFFSET = -1


class SessionFetches:
    """The fetches of a follower's session: each is one of every partition that it leaves out."""

    __slots__ = ("last_ms",)

    def __init__(self, now_ms: float) -> None:
        """The first was now."""
        self.last_ms = now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerState:
    """A follower as its leader knows it by its fetches; times in ms.

    `broker_epoch` is that of its last fetch, `NO_BROKER_EPOCH` if that had none, None before one.
    `leader_end_at_fetch` is where the leader's log ended at the last fetch.
    `omitted_by` are the fetches of the session that leaves the partition out, if one does.
    """

    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    leader_end_at_fetch: int = UNKNOWN_OFFSET
    last_fetch_ms: float = 0
    last_caught_up_ms: float = 0
    broker_epoch: int | None = None
    omitted_by: SessionFetches | None = None

    @property
    def caught_up_ms(self) -> float:
        """The time at which it had all: the last fetch of a session without the partition."""
        if self.omitted_by is None:
            return self.last_caught_up_ms
        return max(self.last_caught_up_ms, self.omitted_by.last_ms)

    def after_omission(self) -> FollowerState:
        """The state when its session leaves the partition out no more."""
        if self.omitted_by is None:
            return self
        return replace(
            self,
            last_fetch_ms=self.omitted_by.last_ms,
            last_caught_up_ms=self.caught_up_ms,
            omitted_by=None,
        )

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_max_ms: float) -> bool:
        """Whether it has all, or had all not long ago.

        Source: ReplicaState.isCaughtUp.
        """
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms

    def fetched(
        self, offset: int, *, start: int, leader_end: int, now_ms: float, broker_epoch: int
    ) -> FollowerState:
        """The state after a fetch from `offset` on.

        Source: Replica.updateFetchStateOrThrow.
        """
        caught_up_ms = self.last_caught_up_ms
        if offset >= leader_end:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            caught_up_ms = max(caught_up_ms, self.last_fetch_ms)
        return FollowerState(
            log_start_offset=start,
            log_end_offset=offset,
            leader_end_at_fetch=max(leader_end, self.leader_end_at_fetch),
            last_fetch_ms=now_ms,
            last_caught_up_ms=caught_up_ms,
            broker_epoch=broker_epoch,
        )
