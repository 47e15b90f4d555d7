"""Writes docs/python.md: the classes that programs import, from their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.testing.broker import RunningBroker
from cordwood.testing.cluster import Cluster
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"

#: What is for tests of users, and what is for programs.
SECTIONS = {
    "For tests": (RunningBroker, Cluster, ManualClock, SimulatedFileSystem),
    "A partition's log": (LogManager, PartitionLog),
}
INTRODUCTION = """\
# The Python API

<!-- Written by tools/python_doc.py from the docstrings in src/cordwood: change it there. -->

What a program or a test imports. [Test with Cordwood](testing.md) shows the fixtures and whole
tests, `examples/partition_log.py` a log. Times are in ms, sizes in bytes; arguments behind `*` are
given by name.
"""


def _first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    whole = re.split(r"\n\s*\n", inspect.cleandoc(text or ""))[0]
    return " ".join(whole.split())


def _signature(function: object) -> str:
    """The arguments without types, `self` and the result: those are in the code."""
    assert callable(function)
    parts: list[str] = []
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.name == "self":
            continue
        is_named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if is_named and not any(part.startswith("*") for part in parts):
            parts.append("*")
        prefix = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        has_default = parameter.default is not inspect.Parameter.empty
        parts.append(f"{prefix}{parameter.name}" + ("=..." if has_default else ""))
    return "(" + ", ".join(parts) + ")"


def _members(described: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties that a class defines, and what they do."""
    for name, member in vars(described).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield name, _first_paragraph(member.__doc__)
        elif inspect.isfunction(member):
            yield name + _signature(member), _first_paragraph(member.__doc__)
        elif isinstance(member, classmethod | staticmethod):
            yield name + _signature(member.__func__), _first_paragraph(member.__doc__)


def _class(described: type) -> str:
    lines = [f"### {described.__name__}", "", "```python"]
    lines += [f"from {described.__module__} import {described.__name__}", "```", ""]
    lines += [_first_paragraph(described.__doc__), ""]
    lines += ["| | |", "| --- | --- |"]
    made = f"{described.__name__}{_signature(described.__init__)}"
    lines.append(f"| `{made}` | {_first_paragraph(described.__init__.__doc__)} |")
    for typed, text in _members(described):
        escaped = text.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{typed}` | {escaped} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, classes in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [_class(each) for each in classes]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
