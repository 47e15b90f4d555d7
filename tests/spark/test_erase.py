"""Erasures on Spark: the same records as in one process, and those that an expression matches."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.engine.search.condition import Condition, parse_condition
from cordwood.cleanup.engine.search.search import ExactKeys, Searcher
from cordwood.cleanup.engine.spark.engine import SparkEngine
from cordwood.cleanup.engine.spark.erase import SparkSearcher, WhereSearcher
from cordwood.cleanup.engine.spark.runner import Runner
from cordwood.cleanup.engine.spark.session import spark_runner
from cordwood.cleanup.engine.spark.task_limits import TaskLimits
from cordwood.cleanup.erasure.criteria import Criteria, parse_target
from cordwood.cleanup.erasure.erase import erase
from cordwood.cleanup.erasure.ledger import LEDGER_NAME, read_ledger
from cordwood.cleanup.erasure.request import EraseRequest, Erasure
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.cleanup.plan.request import Resolved
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record import Header, Record
from cordwood.model.errors import ConfigError
from support.erasing import (
    ID,
    KEY,
    VALUE,
    GivenBackend,
    erasable_log,
    erase_here,
    kept_records,
    sweep,
)
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with spark_runner("local[2]") as running:
        yield running


def erase_on(
    runner: Runner,
    log_dir: Path,
    topic: str,
    *,
    cores: int = 1,
    whole_bytes: int = 1 << 20,
    space_max: int | None = None,
    where: str | None = None,
    condition: Condition | None = None,
    config: LogConfig | None = None,
) -> Erasure:
    criteria = Criteria(where=where) if where else Criteria(keys=frozenset([KEY]))

    def searcher(_: int) -> Searcher:
        if where is not None:
            asked = condition or parse_condition(where)
            return WhereSearcher(runner.session(), [asked], slots=2)
        return SparkSearcher(runner, [ExactKeys(criteria.keys)], slots=2)

    def engine(_: int) -> Engine:
        return SparkEngine(runner, slots=2, cores=cores, limits=TaskLimits(whole_bytes=whole_bytes))

    def resolve(_: str) -> Resolved | None:
        return None if config is None else Resolved(config=config, origin={})

    request = EraseRequest(
        log_dirs=(log_dir,),
        targets=(parse_target(topic),),
        criteria=criteria,
        resolve=resolve,
        now_ms=NOW_MS,
        id=ID,
        salt=bytes(range(32)),
        ledger_salt=bytes(range(32, 64)),
        max_extra_bytes=space_max,
    )
    return erase(request, GivenBackend(searcher=searcher, engine=engine))


@pytest.mark.parametrize(
    ("cores", "whole_bytes", "space_max"),
    [(1, 1 << 20, None), (2, 1 << 20, None), (1, 0, None), (2, 0, None), (2, 0, 4_000)],
)
def test_tasks_leave_the_bytes_of_one_process(
    runner: Runner, tmp_path: Path, cores: int, whole_bytes: int, space_max: int | None
) -> None:
    logs = [erasable_log("t-0"), erasable_log("t-1", legacy=True)]
    here = write_log_dir(tmp_path / "here", logs)
    there = shutil.copytree(here, tmp_path / "there")
    mine = erase_here(here, "t")
    theirs = erase_on(runner, there, "t", cores=cores, whole_bytes=whole_bytes, space_max=space_max)
    assert theirs.failed == {}
    for path in sorted(here.rglob("*")):
        if path.is_file() and path.name != ".lock":
            assert (there / path.relative_to(here)).read_bytes() == path.read_bytes(), path
    assert [e.offsets for e in mine.report.partitions] == [
        e.offsets for e in theirs.report.partitions
    ]


def offsets_of(log_dir: Path, runner: Runner, where: str) -> OffsetRanges:
    result = erase_on(runner, log_dir, "t", where=where)
    assert result.failed == {}
    return result.report.partitions[0].offsets


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        ("key_text = 'b'", [[1, 1]]),
        ("value_text LIKE '%secret%' OR key IS NULL", [[2, 2], [4, 4]]),
        ("key = X'ff00' AND key_text IS NULL", [[3, 3]]),
        ("timestamp >= TIMESTAMP '2023-11-14 22:13:20'", [[5, 5]]),
        ("timestamp_ms < 0 OR value IS NULL", [[3, 3]]),
        ("headers['trace'] = X'01'", [[5, 5]]),
        ("map_contains_key(headers, 'x') AND NOT key_text RLIKE '\\\\d'", [[5, 5]]),
        (
            "left(value_text, 2) IN ('a ', 'it''s') OR upper(key_text) || '\u00fc' = 'A\u00fc'",
            [[0, 0], [2, 2]],
        ),
        ("offset * -2 < -8", [[5, 5]]),
        ("topic = 't' AND partition = 0 AND offset BETWEEN 1 AND 2", [[1, 2]]),
        ("false", []),
    ],
)
def test_an_expression_selects_by_every_column(
    runner: Runner, tmp_path: Path, where: str, offsets: Sequence[Sequence[int]]
) -> None:
    log = LogBuilder("t-0")
    early = NOW_MS - 1
    log.batch(
        [
            Record(0, early, b"a", b"1"),
            Record(1, early, b"b", b"2"),
            Record(2, early, b"c", b"a secret"),
            Record(3, early, b"\xff\x00", None),
            Record(4, early, None, b"5"),
            Record(5, NOW_MS, b"f", b"6", (Header("trace", b"\x01"), Header("x", None))),
        ]
    )
    log_dir = write_log_dir(tmp_path / "data", [log])
    assert [list(each) for each in offsets_of(log_dir, runner, where)] == offsets


def test_an_expression_is_erased_whole_and_can_be_applied_again(
    runner: Runner, tmp_path: Path
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("u-0")])
    archive = shutil.copytree(log_dir, tmp_path / "archive")
    before = kept_records(log_dir / "t-0")
    where = f"key_text = '{KEY.decode()}'"
    assert erase_on(runner, log_dir, "t", where=where).failed == {}
    assert kept_records(log_dir / "t-0") == before
    assert {name.partition("/")[0] for name in sweep(log_dir, KEY, VALUE)} == {
        "u-0",
        LEDGER_NAME,
    }
    (condition,) = read_ledger(log_dir / LEDGER_NAME).conditions()
    erase_on(runner, archive, "t", where=where, condition=condition)
    assert kept_records(archive / "t-0") == before
    assert not [name for name in sweep(archive, VALUE) if name.startswith("t")]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("valu = 1", "character 1: 'valu = 1' is there in place of a literal"),
        ("key_text LIKE (", "character 16: the end of the expression is there"),
        ("offset + 1", "DATATYPE_MISMATCH"),
        ("cast(value_text AS int) = 1", "CAST_INVALID_INPUT"),
    ],
)
def test_a_wrong_expression_is_usage_and_changes_nothing(
    runner: Runner, tmp_path: Path, where: str, said: str
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    before = kept_records(log_dir / "t-0", key=b"")
    with pytest.raises(ConfigError, match=said) as caught:
        erase_on(runner, log_dir, "t", where=where)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert kept_records(log_dir / "t-0", key=b"") == before


def test_every_function_of_the_grammar_is_sparks(runner: Runner) -> None:
    searcher = WhereSearcher(
        runner.session(),
        [
            parse_condition(text)
            for text in (
                "abs(offset) = 1 AND octet_length(value) = 1 AND length(value_text) = 1",
                "coalesce(key_text, value_text) = concat('a', 'b')",
                "contains(key_text, 'a') OR endswith(key_text, 'a') OR startswith(key_text, 'a')",
                "get_json_object(value_text, '$.a') = '1' OR instr(key_text, 'a') = 1",
                "hex(key) = 'FF' OR unhex(key_text) = X'ff'",
                "md5(key) = '' OR sha2(key, 256) = ''",
                "left(key_text, 1) = right(key_text, 1) OR nullif(key_text, 'a') IS NULL",
                "lower(ltrim(key_text)) = upper(rtrim(key_text)) OR trim(key_text) = ''",
                "map_contains_key(headers, 'x') OR substr(key_text, 1) = substring(key_text, 1, 2)",
                "timestamp > DATE '2026-01-31' AND timestamp < TIMESTAMP '2026-01-31 00:00:00Z'",
                "CAST(key AS string) = 'a' OR CAST(timestamp AS date) IS NULL OR 1 / 2 % 3 <=> 4",
            )
        ],
        slots=2,
    )
    searcher.require_valid()


def test_no_directory_of_tables_is_made_where_a_command_runs(runner: Runner) -> None:
    warehouse = runner.session().conf.get("spark.sql.warehouse.dir")
    assert Path(warehouse.removeprefix("file:")).parent != Path.cwd()
    assert not (Path.cwd() / "spark-warehouse").exists()


@pytest.mark.parametrize("where", [None, "true"])
def test_a_damaged_segment_is_named(runner: Runner, tmp_path: Path, where: str | None) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("t-1")])
    path = sorted((log_dir / "t-0").glob("*.log"))[2]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    result = erase_on(runner, log_dir, "t", where=where)
    ((name, reason),) = result.failed.items()
    assert name == str(log_dir / "t-0")
    assert reason.startswith(f"{path}: a batch whose CRC does not match")
    assert sweep(log_dir / "t-1", KEY, VALUE) == []


@pytest.mark.parametrize("where", [None, f"key_text = '{KEY.decode()}'"])
def test_a_record_over_the_bound_is_named_and_the_other_logs_are_erased(
    runner: Runner, tmp_path: Path, where: str | None
) -> None:
    large = LogBuilder("t-0")
    large.batch([(KEY, VALUE), (b"large", bytes(50_000))], codec=Codec.ZSTD)
    log_dir = write_log_dir(tmp_path / "data", [large, erasable_log("t-1"), erasable_log("t-2")])
    config = LogConfig(retention_ms=-1, max_decompressed_message_bytes=40_000)
    result = erase_on(runner, log_dir, "t", where=where, config=config)
    ((name, reason),) = result.failed.items()
    assert name == str(log_dir / "t-0")
    assert "exceeds the configured maximum record size of 40000" in reason
    assert reason.endswith("at byte 0. Raise max.decompressed.message.bytes of the topic")
    assert {each.partition for each in result.report.partitions if each.erased} == {"t-1", "t-2"}
    assert sweep(log_dir / "t-1", KEY, VALUE) == sweep(log_dir / "t-2", KEY, VALUE) == []
