from __future__ import annotations

import pytest

from cordwood.model.errors import ConfigError
from cordwood.surfaces.dump.options import parse_options, usage


def test_files_are_divided_by_commas() -> None:
    assert parse_options(["--files", "a,b,,"]).files == ("a", "b")
    assert parse_options(["-files=a"]).files == ("a",)
    assert parse_options(["--fi", "a"]).files == ("a",)


def test_defaults() -> None:
    options = parse_options([])
    assert (options.message_bytes_max, options.bytes_max) == (5242880, 2147483647)
    assert not options.is_deep
    assert not options.should_print_data


@pytest.mark.parametrize(
    "flag",
    ["--print-data-log", "--offsets-decoder", "--value-decoder-class", "--key-decoder-class"],
)
def test_decoders_imply_data_and_depth(flag: str) -> None:
    options = parse_options([flag])
    assert options.should_print_data
    assert options.is_deep


def test_optional_values() -> None:
    assert parse_options(["--key-decoder-class", "X"]).key_decoder_class == "X"
    options = parse_options(["--key-decoder-class", "--deep-iteration"])
    assert options.key_decoder_class.endswith("StringDecoder")
    assert options.has("deep-iteration")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bogus"], "not a recognized option"),
        (["-print"], "not a recognized option"),
        (["--max"], "not a unique abbreviation"),
        (["--files"], "requires an argument"),
        (["--files", "a", "--files", "b"], "multiple arguments"),
        (["--max-bytes", "x"], "Cannot parse"),
        (["--max-bytes", "-5"], "must lie between"),
        (["--max-decompressed-message-bytes", "2147483640"], "between 0 and 2147483639"),
        (["--help=x"], "takes no value"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_options(arguments)


def test_usage_fits_a_terminal_and_has_examples() -> None:
    text = usage()
    assert max(map(len, text.splitlines())) <= 100
    assert "Examples:" in text
    assert "--share-group-state-decoder" in text
