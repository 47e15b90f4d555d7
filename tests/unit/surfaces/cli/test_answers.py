"""The published JSON schemas are those of the answers, and what commands print fits them."""

from __future__ import annotations

import json
import runpy
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


def printed(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    return json.loads(result.stdout)


def require_fit(command: str, document: Any) -> None:
    path = SCHEMAS / f"{command.replace(' ', '-')}.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)


def test_the_published_schemas_are_those_of_the_answers() -> None:
    wanted = runpy.run_path(str(ROOT / "tools" / "json_schemas.py"))["schemas"]()
    found = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    assert found == wanted, "run python tools/json_schemas.py"
    for text in found.values():
        jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_every_answer_is_printed_here() -> None:
    assert ANSWERS.keys() == {*OF_DIRECTORIES, *OF_BROKERS, *OF_A_TRASH}


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
