"""Sessions of documentation: commands as a page has them, run in a shell, and their output."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANYTHING = "..."
_VARYING = (
    (re.compile(r"\b[\w-]{22}\b"), "ID"),
    (re.compile(r"process \d+"), "process N"),
    (re.compile(r"\b\d{13}\b"), "MS"),
    (re.compile(r"\bcrc: \d+"), "crc: N"),
    (re.compile(r"[\d.]+ s\b"), "N s"),
    (re.compile(r"\bin [\d.]+s\b"), "in N s"),
    (re.compile(r"\b[\d.]+[KMG]/s"), "N/s"),
    (re.compile(r"disk of .* free"), "a disk"),
    (re.compile(r"Spark local\[.*"), "Spark local"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "URL"),
    # Columns of a table, whose widths follow from what varies, and the number of a process in it.
    (re.compile(r"  +"), " "),
    (re.compile(r"\bok \d+ "), "ok N "),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?"), "TIME"),
    (re.compile(r"\bin (?:\d+(?:ms|d|h|m|s))+(?!\w)"), "in SPAN"),
    (re.compile(r"\b(?:\d+(?:d|h|m|s))+ ago\b"), "SPAN ago"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"\berasure-[0-9a-f]+\b"), "erasure-ID"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line behind `$ `, and the lines that it prints as far as they are printed."""

    text: str
    prints: tuple[str, ...] = ()

    @property
    def is_background(self) -> bool:
        """Whether the shell continues while it runs."""
        return self.text.endswith("&")


def commands(code: str) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append(Command(text=line[2:]))
        else:
            assert found, f"output before any command: {line}"
            found[-1] = Command(text=found[-1].text, prints=(*found[-1].prints, line))
    return found


def require_printed(command: Command, output: str) -> None:
    """Checks that a command printed what the page shows; times, ids and addresses may differ.

    Raises:
        AssertionError: it did not.
    """
    if not command.prints:
        return
    parts = [re.escape(_settled(line)) for line in command.prints]
    anything = re.escape(_ANYTHING)
    pattern = "".join(r"(?:.*\n)*?" if part == anything else part + r"[ ]*\n" for part in parts)
    assert re.fullmatch(pattern, _settled(output)), (
        f"$ {command.text}\nthe page:\n" + "\n".join(command.prints) + f"\nprinted:\n{output}"
    )


STARTED = (
    r"Kafka Server started\|Ctrl-C stops it\|New state: ALIVE\|Successfully registered with master"
)
"""The last line that a server logs while it starts, of Cordwood or Spark; for grep."""


def _settled(text: str) -> str:
    for varying, name in _VARYING:
        text = varying.sub(name, text)
    return text


#: Paths of pages, and where below a test's directory they are.
_PLACES = (("/var/lib/", "var/lib/"), ("/etc/kafka/", "etc/kafka/"), ("/tmp/", ""))  # noqa: S108  # a path that a page shows


def placed(text: str, directory: Path) -> str:
    """A command with the paths that it has in a test."""
    pattern = "|".join(re.escape(shown) for shown, _ in _PLACES)
    places = dict(_PLACES)
    return re.sub(pattern, lambda found: f"{directory}/{places[found[0]]}", text)


def _as_shown(output: str, directory: Path) -> str:
    """The output of a command, with the paths that a page shows."""
    for shown, place in _PLACES:
        output = output.replace(f"{directory}/{place}", shown)
    return output


def run_session(
    session: list[Command],
    directory: Path,
    *,
    own_network: bool = False,
    **environment: str,
) -> list[str]:
    """Runs commands one after the other in one shell, in `directory`; what each printed.

    Args:
        session: the commands; `/tmp/` in them stands for `directory`, and `/var/lib/` and
            `/etc/kafka/` for directories in it.
        directory: the working directory.
        environment: variables over those of this process.
        own_network: give the shell a loopback interface of its own, so that ports as printed are
            free. It takes the right to do so.

    Raises:
        AssertionError: one of them failed.
    """
    lines = ["ip link set lo up || ifconfig lo up || exit 99" if own_network else ":"]
    for number, command in enumerate(session):
        text = placed(command.text, directory)
        out = f"{directory}/out.{number}"
        if command.is_background:
            lines.append(f"{text.removesuffix('&')} > {out} 2>&1 &")
            # A reader types the next command when the broker is up.
            lines.append(
                f"while kill -0 $! 2>&- && ! grep -q '{STARTED}' {out}; do sleep 0.05; done"
            )
        else:
            lines.append(f"{{ {text}\n}} > {out} 2>&1; echo $? > {directory}/code.{number}")
    lines.append("wait")
    shell = [*(["unshare", "--net"] if own_network else []), "bash", "-c", "\n".join(lines)]
    done = subprocess.run(
        shell,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = []
    for number, command in enumerate(session):
        output = (directory / f"out.{number}").read_text(encoding="utf-8")
        output = _as_shown(output, directory)
        if not command.is_background:
            code = (directory / f"code.{number}").read_text().strip()
            assert code == "0", f"$ {command.text}\nended with {code}:\n{output}"
        printed.append(output)
    return printed
