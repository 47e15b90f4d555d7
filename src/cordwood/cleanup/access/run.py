"""State that the partitions of one run of `cordwood clean` share."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.offline.groups import OfflineGroups
from cordwood.cleanup.plan.report import Report
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.model.clock import Clock
from cordwood.storage.trash import Trash


@dataclass(slots=True, kw_only=True)
class Run:
    """One run.

    `remover` removes old segments meanwhile; `interrupted` are committers to be cleared at the end.
    `groups` have the committed offsets of the directories.
    """

    request: CleanRequest
    clock: Clock
    report: Report
    trash: Trash | None
    remover: Executor
    groups: OfflineGroups = field(default_factory=OfflineGroups)
    interrupted: list[CompactionCommitter] = field(default_factory=list)
