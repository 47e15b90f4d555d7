"""Commands over a log directory of a real Kafka with tiered storage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cordwood.surfaces.cli.main import app
from support.table_rows import rows_of
from support.tiered_golden import TOPICS, TieredGolden


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> TieredGolden:
    return TieredGolden.unpack(tmp_path_factory.mktemp("tiered"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def url_of(golden: TieredGolden) -> str:
    return f"tiered://{golden.log_dir}?remote-dir={golden.remote_dir}"


def test_logs_are_sound_with_their_remote_segments(golden: TieredGolden) -> None:
    result = run("verify", url_of(golden), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["sound"]
    records = {each["topic"]: each["records"] for each in document["partitions"]}
    for topic in TOPICS:
        if topic not in {"gone", "records-deleted", "transactions"}:
            found = records[topic]
            assert found == len(golden.consumed[f"read_uncommitted/{topic}"])


def test_a_remote_segment_that_is_lost_is_found(golden: TieredGolden, tmp_path: Path) -> None:
    shutil.copytree(golden.log_dir, tmp_path / "log-dir")
    shutil.copytree(golden.remote_dir, tmp_path / "remote")
    copy = TieredGolden(tmp_path, golden.consumed)
    first = min(copy.remote_dir.glob("plain-0-*/*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(bytes(data))
    result = run("verify", url_of(copy), "--topic", "plain", "--json")
    assert result.exit_code == 1, result.output
    (partition,) = json.loads(result.stdout)["partitions"]
    assert [each["rule"] for each in partition["findings"]] == ["batch-crc"]
    for each in copy.log_dir.glob("__remote_log_metadata-*/*.log"):
        each.write_bytes(b"")
    result = run("verify", url_of(copy), "--topic", "plain", "--json")
    (partition,) = json.loads(result.stdout)["partitions"]
    assert "offsets-missing" in {each["rule"] for each in partition["findings"]}


def test_a_log_is_explained_and_summed_up_as_a_whole(golden: TieredGolden) -> None:
    url = url_of(golden)
    explained = run("explain", url, "--topic", "plain", "--json")
    assert explained.exit_code == 0, explained.output
    (log,) = json.loads(explained.stdout)["partitions"]
    local = run("explain", golden.log_dir, "--topic", "plain")
    assert "tiered storage is on" in local.output
    assert (log["log_start_offset"], log["log_end_offset"]) == (0, 820)
    sizes = {
        each["topic"]: each["bytes"] for each in json.loads(run(url, "--json").stdout)["topics"]
    }
    remote = sum(each.stat().st_size for each in golden.remote_dir.glob("plain-0-*/*.log"))
    assert sizes["plain"] == remote


def test_nothing_is_cleaned(golden: TieredGolden) -> None:
    result = run("clean", url_of(golden))
    assert result.exit_code != 0
    assert "remote segments are only read" in result.output
    assert run("clean", url_of(golden), "--dry-run").exit_code == 0


def test_another_url_is_refused_in_words() -> None:
    result = run("verify", "tiered:///k")
    assert result.exit_code == 2
    assert "expected tiered:///LOG_DIR" in " ".join(result.output.split())


def test_nothing_is_erased_by_the_url(golden: TieredGolden) -> None:
    log = golden.log_dir / "untiered-0"
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    first, *_ = rows_of("records", golden.log_dir, topics="untiered")
    key = first["key"].hex()
    result = run("erase", url_of(golden), "--topic", "untiered", "--key-hex", key)
    assert result.exit_code == 1
    assert "Read-only file system" in result.output
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before
