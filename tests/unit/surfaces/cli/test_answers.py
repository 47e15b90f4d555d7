"""The published JSON schemas are those of the answers, and what commands print fits them."""

from __future__ import annotations

import json
import runpy
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.answers import ANSWERS
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.clean_case import EXPIRE, log_dir
from support.golden import Golden
from support.no_engine import NoEngine
from support.scrape import probed

ROOT = Path(__file__).resolve().parents[4]
SCHEMAS = ROOT / "docs" / "schemas"
TOOL = runpy.run_path(str(ROOT / "tools" / "json_schemas.py"))

OF_DIRECTORIES: dict[str, Sequence[str]] = {
    "LOG_DIR": (),
    "advise": ("--max-age", "7d", "--max-bytes", "1G"),
    "doctor": (),
    "explain": ("--record", "codec-lz4:0:17"),
    "verify": (),
    "whatif": ("--set", "*:retention.ms=1d", "--estimate"),
}
OF_BROKERS: dict[str, Sequence[str]] = {
    "cleaner": ("cleaner",),
    "clock": ("clock",),
    "explain": ("explain",),
    "hold": ("hold", "list"),
    "trash list": ("trash", "list"),
    "trash empty": ("trash", "empty", "--older-than", "0s"),
    "whatif": ("whatif", "--set", "log.retention.ms=3600000"),
}
OF_A_TRASH: dict[str, Sequence[str]] = {
    "trash list": (),
    "trash restore": ("LOG_DIR", "--dry-run"),
    "trash empty": ("--older-than", "0s"),
}

#: Every action of a tool that succeeds at a broker, in an order in which it does.
OF_TOOLS = (
    "topics --create --topic js",
    "topics --create --topic js --if-not-exists",
    "topics --list",
    "topics --describe --topic js",
    "topics --alter --topic js --partitions 2",
    "console-producer --topic js",
    "configs --alter --topic js --add-config retention.ms=1000",
    "configs --describe --topic js",
    "configs --alter --entity-type users --entity-name u --add-config producer_byte_rate=1",
    "configs --describe --entity-type users --entity-name u",
    "get-offsets --topic js",
    "log-dirs --describe",
    "consumer-groups --reset-offsets --group jg --topic js --to-earliest --execute",
    "consumer-groups --list",
    "consumer-groups --describe --group jg",
    "consumer-groups --delete-offsets --group jg --topic js",
    "consumer-groups --delete --group jg",
    "groups --list",
    "transactions list",
    "transactions forceTerminateTransaction --transactionalId jt",
    "transactions describe --transactional-id jt",
    "transactions describe-producers --topic js --partition 0",
    "transactions find-hanging --topic js",
    "transactions blocking",
    "cluster cluster-id",
    "cluster list-endpoints",
    "metadata-quorum describe --status",
    "metadata-quorum describe --replication",
    "broker-api-versions",
    "topics --delete --topic js",
    "topics --delete --topic js --if-exists",
)


def printed(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    return json.loads(result.stdout)


def action_of(line: str) -> str:
    """The command of a tool's line, with the words that select its action; empty without type."""
    found = [each for each in ANSWERS if f"{line} ".startswith(f"{each} ")]
    return max(found, key=len, default="")


def require_fit(command: str, document: Any) -> None:
    path = SCHEMAS / TOOL["file_name"](command)
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)


def test_the_published_schemas_are_those_of_the_answers() -> None:
    wanted = TOOL["schemas"]()
    found = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    assert found == wanted, "run python tools/json_schemas.py"
    for text in found.values():
        jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_every_answer_is_printed_here() -> None:
    of_tools = filter(None, map(action_of, OF_TOOLS))
    assert ANSWERS.keys() == {*OF_DIRECTORIES, *OF_BROKERS, *OF_A_TRASH, *of_tools}


@pytest.mark.parametrize("command", OF_DIRECTORIES)
def test_what_is_printed_of_directories_fits(golden_a: Golden, command: str) -> None:
    words = [] if command == "LOG_DIR" else [command]
    moment = [] if command in {"doctor", "verify"} else ["--now", golden_a.cleaned_at_ms]
    directory = golden_a.root / "before"
    document = printed(*words, directory, *moment, *OF_DIRECTORIES[command])
    assert "error" not in document
    require_fit(command, document)


def test_what_is_printed_of_a_running_broker_fits(tmp_path: Path) -> None:
    trash = {"cordwood.trash.dir": str(tmp_path / "trash")}
    with (
        RunningBroker(trash, log_dir=tmp_path / "logs", engine=NoEngine) as broker,
        probed(broker) as probe,
    ):
        for command, words in OF_BROKERS.items():
            document = printed(*words, "--url", probe.url)
            assert "error" not in document, document
            require_fit(command, document)


def test_what_is_printed_of_a_trash_fits(tmp_path: Path) -> None:
    root, trash = log_dir(tmp_path / "logs", "x-0"), tmp_path / "trash"
    CliRunner().invoke(app, ["clean", str(root), "--trash", str(trash), *EXPIRE])
    for command, words in OF_A_TRASH.items():
        given = [root if word == "LOG_DIR" else word for word in words]
        document = printed(*command.split(), trash, *given)
        assert "error" not in document, document
        require_fit(command, document)


def test_what_every_action_of_a_tool_prints_fits() -> None:
    with RunningBroker(engine=NoEngine) as broker:
        for line in OF_TOOLS:
            words = [*shlex.split(line), "--bootstrap-server", broker.bootstrap_servers, "--json"]
            result = CliRunner().invoke(app, words, input="1\n")
            assert result.exit_code == 0, (line, result.output)
            (text,) = result.stdout.splitlines()
            document, action = json.loads(text), action_of(line)
            assert document is not None
            if action:
                require_fit(action, document)
