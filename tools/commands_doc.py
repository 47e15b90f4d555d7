"""Writes docs/exit-codes.md from the code, and the tables of options in docs/commands.

The latter stand between markers.

A page without markers has a table of its own, by hand, which says more than `--help`:
`tests/tidy/test_commands_doc.py` checks that it lacks no option.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from command_reference import (
    EXIT_CODES,
    TOOL_EXIT_CODES,
    CommandFacts,
    commands,
    exit_codes_in,
)
from cordwood.surfaces.cli import log_dir

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = DOCS / "commands"
BEGIN = "<!-- options: written by tools/commands_doc.py from the code -->\n"
END = "<!-- end of options -->\n"
_BETWEEN = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)


def by_page() -> dict[str, list[CommandFacts]]:
    """The commands of each page, by its name: `hold` has `hold add` and the others, too."""
    found: dict[str, list[CommandFacts]] = {}
    for command in commands():
        first, _, second = command.name.partition(" ")
        page = "cluster-up" if command.name == "cluster up" else first
        if not second or page == "cluster-up" or command.options:
            found.setdefault(page, []).append(command)
    return found


def _table(command: CommandFacts) -> str:
    if not command.options:
        return ""
    lines = [f"\nOptions of `cordwood {command.name}`:\n" if " " in command.name else ""]
    lines += ["| option | meaning |", "| --- | --- |"]
    for option in command.options:
        text = option.text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
        lines.append(f"| `{option.typed}` | {text} |")
    return "\n".join(lines) + "\n"


def written(text: str, described: list[CommandFacts]) -> str:
    """A page with its tables as the code has them."""
    tables = "".join(_table(command) for command in described)
    return _BETWEEN.sub(lambda _: f"{BEGIN}{tables}\n{END}", text)


def pages() -> Mapping[Path, str]:
    """The content of the pages with markers."""
    return {
        PAGES / f"{name}.md": written((PAGES / f"{name}.md").read_text(encoding="utf-8"), described)
        for name, described in by_page().items()
    }


EXIT_CODES_PAGE = """# Exit codes

<!-- written by tools/commands_doc.py from what `--help` shows -->

| code | meaning |
| --- | --- |
{general}

`cordwood serve` and `cordwood cluster up` end with 0 when a signal stops them. Kafka's tools, and
`dump-log`, have Kafka's codes, {of_tools}: {tools}.

| command | {codes} |
| --- | {lines} |
{rows}

With `--json`, the document of an error has the code, too: `{{"error": TEXT, "exit_code": N}}`. With
`CORDWOOD_DEBUG=1` in the environment the traceback of an unexpected error is shown.
"""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_codes_page() -> str:
    """The content of docs/exit-codes.md."""
    described = list(commands())
    *tools, last = [f"`{each.name}`" for each in described if each.exit_codes is TOOL_EXIT_CODES]
    own = {"LOG_DIR": exit_codes_in(log_dir.EPILOG)}
    own |= {each.name: each.exit_codes for each in described if _has_its_own(each)}
    rows = [
        f"| {_link(name)} | {' | '.join(codes.get(code, '') for code in EXIT_CODES)} |"
        for name, codes in own.items()
    ]
    return EXIT_CODES_PAGE.format(
        general="\n".join(f"| {code} | {meaning} |" for code, meaning in _general()),
        tools=f"{', '.join(tools)} and {last}",
        of_tools="; ".join(f"{code} {meaning}" for code, meaning in TOOL_EXIT_CODES.items()),
        codes=" | ".join(map(str, EXIT_CODES)),
        lines=" | ".join("---" for _ in EXIT_CODES),
        rows="\n".join(rows),
    )


def _link(name: str) -> str:
    page = "cli.md" if name == "LOG_DIR" else f"commands/{name.replace(' ', '-')}.md"
    return f"[`cordwood {name}`]({page})"


def _general() -> Iterator[tuple[str, str]]:
    for code, meaning in EXIT_CODES.items():
        yield str(code), meaning
    names = [each.name for each in _SIGNALS]
    yield (
        ", ".join(str(128 + each) for each in _SIGNALS),
        f"stopped by {', '.join(names[:-1])} or {names[-1]}",
    )


def _has_its_own(command: CommandFacts) -> bool:
    """Whether a row is for the command: those of a command are in its row, such as `hold`."""
    is_inner = " " in command.name and command.name != "cluster up"
    return command.exit_codes is not TOOL_EXIT_CODES and not is_inner


if __name__ == "__main__":
    (DOCS / "exit-codes.md").write_text(exit_codes_page(), encoding="utf-8")
    for path, page in pages().items():
        path.write_text(page, encoding="utf-8")
