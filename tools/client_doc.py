"""Writes the table of docs/design/client.md from `cordwood.client.retry`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from cordwood.client.retry import INVALID_METADATA, RULES, Action, RetryRule
from cordwood.model.error_codes import ErrorCode

PAGE = Path(__file__).resolve().parent.parent / "docs" / "design" / "client.md"
BEGIN = "<!-- The table is written by tools/client_doc.py: change cordwood.client.retry. -->\n"
END = "<!-- End of the table. -->\n"

_RETRIABLE = frozenset(code for code in ErrorCode if code.is_retriable)
_SETS = (
    ("*retriable*", _RETRIABLE),
    ("*retriable*, not *stale*", _RETRIABLE - INVALID_METADATA),
    ("*stale*", INVALID_METADATA),
)
_LEFT_OUT_MAX = 3
_COLUMNS = (Action.AGAIN, Action.METADATA, Action.COORDINATOR)


def page() -> str:
    """The text of the page, with the table as it should be."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + table() + END + after


def table() -> str:
    """A row for each request, with what follows the codes of its answers."""
    lines = [
        "\n| request | sent again | with new metadata | at a new coordinator | else |",
        "| --- | --- | --- | --- | --- |",
        *(_row(api, rule) for api, rule in RULES.items()),
    ]
    return "\n".join(lines) + "\n\n"


def _row(api: str, rule: RetryRule) -> str:
    by_action: dict[Action, list[ErrorCode]] = {}
    for code, action in rule.actions.items():
        by_action.setdefault(action, []).append(code)
    cells = [_codes(by_action.pop(action, [])) for action in _COLUMNS]
    rest = "; ".join(f"{action.value}: {_codes(codes)}" for action, codes in by_action.items())
    return f"| {''.join(map(str.capitalize, api.split('_')))} | {' | '.join(cells)} | {rest} |"


def _codes(codes: Collection[ErrorCode]) -> str:
    given = frozenset(codes)
    for name, known in _SETS:
        left_out = known - given
        if given and len(left_out) <= _LEFT_OUT_MAX and len(known & given) > _LEFT_OUT_MAX:
            but = f" but {_names(left_out)}" if left_out else ""
            return "; ".join(part for part in (f"{name}{but}", _names(given - known)) if part)
    return _names(given)


def _names(codes: Collection[ErrorCode]) -> str:
    return ", ".join(code.name for code in sorted(codes))


def main() -> int:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
