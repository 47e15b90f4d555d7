"""Values of settings as people write and read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cordwood.configs.table import LOG_BROKER_SETTINGS, TOPIC_SETTINGS
from cordwood.configs.value import LONG_MAX
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.setting_values import (
    set_option,
    setting_value,
    shown_setting,
    shown_sizes,
    shown_text,
    unit_of,
)
from support.log_builder import LogBuilder, write_log_dir

NUMBERS = sorted(
    name for name in (*TOPIC_SETTINGS, *LOG_BROKER_SETTINGS) if unit_of(name) not in {"", "ratio"}
)


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("retention.ms", "1d", "86400000"),
        ("retention.ms", " 7d ", "604800000"),
        ("retention.ms", "1d12h", "129600000"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "1h30m", "90"),
        ("retention.bytes", "10GB", str(10 << 30)),
        ("segment.bytes", "1.5MiB", str(3 << 19)),
        ("retention.ms", "unlimited", "-1"),
        ("retention.bytes", "unlimited", "-1"),
        ("max.compaction.lag.ms", "none", str(LONG_MAX)),
        ("queued.max.request.bytes", "64M", str(64 << 20)),  # known by its name alone
        ("producer_byte_rate", "10MB/s", str(10 << 20)),
        # What is no duration or size stays for Kafka's own rules.
        ("retention.ms", "86400000", "86400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "soon", "soon"),
        ("retention.ms", "10GB", "10GB"),
        ("segment.bytes", "7d", "7d"),
        ("min.cleanable.dirty.ratio", "0.5", "0.5"),
        ("cleanup.policy", "compact", "compact"),
        ("cordwood.retention.groups", "7d", "7d"),
        ("segment.ms", "unlimited", "unlimited"),
    ],
)
def test_a_duration_or_size_is_what_kafka_takes(name: str, written: str, value: str) -> None:
    assert setting_value(name, written) == value


def test_a_duration_that_is_not_whole_in_the_unit_of_the_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.hours=90m: expected whole hours"):
        setting_value("log.retention.hours", "90m")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "0.0001ms", "whole milliseconds"),
        ("retention.ms", "1.5ms", "whole milliseconds"),
        ("retention.ms", "0.00007s", "whole milliseconds"),
        ("segment.bytes", "1.5B", "whole bytes"),
    ],
)
def test_a_part_of_a_millisecond_or_of_a_byte_is_refused(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=f"expected {expected}"):
        setting_value(name, text)


def test_a_decimal_is_taken_exactly() -> None:
    assert setting_value("retention.ms", "0.1s") == "100"
    assert setting_value("retention.ms", "1.1d") == "95040000"
    assert setting_value("retention.ms", "9007199254740993ms") == "9007199254740993"


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ("clicks:retention.ms=2 days", "2d or 172800000"),
        ("retention.ms=90 Minutes", "1h30m or 5400000"),
        ("log.retention.hours=1week", "7d or 168"),
        ("log.retention.hours=90 min", "1h30m"),
    ],
)
def test_a_duration_in_words_is_refused_with_how_it_is_written(option: str, written: str) -> None:
    with pytest.raises(ConfigError) as refused:
        set_option(option)
    assert str(refused.value) == f"{option}: not a number; write {written}"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("retention.ms=1d", "retention.ms=86400000"),
        ("orders:retention.ms=1d", "orders:retention.ms=86400000"),
        ("*:retention.bytes=1K", "*:retention.bytes=1024"),
        ("orders:cleanup.policy=compact", "orders:cleanup.policy=compact"),
        ("nonsense", "nonsense"),
    ],
)
def test_the_option_may_name_a_topic(option: str, value: str) -> None:
    assert set_option(option) == value


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "86400000", "1d"),
        ("retention.ms", "86400001", "1d1ms"),
        ("retention.ms", "90061001", "90061001"),
        ("retention.ms", "-1", "unlimited"),
        ("retention.ms", "0", "0"),
        ("log.retention.hours", "168", "7d"),
        ("log.roll.hours", "5093077190616", "212211549609d"),
        ("max.compaction.lag.ms", str(LONG_MAX), "none"),
        ("local.retention.ms", "-2", "-2"),
        ("segment.bytes", "1073741824", "1G"),
        ("max.message.bytes", "1048588", "1048588"),
        ("cleanup.policy", "compact", "compact"),
        ("flush.messages", str(LONG_MAX), str(LONG_MAX)),
    ],
)
def test_a_value_is_shown_as_people_write_it(name: str, value: str, shown: str) -> None:
    assert shown_setting(name, value) == shown


@given(name=st.sampled_from(NUMBERS), value=st.integers(min_value=-2, max_value=LONG_MAX))
def test_what_is_shown_can_be_given_back(name: str, value: int) -> None:
    assert setting_value(name, shown_setting(name, str(value))) == str(value)


def test_sentences_have_values_as_people_read_them() -> None:
    said = "segment.ms 604800000 is larger than retention.ms=86400000: log retention time 5000ms"
    assert shown_text(said) == "segment.ms 7d is larger than retention.ms=1d: log retention time 5s"
    assert shown_text("offset 86400000 of clicks-0") == "offset 86400000 of clicks-0"


def test_sentences_have_sizes_as_the_tables_beside_them() -> None:
    said = "retention leaves no record of 3 topics, 221152 bytes: a, b, c; 999 bytes"
    assert shown_sizes(said) == "retention leaves no record of 3 topics, 216.0K: a, b, c; 999 bytes"


def test_every_command_that_takes_settings_takes_them(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [LogBuilder("orders-0")])
    arguments = ["explain", str(root), "--set", "orders:retention.ms=1d", "--json"]
    (found,) = json.loads(CliRunner().invoke(app, arguments).stdout)["partitions"]
    assert found["settings"]["retention.ms"]["value"] == "86400000", "JSON has Kafka's value"
    assert "retention.ms=1d" in CliRunner().invoke(app, arguments[:-1]).stdout
    hours = ["--defaults", "--set", "log.retention.hours=720"]
    shown = CliRunner().invoke(app, ["explain", str(root), *hours]).stdout
    assert "static broker (--set): log.retention.hours=30d" in shown, "in the unit of its key"
    refused = CliRunner().invoke(app, ["explain", str(root), "--set", "log.retention.hours=90m"])
    assert refused.exit_code == 2
    assert "expected whole hours" in refused.output
