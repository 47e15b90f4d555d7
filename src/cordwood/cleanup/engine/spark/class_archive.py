"""The classes that Spark's virtual machine loads, in a file that it maps to start much sooner.

The archive is made once, for one Java, one set of jars and one set of options, in the user's cache
directory. It is not used if it belongs to another user, or if the virtual machine refuses it.
A command that has used Spark without one has it made in the background.

Source: "Class Data Sharing" in the JDK's guide to the virtual machine; -XX:ArchiveClassesAtExit.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.model.clock import SystemClock
from cordwood.storage.filesystem import OS

#: The directory of caches, instead of the user's own; empty for none.
CACHE_VARIABLE: Final = "CORDWOOD_CACHE_DIR"
#: What the virtual machine has run that made an archive: one that has run less is not used.
_CONTENTS: Final = "compactions and queries"
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Command:
    """Options of a virtual machine, as far as its classes depend on them."""

    java: str
    options: Sequence[str]
    jars: Sequence[Path]

    def words(self, flags: Sequence[str]) -> list[str]:
        """The command line up to the name of the main class."""
        class_path = ":".join(str(jar) for jar in self.jars)
        return [self.java, *self.options, *flags, "-cp", class_path]

    def key(self) -> str:
        """A digest of all that an archive depends on."""
        java = Path(self.java).resolve()
        release = java.parents[1] / "release"
        facts: list[object] = [str(java), release.read_text() if release.exists() else ""]
        facts += [list(self.options), _CONTENTS]
        for jar in self.jars:
            found = jar.stat()
            facts.append([str(jar), found.st_size, found.st_mtime_ns])
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """An archive that is there."""

    path: Path
    command: Command

    @property
    def flags(self) -> list[str]:
        """The options that use it."""
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto"]

    def discard(self) -> None:
        """Removes it: a virtual machine has failed with it."""
        with suppress(OSError):
            OS.remove(self.path)


def cache_directory() -> Path | None:
    """The user's directory for caches, None if there is none; it may not exist yet."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "cordwood"
    except RuntimeError:  # there is no home
        return None


def find(command: Command) -> ClassArchive | None:
    """The archive for this command, if there is one that this user has made."""
    cache = cache_directory()
    if cache is None:
        return None
    try:
        path = path_in(cache, command)
        facts = path.lstat()
    except OSError:
        return None
    is_own = facts.st_uid == os.geteuid() and stat.S_ISREG(facts.st_mode)
    if not is_own or facts.st_mode & _OTHERS_MAY_WRITE:
        return None
    with suppress(OSError):  # when it was last used decides how long it is kept
        os.utime(path, ns=(SystemClock().now_ms() * 1_000_000, facts.st_mtime_ns))
    return ClassArchive(path, command)


def path_in(cache: Path, command: Command) -> Path:
    """The path of the archive of a command."""
    return cache / f"spark-classes-{command.key()}.jsa"
