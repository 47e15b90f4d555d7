"""Options of a command's log: --log-level, --log-format, --log-file and --audit-log."""

from __future__ import annotations

import enum
import json
import logging
import logging.handlers
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cordwood.model.audit import AUDIT_LOGGER, EVENT_ATTRIBUTE, AuditEvent
from cordwood.model.errors import ConfigError, CordwoodError

_TEXT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"

LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}


class LogLevel(enum.StrEnum):
    """The lowest level that is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class LogFormat(enum.StrEnum):
    """The format of a log line."""

    TEXT = "text"
    JSON = "json"


LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level",
        case_sensitive=False,
        metavar="LEVEL",
        help="Lowest level to log: DEBUG, INFO, WARN or ERROR.",
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        case_sensitive=False,
        metavar="text|json",
        help="Format of log lines.",
    ),
]
LogFileOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Log to this file, not to standard error."),
]
AuditLogOption = Annotated[
    Path | None,
    typer.Option(
        "--audit-log",
        metavar="FILE",
        help="Note everything that is removed in this file, whatever --log-level is.  "
        "[default: the --log-file]",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """`file` is None for standard error.

    `level` is a name of `LEVELS`; None stands for INFO in a file, which is to say what was removed
    and rewritten, and for WARN on standard error.

    Everything that is removed is noted in `audit`, without it in `file`, both whatever the level
    is. On standard error it is if the level is INFO or lower, or with `is_service`: that of a
    service is its log, and not a screen.
    """

    level: str | None = None
    format: LogFormat = LogFormat.TEXT
    file: Path | None = None
    audit: Path | None = None
    is_service: bool = False

    @property
    def lowest(self) -> int:
        """The lowest level that is logged, as a number of `logging`."""
        return LEVELS[self.level or ("WARN" if self.file is None else "INFO")]


def _level_name(record: logging.LogRecord) -> str:
    """The level with Kafka's name."""
    return {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(record.levelname, record.levelname)


def _without_expected_trace(record: logging.LogRecord) -> logging.LogRecord:
    """A copy with a typed error in its message instead of a traceback.

    The text of a typed error is complete for an operator (a full disk, a damaged file). For any
    other exception the traceback matters, and stays.
    """
    shown = copy(record)
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, CordwoodError):
        shown.msg, shown.args = f"{record.getMessage()}: {error}", ()
        shown.exc_info = shown.exc_text = None
    return shown


class _TextFormatter(logging.Formatter):
    """A line as Kafka's log4j writes it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it the trace of an unexpected exception."""
        shown = _without_expected_trace(record)
        shown.levelname = _level_name(record)
        return super().format(shown)


class _JsonFormatter(logging.Formatter):
    """One JSON document per line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, `error`.

    An event of the audit log has its own values, too.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        record = _without_expected_trace(record)
        moment = datetime.fromtimestamp(record.created, UTC)
        document: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _level_name(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        event = getattr(record, EVENT_ATTRIBUTE, None)
        if isinstance(event, AuditEvent):
            document |= event.to_json()
        return json.dumps(document)


class _LineHandler(logging.Handler):
    """Writes a formatted line."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        super().__init__()
        self._write_line = write_line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write_line(self.format(record))
        except Exception:
            self.handleError(record)


class _FileHandler(logging.handlers.WatchedFileHandler):
    """Appends lines to a file; one that was moved away is created again.

    A line that the disk refuses is lost, which is said once: the command frees space, perhaps on
    this very disk, and continues. Names of files that are not UTF-8 are written as they are.
    """

    def __init__(self, option: str, file: Path, write_line: Callable[[str], None]) -> None:
        super().__init__(file, encoding="utf-8", errors="surrogateescape")
        self._option = option
        self._write_line = write_line
        self._was_refused = False

    def close(self) -> None:
        """Closes the file; lines that could not be written are lost, as was reported."""
        try:
            super().close()
        except OSError:
            if not self._was_refused:
                raise

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # of logging.Handler
        """Reports lost lines, whatever the reason: the audit log must lose none silently."""
        error = sys.exc_info()[1]
        if self._was_refused:
            return
        self._was_refused = True
        why = (error.strerror or error) if isinstance(error, OSError) else repr(error)
        self._write_line(f"{self._option} {self.baseFilename}: lines are lost: {why}")


def parse_log_options(level: str | None, format: str | None, file: str | None) -> LogOptions:  # noqa: A002
    """The options, parsed from text.

    Raises:
        ConfigError: a value is unknown.
    """
    name = level.upper() if level else None
    form = (format or LogFormat.TEXT).lower()
    if name is not None and name not in LEVELS:
        raise ConfigError(f"--log-level {level}: expected one of {', '.join(LEVELS)}")
    if form not in set(LogFormat):
        raise ConfigError(f"--log-format {format}: expected text or json")
    return LogOptions(level=name, format=LogFormat(form), file=Path(file) if file else None)


def log_handler(options: LogOptions, write_line: Callable[[str], None]) -> logging.Handler:
    """A handler that logs to the options' file, or through `write_line` without one.

    A log file that was moved away is created again.

    Raises:
        ConfigError: the log file cannot be written.
    """
    handler: logging.Handler = _LineHandler(write_line)
    if options.file is not None:
        handler = _file_handler("--log-file", options.file, write_line)
    handler.setFormatter(_formatter(options.format))
    handler.setLevel(options.lowest)
    return handler


def _formatter(log_format: LogFormat) -> logging.Formatter:
    return _JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter(_TEXT)


def _file_handler(option: str, file: Path, write_line: Callable[[str], None]) -> _FileHandler:
    try:
        return _FileHandler(option, file, write_line)
    except OSError as error:
        raise ConfigError(f"{option} {file}: cannot be written: {error.strerror}") from error


@contextmanager
def logging_to(write_line: Callable[[str], None], options: LogOptions) -> Iterator[logging.Handler]:
    """Logs according to the options until the context ends; yields the handler.

    Raises:
        ConfigError: the log file cannot be written.
    """
    handler = log_handler(options, write_line)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.setLevel(handler.level)
    root.handlers = [handler]
    # A broker's own loggers may be set to a lower level while it runs.
    handler.setLevel(logging.NOTSET)
    try:
        with _auditing_to(write_line, options):
            yield handler
    finally:
        root.handlers = handlers
        root.setLevel(level)
        handler.close()


@contextmanager
def _auditing_to(write_line: Callable[[str], None], options: LogOptions) -> Iterator[None]:
    """Has the events of the audit log written to where the options say.

    Raises:
        ConfigError: the file cannot be written.
    """
    logger = logging.getLogger(AUDIT_LOGGER)
    before = logger.level, logger.propagate, list(logger.handlers)
    if options.audit is not None:
        handler = _file_handler("--audit-log", options.audit, write_line)
        handler.setFormatter(_formatter(options.format))
        logger.handlers, logger.propagate = [handler], False
    if options.audit is not None or options.file is not None or options.is_service:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.level, logger.propagate, handlers = before
        for each in set(logger.handlers) - set(handlers):
            each.close()
        logger.handlers = handlers
