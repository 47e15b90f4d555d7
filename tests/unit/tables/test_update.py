"""Tables that are brought up to date with topics whose logs grow, shrink and change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cordwood.format.file_names import PARTITION_METADATA
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.format.record import Header
from cordwood.format.record_batch import Record
from cordwood.model.errors import (
    ConfigError,
    MalformedValueError,
    TableConflictError,
    TableError,
    TableGapError,
    TableSchemaError,
)
from cordwood.model.uuids import parse_uuid
from cordwood.tables.report import TableForm, TableReport, TableRequest
from cordwood.tables.topic_table import TopicTable
from cordwood.tables.update import update_table
from cordwood.testing.manual_clock import ManualClock
from support.delta_rows import record_rows, table_rows
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

ROWS, STATE = TableForm.ROWS, TableForm.STATE
PRODUCER = (7, 0)
A_DAY_MS = 86_400_000


class Lake:
    """A topic `orders` of two partitions, and a table of it."""

    def __init__(self, root: Path) -> None:
        self.log_dir = root / "logs"
        self.path = root / "table"
        self.clock = ManualClock(NOW_MS)
        self.log, self.other = LogBuilder("orders-0"), LogBuilder("orders-1")

    def update(self, form: TableForm | None = None, **wanted: Any) -> TableReport:
        write_log_dir(self.log_dir, [self.log, self.other])
        request = TableRequest(
            **{"log_dirs": (self.log_dir,), "topic": "orders", "into": self.path, **wanted},
            form=form,
        )
        return update_table(request, clock=self.clock)

    def offsets(self) -> list[tuple[int, int]]:
        return [(partition, offset) for partition, offset, _, _ in record_rows(self.path)]

    def version(self) -> int:
        return int(DeltaTable(self.path).version())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def json_values(*columns: str) -> dict[str, str]:
    return {"valueFormat": "json", "valueSchema": ", ".join(columns)}


# ---- rows


def test_rows_have_the_columns_of_records(lake: Lake) -> None:
    lake.log.batch([Record(0, NOW_MS, b"k", None, (Header("name", b"x"),))])
    lake.update(ROWS)
    (row,) = table_rows(lake.path)
    assert row.pop("timestamp").timestamp() * 1000 == NOW_MS
    assert row == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "key": b"k",
        "value": None,
        "headers": [{"key": "name", "value": b"x"}],
    }


def test_a_run_adds_what_is_new_and_the_next_nothing(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    first = lake.update(ROWS)
    assert (first.is_created, first.inserted, lake.offsets()) == (True, 1, [(0, 0)])
    lake.log.put(b"a", b"2")
    lake.other.put(b"b", b"3")
    second = lake.update()
    assert (second.is_created, second.inserted) == (False, 2)
    assert lake.offsets() == [(0, 0), (0, 1), (1, 0)]
    version = lake.version()
    third = lake.update()
    assert (third.inserted, third.version, lake.version()) == (0, version, version)
    assert [(each.first_offset, each.end_offset) for each in third.partitions] == [(2, 2), (1, 1)]


def test_a_transaction_is_there_when_it_is_committed(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    lake.log.put(b"a", b"2", producer=PRODUCER, transactional=True)
    lake.log.put(b"a", b"3")
    lake.update(ROWS)
    assert lake.offsets() == [(0, 0)]
    lake.log.marker(PRODUCER, commit=True)
    lake.log.put(b"a", b"4", producer=PRODUCER, transactional=True)
    lake.log.marker(PRODUCER, commit=False)
    lake.update()
    assert lake.offsets() == [(0, 0), (0, 1), (0, 2)]


def test_records_that_were_deleted_unread_are_an_error_unless_that_is_allowed(lake: Lake) -> None:
    for _ in range(3):
        lake.log.put(b"a", b"1")
    lake.update(ROWS)
    for _ in range(4):
        lake.log.put(b"a", b"2")
    lake.log.log_start_offset = 5
    with pytest.raises(TableGapError, match="orders-0 3 to 4") as caught:
        lake.update()
    assert caught.value.gaps == {"orders-0": (3, 5)}
    assert lake.offsets() == [(0, 0), (0, 1), (0, 2)]
    report = lake.update(allows_gaps=True)
    assert (report.partitions[0].gap_from, report.partitions[0].gap_to) == (3, 5)
    assert lake.offsets() == [(0, 0), (0, 1), (0, 2), (0, 5), (0, 6)]
    assert lake.update().partitions[0].gap_from is None


def test_a_log_that_was_truncated_below_what_was_read_is_an_error(lake: Lake) -> None:
    for _ in range(3):
        lake.log.put(b"a", b"1")
    lake.update(ROWS)
    lake.log = LogBuilder("orders-0")
    lake.log.put(b"a", b"other")
    with pytest.raises(TableGapError, match="orders-0 1 to 2"):
        lake.update()


def test_a_new_table_begins_at_the_log_start(lake: Lake) -> None:
    for _ in range(3):
        lake.log.put(b"a", b"1")
    lake.log.log_start_offset = 2
    lake.update(ROWS)
    assert lake.offsets() == [(0, 2)]


def test_a_partition_that_comes_later_is_read_from_offset_0(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    lake.other = LogBuilder("others-0")
    lake.update(ROWS)
    lake.other = LogBuilder("orders-1")
    lake.other.put(b"b", b"2")
    lake.other.put(b"b", b"3")
    lake.other.log_start_offset = 1
    with pytest.raises(TableGapError, match="orders-1 0 to 0"):
        lake.update()
    lake.other.log_start_offset = None
    lake.update()
    assert lake.offsets() == [(0, 0), (1, 0), (1, 1)]


# ---- state


def test_a_state_has_the_newest_record_of_each_key(lake: Lake) -> None:
    lake.log.batch([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (None, b"5")])
    lake.other.put(b"a", b"of another partition")
    report = lake.update(STATE)
    assert (report.inserted, report.updated, report.deleted) == (4, 0, 0)
    lake.log.batch([(b"b", b"6"), (b"a", None), (b"d", b""), (b"e", b"7"), (b"e", None)])
    report = lake.update()
    assert (report.inserted, report.updated, report.deleted) == (1, 1, 1)
    assert record_rows(lake.path) == [
        (0, 3, b"c", b"4"),
        (0, 5, b"b", b"6"),
        (0, 7, b"d", b""),
        (1, 0, b"a", b"of another partition"),
    ]


def test_an_aborted_transaction_changes_no_state(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    lake.log.put(b"a", None, producer=PRODUCER, transactional=True)
    lake.log.put(b"b", b"2", producer=PRODUCER, transactional=True)
    lake.log.marker(PRODUCER, commit=False)
    lake.update(STATE)
    assert record_rows(lake.path) == [(0, 0, b"a", b"1")]
    assert lake.update().inserted == 0


def test_a_key_whose_record_is_below_the_log_start_goes(lake: Lake) -> None:
    lake.log.batch([(b"a", b"1"), (b"b", b"2")])
    lake.log.batch([(b"c", b"3")])
    lake.update(STATE)
    lake.log.log_start_offset = 1
    lake.log.put(b"b", b"4")
    report = lake.update()
    assert (report.updated, report.deleted) == (1, 1)
    assert record_rows(lake.path) == [(0, 2, b"c", b"3"), (0, 3, b"b", b"4")]
    lake.log.log_start_offset = 3
    assert lake.update().deleted == 1
    assert lake.update().deleted == 0


def test_all_of_the_log_is_read_where_that_is_asked_for(lake: Lake) -> None:
    lake.log.batch([(b"a", b"1"), (b"b", b"2")])
    lake.other.put(b"z", b"9")
    lake.update(STATE)
    # As an erasure leaves it: a record is gone, and no tombstone says so.
    lake.log = LogBuilder("orders-0")
    lake.log.batch([Record(1, NOW_MS, b"b", b"2")], last_offset=1)
    assert lake.update().deleted == 0
    report = lake.update(is_full=True)
    assert report.deleted == 1
    assert {each.full_because for each in report.partitions} == {"it was asked for"}
    assert record_rows(lake.path) == [(0, 1, b"b", b"2"), (1, 0, b"z", b"9")]


def test_a_state_of_a_log_that_was_truncated_is_made_anew(lake: Lake) -> None:
    lake.log.batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    lake.update(STATE)
    lake.log = LogBuilder("orders-0")
    lake.log.batch([(b"a", b"other")])
    report = lake.update()
    assert "ends at offset 1" in report.partitions[0].full_because
    assert record_rows(lake.path) == [(0, 0, b"a", b"other")]
    assert lake.update().partitions[0].full_because == ""


def test_a_state_has_keys_as_they_are(lake: Lake) -> None:
    lake.log.put(b"1", b"1")
    with pytest.raises(ConfigError, match="not decoded"):
        lake.update(STATE, decoding={"keyFormat": "json", "keySchema": "int"})
    assert not lake.path.exists()


# ---- values


def test_a_schema_that_grew_adds_fields(lake: Lake) -> None:
    for form in (ROWS, STATE):
        lake.path = lake.log_dir.parent / form
        lake.log = LogBuilder("orders-0")
        lake.log.put(b"a", b'{"id": 1}')
        lake.update(form, decoding=json_values("id bigint"))
        lake.log.put(b"b", b'{"id": 2, "of": {"name": "x"}, "tags": ["t"]}')
        grown = json_values("of struct<name string>", "id bigint", "tags array<string>")
        lake.update(decoding=grown)
        # A schema that lacks fields leaves the table what it has.
        lake.log.put(b"c", b'{"id": 3}')
        lake.update(decoding=json_values("id bigint"))
        assert [row["value"] for row in table_rows(lake.path)] == [
            {"id": 1, "of": None, "tags": None},
            {"id": 2, "of": {"name": "x"}, "tags": ["t"]},
            {"id": 3, "of": None, "tags": None},
        ]


@pytest.mark.parametrize("changed", [json_values("id string"), {}])
def test_a_type_that_is_another_one_is_an_error(lake: Lake, changed: dict[str, str]) -> None:
    lake.log.put(b"a", b'{"id": 1}')
    lake.update(ROWS, decoding=json_values("id bigint"))
    lake.log.put(b"a", b'{"id": "x"}')
    with pytest.raises(TableSchemaError) as caught:
        lake.update(decoding=changed)
    assert caught.value.field == ("value.id" if changed else "value")
    assert len(table_rows(lake.path)) == 1


def test_a_value_that_is_malformed_leaves_the_table_as_it_was(lake: Lake) -> None:
    lake.log.put(b"a", b'{"id": 1}')
    for form in (ROWS, STATE):
        lake.path = lake.log_dir.parent / form
        lake.update(form, decoding=json_values("id bigint"))
    lake.log.put(b"a", b"no JSON")
    for form in (ROWS, STATE):
        lake.path = lake.log_dir.parent / form
        version = lake.version()
        with pytest.raises(MalformedValueError, match="orders-0 offset 1"):
            lake.update(decoding=json_values("id bigint"))
        assert lake.version() == version


def test_what_is_malformed_and_a_null_of_json_are_no_tombstones(lake: Lake) -> None:
    lake.log.batch([(b"a", b"null"), (b"b", b"no JSON"), (b"c", b'{"id": 1}'), (b"c", None)])
    lake.update(STATE, decoding={**json_values("id bigint"), "malformed": "null"})
    assert [(row["key"], row["value"]) for row in table_rows(lake.path)] == [
        (b"a", None),
        (b"b", None),
    ]


# ---- the table


def test_another_writer_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.log.put(b"a", b"1")
    for form in (ROWS, STATE):
        lake.path = lake.log_dir.parent / form
        lake.update(form)
    lake.log.put(b"a", b"2")
    rows = TopicTable.append, TopicTable.merge

    def behind_another(commit: Any) -> Any:
        def late(table: Any, *given: Any, **wanted: Any) -> Any:
            monkeypatch.undo()
            lake.update()
            return commit(table, *given, **wanted)

        return late

    for form, name, commit in zip((ROWS, STATE), ("append", "merge"), rows, strict=True):
        lake.path = lake.log_dir.parent / form
        monkeypatch.setattr(TopicTable, name, behind_another(commit))
        with pytest.raises(TableConflictError, match="another writer"):
            lake.update()
        assert len(table_rows(lake.path)) == (2 if form is ROWS else 1)
        assert lake.update().inserted == 0


def test_a_table_of_something_else_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.log.put(b"a", b"1")
    lake.update(ROWS)
    with pytest.raises(ConfigError, match="of the form rows"):
        lake.update(STATE)
    with pytest.raises(ConfigError, match="topic order is not in"):
        lake.update(topic="order")
    with pytest.raises(ConfigError, match="a table has one topic"):
        lake.update(topic="ord*")
    with pytest.raises(ConfigError, match="option startingOffset"):
        lake.update(decoding={"startingOffset": "1"})
    write_log_dir(tmp_path / "more", [LogBuilder("others-0")])
    with pytest.raises(ConfigError, match="is a table of topic orders"):
        lake.update(topic="others", log_dirs=(tmp_path / "more",))
    DeltaTable.create(tmp_path / "foreign", DeltaTable(lake.path).schema())
    with pytest.raises(TableError, match="has not made"):
        lake.update(into=tmp_path / "foreign")
    (tmp_path / "file").write_text("no directory")
    with pytest.raises((TableError, OSError)):
        lake.update(ROWS, into=tmp_path / "file")


def test_a_topic_that_was_made_again_is_refused(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    lake.update(ROWS)
    for each in lake.log_dir.glob("orders-*"):
        (each / PARTITION_METADATA).write_bytes(
            build_partition_metadata(parse_uuid("b3JkZXJzAAAAAAAAAAAAAg"))
        )
    request = TableRequest(log_dirs=(lake.log_dir,), topic="orders", into=lake.path)
    with pytest.raises(TableError, match="was made again"):
        update_table(request, clock=lake.clock)


def test_snapshots_expire_and_what_a_killed_run_left(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    lake.update(STATE)
    lake.log.put(b"a", b"2")
    lake.update()
    left = lake.path / "part-00000-left.parquet"
    left.write_bytes(b"of a run that was killed")
    os.utime(left, (0, 0))
    assert lake.update(expire_hours=24 * 365 * 10).expired_files == 1
    assert not left.exists()
    assert len(list(lake.path.glob("*.parquet"))) == 2
    assert lake.update(expire_hours=0).expired_files == 1
    assert record_rows(lake.path) == [(0, 1, b"a", b"2")]
    lake.log.put(b"a", b"3")
    assert lake.update().updated == 1


def test_offsets_are_in_the_commit_that_has_the_rows(lake: Lake) -> None:
    lake.log.put(b"a", b"1")
    lake.update(ROWS)
    newest = max((lake.path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    noted = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
    assert noted == {"cordwood/orders/0/nextOffset": 1, "cordwood/orders/0/readMs": NOW_MS}
    assert any("add" in each for each in actions)
