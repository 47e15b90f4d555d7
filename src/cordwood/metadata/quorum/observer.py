"""An observer of the metadata quorum, as a state machine: it fetches the log, and never votes.

`next_ask` says what to send where, or how long to wait; one request is in flight at a time. The
answer, or its failure, gives back what the log has to do, in order: `next_ask` must not be called
before that is done.

Source: org.apache.kafka.raft.KafkaRaftClient (pollFollowerAsObserver, pollUnattached,
handleFetchResponse, handleFetchSnapshotResponse, maybeHandleCommonResponse), FollowerState;
KIP-595, KIP-630, KIP-853, KIP-1166.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.client.node_connection import NodeAddress
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError
from cordwood.model.rng import Rng

NO_LEADER = -1
UNKNOWN_OFFSET = -1


class OffsetAndEpoch(NamedTuple):
    """An offset, exclusive, and the epoch of what is before it; it names a snapshot."""

    offset: int
    epoch: int


class LeaderAndEpoch(NamedTuple):
    """The leader of an epoch; `NO_LEADER` while it is not known."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of this node's log: one past its last offset, and the epoch of its last batch.

    `high_watermark` is `UNKNOWN_OFFSET` until a leader has said where it is.
    """

    offset: int
    epoch: int
    high_watermark: int


# ---- what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAsk:
    """A Fetch for what follows the end of the log."""

    to: NodeAddress
    epoch: int
    end: LogEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAsk:
    """A FetchSnapshot for a part of a snapshot, from byte `position` on."""

    to: NodeAddress
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int


Ask = FetchAsk | SnapshotAsk


# ---- what is answered


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The partition of a Fetch response; at most one of `diverging`, `snapshot_id`, `records`.

    `leader_address` is that of `leader`, if the response has one. `diverging` is the end of an
    epoch in the leader's log, below which the two logs are equal.
    """

    error: ErrorCode
    leader: LeaderAndEpoch
    leader_address: NodeAddress | None = None
    high_watermark: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAnswer:
    """The partition of a FetchSnapshot response; `size_bytes` is that of the whole snapshot."""

    error: ErrorCode
    leader: LeaderAndEpoch
    leader_address: NodeAddress | None = None
    snapshot_id: OffsetAndEpoch | None = None
    size_bytes: int = 0
    position: int = 0
    data: bytes = b""


# ---- what has to be done


@dataclass(frozen=True, slots=True)
class KeepLeader:
    """Write the leader and its epoch to `quorum-state`."""

    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append whole batches of the leader's log; a last one that is not whole is left out."""

    records: bytes


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate to the end of the largest epoch of both logs that is not above `diverging`'s."""

    diverging: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class BeginSnapshot:
    """Prepare for the parts of a snapshot."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class AppendSnapshot:
    """Append a part to the snapshot that is being fetched."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FinishSnapshot:
    """Put the snapshot in place, and let the log start, empty, where it ends."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Remove the parts of a snapshot that will not be finished."""


@dataclass(frozen=True, slots=True)
class MoveHighWatermark:
    """Records below `offset`, or below the log's end if that is lower, are committed."""

    offset: int


Effect = (
    KeepLeader
    | AppendRecords
    | TruncateTo
    | BeginSnapshot
    | AppendSnapshot
    | FinishSnapshot
    | DropSnapshot
    | MoveHighWatermark
)


@dataclass(slots=True)
class _Download:
    snapshot_id: OffsetAndEpoch
    position: int = 0


