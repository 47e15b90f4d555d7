"""Clients in other languages: small programs that take jobs as lines of JSON and answer likewise.

Role: `ProgramClient` is the driver of them all. A job is {"op", "topic", …}, an answer {"ok": …} or
{"error": kind, "message": text}; bytes are in base64. The programs are in `tests/compat/clients` of
a source checkout, and are built below `~/.cache/cordwood/clients`, again when they change.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from support.built_programs import ProgramUnavailableError, built, fetch, need, run
from support.downloads import DownloadError, copy_dependencies
from support.kafka_programs import KAFKA_4_3, kafka_jars, tools_resource
from support.stock_clients.base import (
    READ_SECONDS_MAX,
    Codec,
    NoOffsetError,
    Start,
    StockClientError,
    StockRecord,
    TopicExistsError,
    record_from_json,
    record_to_json,
)
from support.stock_clients.sessions.base import Ending, FencedError, Isolation

_SOURCES: Final = Path(__file__).resolve().parents[2] / "compat" / "clients"
_ANSWER_SECONDS_MAX: Final = READ_SECONDS_MAX + 60
_START_SECONDS_MAX: Final = 300
_ERRORS: Final = {
    "no_offset": NoOffsetError,
    "topic_exists": TopicExistsError,
    "fenced": FencedError,
}


class ProgramClient:
    """A client that is a program: started by the first job, and again after it failed to answer."""

    def __init__(
        self,
        bootstrap_servers: str,
        command: Sequence[str],
        *,
        name: str,
        lacks: Mapping[str, str],
        cannot_write: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.lacks = lacks
        self.cannot_write = cannot_write
        #: The client's own configs, on top of those that a job asks for.
        self.settings = dict(settings or {})
        self._command = [*command, bootstrap_servers]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def group_protocol(self) -> str:
        """Of `settings`; Java and franz-go alone can change it."""
        return self.settings.get("group.protocol", "classic")

    def produce(
        self,
        topic: str,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> None:
        """Writes the records."""
        self._ask(
            "produce",
            topic,
            codec=codec,
            idempotent=idempotent,
            maxBytes=max_bytes,
            records=[record_to_json(record) for record in records],
        )

    def consume(
        self,
        topic: str,
        start: Start,
        count: int,
        *,
        reset: str = "none",
        fetch_bytes: int | None = None,
    ) -> list[StockRecord]:
        """Reads records."""
        begin = {"start": start.kind, "at": start.at}
        told = self._ask(
            "consume", topic, count=count, reset=reset, fetchBytes=fetch_bytes, **begin
        )
        return [record_from_json(record) for record in told]

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        """Reads records as a group's only member."""
        told = self._ask("consume_group", topic, group=group, count=count, reset=reset)
        return [record_from_json(record) for record in told]

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic."""
        self._ask("create_topic", topic, partitions=partitions, configs=dict(configs))

    def describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        """Partitions and configs."""
        told = self._ask("describe_topic", topic)
        return told["partitions"], told["configs"]

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        self._ask("delete_topic", topic)

    def open_session(self, session: str, transactional_id: str, source: str, group: str) -> None:
        """Initialises a producer with the id; its consumer joins the group when it processes."""
        told = {"session": session, "group": group}
        self._ask("open_session", source, transactionalId=transactional_id, **told)

    def process(self, session: str, target: str, count: int, *, end: Ending) -> list[StockRecord]:
        """Takes the group's next records, and writes them and the offsets in a transaction.

        They are written to partition 0 of the target, with `done ` before their values.
        """
        told = self._ask("process", target, session=session, count=count, end=end)
        return [record_from_json(record) for record in told]

    def finish(self, session: str, end: Ending) -> None:
        """Ends the transaction that was left open.

        Raises:
            FencedError: a newer producer has the id.
        """
        self._ask("finish", "", session=session, end=end)

    def close_session(self, session: str) -> None:
        """Leaves the group."""
        self._ask("close_session", "", session=session)

    def read_all(self, topic: str, isolation: Isolation) -> list[StockRecord]:
        """The records of partition 0 up to the one with the value `LAST`."""
        told = self._ask("read_all", topic, isolation=isolation)
        return [record_from_json(record) for record in told]

    def close(self) -> None:
        """Ends the program, as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, operation: str, topic: str, **fields: Any) -> Any:
        job = {
            "op": operation,
            "topic": topic,
            "timeoutMs": int(READ_SECONDS_MAX * 1000),
            "settings": self.settings,
            **fields,
        }
        seconds_max = _ANSWER_SECONDS_MAX
        if self._process is None:
            seconds_max += _START_SECONDS_MAX
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            line = _line(self._process.stdout, seconds_max)
        except OSError as error:
            line = b""
            said: object = error
        else:
            said = "no answer"
        if not line.endswith(b"\n"):
            self.close()
            raise StockClientError(f"{self.name}, {operation}: {said}")
        answer = json.loads(line)
        if "error" in answer:
            kind = _ERRORS.get(answer["error"], StockClientError)
            raise kind(f"{self.name}, {operation}: {answer['message']}")
        return answer["ok"]


