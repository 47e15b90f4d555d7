"""One side of the benchmark of DataFrames: records of a topic, summed up by a warm Spark session.

Run as a program, it starts Spark, then reads a JSON document a line from its standard input, and
answers with one line. `{"values": ...}` asks for a full scan, `{"write": ...}` for a copy as
Parquet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cordwood.frames.data_source import register
from loggen import TOPIC
from support.built_programs import built, need
from support.downloads import copy_dependencies

_ROOT = Path(__file__).resolve().parents[1]
_ANSWER_SECONDS_MAX = 3600


class Scan(NamedTuple):
    """A full scan: its seconds, and the sums, which are those of the other sides."""

    seconds: float
    sums: list[Any]


def connector_jars() -> Path:
    """The directory of the jars of Spark's connector for Kafka, fetched if it is not there yet.

    Raises:
        ProgramUnavailableError: Maven is missing.
        DownloadError: Maven could not fetch them.
    """

    def build(source: Path, target: Path) -> None:
        need("mvn", "install Maven")
        copy_dependencies(source / "pom.xml", target)

    return built(_ROOT / "tools" / "sparkkafka", build, kind="jars")


class Side:
    """The other end of the pipe; a context manager that leaves nothing running.

    `kind` is `cordwood`, with a log directory as `place`, `kafka`, with the address of a broker, or
    `parquet`, with a directory.
    """

    def __init__(self, kind: str, place: str | Path) -> None:
        jars = [str(jar) for jar in sorted(connector_jars().glob("*.jar"))]
        self._command = [sys.executable, __file__, kind, str(place), *jars]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._ask({}) == {}, "it answers when Spark has started"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate(timeout=_ANSWER_SECONDS_MAX)

    def scan(self, *, values: bool) -> Scan:
        """Reads all records, with or without their values."""
        return Scan(**self._ask({"values": values}))

    def write(self, target: Path) -> None:
        """Writes all records as Parquet."""
        self._ask({"write": str(target)})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the session ended with {self._process.wait(60)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _session(jars: Sequence[str]) -> SparkSession:
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def _frame(spark: SparkSession, kind: str, place: str, columns: Sequence[str]) -> DataFrame:
    if kind == "parquet":
        return spark.read.parquet(place)
    if kind == "kafka":
        options = {"kafka.bootstrap.servers": place, "subscribe": TOPIC}
        reader = spark.read.format("kafka").options(**options)
        return reader.option("startingOffsets", "earliest").load()
    reader = spark.read.format("cordwood").option("topics", TOPIC)
    return reader.option("columns", ",".join(columns)).load(place)


def _scan(spark: SparkSession, kind: str, place: str, *, values: bool) -> dict[str, Any]:
    fields = ["key", "value"] if values else ["key"]
    started = time.monotonic()
    frame = _frame(spark, kind, place, [*fields, "timestamp"])
    lengths = [f.sum(f.length(name)) for name in fields]
    (row,) = frame.agg(f.count(f.lit(1)), *lengths, f.max("timestamp")).collect()
    seconds = time.monotonic() - started
    return {"seconds": seconds, "sums": [*row[:-1], row[-1].isoformat()]}


def main() -> int:
    kind, place, *jars = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _session(jars)
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if "values" in request:
            answer = _scan(spark, kind, place, values=request["values"])
        elif "write" in request:
            columns = ["key", "value", "topic", "partition", "offset", "timestamp"]
            _frame(spark, kind, place, columns).write.parquet(request["write"])
        print(json.dumps(answer), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
