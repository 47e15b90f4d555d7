"""`cordwood archive` at its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.model import extras
from cordwood.model.errors import MissingExtraError
from cordwood.surfaces.cli.main import app
from support.archives import archive_in, contents, restored
from support.clean import digest_tree
from support.log_builder import LogBuilder, write_log_dir
from support.schemas import require_fit


def log_of(name: str) -> LogBuilder:
    log = LogBuilder(name)
    for number in range(3):
        if number:
            log.roll()
        log.batch([(b"k%d" % number, b"v" * 500), (b"other", b"w")])
    return log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "data", [log_of("orders-0"), log_of("prices-0")])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/archive"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["archive", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    require_fit("archive", found)
    return found


def test_a_run_shows_each_partition_and_ends_with_a_sum(root: Path, url: str) -> None:
    before = digest_tree(root)
    shown = run(root, url).stdout
    assert digest_tree(root) == before
    assert "Archived" in shown
    lines = [line.split() for line in shown.splitlines()]
    (orders,) = (line for line in lines if "orders-0" in line)
    assert [each for each in orders if each not in "│|"][:3] == ["orders-0", "archived", "2"]
    last = shown.splitlines()[-1]
    assert last.startswith(f"{url}: 4 segments, ")
    assert " of 2 partitions in " in last
    assert last.endswith(" requests")


def test_a_second_run_has_nothing_to_show_but_the_sum(root: Path, url: str) -> None:
    run(root, url)
    shown = run(root, url).stdout
    assert shown.startswith(f"{url}: 0 segments, ")
    assert shown.count("\n") == 1


def test_a_document_has_what_became_of_each_partition(root: Path, url: str) -> None:
    found = document(root, url, "--topic", "orders")
    assert (found["url"], found["dry_run"], found["warnings"]) == (url, False, [])
    (row,) = (row for row in found["partitions"] if row["status"] == "archived")
    assert (row["topic"], row["partition"], row["log_dir"]) == ("orders", 0, str(root))
    assert (row["segments"], row["log_start_offset"], row["end_offset"]) == (2, 0, 4)
    assert row["bytes_left"] > 500
    assert found["requests"]["put"] > 8
    again = document(root, url, "--topic", "orders")
    assert {row["status"] for row in again["partitions"]} == {"unchanged"}


def test_a_dry_run_copies_nothing(root: Path, url: str, tmp_path: Path) -> None:
    assert "Would be archived" in run(root, url, "--dry-run").stdout
    assert document(root, url, "--dry-run")["dry_run"]
    assert not [path for path in (tmp_path / "archive").rglob("*") if path.is_file()]


def test_active_segments_are_archived_on_demand(root: Path, url: str, tmp_path: Path) -> None:
    rows = document(root, url, "--active", "--throttle", "100G")["partitions"]
    assert {(row["segments"], row["end_offset"], row["bytes_left"]) for row in rows} == {(3, 6, 0)}
    restored(archive_in(tmp_path / "archive"), tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(root)


def test_a_partition_that_cannot_be_archived_is_told_and_the_others_are(
    root: Path, url: str
) -> None:
    (root / "orders-0" / "leader-epoch-checkpoint").write_text("nonsense")
    shown = run(root, url, code=1).stdout
    assert "failed" in shown
    assert "leader-epoch-checkpoint" in shown
    rows = {row["topic"]: row for row in document(root, url, code=1)["partitions"]}
    assert rows["orders"]["status"] == "failed"
    assert rows["prices"]["status"] == "unchanged"


def test_offsets_that_were_deleted_before_are_told(url: str, tmp_path: Path) -> None:
    run(write_log_dir(tmp_path / "data", [log_of("orders-0")]), url)
    later = LogBuilder("orders-0", start_offset=1000)
    later.put(b"k", b"v")
    later.roll()
    shown = run(write_log_dir(tmp_path / "later", [later]), url).stdout
    assert "offsets 4 to 999 were deleted before" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["data"], "name one LOG_DIR at least, then the URL of the archive"),
        (["data", "archive"], "name one LOG_DIR at least, then the URL"),
        (["file:///x"], "name one LOG_DIR at least"),
        (["data", "ftp://host/x"], "not a URL of object storage; one begins with s3"),
        (["data", "s3://"], "it names no bucket"),
        (["data", "file:///x", "--throttle", "much"], "--throttle much"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(root.parent)
    result = CliRunner().invoke(app, ["archive", *arguments])
    assert result.exit_code == 2
    assert text in result.output
    assert not (root.parent / "archive").exists()


def test_what_speaks_to_object_storage_may_be_missing(
    root: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "missing_packages", lambda extra: ["obstore"])
    result = CliRunner().invoke(app, ["archive", str(root), url])
    assert result.exit_code == 2
    assert "cordwood[lake]" in result.output


def test_a_url_where_a_log_dir_is_asked_for_may_miss_it_too(
    root: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(root, url)
    monkeypatch.setattr(extras, "missing_packages", lambda extra: ["obstore"])
    result = CliRunner().invoke(app, ["verify", url])
    assert isinstance(result.exception, MissingExtraError)
    assert "cordwood[lake]" in str(result.exception)
