"""Every command of the tutorial and of docs/tasks is run, and prints what the page shows.

So is that of a page of docs/commands that says what it begins with.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from support.page_logs import MakeLog
from support.pages import (
    BIN,
    DOCS,
    beginning,
    name_of,
    needs_spark,
    pages,
    require_means,
    rewritten,
    run,
    session,
)
from support.sessions import BLOCK, require_printed

#: Languages of blocks that are not run. `properties` and `python` are written to files and used by
#: the commands; a block without a language is one line to adapt.
_LANGUAGES = {"console", "properties", "python"}


def _check(page: Path, directory: Path, make: MakeLog) -> None:
    require_means(page)
    path = f"{BIN}:{os.environ['PATH']}"
    printed = run(page, directory, make=make, own_network=True, path=path)
    for command, output in zip(session(page), printed, strict=True):
        require_printed(command, output)


#: What strangers type first, run with every change; `make compat` has the other pages.
FIRST = ("tutorial", "disk-full", "why-still-there", "test-a-week")
OTHERS = [name_of(page) for page in pages() if name_of(page) not in FIRST and not needs_spark(page)]
COMPACTING = [name_of(page) for page in pages() if needs_spark(page)]
#: Pages with commands that are not run: they need a damaged log, a second user, records of a form
#: of their own, or an hour.
NOT_RUN = {
    *("commands/doctor", "commands/erase", "commands/sql", "commands/table"),
    *("commands/transactions", "commands/verify"),
    *("dataframes", "design/simulation", "install", "testing"),
}


def _page(name: str) -> Path:
    (page,) = [each for each in pages() if name_of(each) == name]
    return page


@pytest.mark.parametrize("name", FIRST)
def test_a_page_prints_what_it_shows(tmp_path: Path, name: str, log_of_a_shop: MakeLog) -> None:
    _check(_page(name), tmp_path, log_of_a_shop)


@pytest.mark.spark
@pytest.mark.parametrize("name", COMPACTING)
def test_a_page_that_compacts_prints_what_it_shows(
    tmp_path: Path, name: str, log_of_a_shop: MakeLog
) -> None:
    _check(_page(name), tmp_path, log_of_a_shop)


@pytest.mark.parametrize("name", OTHERS)
def test_one_of_the_other_pages_prints_what_it_shows(
    tmp_path: Path, name: str, log_of_a_shop: MakeLog
) -> None:
    _check(_page(name), tmp_path, log_of_a_shop)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_has_commands_and_says_what_it_begins_with(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert session(page)
    beginning(page)
    languages = {language for language, _ in BLOCK.findall(text)}
    assert languages <= _LANGUAGES, f"{page.name}: blocks of {languages - _LANGUAGES} are not run"
    for language, code in BLOCK.findall(text):
        is_used = language == "console" or re.match(r"# in \S+\n", code)
        assert is_used, f"{page.name}: no command uses this block:\n{code}"


def test_no_other_page_shows_what_a_command_prints() -> None:
    found = {
        page.relative_to(DOCS).with_suffix("").as_posix()
        for page in DOCS.rglob("*.md")
        if page not in pages() and re.search(r"^\$ ", page.read_text(encoding="utf-8"), re.M)
    }
    assert found == NOT_RUN


def test_another_output_than_that_of_the_page_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begins with: nothing -->\n\n```console\n$ echo one\ntwo\n```\n")
    printed = run(page, tmp_path, make=lambda *_: None, own_network=False, path=os.environ["PATH"])
    assert printed == ["one\n"]
    with pytest.raises(AssertionError, match="echo one"):
        require_printed(session(page)[0], printed[0])
    assert "$ echo one\none\n```" in rewritten(page.read_text(), printed)


def test_a_command_that_fails_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begins with: nothing -->\n\n```console\n$ cat missing\n```\n")
    with pytest.raises(AssertionError, match="ended with 1"):
        run(page, tmp_path, make=lambda *_: None, own_network=False, path=os.environ["PATH"])


def test_the_interpreter_of_the_tests_runs_the_commands() -> None:
    assert (BIN / "cordwood").exists(), f"no cordwood beside {sys.executable}: run `make setup`"
