"""URLs of log directories with tiered logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.model.errors import ConfigError
from cordwood.storage.filesystem import OS
from cordwood.storage.log_dir_urls import log_dir_of, mount_again, url_of
from cordwood.storage.tiered.mount import is_tiered
from cordwood.storage.tiered.tiered_filesystem import TieredFileSystem

URL = "tiered:///var/kafka%20data?remote-dir=/mnt/tier&metadata-dir=/a/b&metadata-dir=/c"
ROOT = Path("/tiered:/var/kafka data/remote-dir:/mnt/tier/metadata-dir:/a/b/metadata-dir:/c")


def test_a_url_and_its_directory_name_the_same() -> None:
    assert log_dir_of(URL) == ROOT
    fs = OS.mounted(ROOT)
    assert isinstance(fs, TieredFileSystem)
    assert (fs.log_dir, fs.remote_dir) == (Path("/var/kafka data"), Path("/mnt/tier"))
    assert fs.metadata_dirs == (Path("/a/b"), Path("/c"))
    assert url_of(ROOT) == URL
    assert log_dir_of(str(ROOT)) == ROOT
    assert is_tiered(ROOT / "orders-0")
    assert not is_tiered(Path("/var/kafka data"))
    mount_again([ROOT, Path("/var")])
    assert OS.mounted(ROOT) is fs
    assert url_of(Path("/var")) is None


def test_without_other_directories_the_metadata_are_in_the_log_directory() -> None:
    fs = OS.mounted(log_dir_of("tiered:///k?remote-dir=/r"))
    assert isinstance(fs, TieredFileSystem)
    assert fs.metadata_dirs == (Path("/k"),)


@pytest.mark.parametrize(
    "url",
    [
        "tiered:///k",
        "tiered:///k?remote-dir=",
        "tiered:///k?remote-dir=/a&remote-dir=/b",
        "tiered:///?remote-dir=/a",
        "tiered://host/k?remote-dir=/a",
        "tiered:///k?remote-dir=/a&metadata-dir=",
        "tiered:///k?remote-dir=/a&other=1",
        "tiered:///k?remote-dir=/a#x",
    ],
)
def test_another_form_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected tiered:///LOG_DIR"):
        log_dir_of(url)
