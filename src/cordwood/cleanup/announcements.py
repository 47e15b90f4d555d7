"""The files by which a round's tasks and the owner of its log hear of each other.

They lie beside the segments, under names that go when a round is cleared away: manifests of groups
that are ready, what tasks have worked through, and a mark that the round is given up.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from pathlib import Path

from cordwood.cleanup.round_values import Manifest
from cordwood.model.errors import EngineError
from cordwood.storage.filesystem import OS
from cordwood.storage.replace import STAGED_SUFFIX

CANCEL_NAME = f"cordwood.cancel{STAGED_SUFFIX}"


def require_wanted(directory: Path) -> None:
    """Checks that the owner of the log has not given up the round.

    Raises:
        EngineError: it has.
    """
    if OS.exists(directory / CANCEL_NAME):
        raise EngineError("the round was given up")


def announce(directory: Path, manifest: Manifest) -> Path:
    """Makes a manifest known to the owner of the log; returns its file."""
    path = manifest_path(directory, manifest.base_offset, manifest.token)
    temporary = path.with_name(f"{uuid.uuid4().hex[:8]}.announcing{STAGED_SUFFIX}")
    temporary.write_text(json.dumps(manifest.to_json()))
    OS.rename(temporary, path)
    return path


def manifest_path(directory: Path, base_offset: int, token: str) -> Path:
    """Where a group is announced; goes with the staged files when these are cleared away."""
    return directory / f"{base_offset:020d}.manifest.{token}{STAGED_SUFFIX}"


def announced(directory: Path, base_offset: int, attempt: str) -> Manifest | None:
    """The manifest of a group, once a task of this attempt at the round has made it."""
    for path in sorted(directory.glob(f"{base_offset:020d}.manifest.{attempt}*{STAGED_SUFFIX}")):
        with suppress(FileNotFoundError, ValueError):
            return Manifest.from_json(json.loads(path.read_bytes()))
    return None


def progress_bytes(directory: Path, phase: str) -> int:
    """The sum of what the tasks of a phase have counted so far."""
    total = 0
    for path in directory.glob(f"cordwood.{phase}.*{STAGED_SUFFIX}"):
        with suppress(OSError, ValueError):
            total += int(path.read_text())
    return total
