"""Whether groups have members without any doubt: then their offsets do not expire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from support.simulation.clients.members import SESSION_S, Member
from support.simulation.cluster import Cluster
from support.simulation.events import Occupied
from support.simulation.history import History

_LOOK_S: Final = 0.05
_MARGIN_S: Final = 0.2


class Presence:
    """Notes when a group begins and ceases to have a member for certain.

    A member that the coordinator has answered is one for its session, also if another broker takes
    over: it has the member in its log. One that gives up partitions may be fenced at any time.
    """

    def __init__(self, cluster: Cluster, history: History, members: Sequence[Member]) -> None:
        """No group has any member yet."""
        self._cluster = cluster
        self._history = history
        self._members = members
        self._seen: dict[str, tuple[int, float]] = {}
        self._until_s: dict[str, float] = {}
        self._occupied: dict[str, bool] = {}

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        now_s = self._cluster.loop.time()
        coordinator = self._cluster.image.partition(GROUP_METADATA_TOPIC, 0)
        for member in self._members:
            seen = member.lives, member.heard_s
            life, _ = self._seen.get(member.name, (0, 0.0))
            if life != member.lives or not member.is_settled:
                self._until_s.pop(member.name, None)
            elif (
                seen != self._seen[member.name]
                and coordinator is not None
                and coordinator.leader == member.heard_by
            ):
                self._until_s[member.name] = member.heard_s + SESSION_S - _MARGIN_S
            self._seen[member.name] = seen
        for group in sorted({member.group for member in self._members}):
            names = [each.name for each in self._members if each.group == group]
            is_occupied = any(self._until_s.get(each, 0.0) > now_s for each in names)
            if is_occupied != self._occupied.get(group):
                self._occupied[group] = is_occupied
                self._history.note("simulation", Occupied(group, is_occupied))
