from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.partition_metadata import (
    build_partition_metadata,
    parse_partition_metadata,
)
from cordwood.model.errors import CorruptError
from cordwood.model.uuids import uuid_text


@given(st.uuids())
def test_round_trip(uuid: UUID) -> None:
    data = build_partition_metadata(uuid)
    assert data == f"version: 0\ntopic_id: {uuid_text(uuid)}".encode()
    assert parse_partition_metadata(data).topic_id == uuid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: x\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        "version: 0\ntopic: AAAAAAAAAAAAAAAAAAAAAQ",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: ÄAAAAAAAAAAAAAAAAAAAAQ",
    ],
)
def test_malformed_text_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_partition_metadata(text)
    with pytest.raises(CorruptError):
        parse_partition_metadata(text.encode("utf-16"))
