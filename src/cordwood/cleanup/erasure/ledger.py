"""Ledgers of erasures on disk; see `criteria` for what is in them.

Kafka ignores a file of this name in a log directory: its loader looks at directories only.

Source: org.apache.kafka.storage.internals.log.LogManager.loadLogs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from cordwood.cleanup.erasure.criteria import (
    SALT_BYTES,
    Suppression,
    Suppressions,
    build_ledger_head,
    build_ledger_line,
    parse_ledger,
)
from cordwood.model.errors import ConfigError
from cordwood.storage.filesystem import OS, FileSystem

LEDGER_NAME: Final = "cordwood-erasures.jsonl"
_MODE: Final = 0o600


def read_ledger(path: Path, *, fs: FileSystem = OS) -> Suppressions:
    """The erasures of a ledger.

    Raises:
        ConfigError: there is no such file, or it cannot be read.
        CorruptError: it is no ledger.
    """
    try:
        data = fs.read_bytes(path)
    except OSError as error:
        raise ConfigError(f"the ledger {path} cannot be read: {error.strerror}") from error
    return parse_ledger(data, path=str(path))


class Ledger:
    """A ledger to add to; without a file it is begun with a new salt."""

    def __init__(self, path: Path, *, salt: bytes, fs: FileSystem = OS) -> None:
        """Reads what is there.

        Args:
            path: of the file.
            salt: random, used where the file is new.
            fs: where it is.

        Raises:
            ConfigError, CorruptError: as `read_ledger`.
        """
        assert len(salt) == SALT_BYTES, f"a salt of {len(salt)} bytes"
        self.path = path
        self._fs = fs
        #: Whether there is no such file yet.
        self.is_new = not fs.exists(path)
        self._content = Suppressions(salt=salt) if self.is_new else read_ledger(path, fs=fs)

    @property
    def salt(self) -> bytes:
        """The secret of its hashes."""
        return self._content.salt

    def begin(self) -> None:
        """Writes a new ledger's secret, durably: the hashes of an erasure depend on it."""
        if self.is_new:
            self._write(self._content)

    def add(self, entry: Suppression) -> None:
        """Adds an erasure, durably; one with the same id is replaced.

        An interrupted erasure may be added again when it is completed, and finds less then: of each
        partition the larger count stays.

        The file is replaced as a whole, so that a line which a crash has cut off is not continued.
        A new file can be read by its owner only: who has it can test keys.
        """
        entries = [each for each in self._content.entries if each.id != entry.id]
        for same in (each for each in self._content.entries if each.id == entry.id):
            both = same.erased.keys() | entry.erased.keys()
            counts = {
                name: max(same.erased.get(name, 0), entry.erased.get(name, 0)) for name in both
            }
            entry = replace(entry, erased=counts)
        self._write(Suppressions(salt=self.salt, entries=(*entries, entry)))

    def _write(self, content: Suppressions) -> None:
        data = build_ledger_head(content.salt) + b"".join(map(build_ledger_line, content.entries))
        of_directory = self._fs.facts_of(self.path.parent)
        self._fs.replace_durably(self.path, data, model=replace(of_directory, mode=_MODE))
        self._content = content
        self.is_new = False
