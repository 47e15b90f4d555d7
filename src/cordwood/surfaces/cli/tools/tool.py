"""Code that the tools share: output, exit codes, and the connection to the cluster."""

from __future__ import annotations

import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from cordwood import __version__
from cordwood.client.errors import UnservedProtocolError
from cordwood.client.settings import (
    ADDRESS,
    API_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    ClientSettings,
)
from cordwood.client.transport import Transport, transport_of
from cordwood.format.properties import parse_properties
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.documents import Failure, document_text
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.security_protocol import SecurityProtocol
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.log_options import (
    LEVELS,
    LogOptions,
    log_handler,
    logging_to,
    parse_log_options,
)
from cordwood.surfaces.cli.tools.options import (
    LOG_OPTIONS,
    OptionError,
    Options,
    Usage,
    UsageError,
    java_integer,
)

_FAILED = 1
_FLUSH_BYTES = 1 << 16
# A console producer may say one of each record that it lost.
_SAID_MAX = 1000
_ADMIN = "AdminClient"
_API_TIMEOUT = "default.api.timeout.ms"
REFUSED_MS = 1_500
_NETWORK_CLIENT = "org.apache.kafka.clients.NetworkClient"
#: Texts of the parser of flags, and those of argparse4j in their place.
_REFUSALS: Final = {
    r"(.) is not a recognized option": "unrecognized arguments: '-{}'",
    r"(.+) is not a recognized option": "unrecognized arguments: '--{}'",
    r"Option (\S+) requires an argument": "argument --{}: expected one argument",
    r"Cannot parse argument '(.*)' of option (\S+)": (
        "argument --{1}: could not convert '{0}' to Integer (For input string: \"{0}\")"
    ),
}


class ToolError(CordwoodError):
    """An error of a tool, which ends with a text on stderr and exit code 1."""


class RefusedFlagsError(ToolError):
    """Flags that do not go together, shown below a short usage."""


class ConfigValueError(ToolError):
    """A client property whose value is none."""

    @property
    def described(self) -> str:
        """The Java class and the text."""
        return f"org.apache.kafka.common.config.ConfigException: {self}"


def described(error: CordwoodError) -> str:
    """An error with its Java class, where it has one."""
    text = getattr(error, "described", None)
    return text if isinstance(text, str) else str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The last lines of a run that has no other document."""

    messages: Sequence[str]


class Terminal:
    """Standard input, output and error; text is UTF-8, surrogates are written as they were read.

    Output is buffered here until it is flushed, so that Python's own buffers are empty when the
    reader of a pipe has closed it.
    """

    def __init__(
        self,
        stdin: BinaryIO | None = None,
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.stdin = stdin or sys.stdin.buffer
        self._out = stdout or sys.stdout.buffer
        self._err = stderr or sys.stderr.buffer
        self._pending = bytearray()
        self.clock = clock or SystemClock()
        self._log_handler = log_handler(LogOptions(), self._to_stderr)
        self._is_json = False
        self._documents = 0
        self._said: deque[str] = deque(maxlen=_SAID_MAX)

    @contextmanager
    def logging(self, options: LogOptions) -> Iterator[None]:
        """Logs according to the options until the context ends.

        Raises:
            ConfigError: the log file cannot be written.
        """
        before = self._log_handler
        with logging_to(self._to_stderr, options) as handler:
            self._log_handler = handler
            try:
                yield
            finally:
                self._log_handler = before

    @property
    def is_interactive(self) -> bool:
        """True if a person types and reads."""
        return self.stdin.isatty() and self._out.isatty()

    def print_json(self) -> None:
        """Reserves stdout for documents from now on: lines of text go to stderr."""
        self._is_json = True

    def line(self, text: str) -> None:
        """Adds a line to stdout, or to stderr if stdout has JSON documents."""
        if self._is_json:
            self.error(text)
            return
        self.write(_line(text))

    def write(self, data: bytes) -> None:
        """Adds bytes to stdout.

        Raises:
            BrokenPipeError: nobody reads.
        """
        self._pending += data
        if len(self._pending) >= _FLUSH_BYTES:
            self.flush()

    def document(self, answer: Any) -> None:
        """Adds an answer to stdout, as a JSON document on a line of its own."""
        self._documents += 1
        self.write(_line(document_text(answer)))

    def complete_json(self, error: str | None, code: int) -> None:
        """Adds the document of a run that has printed none: its error, or its last messages.

        Args:
            error: that ended the run; None if it ended by itself.
            code: its exit code.
        """
        if not self._is_json or self._documents:
            return
        if error is None and code:
            error = self._said[-1] if self._said else ""
        said = Messages(messages=tuple(self._said))
        self.document(said if error is None else Failure(error=error, exit_code=code))

    def error(self, text: str) -> None:
        """Writes a line to stderr, after all that went to stdout."""
        if self._is_json:
            self._said.append(text)
        self._to_stderr(text)

    def _to_stderr(self, text: str) -> None:
        self.flush()
        _write_all(self._err, _line(text))

    def log(self, level: str, text: str, logger: str) -> None:
        """Logs a line; on stderr it looks as the log of Kafka's tools does."""
        record = logging.LogRecord(logger, LEVELS[level], "", 0, text, None, None)
        now_ms = self.clock.now_ms()
        record.created, record.msecs = now_ms / 1000, now_ms % 1000
        if record.levelno >= max(self._log_handler.level, logging.getLogger().level):
            self._log_handler.handle(record)

    def warn(self, text: str) -> None:
        """Writes what Kafka's NetworkClient warns of to stderr."""
        self.log("WARN", text, _NETWORK_CLIENT)

    def flush(self) -> None:
        """Hands everything on.

        Raises:
            BrokenPipeError: nobody reads.
        """
        data = bytes(self._pending)
        self._pending.clear()
        _write_all(self._out, data)


