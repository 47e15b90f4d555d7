"""A file as it was named on the command line.

Source: java.io.File.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cordwood.storage.log_dir_urls import log_dir_of


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file by the name that output calls it: slashes in a row are one, `.` and `..` stay."""

    shown: str

    @classmethod
    def parse(cls, argument: str) -> NamedFile:
        """The file that an argument names; one in an archive, which is mounted, by its URL.

        Raises:
            ConfigError: the URL is not one of object storage.
            MissingExtraError: what speaks to object storage is not installed.
        """
        if "://" in argument:
            archive, partition, name = argument.rsplit("/", 2)
            return cls(str(log_dir_of(archive) / partition / name))
        single = re.sub("/+", "/", argument)
        return cls(single if single == "/" else single.removesuffix("/"))

    def __str__(self) -> str:
        return self.shown

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.shown)

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.shown.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The name from its last dot on; empty without a dot."""
        _, dot, end = self.name.rpartition(".")
        return dot + end if dot else ""

    @property
    def absolute(self) -> str:
        """The name from the root on, nothing else being changed."""
        return self.shown if self.shown.startswith("/") else f"{os.getcwd()}/{self.shown}"

    def beside(self, suffix: str) -> NamedFile:
        """The file of the same segment with another suffix."""
        folder, slash, name = self.shown.rpartition("/")
        return NamedFile(folder + slash + name.partition(".")[0] + suffix)
