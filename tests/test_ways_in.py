"""Commands of four strangers, as documented, up to their first useful answers.

How many commands that takes is checked; how long it takes is shown.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.new_environment import ROOT, bare_environment, output_of, patiently
from support.page_logs import MakeLog
from support.pages import BIN, DOCS, beginning, require_means, run, session

TASKS = DOCS / "tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A stranger at a page: each answer that is useful, and how many commands it takes.

    An answer is a pattern of what the last of them prints, and none before it.
    """

    stranger: str
    page: Path
    answers: tuple[tuple[int, str], ...]


WAYS = (
    Way(
        stranger="an operator at night",
        page=TASKS / "disk-full.md",
        answers=(
            (1, r"cordwood clean .* --retention-only\n *removes 608\.8K now, needs no Java"),
            (3, r"2 cleaned, .*; freed 608\.8K"),
        ),
    ),
    Way(
        stranger="a data engineer",
        page=TASKS / "why-still-there.md",
        answers=((1, r"\nclicks-0 .* retention\.ms\n"),),
    ),
    Way(
        stranger="a data engineer",
        page=TASKS / "what-would-a-setting-do.md",
        answers=((1, r"974\.1K less(?s:.*)billing +clicks-0 +300 +960 +660"),),
    ),
    Way(
        stranger="a data engineer",
        page=TASKS / "clean-a-backup.md",
        answers=((1, r"retention would free 608\.8K"), (2, r"freed 608\.8K")),
    ),
    Way(
        stranger="an evaluator",
        page=ROOT / "README.md",
        answers=((1, r"goes now +608\.8K"), (3, r"clicks +retention\.ms +5d +1d")),
    ),
    Way(
        stranger="an evaluator",
        page=DOCS / "tutorial.md",
        answers=((5, r"bob\tcart"), (10, r"^clicks:0:3$")),
    ),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.stranger}-{way.page.stem}")
def test_the_first_useful_answers_take_as_many_commands(
    way: Way,
    tmp_path: Path,
    log_of_a_shop: MakeLog,
    record_property: Callable[[str, object], None],
) -> None:
    begun_s = time.time()

    def make(path: Path, days: int) -> None:
        nonlocal begun_s
        log_of_a_shop(path, days)
        begun_s = time.time()

    require_means(way.page)
    path = f"{BIN}:{os.environ['PATH']}"
    last = way.answers[-1][0]
    printed = run(way.page, tmp_path, make=make, own_network=True, path=path, first=last)
    before = len(beginning(way.page).before)
    for count, answer in way.answers:
        answered = [bool(re.search(answer, output, re.MULTILINE)) for output in printed[:count]]
        assert answered == [*[False] * (count - 1), True], f"{answer}:\n{printed[count - 1]}"
        # The shell writes the exit code of a command when it has ended.
        ended_s = (tmp_path / f"code.{before + count - 1}").stat().st_mtime
        typed = " ".join(session(way.page)[count - 1].text.split()[:2])
        record_property(
            "figure",
            f"{way.stranger}, {way.page.name}: "
            f"command {count}, {ended_s - begun_s:.1f} s: $ {typed}",
        )


def test_a_developer_has_a_test_with_a_moved_clock_after_two_commands(
    tmp_path: Path, plain_wheel_dir: Path, record_property: Callable[[str, object], None]
) -> None:
    """In a new environment, from the package index."""
    page = TASKS / "test-a-week.md"
    text = page.read_text(encoding="utf-8")
    (install,) = re.findall(r"^```\n(pip install .*)\n```$", text, re.MULTILINE)
    ((name, test),) = re.findall(r"^```python\n# in (\S+)\n(.*?)^```$", text, re.MULTILINE | re.S)
    (tmp_path / name).write_text(test, encoding="utf-8")
    typed = [install, *(each.text for each in session(page))]
    assert len(typed) == 2
    variables = bare_environment(tmp_path, plain_wheel_dir)
    output_of([sys.executable, "-m", "venv", str(tmp_path / "venv")], variables)
    variables["PATH"] = f"{tmp_path / 'venv' / 'bin'}:{variables['PATH']}"
    begun_s = time.monotonic()
    patiently(shlex.split(typed[0]), variables)
    installed_s = time.monotonic()
    assert "1 passed" in output_of(shlex.split(typed[1]), variables, cwd=tmp_path)
    record_property(
        "figure",
        f"a developer, {page.name}: 2 commands, {time.monotonic() - begun_s:.1f} s, of which "
        f"{installed_s - begun_s:.1f} s install: $ {typed[1]}",
    )


def test_readme_names_the_same_packages_as_the_page_of_the_developer() -> None:
    install = "pip install cordwood pytest confluent-kafka"
    assert f"`{install}`" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert install in (TASKS / "test-a-week.md").read_text(encoding="utf-8")
