"""The request of an erasure, what does its work, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.erasure.criteria import Criteria, Suppressions, Target
from cordwood.cleanup.erasure.report import ErasureReport, ReportStatus
from cordwood.cleanup.plan.request import Resolved
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.reading.source import WIDEST, ReadBounds

if TYPE_CHECKING:
    from cordwood.cleanup.engine.search.search import (
        Searcher,  # compiled code, which a search loads
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseRequest:
    """The request: `criteria` in `targets`, or what `suppressions` have of an earlier erasure.

    `resolve` gives a topic's settings, None when no source describes it. Beside the log
    directories, files of `trash` and `also` are searched. `salt` is new random bytes for the
    report, `ledger_salt` for ledgers that are begun, `id` a new name. With `ledger` None each log
    directory has its own. A rewrite may take `max_extra_bytes`. `elsewhere` gives the brokers that
    have a replica which is in none of the log directories.
    """

    log_dirs: tuple[Path, ...]
    targets: tuple[Target, ...]
    criteria: Criteria
    resolve: Callable[[str], Resolved | None]
    now_ms: int
    id: str
    salt: bytes
    ledger_salt: bytes
    suppressions: tuple[Suppressions, ...] = ()
    reason: str = ""
    operator: str = ""
    trash: Path | None = None
    also: tuple[Path, ...] = ()
    ledger: Path | None = None
    dry_run: bool = False
    max_extra_bytes: int | None = None
    elsewhere: Callable[[TopicPartition], Sequence[int]] = lambda _: ()

    def bounds_of(self, topic: str) -> ReadBounds:
        """The bounds of a reader of the topic's files."""
        resolved = self.resolve(topic)
        if resolved is None:
            return WIDEST
        return ReadBounds(record_bytes_max=resolved.config.max_decompressed_message_bytes)

    @property
    def is_from_ledger(self) -> bool:
        """Whether earlier erasures are applied again."""
        return bool(self.suppressions)


class ErasureBackend(Protocol):
    """Searches and rewrites for an erasure; how depends on the number of bytes to do."""

    def searcher(self, size_bytes: int, /) -> Searcher:
        """The searcher of so many bytes of log files."""

    def engine(self, size_bytes: int, /) -> Engine:
        """The engine that rewrites segments of so many bytes."""


#: What is said of a replica that an erasure has not reached.
NOT_ADDRESSED: Final = (
    "this replica was not addressed: run the command at its broker, too, after that of the leader"
)


@dataclass(slots=True, kw_only=True)
class Erasure:
    """The result: a report without a signature, and what failed, by partition or file."""

    report: ErasureReport
    failed: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def with_elsewhere(self, nodes: Mapping[str, Sequence[int]]) -> Erasure:
        """A copy in which the replicas of each partition on other brokers count as failed."""
        failed = dict(self.report.failed)
        for partition, ids in nodes.items():
            for node in ids:
                failed[f"{partition} on broker {node}"] = NOT_ADDRESSED
        status = self.report.status
        if failed and status is not ReportStatus.REFUSED:
            status = ReportStatus.FAILED
        report = replace(self.report, failed=failed, status=status)
        return Erasure(report=report, failed=failed, warnings=self.warnings)
