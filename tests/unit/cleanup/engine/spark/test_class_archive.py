"""Selection of the archive of Spark's classes by a start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cordwood.cleanup.engine.spark import archive_maker, class_archive
from cordwood.cleanup.engine.spark.class_archive import Command


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    monkeypatch.setenv(class_archive.CACHE_VARIABLE, str(path))
    return path


@pytest.fixture
def command(tmp_path: Path) -> Command:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"jar")
    return Command("/usr/bin/java", ["-XX:+UseSerialGC"], [jar])


def make(cache: Path, command: Command) -> Path:
    path = class_archive.path_in(cache, command)
    path.write_bytes(b"classes")
    path.chmod(0o444)
    return path


def test_an_archive_is_for_one_java_one_set_of_options_and_one_set_of_jars(
    command: Command, tmp_path: Path
) -> None:
    other = tmp_path / "b.jar"
    other.write_bytes(b"jar")
    (jar,) = command.jars
    keys = {
        command.key(),
        Command("/opt/java", command.options, command.jars).key(),
        Command(command.java, [], command.jars).key(),
        Command(command.java, command.options, [other]).key(),
    }
    assert command.key() in keys
    os.utime(jar, (1, 1))
    keys.add(command.key())
    assert len(keys) == 5


def test_an_archive_is_found_where_it_was_made_and_its_use_is_noted(
    cache: Path, command: Command
) -> None:
    assert class_archive.find(command) is None
    path = make(cache, command)
    os.utime(path, (1, 2))
    found = class_archive.find(command)
    assert found is not None
    assert found.flags == [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]
    assert path.stat().st_mtime == 2
    assert path.stat().st_atime > 2
    found.discard()
    assert class_archive.find(command) is None


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_an_archive_that_others_can_write_is_passed_over(
    cache: Path, command: Command, mode: int
) -> None:
    make(cache, command).chmod(mode)
    assert class_archive.find(command) is None


def test_an_archive_of_another_user_or_behind_a_link_is_passed_over(
    cache: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(cache, command)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        assert class_archive.find(command) is None
    path.rename(cache / "elsewhere")
    path.symlink_to(cache / "elsewhere")
    assert class_archive.find(command) is None


def test_the_cache_is_the_users_unless_another_or_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(class_archive.CACHE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert class_archive.cache_directory() == tmp_path / ".cache" / "cordwood"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert class_archive.cache_directory() == tmp_path / "xdg" / "cordwood"
    monkeypatch.setenv(class_archive.CACHE_VARIABLE, "")
    assert class_archive.cache_directory() is None


def test_nothing_is_made_without_a_cache_or_where_it_has_failed(
    cache: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(archive_maker, "local_command", lambda: command)
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **_: started.append(a))
    archive_maker.start_if_missing()
    assert len(started) == 1
    class_archive.path_in(cache, command).with_suffix(".failed").touch()
    archive_maker.start_if_missing()
    monkeypatch.setenv(class_archive.CACHE_VARIABLE, "")
    archive_maker.start_if_missing()
    monkeypatch.setenv(class_archive.CACHE_VARIABLE, "/proc/no-such-directory")
    archive_maker.start_if_missing()
    assert len(started) == 1
