"""The events of the audit log that this process logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from cordwood.model.audit import AUDIT_LOGGER, EVENT_ATTRIBUTE, AuditEvent

T = TypeVar("T", bound=AuditEvent)


class Events(logging.Handler):
    """The events that were logged, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[AuditEvent] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps an event."""
        self.all.append(getattr(record, EVENT_ATTRIBUTE))

    def of(self, kind: type[T]) -> list[T]:
        """The events of a kind."""
        return [each for each in self.all if isinstance(each, kind)]


@contextmanager
def audit_events() -> Iterator[Events]:
    """Receives the events, also while a command has the other handlers of the log replaced."""
    found, logger = Events(), logging.getLogger(AUDIT_LOGGER)
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    try:
        yield found
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(found)
