"""`cordwood clean URL`: an archive on an S3 server is cleaned as the directory itself would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.clean import run_clean
from support.golden import Golden
from support.object_storage.server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    ObjectStorageServer,
)
from support.spark_servers import standalone_cluster

pytestmark = pytest.mark.spark


@pytest.fixture
def s3(object_storage: ObjectStorageServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; programs find its server by the environment."""
    bucket = f"clean-{os.urandom(4).hex()}"
    object_storage.make_bucket(bucket)
    for name, value in {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": object_storage.url,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket}/kafka"


def cordwood(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {f"{each['topic']}-{each['partition']}": each["status"] for each in report["partitions"]}


def contents(log_dir: Path) -> Iterator[tuple[str, bytes]]:
    """The files of segments and the lines of the cleaner checkpoint."""
    for path in sorted(log_dir.rglob("*")):
        name = str(path.relative_to(log_dir))
        if path.suffix in {".log", ".index", ".timeindex", ".txnindex"}:
            yield name, path.read_bytes()
        elif path.name == "cleaner-offset-checkpoint":
            yield name, b"\n".join(sorted(path.read_bytes().splitlines()))


@pytest.mark.parametrize(("before", "at"), [("before", 1), ("before-2", 2)])
def test_a_cleaned_archive_restored_is_the_directory_cleaned(
    s3: str, golden_a: Golden, tmp_path: Path, before: str, at: int
) -> None:
    now_ms = golden_a.cleaned_at_ms if at == 1 else golden_a.cleaned_at_2_ms
    directory, restored = tmp_path / "directory", tmp_path / "restored"
    subprocess.run(["cp", "-rp", str(golden_a.root / before), str(directory)], check=True)
    cordwood("archive", str(directory), s3, "--active")
    expected_report = run_clean([directory], "--defaults", now_ms=now_ms).report
    report = run_clean([s3], "--defaults", now_ms=now_ms).report
    assert statuses(report) == statuses(expected_report)
    assert list(statuses(report).values()).count("cleaned") > 15
    cordwood("restore", s3, str(restored))
    expected, found = dict(contents(directory)), dict(contents(restored))
    assert found.keys() == expected.keys()
    assert not [name for name in expected if found[name] != expected[name]]
    cordwood("verify", str(restored))
    again = run_clean([s3], "--defaults", now_ms=now_ms).report
    assert not [each for each in again["partitions"] if each["status"] == "cleaned"]


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_workers_of_a_cluster_make_the_same_bytes_as_one_task_here(
    s3: str, golden_a: Golden, tmp_path: Path, workers: int
) -> None:
    found = []
    (tmp_path / "spark").mkdir()
    with standalone_cluster(tmp_path / "spark", workers=workers) as address:
        for number, master in enumerate(("local[1]", address)):
            url, restored = f"{s3}/{number}", tmp_path / f"restored-{number}"
            cordwood("archive", str(golden_a.root / "before"), url, "--active")
            run_clean([url], "--defaults", "--master", master, now_ms=golden_a.cleaned_at_ms)
            cordwood("restore", url, str(restored))
            found.append(dict(contents(restored)))
    assert found[0] == found[1]


def test_the_records_of_an_archive_are_those_of_the_directory(s3: str, golden_a: Golden) -> None:
    log_dir = golden_a.root / "before-2"
    cordwood("archive", str(log_dir), s3, "--active")
    query = """
        select 'records' as of, topic, count(*), sum(offset), sum(hash(key, value)) from records
        group by topic union all
        select 'batches', topic, count(*), sum(crc), sum(position) from batches
        group by topic union all
        select 'offsets', groupId, count(*), sum(offset), sum(partition) from offsets
        group by groupId order by 1, 2
    """
    found = [json.loads(cordwood("sql", query, place, "--json")) for place in (s3, str(log_dir))]
    assert found[0] == found[1]
    assert len(found[0]["rows"]) > 50
