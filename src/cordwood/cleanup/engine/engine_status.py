"""The state of an engine, as the status of a cleaner has it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cordwood.model.documents import ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDeath:
    """The end of an engine's process, in ms since the epoch."""

    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """An engine: `not started`, `starting`, `warm` and `in process` are the good states.

    `unavailable` and `died` come with a `reason`, and with `retry_in_s`, after which it is tried
    again once a log is due. The fields from `pid` on are None for an engine without a process.
    """

    state: str
    reason: str = ""
    pid: int | None = None
    cores: int | None = None
    key_table_bytes: int | None = None
    runs: int | None = None
    rounds_done: int | None = None
    starts: int | None = None
    deaths: int | None = None
    last_death: EngineDeath | None = None
    since_ms: int | None = field(default=None, metadata=ABSENT)
    retry_in_s: float | None = field(default=None, metadata=ABSENT)
