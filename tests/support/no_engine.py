"""An engine for brokers in tests that are not about compaction."""

from __future__ import annotations

from typing import Any

from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.model.errors import EngineError


class NoEngine:
    """Refuses to compact, as where Java is missing."""

    def run(self, committers: Any) -> None:
        """Refuses.

        Raises:
            EngineError: always.
        """
        raise EngineError(f"no engine to run {len(committers)} compactions")

    def configure(self, settings: CleanerSettings) -> None:
        """Takes any settings."""

    def status(self) -> EngineStatus:
        """Says that there is none."""
        return EngineStatus(state="unavailable", reason="a test without compaction")

    def close(self) -> None:
        """Has nothing to close."""
