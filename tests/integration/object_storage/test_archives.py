"""Archives on a real S3 server, through connections that break, and by two writers."""

from __future__ import annotations

import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.archiving.report import ArchiveStatus
from cordwood.storage.archives.archive import Archive, ManifestConflictError
from cordwood.storage.objects.object_store import ObjectStore, ObjectStoreError
from cordwood.surfaces.cli.main import app
from support.archives import archived, contents, manifest_of, restored, s3_options
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir
from support.object_storage.faults import PASS, FaultKind, RandomFaults
from support.object_storage.proxy import FaultProxy
from support.object_storage.server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    ObjectStorageServer,
)

BUCKET = "archives"
_RUNS_MAX = 20
NIGHTLY = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 200)]


@pytest.fixture(scope="module")
def storage(object_storage: ObjectStorageServer) -> ObjectStorageServer:
    object_storage.make_bucket(BUCKET)
    return object_storage


def archive_at(endpoint: str, prefix: str) -> Archive:
    return Archive(ObjectStore(f"s3://{BUCKET}/{prefix}", s3_options(endpoint)))


def require_nothing_double(archive: Archive) -> None:
    """Requires that each object is named once, and that each offset is in one segment."""
    for manifest in archive.manifests():
        assert max(Counter(file.key for file in manifest.files).values(), default=1) == 1
        ends = [0, *(each.next_base_offset for each in manifest.segments)]
        for segment, end in zip(manifest.segments, ends, strict=False):
            assert segment.base_offset >= end
    keys = {each.key for each in archive.store.list("data/")}
    assert keys >= {file.key for each in archive.manifests() for file in each.files}


def archive_until_complete(archive: Archive, source: Path) -> None:
    """Runs again as a user does, where the store refuses or gives no answer."""
    for _ in range(_RUNS_MAX):
        with suppress(ObjectStoreError):
            if archived(archive, source, has_active=True).is_complete:
                return
    pytest.fail(f"not complete after {_RUNS_MAX} runs")


def restore_until_complete(archive: Archive, into: Path, endpoint: str) -> None:
    for _ in range(_RUNS_MAX):
        shutil.rmtree(into, ignore_errors=True)
        with suppress(ObjectStoreError, OSError):
            if restored(archive, into, options=s3_options(endpoint)).is_complete:
                return
    pytest.fail(f"not complete after {_RUNS_MAX} runs")


def log_dir_of(directory: Path, *, logs: int = 3) -> Path:
    built = []
    for number in range(logs):
        log = LogBuilder(f"t-{number}")
        for segment in range(4):
            if segment:
                log.roll()
            log.batch([(b"k%d" % segment, b"v" * 100), (b"other", b"w")])
        built.append(log)
    return write_log_dir(directory, built)


@pytest.mark.parametrize("seed", [*range(2), *NIGHTLY])
def test_through_random_faults_nothing_is_lost_and_nothing_double(
    storage: ObjectStorageServer, tmp_path: Path, seed: int
) -> None:
    source = log_dir_of(tmp_path / "data")
    prefix = f"faults-{seed}"
    with FaultProxy(storage.port, RandomFaults(seed, share=0.15)) as proxy:
        archive_until_complete(archive_at(proxy.url, prefix), source)
        require_nothing_double(archive_at(storage.url, prefix))
        proxy.send_delayed()
        require_nothing_double(archive_at(storage.url, prefix))
        into = tmp_path / "restored"
        restore_until_complete(archive_at(proxy.url, prefix), into, proxy.url)
    assert contents(into) == contents(source)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_a_kafkas_directory_comes_back_through_random_faults(
    storage: ObjectStorageServer, golden_a: Golden, tmp_path: Path, seed: int
) -> None:
    source, prefix = golden_a.root / "before-2", f"golden-{seed}"
    with FaultProxy(storage.port, RandomFaults(seed, share=0.1)) as proxy:
        archive_until_complete(archive_at(proxy.url, prefix), source)
        into = tmp_path / "restored"
        restore_until_complete(archive_at(proxy.url, prefix), into, proxy.url)
    require_nothing_double(archive_at(storage.url, prefix))
    assert contents(into) == contents(source)


def test_of_two_writers_of_a_partition_one_wins(storage: ObjectStorageServer) -> None:
    archives = [archive_at(storage.url, "race") for _ in range(3)]

    def commit(writer: int, number: int) -> bool:
        manifest = manifest_of(number=number, run=f"writer {writer}", end_offset=writer)
        try:
            archives[writer].commit(manifest)
        except ManifestConflictError:
            return False
        return True

    with ThreadPoolExecutor(3) as pool:
        for number in range(1, 15):
            won = list(pool.map(lambda writer, number=number: commit(writer, number), range(3)))
            assert sum(won) == 1
            (found,) = archives[0].manifests()
            assert (found.number, found.end_offset) == (number, won.index(True))


@pytest.mark.parametrize("kind", [FaultKind.ANSWER_LOST, FaultKind.REPEATED, FaultKind.CONFLICT])
def test_a_run_whose_commits_are_answered_badly_wins_against_nobody(
    storage: ObjectStorageServer, tmp_path: Path, kind: FaultKind
) -> None:
    source = log_dir_of(tmp_path / "data", logs=1)
    faults = RandomFaults(7, share=0.5, kinds=[kind], in_a_row_max=2)
    with FaultProxy(
        storage.port, lambda request: faults(request) if request.is_conditional else PASS
    ) as proxy:
        report = archived(archive_at(proxy.url, f"answers-{kind}"), source, has_active=True)
    assert {row.status for row in report.partitions} == {ArchiveStatus.ARCHIVED}
    require_nothing_double(archive_at(storage.url, f"answers-{kind}"))


class TestCommands:
    """The commands, with the keys and the endpoint in the environment."""

    @pytest.fixture(autouse=True)
    def _environment(self, storage: ObjectStorageServer, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": storage.url,
            "AWS_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(name, value)

    def test_archive_verify_and_restore(self, tmp_path: Path) -> None:
        source, url = log_dir_of(tmp_path / "data"), f"s3://{BUCKET}/commands"
        for arguments in (
            ["archive", source, url, "--active"],
            ["verify", url],
            ["restore", url, tmp_path / "restored"],
        ):
            result = CliRunner().invoke(app, list(map(str, arguments)))
            assert result.exit_code == 0, (result.output, result.exception)
        assert contents(tmp_path / "restored") == contents(source)

    @pytest.mark.parametrize("command", ["archive", "restore"])
    def test_a_bucket_that_is_not_there_is_told(self, tmp_path: Path, command: str) -> None:
        source = log_dir_of(tmp_path / "data")
        url = "s3://no-such-bucket/x"
        arguments = {"archive": [source, url], "restore": [url, tmp_path / "restored"]}[command]
        result = CliRunner().invoke(app, [command, *map(str, arguments)])
        assert result.exit_code == 1
        assert f"cordwood {command}: s3://no-such-bucket/x" in result.output
        assert "404 Not Found" in result.output
