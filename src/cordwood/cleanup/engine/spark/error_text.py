"""Texts of Spark's errors, also when the virtual machine that has them is gone."""

from __future__ import annotations

import re
from typing import Final

from cordwood.model.errors import ConfigError, CordwoodError, EngineError

#: The last line of a traceback of Python, with an error of ours, or of the system.
_OURS: Final = re.compile(r"^cordwood\.(?:\w+\.)+(\w+): (.+)$", re.MULTILINE)
_OF_PYTHON: Final = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w+: .+$", re.MULTILINE)
_SYSTEM: Final = re.compile(r"^\w+: \[Errno \d+\] (.+?)(?:: '(.+)')?$", re.MULTILINE)
#: A condition of Spark's, such as [UNRESOLVED_COLUMN.WITH_SUGGESTION], and its text.
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+?(?= ?SQLSTATE: |\n\n|\Z)", re.DOTALL)
#: Where it is in the query: a line from 1 and characters before it, or both from 1.
_AFTER: Final = re.compile(r"SQLSTATE: \w+[;,]? ?\(?line (\d+),? pos (\d+)")
_CONTEXT: Final = re.compile(r"== SQL .*?\(line (\d+), position (\d+)\) ==")
_OF_THE_QUERY: Final = frozenset({"AnalysisException", "ParseException"})


def text_of(error: BaseException) -> str:
    """The text of an error; of one that its virtual machine does not give any more, its kind.

    Py4J asks the virtual machine for the text of a Java exception, and raises without an answer.
    """
    try:
        return str(error)
    except Exception:  # of Py4J, or of the socket
        return f"{type(error).__name__}, of which the virtual machine says no more: it has ended"


def first_line_of(error: BaseException) -> str:
    """The first line of an error's text that says anything: Py4J's own does not."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (telling or lines or [type(error).__name__])[0].lstrip(": ")


def sql_error(error: BaseException) -> CordwoodError:
    """The error of a query as one of Cordwood's, in one line, with its place in the query.

    A query that cannot be used is a ConfigError, and an error of ours that a task raised is itself.
    """
    text = text_of(error)
    ours = _OURS.findall(text)
    if ours:
        kind, message = ours[-1]
        return ConfigError(message) if kind == ConfigError.__name__ else CordwoodError(message)
    system = _SYSTEM.findall(text)
    if system:
        reason, name = system[-1]
        return CordwoodError(f"{name}: {reason}" if name else reason)
    condition = _CONDITION.search(text)
    if condition is None:
        of_python = _OF_PYTHON.findall(text)
        return EngineError(f"Spark failed the query: {(of_python or [first_line_of(error)])[-1]}")
    reason = f"{' '.join(condition[0].split())}{_place_in(text)}"
    kinds = {each.__name__ for each in type(error).__mro__}
    return ConfigError(reason) if kinds & _OF_THE_QUERY else CordwoodError(reason)


def _place_in(text: str) -> str:
    """The place in the query that an error's text names, counted from 1; empty without one."""
    after = _AFTER.search(text)
    if after is not None:
        return f" (line {after[1]}, position {int(after[2]) + 1})"
    context = _CONTEXT.search(text)
    return "" if context is None else f" (line {context[1]}, position {context[2]})"
