"""`cordwood advise` on directories that a real Kafka wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.surfaces.cli.main import app
from support.golden import Golden


def run(golden: Golden, *arguments: str, code: int = 0) -> Result:
    directory = str(golden.root / "before")
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["advise", directory, *arguments])
    assert result.exit_code == code, result.output
    return result


def topic(golden: Golden, *arguments: str, code: int = 0) -> dict[str, Any]:
    document = json.loads(run(golden, *arguments, "--json", code=code).stdout)
    (found,) = document["topics"]
    return dict(found)


def test_an_age_is_kept_by_settings_that_add_up_to_it(golden_a: Golden) -> None:
    found = topic(golden_a, "--topic", "retention-bytes", "--max-age", "7d")
    promise = found["promises"]["max_age_ms"]
    assert promise["bound"] == 7 * 86_400_000 == sum(part["value"] for part in promise["parts"])
    changes = [f"--set=retention-bytes:{name}={value}" for name, value in promise["changes"]]
    again = topic(golden_a, "--topic", "retention-bytes", "--max-age", "7d", *changes)
    assert again["promises"]["max_age_ms"]["changes"] == []
    text = run(golden_a, "--topic", "retention-bytes", "--max-age", "7d").stdout
    assert "kept with: segment.ms=" in text


def test_a_size_is_kept_at_a_rate(golden_a: Golden) -> None:
    options = ("--topic", "retention-bytes", "--max-bytes", "1M", "--rate", "100")
    found = topic(golden_a, *options)
    assert found["promises"]["max_bytes"]["bound"] <= 1 << 20
    assert "bytes-and-a-segment" in [each["code"] for each in found["remarks"]]
    refused = topic(golden_a, "--topic", "retention-bytes", "--max-bytes", "1K", code=1)
    assert "no retention.bytes keeps 1024 bytes" in refused["refused"]


def test_what_cannot_be_promised_is_said(golden_a: Golden) -> None:
    result = run(golden_a, "--topic", "compact-and-delete", "--max-age", "7d", code=1)
    assert "compaction joins segments" in result.stdout
    assert "keys a pass" in result.stdout


@pytest.mark.parametrize(
    ("options", "says"), [(("--rate", "5"), "--rate needs"), (("--max-age", "x"), "--max-age x")]
)
def test_wrong_usage_is_refused(golden_a: Golden, options: tuple[str, ...], says: str) -> None:
    assert says in run(golden_a, *options, code=2).output
