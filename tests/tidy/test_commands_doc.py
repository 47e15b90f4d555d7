"""The pages of commands, the manual pages and the drawings are those of the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.requirements import require

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "commands"
#: Options of all commands, and what a row of docs/commands may begin with beside its own options.
_ANY = {"--help", "--version", "--log-level", "--log-format", "--log-file"}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a tool by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return import_module


def _flags(command: Any) -> set[str]:
    return {flag for each in command.options for flag in re.findall(r"--[\w-]+", each.typed)}


def test_every_command_has_a_page_that_the_index_links(tool: Any) -> None:
    described = set(tool("commands_doc").by_page())
    assert {path.stem for path in PAGES.glob("*.md")} == described
    index = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    missing = [name for name in sorted(described) if f"(commands/{name}.md)" not in index]
    assert not missing, f"docs/cli.md has no link to commands/: {missing}"


def test_the_tables_of_options_are_up_to_date(tool: Any) -> None:
    for path, text in tool("commands_doc").pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python tools/commands_doc.py"


def test_every_option_is_described_and_no_other(tool: Any) -> None:
    common = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, commands in tool("commands_doc").by_page().items():
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        flags = set().union(*(_flags(command) for command in commands))
        described = text + common
        missing = [flag for flag in sorted(flags) if not re.search(rf"`[^`]*{flag}\b", described)]
        assert not missing, f"docs/commands/{name}.md: describe {missing}, and their defaults"
        unknown = set(re.findall(r"^\| `(--[\w-]+)", text, re.MULTILINE)) - flags - _ANY
        assert not unknown, f"docs/commands/{name}.md describes {sorted(unknown)}: no such option"


def test_the_page_of_exit_codes_is_up_to_date(tool: Any) -> None:
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert text == tool("commands_doc").exit_codes_page(), "run python tools/commands_doc.py"


def test_wrong_usage_ends_with_the_exit_code_that_a_command_has_for_it(tool: Any) -> None:
    for command in tool("command_reference").commands():
        words = [*command.name.split(), "--no-such-option"]
        code = CliRunner().invoke(app, words).exit_code
        assert "usage" in command.exit_codes.get(code, ""), f"{words}: {code}"


def test_exit_codes_that_cannot_be_read_are_refused(tool: Any) -> None:
    exit_codes_in = tool("command_reference").exit_codes_in
    assert exit_codes_in("Exit codes: 0 done; 1 a part\nfailed.\n\nMore: 7") == {
        0: "done",
        1: "a part failed",
    }
    with pytest.raises(ValueError, match="invalid literal"):
        exit_codes_in("Exit codes: 0 done; else it failed")


def test_every_command_has_a_manual_page_with_its_options(tool: Any) -> None:
    described = list(tool("command_reference").commands())
    pages = tool("man_pages").pages()
    assert len(pages) == len(described) + 1
    for command in described:
        page = pages[f"cordwood-{command.name.replace(' ', '-')}.1"].replace("\\-", "-")
        assert f".B cordwood {command.name}\n" in page
        for flag in _flags(command):
            assert flag in page
        assert command.name in pages["cordwood.1"].replace("\\-", "-")


def test_manual_pages_are_roff_without_a_warning(tool: Any, tmp_path: Path) -> None:
    require("groff is not installed: run `make setup`", holds=shutil.which("groff") is not None)
    tool("man_pages").main(tmp_path)
    pages = sorted((tmp_path / "man1").iterdir())
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, pages)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_drawings_of_concepts_are_up_to_date(tool: Any) -> None:
    concepts = tool("concepts_doc")
    text = concepts.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- drawing: (\w+) -->", text)) == set(concepts.DRAWINGS)
    assert text == concepts.page(text), "run python tools/concepts_doc.py"


def test_the_page_of_the_python_api_is_up_to_date(tool: Any) -> None:
    described = tool("python_doc")
    text = described.PAGE.read_text(encoding="utf-8")
    assert text == described.page(), "run python tools/python_doc.py"
    assert text.count("### ") == sum(len(classes) for classes in described.SECTIONS.values())


def test_the_table_of_audit_events_is_up_to_date(tool: Any) -> None:
    described = tool("audit_doc")
    text = described.PAGE.read_text(encoding="utf-8")
    assert text == described.page(text), "run python tools/audit_doc.py"
    for kind in described.events():
        assert f"| `{kind.kind}` | {kind.logged_by} | " in text


def test_the_picture_of_the_readme_is_what_the_command_prints(tool: Any) -> None:
    pictures = tool("pictures")
    assert f"]({pictures.PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
    drawn = pictures.PICTURE.read_text(encoding="utf-8")
    assert drawn == pictures.picture(), "run python tools/pictures.py"
