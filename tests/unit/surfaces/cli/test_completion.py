"""Completions by Tab behind the flags of tools and commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.surfaces.cli.completion import complete_set, complete_setting, complete_tool
from cordwood.testing.broker import RunningBroker
from support.ports import free_port


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with RunningBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(name, 1, 1) for name in ("orders", "orders-late", "payments")]
        for made in admin.create_topics(topics).values():
            made.result()
        yield broker.bootstrap_servers


def _values(name: str, *typed: str) -> list[str]:
    return [each.value for each in complete_tool(name, typed[:-1], typed[-1])]


def test_topics_are_those_of_the_broker_that_was_typed(servers: str) -> None:
    at = ("--bootstrap-server", servers)
    assert _values("topics", *at, "--describe", "--topic", "ord") == ["orders", "orders-late"]
    assert _values("topics", f"{at[0]}={servers}", "--topic", "pay") == ["payments"]
    assert _values("topics", *at, "--topic=pay") == ["--topic=payments"]


@pytest.mark.parametrize("typed", [(), ("--bootstrap-server",)], ids=["no broker", "no value"])
def test_without_a_broker_no_topic_is_completed(typed: tuple[str, ...]) -> None:
    assert _values("topics", *typed, "--topic", "") == []


def test_a_broker_that_does_not_answer_completes_nothing(unused: str) -> None:
    assert _values("topics", "--bootstrap-server", unused, "--topic", "") == []


@pytest.fixture
def unused() -> str:
    return f"127.0.0.1:{free_port()}"


def test_settings_are_completed_also_the_last_of_a_list() -> None:
    assert "retention.ms=" in _values("configs", "--alter", "--add-config", "retention.")
    listed = _values("configs", "--add-config", "segment.ms=1,retention.by")
    assert listed == ["segment.ms=1,retention.bytes="]
    assert _values("configs", "--delete-config", "retention.by") == ["retention.bytes"]
    assert "cleanup.policy=" in _values("topics", "--create", "--config", "cleanup")
    assert {each.value for each in complete_setting("")} == set(TOPIC_SETTINGS)


def test_set_completes_settings_of_a_topic_or_of_the_broker() -> None:
    assert complete_set("orders:retention.by") == ["orders:retention.bytes="]
    assert complete_set("log.cleaner.back") == ["log.cleaner.backoff.ms="]
    assert complete_set("orders:log.cleaner.back") == []


def test_a_file_is_completed_by_the_shell() -> None:
    (found,) = complete_tool("topics", ["--command-config"], "cli")
    assert (found.value, found.type) == ("cli", "file")


def test_flags_are_completed_and_a_flag_without_a_value_completes_none() -> None:
    assert "--topics-with-overrides" in _values("topics", "--topics")
    assert _values("topics", "--list", "o") == []


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["configs", "--add-config", "retention.by"], "retention.bytes="),
        (["explain", "--set", "orders:retention.by"], "orders:retention.bytes="),
    ],
    ids=["a tool", "a command"],
)
def test_a_shell_gets_the_value(tmp_path: Path, typed: list[str], completed: str) -> None:
    words = " ".join(["cordwood", *typed])
    asked = {"_CORDWOOD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("cordwood"))],
        cwd=tmp_path,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed in done.stdout.replace("\\", ""), done.stderr