def _line(source: IO[bytes], seconds_max: float) -> bytes:
    """A whole line, or what there was when the program ended or took too long."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([source], [], [], seconds_max)
        read = os.read(source.fileno(), 2**20) if ready else b""
        if not read:
            break
        line += read
    return line


def built_client(
    name: str, build: Callable[[Path, Path], None], inputs: Sequence[str] | None = None
) -> Path:
    """The directory of a program of `tests/compat/clients`, as `built` gives it."""
    return built(_SOURCES / name, build, inputs, kind="clients")


def python_client(name: str, bootstrap_servers: str) -> ProgramClient:
    """A client in Python as a program: for transactions alone, and to be killed."""
    return ProgramClient(
        bootstrap_servers,
        [sys.executable, "-m", "support.stock_clients.sessions", name],
        name=name,
        lacks={},
        cannot_write={},
    )


def java_client(
    bootstrap_servers: str,
    settings: Mapping[str, str] | None = None,
    *,
    version: str = KAFKA_4_3,
) -> ProgramClient:
    """Kafka's own clients, of a version. Needs Java, with its compiler among its modules.

    The program is compiled with those of 4.3, as one whose clients are replaced later.
    """
    jars = kafka_jars(version)

    def build(source: Path, target: Path) -> None:
        programs = (source / "Program.java", source / "Transactions.java")
        _compile_java(programs, kafka_jars(), target)

    return ProgramClient(
        bootstrap_servers,
        _java(built_client("java", build), jars, "Program"),
        name="java",
        lacks=JAVA_LACKS,
        cannot_write={},
        settings=settings,
    )


def streams_command(program: str) -> list[str]:
    """The command of an application of Kafka Streams. Needs Java with its compiler, and Maven."""
    need("java", "install a JDK")

    def build(source: Path, target: Path) -> None:
        _copy_jars(source, target / "jars")
        _compile_java(sorted(source.glob("*.java")), target / "jars", target)

    home = built_client("streams", build)
    return _java(home, home / "jars", program)


def _compile_java(programs: Sequence[Path], jars: Path, target: Path) -> None:
    if "jdk.compiler" not in run(["java", "--list-modules"], target):
        raise ProgramUnavailableError("Java without the module jdk.compiler: install a JDK")
    # Without the launcher `javac`, nothing expands a wildcard in the class path.
    libraries = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", libraries]
    run([*compiler, "-d", str(target), *map(str, programs)], target)


def _java(classes: Path, jars: Path, program: str) -> list[str]:
    log4j = tools_resource("log4j2-tools.xml")
    flags = ["-Xmx512m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={log4j}"]
    return ["java", *flags, "-cp", f"{classes}:{jars}/*", program]


def _copy_jars(source: Path, target: Path) -> None:
    """Fetches what the `pom.xml` of a program names."""
    need("mvn", "install Maven")
    try:
        copy_dependencies(source / "pom.xml", target)
    except DownloadError as error:
        raise ProgramUnavailableError(str(error)) from error


def go_client(bootstrap_servers: str) -> ProgramClient:
    """franz-go; `group.protocol` is the one setting that it takes."""
    return _go_program(bootstrap_servers, "go", name="franz-go", lacks=GO_LACKS)


def sarama_client(bootstrap_servers: str) -> ProgramClient:
    """Sarama, for transactions alone."""
    return _go_program(bootstrap_servers, "sarama", name="sarama", lacks={})


def _go_program(
    bootstrap_servers: str, sources: str, *, name: str, lacks: Mapping[str, str]
) -> ProgramClient:
    """Needs Go, and for the first build the Go module proxy."""

    def build(source: Path, target: Path) -> None:
        need("go", "install Go")
        fetch(["go", "mod", "download"], source)
        run(["go", "build", "-mod=readonly", "-o", str(target / "client"), "."], source)

    command = [str(built_client(sources, build) / "client")]
    return ProgramClient(bootstrap_servers, command, name=name, lacks=lacks, cannot_write={})


def js_client(bootstrap_servers: str) -> ProgramClient:
    """KafkaJS. Needs Node.js and npm, and for the first build the npm registry."""
    need("node", "install Node.js")

    def build(source: Path, target: Path) -> None:
        need("npm", "install npm")
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, target)
        fetch(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], target)

    return ProgramClient(
        bootstrap_servers,
        ["node", str(built_client("js", build) / "main.js")],
        name="kafkajs",
        lacks=JS_LACKS,
        cannot_write=JS_CANNOT_WRITE,
    )


class SparkClient(ProgramClient):
    """Spark: batches through the common interface, and streams from one topic to another."""

    def stream(
        self,
        topic: str,
        to: str,
        checkpoint: Path,
        *,
        start: Start,
        reset: str = "none",
        per_trigger: int | None = None,
    ) -> list[int]:
        """Copies what there is from where the checkpoint ends; how many records in each batch.

        Raises:
            NoOffsetError: records are gone that were not read, and `reset` is none.
        """
        begin = {"start": start.kind, "at": start.at, "checkpoint": str(checkpoint)}
        batches: list[int] = self._ask(
            "stream", topic, to=to, reset=reset, perTrigger=per_trigger, **begin
        )
        return batches


def spark_environment() -> tuple[Path, Path]:
    """Spark 4.0 in an environment of its own: its Python, and the directory of Kafka's connector.

    Needs Java and Maven, and at first PyPI.
    """
    need("java", "install Java 17 or newer")

    def build(source: Path, target: Path) -> None:
        _copy_jars(source, target / "jars")
        uv = [sys.executable, "-m", "uv"]
        python = ["--python", str(target / "venv" / "bin" / "python")]
        run([*uv, "venv", "-q", "--python", sys.executable, str(target / "venv")], source)
        pinned = ["--require-hashes", "-r", "requirements.txt"]
        fetch([*uv, "pip", "install", "-q", *python, *pinned], source)

    home = built_client("spark", build, ("pom.xml", "requirements.txt"))
    return home / "venv" / "bin" / "python", home / "jars"


def spark_client(bootstrap_servers: str) -> SparkClient:
    """Spark 4.0 behind jobs; needs what `spark_environment` needs."""
    python, jars = spark_environment()
    return SparkClient(
        bootstrap_servers,
        [str(python), "-E", str(_SOURCES / "spark" / "main.py"), str(jars)],
        name="spark",
        lacks=SPARK_LACKS,
        cannot_write=SPARK_CANNOT_WRITE,
    )


JAVA_LACKS: Final[Mapping[str, str]] = {}
GO_LACKS: Final[Mapping[str, str]] = {
    "reset_by_duration": "franz-go looks back from the newest record, not from now",
}
JS_LACKS: Final[Mapping[str, str]] = {
    "reset_none": "KafkaJS always resets",
    "reset_by_duration": "KafkaJS resets to either end",
    "group_reset_none": "KafkaJS always resets",
    "group_of_two": "KafkaJS divides partitions by an assignor of its own",
    "group_of_two_beside_consumer": "KafkaJS divides partitions by an assignor of its own",
}
JS_CANNOT_WRITE: Final[Mapping[str, str]] = {
    "null_headers": "KafkaJS takes only texts and bytes as a header's value",
}

SPARK_LACKS: Final[Mapping[str, str]] = {
    "reset_earliest_from_past_the_end": "Spark never begins past the end",
    "reset_latest": "a batch ends where the log does",
    "reset_by_duration": "Spark continues at the log start",
    "start_from_now": "a batch ends where the log does",
    "admin": "Spark makes no topics",
    "group": "Spark keeps its offsets itself",
    "group_of_two": "Spark keeps its offsets itself",
    "group_of_two_beside_consumer": "Spark keeps its offsets itself",
    "group_reset_earliest": "Spark keeps its offsets itself",
    "group_reset_latest": "Spark keeps its offsets itself",
    "group_reset_none": "Spark keeps its offsets itself",
}
SPARK_CANNOT_WRITE: Final[Mapping[str, str]] = {"timestamps": "the sink has no such column"}
