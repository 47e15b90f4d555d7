"""Log directories by path or URL: that of an archive in object storage is mounted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cordwood.model.extras import LAKE, require_extra
from cordwood.storage.filesystem import OS

_MARK: Final = "://"


def log_dir_of(text: str) -> Path:
    """A path as it is; of a URL, the directory at which its archive is mounted in this process.

    Raises:
        ConfigError: the URL is not one of object storage.
        MissingExtraError: what speaks to object storage is not installed.
    """
    if _MARK not in text:
        return Path(text)
    require_extra(LAKE, what=text)
    # What speaks to object storage is loaded where there is some.
    from cordwood.storage.archives.mount import mount_archive  # noqa: PLC0415

    return mount_archive(text)


def mount_again(log_dirs: Iterable[Path]) -> None:
    """Mounts in this process what another one had mounted at these directories.

    Raises:
        As `log_dir_of`.
    """
    for log_dir in log_dirs:
        url = url_of(log_dir)
        if url is not None and OS.mounted(log_dir) is None:
            log_dir_of(url)


def url_of(log_dir: Path) -> str | None:
    """The URL of the archive that is mounted at a directory; None for another one."""
    scheme, rest = log_dir.parts[1:2], log_dir.parts[2:]
    if not scheme or not scheme[0].endswith(":"):
        return None
    root = "/" if scheme[0] == "file:" else ""
    return f"{scheme[0][:-1]}{_MARK}{root}{'/'.join(rest)}"