class QuorumObserver:
    """The state machine; see the module.

    Invariant: the epoch never falls, and an epoch never has two leaders.
    """

    def __init__(
        self,
        *,
        servers: Sequence[NodeAddress],
        leader: LeaderAndEpoch,
        rng: Rng,
        retry_backoff_ms: int = 20,
        voters: Mapping[int, NodeAddress] | None = None,
    ) -> None:
        """Creates an object that has sent no request.

        Args:
            servers: those to ask while the leader is not known: bootstrap servers, or voters.
            leader: the last one known, from `quorum-state`.
            rng: chooses among the servers.
            retry_backoff_ms: how long a server that failed is not asked.
            voters: by id, where `controller.quorum.voters` names them.

        Raises:
            ValueError: there is no server.
        """
        if not servers:
            raise ValueError("an observer needs a server to ask for the leader")
        self._servers = list(servers)
        self._rng = rng
        self._retry_backoff_ms = retry_backoff_ms
        self._voters = dict(voters or {})
        self._leader = leader
        self._leader_address = self._voters.get(leader.leader_id)
        #: Until when a server that failed is not asked.
        self._backing_off: dict[NodeAddress, float] = {}
        self._in_flight: Ask | None = None
        self._download: _Download | None = None

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that is followed, and its epoch."""
        return self._leader

    @property
    def leader_address(self) -> NodeAddress | None:
        """The leader's address; None while it is not known."""
        return self._leader_address

    # ---- asking

    def next_ask(self, end: LogEnd, now_ms: float) -> Ask | float:
        """The next request, or after how many milliseconds to call again.

        Raises:
            ValueError: a request is in flight.
        """
        if self._in_flight is not None:
            raise ValueError(f"{self._in_flight} is in flight")
        to = self._leader_address
        if to is None or self._wait_ms(to, now_ms) > 0:
            # The leader may have changed. Any server knows the new one.
            waits = [self._wait_ms(each, now_ms) for each in self._servers]
            if min(waits) > 0:
                return min(waits)
            ready = [each for each, wait in zip(self._servers, waits, strict=True) if wait <= 0]
            to = ready[self._rng.below(len(ready))]
        download = self._download if to == self._leader_address else None
        ask: Ask
        if download is None:
            ask = FetchAsk(to=to, epoch=self._leader.epoch, end=end)
        else:
            ask = SnapshotAsk(
                to=to,
                epoch=self._leader.epoch,
                snapshot_id=download.snapshot_id,
                position=download.position,
            )
        self._in_flight = ask
        return ask

    def _wait_ms(self, server: NodeAddress, now_ms: float) -> float:
        return self._backing_off.get(server, now_ms) - now_ms

    # ---- what comes back

    def on_failure(self, now_ms: float) -> None:
        """The request in flight failed: no connection, no answer in time, or a top-level error."""
        self._back_off(self._take_in_flight(), now_ms)

    def on_fetched(self, answer: FetchAnswer, now_ms: float) -> list[Effect]:
        """Handles the answer to a Fetch; returns what the log has to do.

        Raises:
            CorruptError: the leader lacks what is committed, or an epoch has two leaders.
        """
        ask = self._take_in_flight()
        assert isinstance(ask, FetchAsk), ask
        effects, is_from_leader = self._follow(ask, answer, now_ms)
        if not is_from_leader:
            return effects
        if answer.diverging is not None:
            if answer.diverging.offset < ask.end.high_watermark:
                raise CorruptError(
                    f"the leader {self._leader} of the metadata quorum has other records from "
                    f"offset {answer.diverging.offset} on, and those below "
                    f"{ask.end.high_watermark} are committed"
                )
            effects.append(TruncateTo(answer.diverging))
        elif answer.snapshot_id is not None:
            if self._download is not None:
                effects.append(DropSnapshot())
            self._download = _Download(answer.snapshot_id)
            effects.append(BeginSnapshot(answer.snapshot_id))
        else:
            if answer.records:
                effects.append(AppendRecords(answer.records))
            if answer.high_watermark >= 0:
                effects.append(MoveHighWatermark(answer.high_watermark))
        return effects

    def on_snapshot_part(self, answer: SnapshotAnswer, now_ms: float) -> list[Effect]:
        """Handles the answer to a FetchSnapshot; returns what the log has to do.

        Raises:
            CorruptError: it is a part of another snapshot, or not the next part.
        """
        ask = self._take_in_flight()
        assert isinstance(ask, SnapshotAsk), ask
        if answer.error is ErrorCode.SNAPSHOT_NOT_FOUND:
            return self._drop_download()
        effects, is_from_leader = self._follow(ask, answer, now_ms)
        download = self._download
        if not is_from_leader or download is None:
            return effects
        if answer.snapshot_id is None:
            return [*effects, *self._drop_download()]
        if (answer.snapshot_id, answer.position) != (download.snapshot_id, download.position):
            raise CorruptError(
                f"the leader {self._leader} of the metadata quorum sent byte {answer.position} of "
                f"snapshot {answer.snapshot_id}, and was asked for byte {download.position} of "
                f"{download.snapshot_id}"
            )
        download.position += len(answer.data)
        effects.append(AppendSnapshot(answer.data))
        if download.position >= answer.size_bytes:
            self._download = None
            effects.append(FinishSnapshot(download.snapshot_id))
            effects.append(MoveHighWatermark(download.snapshot_id.offset))
        return effects

    def on_snapshot_refused(self, now_ms: float) -> list[Effect]:
        """A FetchSnapshot had a top-level error: the snapshot is given up.

        Kafka 4.3.0 answers UNKNOWN_SERVER_ERROR for a part that it cannot serve.
        """
        self._back_off(self._take_in_flight(), now_ms)
        return self._drop_download()

    def _take_in_flight(self) -> Ask:
        ask, self._in_flight = self._in_flight, None
        if ask is None:
            raise ValueError("no request is in flight")
        return ask

    def _back_off(self, ask: Ask, now_ms: float) -> None:
        self._backing_off[ask.to] = now_ms + self._retry_backoff_ms

    def _drop_download(self) -> list[Effect]:
        if self._download is None:
            return []
        self._download = None
        return [DropSnapshot()]

    def _follow(
        self, ask: Ask, answer: FetchAnswer | SnapshotAnswer, now_ms: float
    ) -> tuple[list[Effect], bool]:
        """Follows the leader that an answer names.

        Returns:
            What to do; and whether the answer has more, which only that of the leader of the
            epoch does.

        Raises:
            CorruptError: the epoch has another leader.
        """
        known, found = self._leader, answer.leader
        effects: list[Effect] = []
        if found.epoch > known.epoch or (
            found.epoch == known.epoch and NO_LEADER == known.leader_id != found.leader_id
        ):
            effects = [*self._drop_download(), KeepLeader(found)]
            self._leader = found
            self._leader_address = answer.leader_address or self._voters.get(found.leader_id)
        elif found.epoch == known.epoch and found.leader_id != NO_LEADER:
            if found.leader_id != known.leader_id:
                raise CorruptError(
                    f"{ask.to.host}:{ask.to.port} names {found.leader_id} as the leader of epoch "
                    f"{found.epoch} of the metadata quorum, and it is {known.leader_id}"
                )
            self._leader_address = answer.leader_address or self._leader_address
        is_from_leader = (
            answer.error is ErrorCode.NONE
            and found == self._leader
            and found.leader_id != NO_LEADER
            and ask.epoch == found.epoch
        )
        if not is_from_leader and not effects:
            self._back_off(ask, now_ms)
        return effects, is_from_leader