def _line(text: str) -> bytes:
    return f"{text}\n".encode("utf-8", "surrogateescape")


def _write_all(stream: BinaryIO, data: bytes) -> None:
    raw = getattr(stream, "raw", stream)
    stream.flush()
    view = memoryview(data)
    while view:
        view = view[raw.write(view) :]


def split_command(
    arguments: Sequence[str], usage: Usage, short: Mapping[str, str]
) -> tuple[list[str], str | None]:
    """The flags, with short ones expanded, and the first argument that is no flag or value."""
    with_value = {f"--{option.name}" for option in usage.options if option.placeholder}
    rest: list[str] = []
    is_value = False
    command = None
    for word in arguments:
        if not is_value and command is None and not word.startswith("-"):
            command = word
            continue
        flag = short.get(word, word)
        is_value = not is_value and flag in with_value
        rest.append(flag)
    return rest, command


def parse_broker_id(text: str) -> int:
    """The id of a broker.

    Raises:
        ToolError: it is no number; the text is Java's.
    """
    number = java_integer(text)
    if number is None:
        raise ToolError(f'For input string: "{text}"')
    return number


def refusal(error: CordwoodError) -> str:
    """The text of refused flags in the words of argparse4j, with which some of Kafka's tools parse.

    The texts of the parser of the others are replaced.
    """
    text = str(error)
    for pattern, words in _REFUSALS.items():
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return words.format(*found.groups())
    return text


def require_command(command: str | None, known: Collection[str]) -> str:
    """The command, which is one of those that a tool has.

    Raises:
        RefusedFlagsError: it is not, or there is none.
    """
    if command is None:
        raise RefusedFlagsError("too few arguments")
    if command not in known:
        shown = ", ".join(f"'{name}'" for name in known)
        raise RefusedFlagsError(f"invalid choice: '{command}' (choose from {shown})")
    return command


def run_tool(
    usage: Usage,
    arguments: list[str],
    terminal: Terminal,
    body: Callable[[Options, Terminal], int],
    *,
    on_error: Callable[[CordwoodError, Terminal], None],
    option_errors_show_usage: bool = False,
    prints_records: bool = False,
) -> int:
    """Runs a tool's body with its flags and returns the exit code.

    `--help` and `--version` are handled here. A UsageError is shown with the usage; `on_error`
    shows other errors, in the words of the tool. Exit codes: 0 success, 1 failure. With `--json`
    one document is printed, also for an error; with `prints_records` one for each record, and for
    an error.
    """
    failure: str | None = None
    if any(each.lstrip("-") == "json" and each.startswith("-") for each in arguments):
        terminal.print_json()
    try:
        options = _parsed(usage, arguments, option_errors_show_usage=option_errors_show_usage)
        if not arguments:
            raise UsageError(usage.hint or usage.summary)
        if options.has("help"):
            terminal.write(usage.text().encode())
            return _flushed(terminal, 0)
        if options.has("version"):
            terminal.write(_line(__version__))
            return _flushed(terminal, 0)
        log = parse_log_options(*(options.value(each.name) for each in LOG_OPTIONS))
        with terminal.logging(log):
            code = body(options, terminal)
    except UsageError as error:
        terminal.error(f"{error}\n{usage.text()}".rstrip())
        code, failure = 1, str(error).strip()
    except CordwoodError as error:
        on_error(error, terminal)
        code, failure = 1, str(error)
    except KeyboardInterrupt:
        code, failure = 130, "interrupted"
    except BrokenPipeError:
        return 1
    if code == _FAILED or not prints_records:
        terminal.complete_json(failure, code)
    return _flushed(terminal, code)


