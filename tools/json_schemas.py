"""Writes docs/schemas/, the JSON schemas of what commands print with --json, from the answers."""

from __future__ import annotations

import json
from pathlib import Path

from cordwood.model.documents import Failure, schema_of
from cordwood.surfaces.cli.answers import ANSWERS

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "schemas"


def file_name(command: str) -> str:
    """The name of the file of a command, with the words that select its action."""
    return f"{command.replace('--', '').replace(' ', '-')}.json"


def schemas() -> dict[str, str]:
    """The text of each file, by its name."""
    found = {}
    for name, kind in ANSWERS.items():
        schema = schema_of(kind, f"cordwood {name} --json")
        found[file_name(name)] = json.dumps(schema, indent=1) + "\n"
    schema = schema_of(Failure, "a command that failed, with --json")
    return found | {"error.json": json.dumps(schema, indent=1) + "\n"}


def main() -> None:
    """Writes the files, and removes others."""
    DIRECTORY.mkdir(exist_ok=True)
    wanted = schemas()
    for path in DIRECTORY.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
