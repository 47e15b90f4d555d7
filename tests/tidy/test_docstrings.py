"""A docstring begins with a verb or a noun: what a function does or returns, what a class is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: First words after which a reader has to guess what is described.
GUESSED = re.compile(
    r"(What|Whatever|Those|These|That|This|Whose|Who|Whoever|As|How|When|Where|Which|With|From|It|"
    r"They|So|By|Up|Until|At|In|On|For|Is|Are|Called|Only|Because|If|Since|While)\b"
)

Described = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _guessed(path: Path) -> Iterator[str]:
    """The docstrings of a file that begin so; that of a test function comments on its name."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, Described) and not getattr(node, "name", "").startswith("test_"):
            text = ast.get_docstring(node) or ""
            if GUESSED.match(text):
                line = getattr(node, "lineno", 1)
                yield f"{path}:{line}: {text.splitlines()[0]}"


@pytest.mark.parametrize("top", ["src", "tests", "tools", "benchmarks", "examples"])
def test_docstrings_begin_with_a_verb_or_a_noun(top: str) -> None:
    paths = [path.relative_to(ROOT) for path in sorted((ROOT / top).rglob("*.py"))]
    guessed = [each for path in paths for each in _guessed(path)]
    assert not guessed, (
        "begin with what it does (`Reads ...`) or is (`The number of ...`):\n" + "\n".join(guessed)
    )


@pytest.mark.parametrize(
    "text", ["What is left.", "Those of a topic.", "As `read`.", "How many there are."]
)
def test_the_check_finds_a_riddle(text: str) -> None:
    assert GUESSED.match(text)


@pytest.mark.parametrize("text", ["Asks the broker.", "Formats a date.", "Whether it is open."])
def test_the_check_leaves_verbs_and_nouns_alone(text: str) -> None:
    assert not GUESSED.match(text)
