"""Options of a DataFrame that is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.frames.writing.options import BATCH_BYTES, WriteOptions, parse_write_options
from cordwood.model.errors import ConfigError


def test_options_are_known_in_whatever_case_and_settings_by_their_dot() -> None:
    given = {
        "PATH": "/data",
        "topic": "orders",
        "Partitions": "6",
        "batchbytes": "1000",
        "ifExists": "FAIL",
        "compression.type": "zstd",
    }
    assert parse_write_options(given) == WriteOptions(
        log_dir=Path("/data"),
        topic="orders",
        partitions=6,
        batch_bytes=1000,
        must_be_new=True,
        settings={"compression.type": "zstd"},
    )
    defaults = parse_write_options({"path": "/data", "topic": "orders"})
    assert (defaults.partitions, defaults.batch_bytes) == (None, BATCH_BYTES)
    assert not defaults.must_be_new


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"path": "s3://bucket/logs"}, "option path: s3://bucket/logs is no log directory"),
        ({"topic": ""}, "option topic is missing"),
        ({"topic": "a/b"}, "'a/b' is not a legal topic name"),
        ({"partitions": "many"}, "option partitions: 'many' is no number"),
        ({"batchBytes": "0"}, "option batchBytes: 0 is less than 1"),
        ({"ifExists": "skip"}, "option ifExists: 'skip' is neither append nor fail"),
        ({"colour": "red"}, "unknown option colour"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_write_options({"path": "/data", "topic": "orders", **given})
