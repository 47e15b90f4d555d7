"""`cordwood erase` from its command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clean import digest_tree
from support.commands import Commands
from support.erasing import KEY, VALUE, erasable_log, sweep
from support.log_builder import write_log_dir


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("u-0")])
    return tmp_path


def test_it_erases_and_its_report_is_checked(commands: Commands, place: Path) -> None:
    key = ["--topic", "t", "--key", KEY.decode()]
    dry = commands.run(["erase", "data", *key, "--dry-run"], cwd=place)
    assert dry.code == 0, dry
    assert "43 records would be erased" in dry.out
    done = commands.run(["erase", "data", *key, "--report", "r.json"], cwd=place)
    assert done.code == 0, done
    assert "43 records erased and searched for again" in done.out
    assert ": r.json, unsigned" in done.out
    assert {name.partition("/")[0] for name in sweep(place / "data", KEY, VALUE)} == {"u-0"}
    assert commands.run(["verify", "--erasure", "r.json"], cwd=place).code == 0
    report = place / "r.json"
    report.write_bytes(report.read_bytes().replace(b"43", b"42", 1))
    refused = commands.run(["verify", "--erasure", "r.json", "--json"], cwd=place)
    assert refused.code == 1
    assert json.loads(refused.out)["failed"] is True


def test_keys_come_from_a_file_or_in_hexadecimal(commands: Commands, place: Path) -> None:
    (place / "keys").write_bytes(b"other-1\r\nother-2\n\n")
    options = ["--key-file", "keys", "--key-hex", KEY.hex(), "--json"]
    done = commands.run(["erase", "data", "--topic", "t", *options], cwd=place)
    assert done.code == 0, done
    document = json.loads(done.out)
    assert len(document["criteria"][0]["keys"]["hashes"]) == 3
    assert sweep(place / "data" / "t-0", KEY, b"other-1", b"other-2") == []


def test_a_ledger_is_applied_to_an_archive_and_by_a_cleaning(
    commands: Commands, place: Path
) -> None:
    archives = [shutil.copytree(place / "data", place / name) for name in ("a", "b")]
    key = ["--topic", "t", "--key", KEY.decode()]
    assert commands.run(["erase", "data", *key, "--ledger", "ledger"], cwd=place).code == 0
    again = commands.run(["erase", "a", "--from-ledger", "ledger"], cwd=place)
    assert again.code == 0, again
    options = ["--defaults", "--retention-only", "--apply-erasures", "ledger"]
    cleaned = commands.run(["clean", "b", *options, "--now", "1700000000000"], cwd=place)
    assert cleaned.code == 0, cleaned
    assert "t-0: 43 records were erased again" in cleaned.err
    for archive in archives:
        assert {name.partition("/")[0] for name in sweep(archive, KEY, VALUE)} == {"u-0"}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--memory", "nonsense"], 2, "--memory"),
        (["--trash", "b/trash"], 2, "it lies in the log directory"),
        (["--topic", "nowhere"], 2, "nowhere"),
        ([], 2, "retention leaves no record of 2 topics"),
    ],
)
def test_a_cleaning_that_is_refused_applies_no_ledger(
    commands: Commands, place: Path, options: list[str], code: int, said: str
) -> None:
    archive = shutil.copytree(place / "data", place / "b")
    key = ["--topic", "t", "--key", KEY.decode()]
    assert commands.run(["erase", "data", *key, "--ledger", "ledger"], cwd=place).code == 0
    before = {name: facts for name, facts in digest_tree(archive).items() if name != ".lock"}
    applied = ["--defaults", "--retention-only", "--apply-erasures", "ledger"]
    refused = commands.run(["clean", "b", *applied, *options], cwd=place)
    assert refused.code == code, refused
    assert said in refused.err
    after = {name: facts for name, facts in digest_tree(archive).items() if name != ".lock"}
    assert after == before


@pytest.mark.parametrize("option", ["--report", "--ledger"])
@pytest.mark.parametrize(
    ("path", "said"), [("none/file", "No such file or directory"), ("data", "Is a directory")]
)
def test_nothing_is_erased_whose_report_or_ledger_cannot_be_written(
    commands: Commands, place: Path, option: str, path: str, said: str
) -> None:
    before = digest_tree(place)
    arguments = ["erase", "data", "--topic", "t", "--key", KEY.decode(), option, path]
    refused = commands.run(arguments, cwd=place)
    assert refused.code == 2, refused
    assert f"{option} {path}: cannot be written: {said}" in refused.err
    assert digest_tree(place) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data", "--key", "k"], "name at least one --topic"),
        (["data", "--topic", "t"], "either by keys"),
        (["data", "--topic", "t", "--key", "k", "--where", "true"], "either by keys"),
        (["data", "--topic", "nowhere", "--key", "k"], "no partition of it is in data"),
        (["data", "--topic", "t:one", "--key", "k"], "neither TOPIC nor TOPIC:PARTITION"),
        (["data", "--topic", "t", "--key-hex", "0x"], "not hexadecimal"),
        (["data", "--topic", "t", "--key", "k", "--also", "missing"], "no such directory"),
        (["data", "--from-ledger", "missing"], "cannot be read"),
        (["data", "--from-ledger", "missing", "--key", "k"], "has its own topics"),
    ],
)
def test_wrong_usage_is_said_in_a_line(
    commands: Commands, place: Path, arguments: list[str], said: str
) -> None:
    outcome = commands.run(["erase", *arguments], cwd=place)
    assert outcome.code == 2, outcome
    assert said in outcome.err
