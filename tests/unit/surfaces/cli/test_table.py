"""`cordwood table`: its options, what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cordwood.surfaces.cli.main import app
from support.delta_rows import table_rows
from support.log_builder import LogBuilder, write_log_dir
from support.metadata_logs import write_metadata_log
from support.schemas import require_fit


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["table", *(str(each) for each in arguments)]
    )
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A directory with a topic `orders` of two records of one key, which is compacted."""
    log = LogBuilder("orders-0")
    log.batch([(b"a", b'{"id": 1}'), (b"a", b'{"id": 2}')])
    write_log_dir(tmp_path / "logs", [log])
    write_metadata_log(tmp_path / "logs", "orders", {"cleanup.policy": "compact"})
    return tmp_path / "logs"


def test_a_compacted_topic_becomes_its_state(log_dir: Path, tmp_path: Path) -> None:
    into = tmp_path / "table"
    said = run(
        *(log_dir, "--topic", "orders", "--into", into, "--expire", "30d"),
        *("--option", "valueFormat=json", "--option", "valueSchema=id bigint"),
    ).output
    assert "orders-0" in said
    assert "a new table; 1 row inserted, 0 updated, 0 deleted" in said
    assert [row["value"] for row in table_rows(into)] == [{"id": 2}]


def test_the_report_is_json(log_dir: Path, tmp_path: Path) -> None:
    into = tmp_path / "table"
    given = log_dir, "--topic", "orders", "--into", into, "--form", "rows", "--json"
    report = json.loads(run(*given).stdout)
    require_fit("table", report)
    assert (report["form"], report["inserted"], report["is_created"]) == ("rows", 2, True)
    assert report["partitions"] == [
        {
            "partition": 0,
            "first_offset": 0,
            "end_offset": 2,
            "full_because": "",
            "gap_from": None,
            "gap_to": None,
        }
    ]
    assert json.loads(run(*given).stdout)["inserted"] == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--option", "valueFormat"), 2, "expected NAME=VALUE"),
        (("--option", "sliceBytes=1"), 2, "none of"),
        (("--expire", "59m"), 2, "an hour at least"),
        (("--form", "columns"), 2, "columns"),
    ],
)
def test_a_wrong_option_is_named(
    log_dir: Path, tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    into = tmp_path / "table"
    result = run(log_dir, "--topic", "orders", "--into", into, *options, code=code)
    assert said in result.output
    assert not into.exists()


def test_what_fails_leaves_the_table(log_dir: Path, tmp_path: Path) -> None:
    given = log_dir, "--topic", "orders", "--into", tmp_path / "table", "--form", "rows"
    run(*given)
    shorter = LogBuilder("orders-0")
    shorter.put(b"a", b"other")
    shorter.write(log_dir / "orders-0")
    write_log_dir(log_dir, [shorter])
    assert "orders-0 1 to 1" in run(*given, code=1).output
    assert len(table_rows(tmp_path / "table")) == 2
    assert "offsets 1 to 1" not in run(*given, "--allow-gaps").output
