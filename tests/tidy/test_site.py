"""The site of docs/: every page can be reached, every link leads somewhere, words are English.

`make docs` builds it. MkDocs and the spelling checker are in the dependency group `docs`, which
`make setup` installs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DICTIONARY = ROOT / "tools" / "site" / "words.txt"

#: Words of a page that somebody reads who has a task, and no time.
TASK_WORDS_MAX = 350

_CODE = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
_FETCHED = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(\w+://[^"]*)')
_WORD = re.compile(r"(?<![\w./-])[A-Za-z][a-z]+(?:'[a-z]+)?(?![\w/]|\.\w|-\w)")


def _require(module: str) -> None:
    if find_spec(module) is None:
        reason = f"{module} is not installed: run `make setup`"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def _build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    _require("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(
        [*command, "--config-file", str(configuration), "--site-dir", str(site)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    done = _build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "site" / "search" / "search_index.js").read_text(encoding="utf-8")
    for page in sorted(DOCS.rglob("*.md")):
        name = page.relative_to(DOCS).with_suffix(".html").as_posix()
        name = re.sub(r"README\.html$", "index.html", name)
        html = (tmp_path / "site" / name).read_text(encoding="utf-8")
        fetched = re.findall(
            r'<(?:script|img)[^>]+src="(\w+://[^"]*)|<link[^>]+"(\w+://.*?)"', html
        )
        assert not fetched, f"{name} fetches {fetched}"
        assert f'"location":"{name}"' in index, f"the search has no {name}"


BROKEN = {
    "[a page](missing.md)": "missing.md",
    "[a heading](#missing)": "#missing",
    "[an absolute path](/index.md)": "/index.md",
    "![a picture](missing.svg)": "missing.svg",
}


def test_a_broken_link_and_a_page_that_no_list_has_are_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n" + "\n\n".join(BROKEN))
    (tmp_path / "docs" / "unlisted.md").write_text("# Another\n")
    whole = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    kept = whole[: whole.index("nav:\n  - ")] + "nav:\n  - Start: index.md\n"
    kept = kept.replace("tools/site/hooks.py", str(ROOT / "tools" / "site" / "hooks.py"))
    (tmp_path / "mkdocs.yml").write_text(kept.replace("extra_css: [site.css]\n", ""))
    done = _build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1, done.stderr
    for complaint in (*BROKEN.values(), "unlisted.md"):
        assert complaint in done.stderr
    assert f"Aborted with {len(BROKEN) + 1} warnings" in done.stdout


def _words(text: str) -> Iterator[str]:
    """The words of a page that are prose: no code, no targets of links, no names."""
    for word in _WORD.findall(_CODE.sub(" ", text)):
        yield word.removesuffix("'s")


def _spelling() -> Any:
    _require("spellchecker")
    return import_module("spellchecker").SpellChecker()


def test_words_are_spelled_as_a_dictionary_has_them() -> None:
    checker = _spelling()
    known = DICTIONARY.read_text(encoding="utf-8").split()
    assert known == sorted(set(known)), "sort tools/site/words.txt"
    checker.word_frequency.load_words(known)
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        unknown = checker.unknown(set(_words(path.read_text(encoding="utf-8"))))
        assert not unknown, (
            f"{path.relative_to(ROOT)}: {sorted(unknown)}: correct them, put a name in backticks, "
            "or add a word of the field to tools/site/words.txt"
        )


def test_a_misspelled_word_is_found() -> None:
    found = _spelling().unknown(set(_words("A recieved `recrod` is [kept](teh.md).")))
    assert found == {"recieved"}


def _read_words(text: str) -> int:
    """The words of a page that have to be read: prose and commands, without what these print."""
    prose = re.sub(
        r"^```console\n(.*?)^```$",
        lambda block: "\n".join(re.findall(r"^\$ .*", block[1], re.MULTILINE)),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    return len(re.sub(r"<!--.*?-->", "", prose).split())


def test_a_page_for_a_task_is_short() -> None:
    found = {path.name: _read_words(path.read_text()) for path in (DOCS / "tasks").glob("*.md")}
    assert len(found) > 10
    long = {name: words for name, words in found.items() if words > TASK_WORDS_MAX}
    assert not long, f"more than {TASK_WORDS_MAX} words: {long}"
