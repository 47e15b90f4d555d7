"""Values of every setting against what Kafka 4.4's own definitions made of them."""

from __future__ import annotations

import lzma
from pathlib import Path

from cordwood.configs.table import (
    TOPIC_SETTINGS,
    Setting,
    broker_settings,
    client_metrics_settings,
    group_settings,
)
from cordwood.configs.value import ConfigType, format_value
from cordwood.model.errors import ConfigError

GOLDEN = Path(__file__).parents[2] / "golden" / "config-values.tsv.xz"
TABLES = {
    "broker": broker_settings(),
    "client": client_metrics_settings(),
    "group": group_settings(),
    "topic": TOPIC_SETTINGS,
}
# Checked where server.properties is read, not one by one.
TOGETHER = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}


def outcome(key: Setting, text: str) -> str:
    try:
        value = format_value(key.parse(text))
    except ConfigError as error:
        return f"!{error}"
    return "=[hidden]" if key.is_sensitive else f"={value}"


def test_every_value_is_taken_or_refused_as_by_kafka() -> None:
    lines = lzma.decompress(GOLDEN.read_bytes()).decode().splitlines()
    assert len(lines) > 15_000
    wrong = []
    for line in lines:
        table, name, text, theirs = line.split("\t")
        key = TABLES[table][name]
        if key.rule.kind is ConfigType.CLASS or name in TOGETHER:
            continue
        if outcome(key, text) != theirs:
            wrong.append((name, text, theirs, outcome(key, text)))
    assert wrong == []
