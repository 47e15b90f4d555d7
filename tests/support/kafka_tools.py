"""Kafka's own command line tools, many runs in one virtual machine.

Role: the other side of the comparisons of tools. A tool of its own takes a second or two to start;
here only the first one does.

Needs a JDK (`tools/realkafka/ToolRunner.java` is compiled when it is started); where Java cannot
compile, or a tool ends the virtual machine, each tool is run in a machine of its own.
"""

from __future__ import annotations

import struct
import subprocess
from typing import IO, NamedTuple, Self

from support.kafka_programs import KAFKA_4_3, java_command, tool_class, tools_resource

_INT = struct.Struct(">i")
#: What these still have to do is in a hook of the virtual machine: they need its end.
_ALONE = frozenset({"org.apache.kafka.tools.VerifiableProducer"})


class ToolResult(NamedTuple):
    """Output of a tool, and its exit code."""

    code: int
    out: str
    err: str


class KafkaTools:
    """Runs a version's tools; a context manager that leaves no process behind."""

    def __init__(self, version: str = KAFKA_4_3) -> None:
        self.version = version
        #: How many virtual machines have been started.
        self.started = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def run(self, tool: str, *args: str, stdin: bytes = b"") -> ToolResult:
        """Runs a tool by its name, as `tool_class` takes it, or its class."""
        if tool in _ALONE:
            return self._run_alone(tool, args, stdin)
        try:
            return self._run_here(tool, args, stdin)
        except EOFError:
            self._stop()
            return self._run_alone(tool, args, stdin)

    def _run_here(self, tool: str, args: tuple[str, ...], stdin: bytes) -> ToolResult:
        if self._process is None:
            self.started += 1
            self._process = subprocess.Popen(
                java_command(str(tools_resource("ToolRunner.java")), version=self.version),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None, "a pipe"
        assert answers is not None, "a pipe"
        message = _INT.pack(len(args) + 1)
        for text in (tool_class(tool, self.version), *args):
            data = text.encode()
            message += struct.pack(">H", len(data)) + data
        try:
            requests.write(message + _INT.pack(len(stdin)) + stdin)
            requests.flush()
        except BrokenPipeError as error:
            raise EOFError from error
        code = _read_int(answers)
        out = _read(answers, _read_int(answers))
        err = _read(answers, _read_int(answers))
        return ToolResult(code, out.decode(), err.decode())

    def _run_alone(self, tool: str, args: tuple[str, ...], stdin: bytes) -> ToolResult:
        done = subprocess.run(
            [*java_command(tool_class(tool, self.version), version=self.version), *args],
            input=stdin,
            capture_output=True,
            check=False,
        )
        return ToolResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None


def _read_int(stream: IO[bytes]) -> int:
    (number,) = _INT.unpack(_read(stream, _INT.size))
    return int(number)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
