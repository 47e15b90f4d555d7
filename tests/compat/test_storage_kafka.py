"""`cordwood storage` prints what kafka-storage prints, and writes what it writes."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cordwood.surfaces.cli.tools import storage
from cordwood.surfaces.cli.tools.tool import Terminal
from support.controller_under_test import batches_in
from support.kafka_tools import KafkaTools
from support.storage_cases import CASES, CASES_4_4, FILES, FILES_4_4, words, write_files

pytestmark = pytest.mark.kafka


def comparable(code: int, out: str, err: str, root: Path) -> tuple[int, str, str]:
    """Without what differs: directories, ids of directories, times, usage and stack traces."""
    err = re.sub(r"(?s)^usage: .*?\n(?=\S+( storage)?: error)", "", err)
    err = re.sub(r"^\S+( storage)?: error: ", "error: ", err)
    err = "\n".join(line for line in err.splitlines() if not line.startswith("["))
    err = re.sub(r"(?m)^(\tat .*|Caused by: .*|\t\.\.\. .*)\n?", "", err)
    err = re.sub(
        r"(?m)^java\.(lang\.RuntimeException: Unable|nio\.file\.FileSystemEx).*\n", "", err
    )
    out = re.sub(r"directory\.id=[\w-]{22}", "directory.id=X", out)
    return code, out.replace(str(root), "%").rstrip(), err.replace(str(root), "%").rstrip()


def test_storage_answers_and_writes_as_kafkas_does(tools: KafkaTools, tmp_path: Path) -> None:
    compare(tools, tmp_path, CASES, FILES)


def test_for_4_4_storage_answers_and_writes_as_that_of_4_4_does(
    tools_4_4: KafkaTools, tmp_path: Path
) -> None:
    compare(tools_4_4, tmp_path, CASES_4_4, FILES_4_4)


def compare(
    tools: KafkaTools, tmp_path: Path, cases: Sequence[str], files: Mapping[str, str]
) -> None:
    """Has Kafka's tool and Cordwood's do all that `cases` say, in their order."""
    # Names of one length: Kafka's order of directories is that of a hash of their names.
    root = tmp_path / "x"
    different = []
    said = []
    root.mkdir()
    write_files(root, files)
    for case in cases:
        kafka = tools.run("storage", *words(case, root))
        said.append(comparable(kafka.code, kafka.out, kafka.err, root))
    root.rename(tmp_path / "kafka")
    root.mkdir()
    write_files(root, files)
    for case, theirs in zip(cases, said, strict=True):
        out, err = io.BytesIO(), io.BytesIO()
        code = storage.run(words(case, root), Terminal(io.BytesIO(), out, err))
        own = comparable(code, out.getvalue().decode(), err.getvalue().decode(), root)
        if own != theirs:
            different.append(f"{case}\n  Kafka:    {theirs}\n  Cordwood: {own}")
    assert not different, "\n\n".join(different)
    theirs_written, own_written = written(tmp_path / "kafka"), written(root)
    assert own_written == theirs_written


def written(root: Path) -> dict[str, object]:
    """The files below a directory, each with what can be compared of it."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.suffix == ".checkpoint":
            found[name] = snapshot(path)
        elif path.name == "meta.properties":
            lines = path.read_text(encoding="latin-1").splitlines()
            found[name] = sorted(
                line for line in lines if not line.startswith(("#", "directory.id"))
            )
        else:
            found[name] = path.is_dir()
    return found


def snapshot(path: Path) -> list[tuple[str, object]]:
    """The records of a snapshot, without times and ids of directories."""
    found: list[tuple[str, object]] = []
    for batch in batches_in(path.read_bytes()):
        for name, fields in batch:
            known = {k: v for k, v in fields.items() if k != "lastContainedLogTimestamp"}
            for voter in known.get("voters", ()):
                del voter["voterDirectoryId"]
            found.append((name, known))
    return found
