"""Writes the table of events in docs/audit-log.md from the classes of cordwood.model.audit.

What an event is about is the docstring of its class.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from cordwood.model import audit
from cordwood.model.audit import AuditEvent, Requester

PAGE = Path(__file__).resolve().parent.parent / "docs" / "audit-log.md"
BEGIN = "<!-- events: written by tools/audit_doc.py from the code -->\n"
END = "<!-- end of events -->\n"
_BETWEEN = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)


def events() -> list[type[AuditEvent]]:
    """The kinds of events, in the order of the module."""
    found = [each for each in vars(audit).values() if inspect.isclass(each)]
    return [each for each in found if issubclass(each, AuditEvent) and each is not AuditEvent]


def values(kind: type[AuditEvent]) -> list[str]:
    """The names of an event's values in JSON."""
    names = [each.name for each in fields(kind)]
    requester = [] if "requester" not in names else list(Requester._fields)
    return [name for name in names if name != "requester"] + requester


def _row(kind: type[AuditEvent]) -> str:
    about = " ".join((inspect.getdoc(kind) or "").split())
    names = ", ".join(f"`{name}`" for name in values(kind))
    return f"| `{kind.kind}` | {kind.logged_by} | {about} | {names} |\n"


def page(text: str) -> str:
    """The page with its table as the code has it."""
    head = "| `event` | logged by | what has happened | values |\n| --- | --- | --- | --- |\n"
    table = head + "".join(map(_row, events()))
    return _BETWEEN.sub(lambda _: f"{BEGIN}\n{table}\n{END}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
