"""Log directories by path or URL: what a URL names is mounted.

It names an archive in object storage, or a log directory with its tiered logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cordwood.model.extras import LAKE, require_extra
from cordwood.storage.filesystem import OS
from cordwood.storage.tiered.mount import SCHEME as TIERED
from cordwood.storage.tiered.mount import mount_tiered, url_of_tiered

_MARK: Final = "://"


def log_dir_of(text: str) -> Path:
    """A path as it is; of a URL, the directory at which what it names is mounted in this process.

    Such a directory itself stands for the URL.

    Raises:
        ConfigError: the URL has not the form of one.
        MissingExtraError: what speaks to object storage is not installed.
    """
    if _MARK not in text:
        text = url_of(Path(text)) or text
    if _MARK not in text:
        return Path(text)
    if text.startswith(f"{TIERED}{_MARK}"):
        return mount_tiered(text)
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
    """The URL of what is mounted at a directory; None for another one."""
    scheme, rest = log_dir.parts[1:2], log_dir.parts[2:]
    if not scheme or not scheme[0].endswith(":"):
        return None
    if scheme[0] == f"{TIERED}:":
        return url_of_tiered(log_dir)
    root = "/" if scheme[0] == "file:" else ""
    return f"{scheme[0][:-1]}{_MARK}{root}{'/'.join(rest)}"
