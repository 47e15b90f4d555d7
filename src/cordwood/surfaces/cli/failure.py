"""Report of a failed command: a line on standard error, and a document with `--json`.

With `--json` standard output has one JSON document, also of a command that failed: `error`, the
text of the line, and `exit_code`. A command that has printed its own document, such as a report
with partitions that failed, ends with `typer.Exit`, and one that has none with `fail`.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import typer

from cordwood.surfaces.cli.error_text import FAILED, command_name, text_and_code
from cordwood.surfaces.cli.stopping import STOPPING, StoppedError

_JSON = "--json"


class CommandFailedError(typer.Exit):
    """The end of a command that has printed nothing on standard output."""

    def __init__(self, error: str, code: int) -> None:
        super().__init__(code)
        self.error = error


def fail(name: str, error: object, code: int) -> NoReturn:
    """Ends `cordwood NAME`, with the error on standard error.

    `name` is empty for `cordwood LOG_DIR`.

    Raises:
        CommandFailedError: always, unless the command is ended by a reader that has closed
            standard output.
        BrokenPipeError: it is; there is nothing to say to anybody.
    """
    _require_reader()
    print_error(f"{f'cordwood {name}'.rstrip()}: {error}")
    raise CommandFailedError(str(error), code)


def _require_reader() -> None:
    """Raises the error that is being handled again if nobody reads standard output.

    Source: poll(2), which has POLLERR for a pipe without a reader.
    """
    caught = sys.exception()
    if not isinstance(caught, BrokenPipeError):
        return
    output = select.poll()
    try:
        output.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # it is no file of the system
        return
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0)):
        raise caught


def print_error(text: str) -> None:
    """Prints a sentence to standard error; on a terminal no word of it is broken."""
    from cordwood.surfaces.cli.tables import error_width, text_lines  # noqa: PLC0415  # seldom

    for line in text_lines(text, width=error_width()):
        typer.echo(line, err=True)


@contextmanager
def failures_as_json(arguments: Sequence[str]) -> Iterator[None]:
    """Prints the document of a failure of the commands within, if `--json` is an argument.

    Every exception is raised again.
    """
    try:
        yield
    except CommandFailedError as error:
        _print(arguments, error.error, error.exit_code)
        raise
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except StoppedError:
        _print(arguments, STOPPING.message(), STOPPING.exit_code)
        raise
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error has a text of its own, and a code
            _print(arguments, error.format_message(), getattr(error, "exit_code", FAILED))
        else:
            _print(arguments, *text_and_code(command_name(arguments), error))
        raise


def _print(arguments: Sequence[str], error: str, code: int) -> None:
    if _JSON in arguments:
        from cordwood.model.documents import Failure, document_text  # noqa: PLC0415  # seldom

        typer.echo(document_text(Failure(error=error, exit_code=code)))
