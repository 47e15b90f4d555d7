"""Manifests: what is written is read again, what is none is refused by its URL."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.storage.archives.manifest import (
    ArchivedFile,
    ArchivedLogId,
    ArchiveManifest,
    LeaderEpoch,
    manifest_key,
    parse_manifest_key,
)
from support.archives import archived_segment, manifest_of
from support.log_builder import TOPIC_ID

URL = "s3://bucket/archive/manifests/one.json"
SPARSE = (0, 2_147_483_000, 4_294_967_000)


def test_a_manifest_is_read_as_it_was_written() -> None:
    snapshot = ArchivedFile(
        name=f"{SPARSE[2]:020d}.snapshot", key="data/x", size_bytes=2, sha256="ab", modified_ns=7
    )
    manifest = manifest_of(
        archived_segment(SPARSE[0], SPARSE[1]),
        archived_segment(SPARSE[1], SPARSE[2]),
        number=12,
        cleaner_offset=SPARSE[1],
        has_active_segment=True,
        leader_epochs=(LeaderEpoch(epoch=0, start_offset=0), LeaderEpoch(epoch=5, start_offset=9)),
        others=(snapshot,),
    )
    assert ArchiveManifest.parse(manifest.to_bytes(), url=URL) == manifest
    assert manifest.total_bytes == 22
    assert [each.key for each in manifest.files][-1] == "data/x"
    assert manifest.log == ArchivedLogId("t", 0, TOPIC_ID)
    assert manifest.log.topic_partition == TopicPartition("t", 0)


def test_keys_are_those_of_its_log_and_number() -> None:
    manifest = manifest_of(number=12)
    place = "t-b3JkZXJzAAAAAAAAAAAAAQ/0/"
    assert manifest.log.place == place
    assert manifest.key == f"manifests/{place}00000000000000000012.json"


@given(
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    partition=st.integers(0, 1 << 31),
    topic_id=st.one_of(st.just(ZERO_UUID), st.uuids()),
    number=st.integers(1, 10**20 - 1),
)
def test_a_key_names_its_log_and_number(
    topic: str, partition: int, topic_id: UUID, number: int
) -> None:
    log = ArchivedLogId(topic, partition, topic_id)
    assert parse_manifest_key(manifest_key(log, number)) == (log, number)


@pytest.mark.parametrize(
    "key",
    [
        "manifests/t-b3JkZXJzAAAAAAAAAAAAAQ/0/1.json",
        "manifests/t-b3JkZXJzAAAAAAAAAAAAAQ/0/00000000000000000001.json.tmp",
        "manifests/t-b3JkZXJzAAAAAAAAAAAAA/0/00000000000000000001.json",
        "manifests/t-b3JkZXJzAAAAAAAAAAAAAQ/x/00000000000000000001.json",
        "data/t-b3JkZXJzAAAAAAAAAAAAAQ/0/00000000000000000001.json",
        "manifests/00000000000000000001.json",
    ],
)
def test_another_key_is_none_of_a_manifest(key: str) -> None:
    assert parse_manifest_key(key) is None


def changed(**keys: Any) -> bytes:
    manifest = manifest_of(archived_segment(0, 10), archived_segment(10, 20))
    return json.dumps({**json.loads(manifest.to_bytes()), **keys}).encode()


def with_file_called(name: str) -> bytes:
    return changed().replace(b"00000000000000000010.log", name.encode(), 1)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a manifest of an archive"),
        (b"\xff\xfe", "not a manifest of an archive"),
        (b"[]", "not a manifest of an archive"),
        (b"{}", "not a manifest of an archive"),
        (changed(version=2), "a manifest of version 2; known is 1"),
        (changed(endOffset="20"), "is not int"),
        (changed(segments={}), "is not list"),
        (changed()[:-20], "not a manifest of an archive"),
        (changed(topicId="short"), "Illegal base64 in short"),
        (changed(topic="../../etc"), r"no manifest is number 1 of '\.\./\.\./etc'"),
        (changed(partition=-1), "no manifest is number 1"),
        (changed(number=0), "no manifest is number 0"),
        (with_file_called("../../authorized_keys"), "no file of a partition's directory is called"),
        (with_file_called(".."), r"is called '\.\.'"),
        (with_file_called("00000000000000000010.index"), "segment 10 is none"),
        (manifest_of(archived_segment(5, 4)).to_bytes(), "segment 5 is none"),
        (
            manifest_of(archived_segment(0, 11), archived_segment(10, 20)).to_bytes(),
            "segments 0 and 10 overlap",
        ),
    ],
)
def test_what_is_no_manifest_is_refused_by_its_url(data: bytes, text: str) -> None:
    with pytest.raises(CorruptError, match=text) as raised:
        ArchiveManifest.parse(data, url=URL)
    assert str(raised.value).startswith(f"{URL}: ")


def test_a_key_that_is_not_known_is_ignored() -> None:
    assert ArchiveManifest.parse(changed(later=1), url=URL).end_offset == 20
