"""Docs, comments, docstrings and texts avoid words that a non-native reader has to guess.

A word is on the list because a plainer one says the same. The check reads pages, comments,
docstrings and string literals. Names, and code in backticks, are not checked; a text that is
Kafka's own and has such a word would need an exception here, but there is none today.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A pattern, and what to write instead.
PLAINER: dict[str, str] = {
    r"anew": "again, or a verb with re-: rebuilt, recreated",
    r"(?:who|whom)ever": "the caller that, code that, or a noun",
    r"sees? to it": "makes sure",
    r"(?:goes|go|went|going) on": "continues",
    r"pass(?:ed|es) over": "skipped, ignored",
    r"rooms?": "space",
    r"told|tells(?! apart)": "is called with, is notified, reports, returns",
    r"hears?": "receives, is called with",
    r"(?:can|could|may) ?not be had|to be had": "is unavailable",
    r"of (?:its|their) own accord": "automatically",
    r"without a word": "silently, without a result",
    r"no client of good will": "no conforming client",
    r"of old(?! [a-z])": "old",
    r"for want of": "for lack of",
    r"mend(?:s|ed|ing)?": "repair",
    r"comes? to(?! (?:rest|an end))": "results in, ends with",
    r"put(?:s|ting)? off": "delay, schedule",
    r"(?:gives?|gave|makes?|made) way": "is replaced by",
    r"draws? lots|by chance": "random, at random",
    r"as it were": "nothing",
}
_FORBIDDEN = re.compile(r"\b(?:" + "|".join(PLAINER) + r")\b", re.IGNORECASE)

#: Code and names: text in backticks, and the expressions of f-strings.
_CODE = re.compile(r"``[^`]*``|`[^`]*`|\{[^{}]*\}")

_CHECKED = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *("src", "docs", "tests/support", "tests/README.md", "tools", "benchmarks"),
)


def _files() -> list[Path]:
    found: list[Path] = []
    for name in _CHECKED:
        path = ROOT / name
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [path for path in found if path.suffix in {".py", ".md", ".tsv"}]


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, line by line, with line numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    prose = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in prose:
            yield from enumerate(token.string.splitlines(), token.start[0])


def _found(text: str) -> list[str]:
    """The words of the list in a line of prose."""
    return [match.group() for match in _FORBIDDEN.finditer(_CODE.sub("`", text))]


def _instead(word: str) -> str:
    return next(
        instead for pattern, instead in PLAINER.items() if re.fullmatch(pattern, word, re.I)
    )


@pytest.mark.parametrize("top", sorted(_CHECKED))
def test_prose_has_plain_words(top: str) -> None:
    found = []
    for path in _files():
        name = str(path.relative_to(ROOT))
        if name == top or name.startswith(f"{top}/"):
            found += [
                f"{name}:{number}: {word!r}, instead: {_instead(word)}"
                for number, text in _texts(path)
                for word in _found(text)
            ]
    assert not found, "words with a plainer alternative:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("# The index is made anew.", "anew"),
        ('"""Whoever appends holds the lock."""', "Whoever"),
        ('f"the disk has no room for {name}"', "room"),
        ("Retention goes on without Java.", "goes on"),
        ("| `x` | the listener is told |", "told"),
    ],
)
def test_the_check_finds_a_word(text: str, word: str) -> None:
    assert _found(text) == [word]


def test_the_check_leaves_code_and_plain_words_alone() -> None:
    for text in ("see `room_of`", 'f"{anew}"', "in one pass over the segment", "a whole room_name"):
        assert not _found(text)
