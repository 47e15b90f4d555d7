"""Mounts log directories with their tiered logs, so that a URL names one.

`tiered:///LOG_DIR?remote-dir=DIR`, and `&metadata-dir=DIR` for each log directory that has
partitions of `__remote_log_metadata`, where `LOG_DIR` has not all that matter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from cordwood.model.errors import ConfigError
from cordwood.storage.filesystem import OS
from cordwood.storage.tiered.tiered_filesystem import TieredFileSystem

SCHEME: Final = "tiered"
_REMOTE, _METADATA = "remote-dir", "metadata-dir"


def mount_tiered(url: str) -> Path:
    """The directory at which a log directory with its tiered logs is mounted in this process.

    It is `/tiered:/LOG_DIR/remote-dir:/DIR`.

    Raises:
        ConfigError: the URL has not this form.
    """
    parts = urlsplit(url)
    given = parse_qs(parts.query, keep_blank_values=True)
    remote = given.pop(_REMOTE, [])
    metadata = given.pop(_METADATA, [])
    if given or parts.fragment or parts.netloc or len(parts.path) < 2 or not all(remote + metadata):
        raise ConfigError(f"{url}: {_EXPECTED}")
    if len(remote) != 1:
        raise ConfigError(f"{url}: {_REMOTE} is to be given once; {_EXPECTED}")
    log_dir, remote_dir = Path(unquote(parts.path)), Path(remote[0]).absolute()
    metadata_dirs = [Path(each).absolute() for each in metadata]
    root = Path("/", f"{SCHEME}:", *log_dir.parts[1:], f"{_REMOTE}:", *remote_dir.parts[1:])
    for each in metadata_dirs:
        root = root.joinpath(f"{_METADATA}:", *each.parts[1:])
    if OS.mounted(root) is None:
        OS.mount(root, TieredFileSystem(root, log_dir, remote_dir, metadata_dirs))
    return root


_EXPECTED: Final = (
    f"expected {SCHEME}:///LOG_DIR?{_REMOTE}=DIR, and &{_METADATA}=DIR for each log directory "
    "with partitions of __remote_log_metadata, if it is not LOG_DIR"
)


def is_tiered(log_dir: Path) -> bool:
    """Whether a path is of a log directory that is mounted with its tiered logs."""
    return isinstance(OS.at(log_dir), TieredFileSystem)


def url_of_tiered(log_dir: Path) -> str:
    """The URL of what is mounted at a directory."""
    places: list[tuple[str, list[str]]] = [("", [])]
    for part in log_dir.parts[2:]:
        if part in {f"{_REMOTE}:", f"{_METADATA}:"}:
            places.append((part[:-1], []))
        else:
            places[-1][1].append(part)
    path, *options = [(name, quote("/" + "/".join(parts))) for name, parts in places]
    return f"{SCHEME}://{path[1]}?" + "&".join(f"{name}={value}" for name, value in options)
