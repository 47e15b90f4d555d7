"""The table of logs: by partition, and by topic."""

from __future__ import annotations

from pathlib import Path

from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_table import LogTable
from support.log_under_test import new_log


def test_the_logs_of_a_topic_are_found_until_they_are_taken_out(tmp_path: Path) -> None:
    table = LogTable()
    logs = {name: new_log(tmp_path, name=name) for name in ("t-0", "t-1", "u-0")}
    for log in logs.values():
        table.put(log)
    future = new_log(tmp_path / "other", name="t-0")
    table.put(future, future=True)
    assert table.of_topic("t") == [logs["t-0"], logs["t-1"], future]
    assert table.pop(TopicPartition("t", 0)) is logs["t-0"]
    assert table.of_topic("t") == [logs["t-1"], future]
    assert set(table.pop_directory(tmp_path)) == {logs["t-1"], logs["u-0"]}
    assert table.of_topic("t") == [future]
    assert table.of_topic("u") == []
    assert table.pop(TopicPartition("t", 0), future=True) is future
    assert table.of_topic("t") == []
