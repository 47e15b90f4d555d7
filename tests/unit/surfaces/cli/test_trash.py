"""`cordwood trash`: list, restore, empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from cordwood.format.trash_notes import build_trash_notes
from cordwood.storage.filesystem import DirectoryLock
from cordwood.storage.trash import trashed_partitions
from cordwood.surfaces.cli.main import app
from support.clean_case import EXPIRE, log_dir, snapshot_of


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


def document(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("trash", *arguments, "--json", code=code).stdout)
    return found


def cleaned(tmp_path: Path) -> tuple[Path, Path]:
    root, trash = log_dir(tmp_path / "logs", "x-0", "x-1", "y-0"), tmp_path / "trash"
    run("clean", root, "--trash", trash, *EXPIRE)
    return root, trash


def logs_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*.log")}


def test_what_is_in_a_trash_is_listed(tmp_path: Path) -> None:
    _, trash = cleaned(tmp_path)
    text = run("trash", "list", trash).output
    assert text.splitlines()[0] == f"Trash {trash}"
    rows = [line.split() for line in text.splitlines()[2:]]
    assert [(row[0], *row[2:]) for row in rows] == [
        (name, "retention", "2", "0-3", "256") for name in ("x-0", "x-1", "y-0")
    ]
    (shown,) = document("list", trash, "--topic", "y*")["removals"]
    assert (shown["partition"], shown["segments"], shown["bytes"]) == ("y-0", [0, 2], 256)
    (trash / "y-0" / "other").touch()
    assert document("list", trash)["unknown"] == [str(trash / "y-0" / "other")]
    assert "1 other files, which no note describes" in run("trash", "list", trash).output


def test_partitions_are_put_back_one_topic_or_all(tmp_path: Path) -> None:
    before = snapshot_of(log_dir(tmp_path / "logs", "x-0", "x-1", "y-0"))
    root, trash = cleaned(tmp_path)
    assert len(logs_of(root)) == 3
    shown = document("restore", trash, root, "--topic", "x:1", "--dry-run")
    assert [each["partition"] for each in shown["restored"]] == ["x-1"]
    assert len(logs_of(root)) == 3
    text = run("trash", "restore", trash, root, "--topic", "x:1").output
    assert text.splitlines()[0] == "Restored"
    assert text.splitlines()[-1] == "1 removal, 256"
    assert len(logs_of(root)) == 5
    assert document("restore", trash, root)["refused"] == {}
    after = snapshot_of(root)
    assert {name: each[2] for name, each in after.items()} == {
        name: each[2] for name, each in before.items()
    }
    assert "there is nothing in this trash" in run("trash", "restore", trash, root, code=2).output


def test_what_cannot_be_put_back_is_named_and_the_others_are(tmp_path: Path) -> None:
    root, trash = cleaned(tmp_path)
    (root / "x-0" / "partition.metadata").write_text("version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qk")
    for path in (root / "y-0").iterdir():
        path.unlink()
    (root / "y-0").rmdir()
    (trash / "x-1" / "cordwood-trash.json").write_bytes(b"{")
    found = document("restore", trash, root, code=1)
    assert found["restored"] == []
    assert "the topic was made again since" in found["refused"]["x-0"]
    assert "cordwood-trash.json: not the notes of a trash" in found["refused"]["x-1"]
    assert found["refused"]["y-0"] == f"there is no such log in {root}"
    said = run("trash", "restore", trash, root, "--topic", "y", code=1).output
    assert f"y-0: not restored: there is no such log in {root}" in said


def test_a_directory_in_use_is_refused_except_for_a_dry_run(tmp_path: Path) -> None:
    root, trash = cleaned(tmp_path)
    for taken in (root, trash):
        lock = DirectoryLock(taken)
        try:
            run("trash", "restore", trash, root, code=3)
            assert len(document("restore", trash, root, "--dry-run")["restored"]) == 3
        finally:
            lock.release()
    assert len(logs_of(root)) == 3


def test_what_is_older_is_deleted(tmp_path: Path) -> None:
    _, trash = cleaned(tmp_path)
    first = trashed_partitions(trash)[0]
    (note,) = first.removals()
    aged = note.__class__(**{f: getattr(note, f) for f in note.__slots__} | {"at_ms": 0})
    (first.directory / "cordwood-trash.json").write_bytes(build_trash_notes([aged]))
    for dry_run in (["--dry-run"], []):
        found = document("empty", trash, "--older-than", "7d", *dry_run)
        assert [each["partition"] for each in found["deleted"]] == ["x-0"]
        assert (trash / "x-0").exists() == bool(dry_run)
    assert [each["partition"] for each in document("list", trash)["removals"]] == ["x-1", "y-0"]
    assert run("trash", "empty", trash, "--older-than", "0s").stdout.endswith("2 removals, 512\n")
    assert list(trash.iterdir()) == []
    assert run("trash", "list", trash).stdout == "Nothing is in the trash.\n"


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    root, trash = cleaned(tmp_path)
    for arguments, says in (
        (("list", tmp_path / "missing"), "there is no such directory"),
        (("list", root), "a log directory, not the directory of a --trash"),
        (("restore", trash, trash), "it is the trash; LOG_DIR is where its segments are"),
        (("restore", trash, root, "--topic", "z"), "there is nothing of z in this trash"),
        (("restore", trash, root, "--since", "soon"), "--since soon"),
        (("empty", trash, "--older-than", "soon"), "--older-than soon"),
    ):
        assert says in run("trash", *arguments, code=2).output, says


def test_a_trash_is_that_of_a_stopped_broker_or_of_a_running_one(tmp_path: Path) -> None:
    for arguments, says in (
        (["list"], "which broker? Give one of --log-dir"),
        (["list", str(tmp_path), "--log-dir", str(tmp_path)], "TRASH is of a stopped broker"),
        (["restore", str(tmp_path), "--topic", "t"], "LOG_DIR is missing"),
        (["restore", str(tmp_path), str(tmp_path), "--hold", "a"], "--id and --hold are for"),
        (["empty", "--older-than", "1d"], "which broker? Give one of --log-dir"),
    ):
        result = CliRunner().invoke(app, ["trash", *arguments])
        assert result.exit_code == 2
        assert says in result.output


def test_what_leaves_a_trash_is_in_the_audit_log(tmp_path: Path) -> None:
    _, trash = cleaned(tmp_path)
    audit = tmp_path / "audit"
    empty = ["trash", "--audit-log", audit, "empty", trash, "--older-than", "0s"]
    run(*empty, "--dry-run")
    assert audit.read_text() == ""
    run(*empty)
    lines = audit.read_text().splitlines()
    assert len(lines) == 3
    assert all(f" INFO Deleted from the trash {trash}: segments 0" in line for line in lines)
