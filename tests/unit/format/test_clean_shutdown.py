from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.clean_shutdown import build_clean_shutdown, parse_clean_shutdown
from cordwood.model.errors import CorruptError


@given(st.integers(-1, 1 << 62))
def test_round_trip(epoch: int) -> None:
    data = build_clean_shutdown(epoch)
    assert data == b'{"version":0,"brokerEpoch":%d}' % epoch
    assert parse_clean_shutdown(data) == epoch


def test_older_files_name_no_epoch() -> None:
    assert parse_clean_shutdown(b"") == -1
    assert parse_clean_shutdown("{}") == -1


@given(st.binary(min_size=1, max_size=40))
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        parse_clean_shutdown(data)


def test_other_json_is_corrupt() -> None:
    for text in ("[]", '{"brokerEpoch":"1"}', '{"brokerEpoch":true}', "[" * 100_000):
        with pytest.raises(CorruptError):
            parse_clean_shutdown(text)