def _parsed(usage: Usage, arguments: list[str], *, option_errors_show_usage: bool) -> Options:
    try:
        return usage.parse(arguments)
    except OptionError as error:
        if option_errors_show_usage:
            raise UsageError(str(error)) from error
        raise


def _flushed(terminal: Terminal, code: int) -> int:
    try:
        terminal.flush()
    except BrokenPipeError:
        return 1
    return code


def print_error(error: CordwoodError, terminal: Terminal) -> None:
    """Shows an error's text alone."""
    terminal.error(str(error))


def read_file(path: str) -> bytes:
    """The bytes of a file given by a flag.

    Raises:
        ToolError: the file cannot be read; the text is Java's.
    """
    try:
        return OS.read_bytes(Path(path))
    except OSError as error:
        raise ToolError(f"{path} ({error.strerror})") from error


def read_properties(path: str) -> dict[str, str]:
    """The settings in a properties file.

    Raises:
        ToolError: it cannot be read.
    """
    try:
        return parse_properties(read_file(path).decode("latin-1"), name=path)
    except ConfigError as error:
        raise ToolError(str(error)) from error


def require_addresses(options: Options) -> None:
    """Raises UsageError unless `--bootstrap-server` names hosts with ports.

    Source: org.apache.kafka.tools.ToolsUtils.validateBootstrapServer.
    """
    text = options.value("bootstrap-server")
    if text is None or not text.strip():
        raise UsageError("Error while validating the bootstrap address\n")
    parts = text.rstrip(",").split(",")
    if not all(ADDRESS.fullmatch(part) for part in parts):
        raise UsageError("Please provide valid host:port like host1:9091,host2:9092\n")


def client_settings(
    options: Options,
    *,
    client_id: str = "adminclient-1",
    kind: str = _ADMIN,
    extra: Mapping[str, str] | None = None,
    servers: str = "bootstrap-server",
) -> ClientSettings:
    """The settings for connecting to `--bootstrap-server` (or `servers`).

    `extra` are client properties given in other ways; they override those of the file. An admin
    client reports an address that refuses connections in two seconds, and not in a minute as
    Kafka's, unless the file has default.api.timeout.ms: who sets it wants to wait.

    Raises:
        ToolError: the client would need an unsupported feature.
    """
    properties: dict[str, str] = {}
    file = options.value("command-config")
    if file is None and any(option.name == "config" for option in options.usage.options):
        file = None if options.usage.tool == "topics" else options.value("config")
    if file is not None:
        properties = read_properties(file)
    waits = kind != _ADMIN or _API_TIMEOUT in properties
    properties |= extra or {}
    client_id = properties.get("client.id", client_id)
    return ClientSettings(
        bootstrap_servers=options.required(servers),
        client_id=client_id,
        name=f"{kind} clientId={client_id}",
        transport=_transport(properties),
        api_timeout_ms=_ms(properties, _API_TIMEOUT, API_TIMEOUT_MS),
        request_timeout_ms=_ms(properties, "request.timeout.ms", REQUEST_TIMEOUT_MS),
        retry_backoff_ms=_ms(properties, "retry.backoff.ms", RETRY_BACKOFF_MS),
        retry_backoff_max_ms=_ms(properties, "retry.backoff.max.ms", RETRY_BACKOFF_MAX_MS),
        refused_ms=None if waits else REFUSED_MS,
    )


def _transport(properties: Mapping[str, str]) -> Transport:
    protocol = properties.get("security.protocol", SecurityProtocol.PLAINTEXT.name)
    if protocol.upper() not in SecurityProtocol.__members__:
        raise ToolError(f"security.protocol={protocol}: there is no such protocol")
    try:
        return transport_of(SecurityProtocol[protocol.upper()], properties)
    except UnservedProtocolError as error:
        raise ToolError(f"security.protocol={protocol}: {error}") from error


def _ms(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    number = java_integer(text.strip())
    if number is None or number < 0:
        raise ToolError(f"Invalid value {text} for configuration {name}: Not a number of type INT")
    return number
