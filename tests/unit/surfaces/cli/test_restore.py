"""`cordwood restore` at its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.model import extras
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.main import app
from support.archives import archive_in, archived, contents
from support.golden import Golden
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.schemas import require_fit

DAY_MS = 86_400_000


def log_of(name: str) -> LogBuilder:
    """Three segments of two records; one of each of the last three days."""
    log = LogBuilder(name)
    for number in range(3):
        if number:
            log.roll()
        log.batch([(b"a", b"v"), (b"b", b"w" * 50)], timestamp=NOW_MS - (3 - number) * DAY_MS)
    return log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "data", [log_of("orders-0"), log_of("prices-0")])


@pytest.fixture
def url(root: Path, tmp_path: Path) -> str:
    archive = archive_in(tmp_path / "archive")
    archived(archive, root, has_active=True)
    return archive.url


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["restore", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    require_fit("restore", found)
    return found


def test_a_run_shows_each_partition_and_ends_with_a_sum(
    root: Path, url: str, tmp_path: Path
) -> None:
    into = tmp_path / "restored"
    shown = run(url, into).stdout
    assert contents(into) == contents(root)
    assert "Restored" in shown
    assert "orders-0" in shown
    last = shown.splitlines()[-1]
    assert last.startswith(f"{into}: 2 partitions, ")
    assert "metadata" not in last


def test_the_metadata_of_a_cluster_is_told(golden_a: Golden, tmp_path: Path) -> None:
    archive = archive_in(tmp_path / "archive")
    archived(archive, golden_a.root / "before", topics=["__consumer_offsets"])
    into = tmp_path / "restored"
    assert ", and the cluster's metadata in " in run(archive.url, into).stdout
    assert (into / "meta.properties").exists()
    assert document(archive.url, tmp_path / "again")["has_metadata"]


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        (["--from-offset", "2"], 2, 6),
        (["--to-offset", "4"], 0, 4),
        (["--from-offset", "3", "--to-offset", "4"], 3, 4),
        (["--from-time", str(NOW_MS - 2 * DAY_MS)], 2, 6),
        (["--to-time", "2023-11-13T22:13:20Z"], 0, 4),
    ],
)
def test_a_range_is_restored_which_is_sound(
    url: str, tmp_path: Path, options: list[str], first: int, end: int
) -> None:
    into = tmp_path / "restored"
    found = document(url, into, "--topic", "orders", *options)
    (row,) = found["partitions"]
    assert (row["topic"], row["directory"]) == ("orders", str(into / "orders-0"))
    assert (row["log_start_offset"], row["end_offset"]) == (first, end)
    result = CliRunner().invoke(app, ["verify", str(into)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("sound: 1 partition, ")


def test_a_damaged_object_is_told_and_the_others_are_restored(url: str, tmp_path: Path) -> None:
    path = next((tmp_path / "archive").glob("data/orders-*/0/*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    shown = run(url, tmp_path / "restored", code=1).stdout
    assert "SHA-256" in shown
    assert f"{tmp_path / 'restored'}: 1 partition, " in shown
    found = document(url, tmp_path / "again", code=1)
    assert [row["topic"] for row in found["partitions"] if row["failure"]] == ["orders"]


def test_a_partition_that_is_there_is_refused(root: Path, url: str) -> None:
    result = CliRunner().invoke(app, ["restore", url, str(root)])
    assert result.exit_code == 1
    assert "it is there already" in result.output


def test_a_directory_in_use_is_refused_with_its_own_code(url: str, tmp_path: Path) -> None:
    into = tmp_path / "restored"
    into.mkdir()
    lock = OS.lock(into)
    try:
        result = CliRunner().invoke(app, ["restore", url, str(into)])
    finally:
        lock.release()
    assert result.exit_code == 3
    assert "is using this directory" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["archive", "into"], "archive: not the URL of an archive, as s3://BUCKET/PREFIX"),
        (["ftp://host/x", "into"], "not a URL of object storage"),
        (["s3://", "into"], "it names no bucket"),
        (["URL", "into", "--topic", "missing"], "no topic matches --topic missing"),
        (["URL", "into", "--from-time", "soon"], "--from-time"),
    ],
)
def test_what_cannot_be_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    changed = [url if each == "URL" else each for each in arguments]
    result = CliRunner().invoke(app, ["restore", *changed])
    assert result.exit_code == 2
    assert text in result.output
    assert not (tmp_path / "into").exists()


def test_what_speaks_to_object_storage_may_be_missing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "missing_packages", lambda extra: ["obstore"])
    result = CliRunner().invoke(app, ["restore", url, str(tmp_path / "into")])
    assert result.exit_code == 2
    assert "cordwood[lake]" in result.output
