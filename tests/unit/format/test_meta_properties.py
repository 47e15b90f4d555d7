from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.meta_properties import (
    MetaProperties,
    build_meta_properties,
    parse_meta_properties,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.model.uuids import parse_uuid

KRAFT = b"""#
#Sat Nov 21 06:06:40 UTC 2026
node.id=1
directory.id=m8yCKPtj-67ToAczzdCnyQ
version=1
cluster.id=AAAAAAAAQACAAAAAAAAAAQ
"""


def test_a_file_of_kafka() -> None:
    found = parse_meta_properties(KRAFT)
    assert found == MetaProperties(
        version=1,
        cluster_id="AAAAAAAAQACAAAAAAAAAAQ",
        node_id=1,
        directory_id=parse_uuid("m8yCKPtj-67ToAczzdCnyQ"),
    )
    assert parse_meta_properties(build_meta_properties(found)) == found


def test_the_age_of_zookeeper() -> None:
    found = parse_meta_properties("broker.id=3\n")
    assert found == MetaProperties(version=0, cluster_id=None, node_id=3, directory_id=None)
    assert parse_meta_properties(build_meta_properties(found)) == found


@pytest.mark.parametrize(
    "text",
    ["version=1\n", "version=1\nnode.id=1\n", "version=x\n", "node.id=\\u12\n", "directory.id=x\n"],
)
def test_what_is_missing_or_malformed_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_meta_properties(text)


def test_later_versions_are_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError):
        parse_meta_properties("version=2\n")


@given(st.binary(max_size=80))
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        parse_meta_properties(data)
