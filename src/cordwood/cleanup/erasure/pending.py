"""The plan of an erasure, on disk before its first change, and until its last.

A run that is killed leaves it in every log directory. The next erasure does what is left of it by
its offsets, without its keys, adds it to its ledgers, and reports both as one. An erasure that is
refused leaves none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cordwood.cleanup.erasure.report import DescribedCriteria, FileFacts
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.model.documents import document_text, from_document
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem

PENDING_NAME: Final = "cordwood-erasure.pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedErasure:
    """The erasure planned of one partition's directory, or of one file outside of a live log.

    `records`, `bytes` and `files` are those before it: `files` has size and SHA-256 of each file by
    name. `end` is the log end offset, None for a file.
    """

    partition: str
    erased: OffsetRanges
    records: int
    bytes: int
    files: Mapping[str, FileFacts]
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An erasure in one log directory: `parts` by path; `removed` are paths that go as a whole.

    `ledgers` has the lines that go to each ledger, by its path, when the erasure is done.
    """

    id: str
    criteria: tuple[DescribedCriteria, ...]
    topics: tuple[str, ...]
    parts: Mapping[str, PlannedErasure] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    ledgers: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)

    def write(self, log_dir: Path, *, fs: FileSystem = OS) -> None:
        """Writes it, durably."""
        path = log_dir / PENDING_NAME
        fs.replace_durably(path, document_text(self).encode())
        fs.take_after_directory(path, log_dir)

    @classmethod
    def read(cls, log_dir: Path, *, fs: FileSystem = OS) -> Pending | None:
        """The plan that an interrupted run has left in a log directory.

        Raises:
            CorruptError: it is not what `write` writes.
        """
        path = log_dir / PENDING_NAME
        try:
            return from_document(cls, json.loads(fs.read_bytes(path)))
        except FileNotFoundError:
            return None
        except (CorruptError, ValueError) as error:
            raise CorruptError(
                f"not the plan of an erasure ({error}); remove it, and erase again with all "
                "criteria",
                path=str(path),
            ) from error

    @staticmethod
    def end(log_dir: Path, *, fs: FileSystem = OS) -> None:
        """Forgets it: the erasure is done."""
        fs.remove(log_dir / PENDING_NAME)
        fs.sync_directory(log_dir)
