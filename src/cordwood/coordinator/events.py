"""The base of the events of all coordinators."""

from __future__ import annotations

from typing import Any

from cordwood.coordinator.effects import ReplyTo


class CoordinatorEvent:
    """An event of a coordinator; `reply_to` is for requests, and events whose failure is logged."""

    __slots__ = ()

    is_long = False
    """Whether it may have so many records that they are encoded in slices."""

    @property
    def reply_to(self) -> ReplyTo[Any] | None:
        """The receiver of the answer to the request."""
        return None
