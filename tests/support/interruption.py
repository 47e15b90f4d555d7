"""Work that is interrupted at its pauses, as by the requests of other clients."""

from __future__ import annotations

from collections.abc import Callable

from cordwood.model import pauses


class Interruption:
    """Calls `others` at each pause of the work that `run` does; `count` says how often."""

    def __init__(self, others: Callable[[], object]) -> None:
        self._others = others
        self.count = 0

    def run(self, work: Callable[[], pauses.T]) -> pauses.T:
        """The result of `work`, which is interrupted."""
        with pauses.running(self):
            return work()

    def pause(self) -> None:
        """Interrupts the work."""
        self.leave()
        self.come_back()

    def leave(self) -> None:
        """Lets the others' requests run."""
        self.count += 1
        # The others' own requests are not interrupted.
        with pauses.running(None):
            self._others()

    def come_back(self) -> None:
        """Does nothing."""
