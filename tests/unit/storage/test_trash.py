"""Files that go to the trash instead of being deleted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cordwood.model.errors import NoSpaceError
from cordwood.storage.filesystem import OS
from cordwood.storage.trash import move_file
from support.failing_disks import fill, may_mount, small_disk


@pytest.mark.skipif(bool(may_mount()), reason=may_mount())
def test_a_file_is_moved_to_another_file_system_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 100_000)
    path.chmod(0o640)
    os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        ballast = fill(disk, leave_bytes=50_000)
        target = disk / "t-0" / "segment"
        with pytest.raises(NoSpaceError, match=rf"{re.escape(str(target))}.*: .* is full"):
            move_file(path, target)
        assert list(target.parent.iterdir()) == []
        assert path.stat().st_size == 100_000
        ballast.unlink()
        target.with_name("segment.tmp").write_bytes(b"of a move that was cut off")
        move_file(path, target)
        assert list(target.parent.iterdir()) == [target]
        assert not path.exists()
        assert target.read_bytes() == b"x" * 100_000
        link = tmp_path / "link"
        link.symlink_to(target)
        move_file(link, disk / "t-0" / "link")
        assert (disk / "t-0" / "link").readlink() == target
        assert not link.is_symlink()
        facts = OS.facts_of(target)
        assert (facts.mode, facts.modified_ns) == (0o640, 2_000_000_000)
