"""The bytes that are fetched of an archive of a large log to answer a small question."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordwood.storage.archives.mount import mounted_archive
from support.archives import archived, s3_options
from support.large_log import expected_at, record_at, write_large_log
from support.object_storage.server import ObjectStorageServer

BYTES_MAX = 2_000_000


@pytest.mark.parametrize(
    "megabytes", [32, pytest.param(1_500, marks=pytest.mark.nightly)], ids=lambda each: f"{each} MB"
)
def test_a_query_for_one_offset_of_an_archive_fetches_little_of_it(
    object_storage: ObjectStorageServer, tmp_path: Path, megabytes: int
) -> None:
    records = write_large_log(tmp_path, megabytes)
    bucket = f"bytes-{os.urandom(4).hex()}"
    object_storage.make_bucket(bucket)
    url = f"s3://{bucket}/kafka"
    archive = mounted_archive(url, s3_options(object_storage.url)).archive
    archived(archive, tmp_path, has_active=True)
    usage = archive.store.usage
    assert usage.bytes_written > megabytes * 900_000
    for offset in (0, records // 2 + 5, records - 1):
        before = usage.bytes_read
        assert record_at(url, offset) == expected_at(offset)
        assert 0 < usage.bytes_read - before < BYTES_MAX
