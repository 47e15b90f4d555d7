"""`cordwood docs`: the pages can be listed, found and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.in_terminal import in_terminal

DOCS = Path(__file__).parents[4] / "docs"


def docs(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["docs", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_pages_and_the_examples_are_listed() -> None:
    listed = json.loads(docs("--json"))
    assert listed["docs"] == str(DOCS)
    assert Path(listed["examples"], "partition_log.py").is_file()
    assert Path(listed["packaging"], "systemd", "cordwood.service").is_file()
    assert {each["file"] for each in listed["pages"]} == {str(each) for each in DOCS.rglob("*.md")}
    assert {"page": "install", "title": "Install", "file": str(DOCS / "install.md")} in listed[
        "pages"
    ]
    shown = docs()
    assert all(each["page"] in shown for each in listed["pages"])
    assert str(DOCS) in shown
    assert docs("--path") == f"{DOCS}\n"
    assert json.loads(docs("--path", "--json")).keys() == {"docs", "examples", "packaging"}


@pytest.mark.parametrize(
    ("typed", "file"),
    [
        ("install", "install.md"),
        ("install.md", "install.md"),
        ("commands/clean", "commands/clean.md"),
        ("clean", "commands/clean.md"),
        ("docs/design/cleanup.md", "design/cleanup.md"),
    ],
)
def test_a_page_is_found_by_its_name_with_or_without_the_folder(typed: str, file: str) -> None:
    assert docs(typed) == (DOCS / file).read_text(encoding="utf-8")
    assert docs(typed, "--path") == f"{DOCS / file}\n"
    assert json.loads(docs(typed, "--json"))["text"] == docs(typed)
    where = json.loads(docs(typed, "--path", "--json"))
    assert (where["file"], "text" in where) == (str(DOCS / file), False)


@pytest.mark.parametrize(
    ("typed", "advice"),
    [("instal", "did you mean install?"), ("xyz", "`cordwood docs` lists all")],
)
def test_a_page_that_is_not_there_is_a_usage_error_with_the_one_meant(
    typed: str, advice: str
) -> None:
    result = CliRunner().invoke(app, ["docs", typed])
    assert (result.exit_code, result.stderr) == (
        2,
        f"cordwood docs: there is no page {typed}: {advice}\n",
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_of_pages_fits_a_terminal(columns: int) -> None:
    shown = in_terminal(["docs"], columns=columns, rows=60)
    assert shown.code == 0
    assert max(map(len, shown.lines)) <= max(columns, len(f"Packaging: {DOCS.parent}/packaging"))
