"""No client is given an answer that no correct cluster gives, and no code fails."""

from __future__ import annotations

from support.simulation.events import Event, Unacceptable
from support.simulation.history import ViolationError


class Answers:
    """Clients say what they cannot explain; the run says what was raised and nobody expected."""

    name = "answers"

    def take(self, event: Event) -> None:
        """Checks an event."""
        if isinstance(event, Unacceptable):
            raise ViolationError(self.name, event.text)
