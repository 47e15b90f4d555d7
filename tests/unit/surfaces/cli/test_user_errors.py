"""Every command of the command line, given what users get wrong: one plain reason, no traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import typer

from cordwood.surfaces.cli.main import app
from support.commands import CLOSED_PIPE, FULL, Commands, Outcome
from support.schemas import require_fit

NOBODY = "127.0.0.1:1"
NOWHERE = f"http://{NOBODY}"
BROKER = ("--bootstrap-server", NOBODY, "--command-config", "quick.properties")
NOT_UTF8 = "caf\udce9"

#: For each command, arguments that bring it as far as its work; none of it can succeed here.
WORK: Mapping[str, Sequence[Sequence[str]]] = {
    "advise": [["missing"], [".", "--max-age", "soon"], [".", "--rate", "5"]],
    "archive": [
        ["missing"],
        ["missing", "file:///proc/nowhere"],
        ["file", "file:///proc/nowhere"],
        ["not-formatted", "ftp://host/archive"],
        ["not-formatted", "s3://"],
        ["not-formatted", "file:///proc/nowhere", "--throttle", "much"],
        ["bad-meta", "file:///proc/nowhere"],
    ],
    "broker-api-versions": [BROKER],
    "clean": [["missing"], ["file"], ["."]],
    "cleaner": [["--url", NOWHERE], ["--log-dir", "missing"], ["--log-dir", "file"]],
    "clock": [["--url", NOWHERE], ["--log-dir", "missing"], ["--advance", "soon"]],
    "explain": [
        ["missing"],
        ["--url", NOWHERE],
        [".", "--record", "t:x:1"],
        [".", "--key", "k"],
        ["--key", "k", "--url", NOWHERE],
    ],
    "cluster": [["cluster-id", *BROKER[:2], "--config", "quick.properties"], ["nonsense"]],
    "configs": [[*BROKER, "--describe", "--topic", "t"], [*BROKER, "--alter", "--topic", "t"]],
    "console-consumer": [[*BROKER, "--topic", "t"], [*BROKER, "--include", "("]],
    "console-producer": [
        [*BROKER, "--topic", "t"],
        [*BROKER, "--topic", "t", "--reader-property", "headers.separator=("],
    ],
    "consumer-groups": [["--list"], [*BROKER, "--describe", "--all-groups", "--group", "g"]],
    "delete-records": [
        [*BROKER, "--offset-json-file", "missing"],
        [*BROKER, "--offset-json-file", "not.json"],
        [*BROKER, "--offset-json-file", "binary"],
    ],
    "docs": [["no-such-page"], ["../README", "--path"]],
    "doctor": [["missing"], ["file"], ["bad-meta"]],
    "dump-log": [["--files", "missing.log"], ["--files", "."], ["--files", "bad.log"]],
    "erase": [
        ["missing", "--topic", "t", "--key", "k"],
        ["file", "--topic", "t", "--key", "k"],
        [".", "--topic", "t", "--key", "k"],
        ["not-formatted", "--topic", "t:x", "--key", "k"],
        ["not-formatted", "--topic", "t", "--key-hex", "xyz"],
        ["not-formatted", "--topic", "t", "--key", "k", "--where", "true"],
        ["not-formatted", "--from-ledger", "binary"],
    ],
    "features": [
        [*BROKER, "describe"],
        [*BROKER, "upgrade", "--feature", "group.version=1"],
        [*BROKER, "upgrade"],
        ["describe"],
        ["nonsense"],
        ["version-mapping", "--release-version", "9.9"],
    ],
    "get-offsets": [[*BROKER, "--topic", "t"]],
    "groups": [["--list"], [*BROKER, "--list"], [*BROKER, "--list", "--group-type", "x"]],
    "hold": [
        ["list", "missing"],
        ["add", "file", "--topic", "t"],
        ["add", "--topic", "t:x", "--url", NOWHERE],
        ["release", "--log-dir", "missing", "--id", "x"],
        ["list"],
    ],
    "log-dirs": [[*BROKER, "--describe"]],
    "metadata-quorum": [
        [*BROKER, "describe", "--status"],
        [*BROKER, "describe"],
        ["--bootstrap-controller", NOBODY, *BROKER[2:], "describe", "--replication"],
        ["describe", "--status"],
        [*BROKER, "nonsense"],
    ],
    "restore": [
        ["missing", "new"],
        ["ftp://host/archive", "new"],
        ["s3://", "new"],
        ["file:///proc/nowhere", "file"],
        ["file:///proc/nowhere", "new", "--from-time", "soon"],
        ["file:///proc/nowhere", "new", "--topic", "t"],
    ],
    "serve": [
        ["--config", "missing"],
        ["--config", "."],
        ["--config", "binary"],
        ["--log-dir", "file", "--port", "0"],
        ["--log-dir", "file/below", "--port", "0"],
        ["--log-dir", "/proc/nowhere", "--port", "0"],
        ["--log-dir", "x" * 300, "--port", "0"],
        ["--log-dir", "bad-meta", "--port", "0"],
        ["--log-dir", "not-formatted", "--port", "0"],
        ["--log-dir", "new", "--override", "log.retention.ms=soon"],
        ["--log-dir", "new", "--override", "nonsense"],
        ["--log-dir", "new", "--port", "99999999"],
        ["--log-dir", "new", "--override", "listeners=PLAINTEXT://203.0.113.9:1"],
    ],
    "sql": [
        ["select 1"],
        ["select 1", "missing"],
        ["select 1", ".", "--isolation", "x"],
        ["select 1", ".", "--value-schema", "a int"],
        ["select 1", ".", "--json", "--format", "csv"],
        ["select 1", ".", "--json", "--top", "5"],
        ["select 1", ".", "--format", "parquet"],
        ["select 1", ".", "--output", "result.txt"],
        ["select 1", ".", "--output", "missing/result.csv"],
    ],
    "storage": [
        ["info", "-c", "missing"],
        ["format", "-c", ".", "-t", "abc", "--standalone"],
        ["format", "-c", "in-the-way.properties", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "--standalone"],
        ["info", "-c", "in-the-way.properties"],
        ["nonsense"],
    ],
    "topics": [[*BROKER, "--list"], [*BROKER, "--list", "--topic", "("]],
    "table": [
        ["missing"],
        ["missing", "--topic", "t", "--into", "table"],
        ["not-formatted", "--topic", "t", "--into", "file"],
        ["not-formatted", "--topic", "t", "--into", "table", "--form", "heap"],
        ["not-formatted", "--topic", "t", "--into", "table", "--option", "valueFormat"],
        ["bad-meta", "--topic", "t", "--into", "table"],
    ],
    "trash": [["list", "missing"], ["restore", "missing", "file"], ["empty", "file"]],
    "transactions": [["list", *BROKER], ["nonsense"]],
    "verify": [
        ["missing"],
        ["file"],
        ["."],
        ["bad-meta"],
        [".", "--topic", "t"],
        ["--cleaning", "."],
        ["--erasure", "missing"],
        ["--erasure", "not.json"],
        [".", "--public-key", "00"],
    ],
    "whatif": [
        ["missing"],
        [".", "--set", "t:retention.ms=1"],
        [".", "--set", "nonsense"],
        ["--set", "t:retention.ms=1"],
        ["--set", "t:retention.ms=1", "--url", NOWHERE],
        ["--set", "t:retention.ms=1", "--log-dir", "missing"],
    ],
}
#: Tools that exit with 0 where no broker answers, or a file holds no log, as Kafka's do.
EXIT_AS_KAFKA = (["console-consumer"], ["console-producer"], ["dump-log"])
#: Options that name a file which cannot be read, with what they need beside it.
FILE_OPTIONS: Mapping[str, Sequence[tuple[str, Sequence[str]]]] = {
    "clean": [("--config-file", ["."]), ("--server-properties", ["."]), ("--metadata-dir", ["."])],
    "configs": [("--add-config-file", [*BROKER, "--alter", "--topic", "t"])],
    "console-consumer": [("--formatter-config", [*BROKER, "--topic", "t"])],
    "console-producer": [("--reader-config", [*BROKER, "--topic", "t"])],
    "consumer-groups": [("--command-config", [*BROKER[:2], "--list"])],
    "erase": [
        ("--key-file", ["not-formatted", "--topic", "t"]),
        ("--signing-key", ["not-formatted", "--topic", "t", "--key", "k"]),
        ("--from-ledger", ["not-formatted"]),
    ],
    "features": [("--command-config", [*BROKER[:2], "describe"])],
    "get-offsets": [("--command-config", [*BROKER[:2], "--topic", "t"])],
    "groups": [("--command-config", [*BROKER[:2], "--list"])],
    "metadata-quorum": [("--command-config", [*BROKER[:2], "describe", "--status"])],
    "topics": [("--command-config", [*BROKER[:2], "--list"])],
}


def names() -> list[str]:
    group = typer.main.get_command(app)
    context = typer.Context(group)
    found: list[str] = group.list_commands(context)  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    (root / "quick.properties").write_text(
        "default.api.timeout.ms=50\nrequest.timeout.ms=50\nmax.block.ms=50\n"
    )
    (root / "file").write_text("text\n")
    (root / "in-the-way.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs=file/below\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
    )
    (root / "not.json").write_text("{not json: \\u00")
    (root / "binary").write_bytes(b"\xff\xfe\x00\\u12\n\x80=\x81")
    (root / "bad.log").write_bytes(b"\x00" * 100)
    (root / "bad-meta").mkdir()
    (root / "bad-meta" / "meta.properties").write_text("version=1\nnode.id=abc\n")
    (root / "not-formatted").mkdir()
    (root / "not-formatted" / "diary.txt").touch()
    return root


def require_plain(outcome: Outcome, arguments: Sequence[str], *, fails: bool = True) -> None:
    text = outcome.out + outcome.err
    shown = f"cordwood {' '.join(arguments)!r}: {outcome}"
    assert "Traceback" not in text, shown
    assert 'File "' not in text, shown
    assert "a bug of Cordwood" not in text, shown
    assert "Exception ignored" not in text, shown
    assert "[Errno" not in text, shown
    if fails and list(arguments[:1]) not in EXIT_AS_KAFKA:
        assert outcome.code in {1, 2, 3}, shown
        assert re.search(r"\w", outcome.err or outcome.out), shown
    else:
        assert outcome.code in {0, 1, 2}, shown


def test_every_command_is_here() -> None:
    assert set(WORK) == set(names())
    assert set(FILE_OPTIONS) <= set(WORK)


@pytest.mark.parametrize("name", sorted(WORK))
def test_a_command_says_in_plain_words_what_is_wrong(
    commands: Commands, place: Path, name: str
) -> None:
    wrong: list[Sequence[str]] = [
        ["--nonsense"],
        [f"--{NOT_UTF8}"],
        ["--log-file", "missing/below/log", "--log-level", "loud"],
        *WORK[name],
    ]
    for option, others in FILE_OPTIONS.get(name, []):
        wrong += [[*others, option, file] for file in ("missing", ".")]
    for arguments in wrong:
        require_plain(commands.run([name, *arguments], cwd=place), [name, *arguments])


def takes_json(commands: Commands, place: Path, name: str) -> bool:
    inner = ["list"] if name in {"hold", "trash"} else []
    return "--json" in commands.run([name, *inner, "--help"], cwd=place).out


@pytest.mark.parametrize("name", sorted(set(WORK) - {"serve"}))
def test_an_error_is_one_document_with_json(commands: Commands, place: Path, name: str) -> None:
    assert takes_json(commands, place, name)
    wrong: list[Sequence[str]] = [[*WORK[name][0], "--nonsense"], *WORK[name]]
    for option, others in FILE_OPTIONS.get(name, []):
        wrong.append([*others, option, "missing"])
    for arguments in wrong:
        outcome = commands.run([name, *arguments, "--json"], cwd=place)
        shown = f"cordwood {name} {' '.join(arguments)!r}: {outcome}"
        lines = outcome.out.splitlines()
        if outcome.code == 0:
            assert [name] in EXIT_AS_KAFKA, shown
            assert len(lines) <= 1, shown
            continue
        assert len(lines) == 1, shown
        document = json.loads(lines[0])
        if "error" in document:
            require_fit("error", document)
            assert document["exit_code"] == outcome.code, shown
            # `storage` refuses a flag in the words of another parser.
            is_there = document["error"] in outcome.err or "unrecognized arguments" in outcome.err
            assert is_there, shown
        else:
            assert document.get("failed") or document.get("problems"), shown


@pytest.mark.parametrize("name", sorted(WORK))
def test_names_that_are_not_utf8_are_told_as_they_are(
    commands: Commands, place: Path, name: str
) -> None:
    for arguments in WORK[name][:3]:
        changed = [NOT_UTF8 if each in {"missing", "t", "file"} else each for each in arguments]
        require_plain(commands.run([name, *changed], cwd=place), [name, *changed])


@pytest.mark.parametrize("name", sorted(WORK))
@pytest.mark.parametrize("stdout", [CLOSED_PIPE, FULL])
def test_an_output_that_takes_nothing_is_no_traceback(
    commands: Commands, place: Path, name: str, stdout: str
) -> None:
    for arguments in (["--help"], WORK[name][0]):
        outcome = commands.run([name, *arguments], stdout=stdout, cwd=place)
        require_plain(outcome, [name, *arguments], fails=False)
    assert commands.run([name, "--help"], stdout=stdout, cwd=place).code == 1


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], [NOT_UTF8]])
def test_a_command_that_there_is_not_is_usage(
    commands: Commands, place: Path, arguments: list[str]
) -> None:
    outcome = commands.run(arguments, cwd=place)
    require_plain(outcome, arguments)
    assert outcome.code == 2
