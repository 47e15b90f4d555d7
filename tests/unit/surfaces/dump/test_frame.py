from __future__ import annotations

import pytest

from cordwood.format.metadata_records import SCHEMA_OF_API_KEY
from cordwood.format.varint import CutOffError
from cordwood.model.errors import CorruptError
from cordwood.surfaces.dump.frame import read_framed_message, reason_of


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "Error while reading frame version"),
        ("01", "Error while reading type"),
        ("00", "frame version 0. Note that upgrades"),
        ("02", r"unknown frame version 2\(only"),
        ("01ffff7f", "Value for type was too large."),
        ("010600", "UnsupportedVersionException: Unknown metadata id 6"),
        ("010200", "Failed to deserialize record with type 2"),
        ("01140000ff", r"Found 1 byte\(s\) of garbage after 20"),
    ],
)
def test_errors_are_in_the_words_of_kafka(value: str, words: str) -> None:
    with pytest.raises(CorruptError, match=words):
        read_framed_message(SCHEMA_OF_API_KEY, bytes.fromhex(value))


def test_a_version_of_the_future_is_taken_for_the_latest() -> None:
    message = read_framed_message(SCHEMA_OF_API_KEY, bytes.fromhex("01146300"))
    assert (message.schema.name, message.version) == ("NoOpRecord", 99)


def test_what_java_has_no_words_for_is_null() -> None:
    assert reason_of(CutOffError("cut off")) == "null"
    assert reason_of(CorruptError("odd")) == "odd"
