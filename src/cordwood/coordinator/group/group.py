"""A group, whatever its kind, as offsets, lists and expiry need it.

Source: org.apache.kafka.coordinator.group.Group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar, Final, NamedTuple

from cordwood.coordinator.effects import Answer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.offset_requests import CommitRequest, FetchingMember
from cordwood.model.error_codes import ErrorCode


class ExpiryBase(NamedTuple):
    """The time from which the offsets of a group age: `since_ms`, or each one's commit if None."""

    since_ms: int | None = None


BY_COMMIT: Final = ExpiryBase()


class Group(ABC):
    """The state of a group of some kind, as replayed from the records of its kind."""

    kind: ClassVar[str]
    """The type of the group in ListGroups."""
    expires: ClassVar[bool] = True
    """Whether its offsets may expire, and the group when it is empty and has none."""

    group_id: str
    protocol_type: str | None

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state of the group in ListGroups."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, and none is joining."""

    @property
    def gives_way(self) -> bool:
        """Whether a record of another kind makes a group of that kind of it."""
        return False

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic, so that its offsets neither expire nor go."""

    @property
    @abstractmethod
    def expiry_base(self) -> ExpiryBase | None:
        """The time from which offsets age; None while no offset may expire."""

    @abstractmethod
    def require_commit(self, request: CommitRequest, *, metadata_bytes_max: int) -> None:
        """Checks that offsets may be committed.

        A partition whose metadata is longer than `metadata_bytes_max` is not committed, and not
        compared with what the member is assigned.

        Raises:
            CoordinatorRequestError: the client may not commit now, or not to this group.
        """

    def require_fetch(self, asking: FetchingMember) -> None:
        """Checks that a member may fetch offsets; by default any may.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """

    def require_offset_delete(self) -> None:
        """Checks that offsets may be deleted, by default always.

        Raises:
            CoordinatorRequestError: NON_EMPTY_GROUP.
        """

    def require_delete(self) -> None:
        """Checks that the group may be deleted.

        Raises:
            CoordinatorRequestError: NON_EMPTY_GROUP; UNSUPPORTED_VERSION for a kind that is not
                served.
        """
        if not self.is_empty:
            raise CoordinatorRequestError(ErrorCode.NON_EMPTY_GROUP)

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Takes note of topics that are new, deleted or changed."""

    def check_invariants(self) -> None:
        """Checks what must hold after each event."""

    def answers_at_unload(self) -> Sequence[Answer]:
        """The error answers for requests that wait in a group that moves to another coordinator."""
        return ()
