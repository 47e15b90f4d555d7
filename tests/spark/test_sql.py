"""`cordwood sql` over golden-a, from a shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.golden import Golden
from support.schemas import require_fit

pytestmark = pytest.mark.spark

TOPIC = ("--topic", "codec-lz4")
QUERY = "select topic, max(offset) as last, X'00FF' as raw from records group by topic"


def sql(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cordwood", "sql", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_result_is_printed_as_a_table(golden_a: Golden) -> None:
    shown = sql(QUERY, golden_a.root / "before", *TOPIC)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == ["topic      last  raw", "codec-lz4  2999  X'00FF'"]


def test_a_result_is_written_to_a_file_in_its_order(golden_a: Golden, tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    query = "select offset, key, timestamp from records order by offset desc"
    written = sql(query, golden_a.root / "before", *TOPIC, "--output", path)
    assert (written.returncode, written.stderr) == (0, "")
    assert written.stdout == f"{path}: 3000 rows\n"
    table = pq.read_table(path)
    assert table.column("offset").to_pylist() == list(range(2999, -1, -1))
    assert table.column("key").type == "binary"


def test_an_archive_is_read_by_its_url(golden_a: Golden, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'archive'}"
    words = ["archive", golden_a.root / "before", url, *TOPIC, "--active"]
    command = [sys.executable, "-m", "cordwood", *map(str, words)]
    subprocess.run(command, capture_output=True, check=True)
    shown = sql(QUERY, url, "--format", "csv")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == '"topic","last","raw"\n"codec-lz4",2999,"X\'00FF\'"\n'


def test_an_error_in_a_query_is_one_line_with_its_place(golden_a: Golden) -> None:
    failed = sql("select\n  nothing from records", golden_a.root / "before", *TOPIC, "--json")
    assert failed.returncode == 2
    (line,) = failed.stderr.splitlines()
    assert line.startswith("cordwood sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION] ")
    assert line.endswith(" (line 2, position 3)")
    document = json.loads(failed.stdout)
    require_fit("error", document)
    assert document == {"error": line.removeprefix("cordwood sql: "), "exit_code": 2}


def test_a_segment_that_cannot_be_read_is_named_with_its_place(
    golden_a: Golden, tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(golden_a.root / "before", log_dir)
    segment = next((log_dir / "codec-lz4-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[61 + 20] ^= 0xFF
    segment.write_bytes(data)
    failed = sql("select count(value) from records", log_dir, *TOPIC)
    assert (failed.returncode, failed.stdout) == (1, "")
    (line,) = failed.stderr.splitlines()
    assert f"{segment}" in line
    assert line.endswith(": a batch whose CRC does not match at byte 0")
