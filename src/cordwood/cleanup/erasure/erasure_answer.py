"""The erasures of a running broker as answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.cleanup.erasure.report import ErasureReport
from cordwood.model.documents import ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStatus:
    """One erasure: how far it is, and its result.

    `state` is `running`, `done` or `failed`; `report` is there unless it failed as a whole, with
    `error` then, and with `usage` if the request is wrong. Of the present phase, `done` of `total`
    are done: bytes, or partitions if `in_bytes` is False; `total` is 0 where it is unknown.
    """

    id: str
    topics: Sequence[str]
    dry_run: bool
    started_ms: int
    state: str
    phase: str
    done: int
    total: int
    in_bytes: bool
    error: str
    usage: bool
    report: ErasureReport | None
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedErasure:
    """An erasure that a stop or a crash of the broker has interrupted; the next completes it."""

    id: str
    log_dir: str
    topics: Sequence[str]
    partitions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasures:
    """The last erasures, the newest first, and those that were interrupted.

    The answer to the start of one has `elsewhere`: by partition, the other brokers of the cluster
    that have a replica.
    """

    erasures: Sequence[ErasureStatus]
    interrupted: Sequence[InterruptedErasure]
    elsewhere: Mapping[str, Sequence[int]] | None = field(default=None, metadata=ABSENT)
