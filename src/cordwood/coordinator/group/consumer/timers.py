"""The keys of the timers of consumer groups."""

from __future__ import annotations


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer of a member's session."""
    return "session", group_id, member_id


def revocation_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that ends the wait for a member to give up partitions."""
    return "revocation", group_id, member_id


def rejoin_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that ends the wait for a member of the classic protocol to join again."""
    return "rejoin", group_id, member_id


def assignment_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """The timer that ends the wait for a member of the classic protocol to send SyncGroup."""
    return "assignment", group_id, member_id
