"""Pages whose commands are run: the tutorial, docs/tasks, and those of docs/commands that say so.

A page is one session: its console blocks are run one after the other, in one shell. A comment says
what there is before, such as `<!-- begins with: a stopped broker's directory -->`; `BEGINNINGS` has
all. A block of another language whose first line is `# in FILE` is written to that file. Settings
that a page does not show, and ports, are those of a machine on which nothing else runs.

`python -m support.pages PAGE...` runs pages and writes what each command printed into them; a block
with `...`, which stands for any lines, is left as it is.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.page_logs import MakeLog, make_log, write_properties
from support.requirements import require, require_own_network
from support.sessions import BLOCK, Command, commands, placed, run_session

DOCS = Path(__file__).resolve().parents[2] / "docs"
BIN = Path(sys.executable).parent
_BEGINNING = re.compile(r"^<!-- begins with: (.*) -->$", re.MULTILINE)
_FILE = re.compile(r"# in (\S+)\n")
# No log is due for compaction: no JVM is started.
_SERVE = (
    "cordwood serve --log-dir /var/lib/kafka/data --http-port 9464"
    " --override log.cleaner.min.cleanable.ratio=1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """State before the first command of a page.

    Attributes:
        clicks_kept_days: `retention.ms` of the topic `clicks`; None if there is no log directory.
        before: commands that the page does not show.
        after: commands that end what `before` has started.
    """

    clicks_kept_days: int | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


BEGINNINGS: Mapping[str, Beginning] = {
    "nothing": Beginning(),
    "a stopped broker's directory": Beginning(clicks_kept_days=5),
    "a stopped broker's directory, nothing expired": Beginning(clicks_kept_days=14),
    "a backup": Beginning(
        clicks_kept_days=5, before=("cp -r /var/lib/kafka/data /var/lib/kafka/backup",)
    ),
    "a running broker": Beginning(clicks_kept_days=14, before=(f"{_SERVE} &",), after=("kill %1",)),
    "a running broker with a trash": Beginning(
        clicks_kept_days=14,
        before=(f"{_SERVE} --override cordwood.trash.dir=/var/lib/trash &",),
        after=("kill %1",),
    ),
}


def pages() -> list[Path]:
    """The pages whose commands are run: of the commands' those that say what they begin with."""
    of_commands = [
        each
        for each in sorted((DOCS / "commands").glob("*.md"))
        if _BEGINNING.search(each.read_text(encoding="utf-8"))
    ]
    return [DOCS / "tutorial.md", *sorted((DOCS / "tasks").glob("*.md")), *of_commands]


def name_of(page: Path) -> str:
    """The name of a page in tests: `disk-full`, `commands/clean`."""
    return page.stem if page.parent.name != "commands" else f"commands/{page.stem}"


def session(page: Path) -> list[Command]:
    """The commands of a page, in order."""
    text = page.read_text(encoding="utf-8")
    blocks = [code for language, code in BLOCK.findall(text) if language == "console"]
    return [command for code in blocks for command in commands(code)]


def beginning(page: Path) -> Beginning:
    """The beginning of a page.

    Raises:
        AssertionError: it does not say so, or nothing here makes that.
    """
    found = _BEGINNING.findall(page.read_text(encoding="utf-8"))
    assert len(found) == 1, f"{page.name} has no comment, or several, on what it begins with"
    assert found[0] in BEGINNINGS, f"{page.name} begins with {found[0]!r}: see support.pages"
    return BEGINNINGS[found[0]]


def needs_spark(page: Path) -> bool:
    """Whether a command of the page compacts."""
    return any(
        each.text.startswith("cordwood clean")
        and "--dry-run" not in each.text
        and "--retention-only" not in each.text
        for each in session(page)
    )


def require_means(page: Path) -> None:
    """Skips a test, in CI fails it, where something is missing that the commands of a page need."""
    require_own_network()
    if any(each.text.startswith("curl") for each in session(page)):
        require("curl is not installed", holds=shutil.which("curl") is not None)


def run(
    page: Path,
    directory: Path,
    *,
    make: MakeLog,
    own_network: bool,
    path: str,
    first: int | None = None,
) -> list[str]:
    """Runs the commands of a page in a directory; what each printed.

    Args:
        page: the page.
        directory: the directory; empty.
        make: makes a log directory at a path, with the days that `clicks` is kept.
        own_network: as for `run_session`.
        path: the variable PATH.
        first: how many commands are run; None for all. What still runs then is ended.

    Raises:
        AssertionError: a command failed.
    """
    begun = beginning(page)
    (directory / "var" / "lib" / "kafka").mkdir(parents=True)
    write_properties(directory)
    if begun.clicks_kept_days is not None:
        make(directory / "var" / "lib" / "kafka" / "data", begun.clicks_kept_days)
    for _, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if named := _FILE.match(code):
            (directory / named[1]).write_text(placed(code, directory), encoding="utf-8")
    typed = session(page)[:first]
    before = [Command(text=text) for text in begun.before]
    after = [Command(text=text) for text in begun.after]
    if first is not None and any(each.is_background for each in typed):
        after.append(Command(text="kill $(jobs -p)"))
    printed = run_session(
        [*before, *typed, *after],
        directory,
        own_network=own_network,
        PATH=path,
        PYTEST_ADDOPTS="-p no:cacheprovider",
    )
    return printed[len(before) : len(printed) - len(after)]


def rewritten(text: str, printed: list[str]) -> str:
    """A page with what its commands printed; a block with `...` is unchanged."""
    rest = iter(printed)

    def block(found: re.Match[str]) -> str:
        if found[1] != "console":
            return found[0]
        lines = []
        for command in commands(found[2]):
            output = next(rest).rstrip("\n").splitlines()
            lines += [f"$ {command.text}", *([] if command.is_background else output)]
        shown = "\n".join(line.rstrip() for line in lines)
        return found[0] if "\n...\n" in found[0] else f"```console\n{shown}\n```"

    return BLOCK.sub(block, text)


def main(names: list[str]) -> None:
    """Writes what commands print into pages; all pages if none is named."""
    for page in [Path(name).resolve() for name in names] or pages():
        directory = Path(tempfile.mkdtemp())
        try:
            printed = run(
                page,
                directory,
                make=lambda path, days: make_log(path, clicks_kept_days=days),
                own_network=True,
                path=f"{BIN}:/usr/bin:/bin:/usr/sbin:/sbin",
            )
            text = page.read_text(encoding="utf-8")
            page.write_text(rewritten(text, printed), encoding="utf-8")
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
