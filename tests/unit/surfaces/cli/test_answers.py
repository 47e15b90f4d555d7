"""The published JSON schemas are those of the answers, and what commands print fits them."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from cordwood.broker.broker import Broker
from cordwood.cleanup.erasure.ledger import LEDGER_NAME
from cordwood.client.admin import Admin
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.model.documents import keys_of
from cordwood.surfaces.cli.answers import ANSWERS
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.dump.documents import AnyItem, DumpedRecord, SaneIndex
from cordwood.testing.broker import RunningBroker
from support.clean_case import EXPIRE, log_dir
from support.erasing import KEY, erasable_log
from support.golden import Golden
from support.log_builder import NOW_MS, write_log_dir
from support.no_engine import NoEngine
from support.schemas import SCHEMAS, TOOL, require_fit
from support.scrape import probed
from support.storage_cases import CLUSTER_ID, write_files

#: Those of tests of their own; `cluster up` starts processes: tests/crash/test_cluster_up.py; and
#: `sql` starts Spark: tests/spark/test_sql.py; `table` is in test_table.py.
OTHERS = {
    *("archive", "clean", "cluster up", "docs", "dump-log", "erase", "restore", "sql", "table"),
}
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

#: Every action of a tool that succeeds at a broker, in an order in which it does; % is a directory.
OF_TOOLS = (
    "topics --create --topic js",
    "topics --create --topic js --if-not-exists",
    "topics --list",
    "topics --describe --topic js",
    "topics --alter --topic js --partitions 2",
    "console-producer --topic js",
    "console-consumer --topic js --from-beginning --max-messages 1",
    "configs --alter --topic js --add-config retention.ms=1000",
    "configs --describe --topic js",
    "configs --describe --topic none",
    "configs --describe --broker 1 --all",
    "configs --alter --entity-type users --entity-name u --add-config producer_byte_rate=1",
    "configs --describe --entity-type users --entity-name u",
    "get-offsets --topic js",
    "delete-records --offset-json-file %/offsets.json",
    "log-dirs --describe",
    "consumer-groups --reset-offsets --group jg --topic js --to-earliest --execute",
    "consumer-groups --list",
    "consumer-groups --describe --group jg",
    "consumer-groups --describe --expiry --group jg",
    "consumer-groups --validate-regex j.*",
    "groups --list",
    "consumer-groups --delete-offsets --group jg --topic js",
    "consumer-groups --delete --group jg --group none",
    "transactions list",
    "transactions describe --transactional-id jt",
    "transactions describe-producers --topic open --partition 0",
    "transactions describe-producers --topic js --partition 0",
    "transactions find-hanging --topic hangs",
    "transactions blocking",
    "transactions abort --topic hangs --partition 0 --start-offset 0",
    "transactions forceTerminateTransaction --transactionalId jt",
    "cluster cluster-id",
    "cluster list-endpoints",
    "cluster api-versions",
    "cluster unregister --id 7",
    "cluster unregister-controller --id 7",
    "features describe",
    "features upgrade --feature metadata.version=31",
    "features downgrade --feature metadata.version=30",
    "features disable --feature group.version --dry-run",
    "metadata-quorum describe --status",
    "metadata-quorum describe --replication",
    "metadata-quorum describe --replication --human-readable",
    "broker-api-versions",
    "topics --delete --topic js",
    "topics --delete --topic js --if-exists",
)
OF_STORAGE = (
    "storage random-uuid",
    "features version-mapping",
    "features feature-dependencies --feature group.version=1",
    "storage version-mapping",
    "storage feature-dependencies -f group.version=1",
    f"storage format -t {CLUSTER_ID} -c %/one.properties --standalone",
    f"storage format -t {CLUSTER_ID} -c %/one.properties --standalone --ignore-formatted",
    "storage info -c %/one.properties",
)


def printed(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    return json.loads(result.stdout)


def action_of(line: str) -> str:
    """The command of a tool's line, with the words that select its action."""
    return max((each for each in ANSWERS if f"{line} ".startswith(f"{each} ")), key=len)


def test_the_published_schemas_are_those_of_the_answers() -> None:
    wanted = TOOL["schemas"]()
    found = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    assert found == wanted, "run python tools/json_schemas.py"
    for text in found.values():
        jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_every_answer_is_printed_here() -> None:
    of_tools = map(action_of, (*OF_TOOLS, *OF_STORAGE))
    assert ANSWERS.keys() == {*OF_DIRECTORIES, *OF_BROKERS, *OF_A_TRASH, *of_tools, *OTHERS}


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


def test_what_clean_prints_fits(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs", "x-0")
    for options in (("--dry-run",), (), ()):
        document = printed("clean", root, *EXPIRE, *options)
        assert "error" not in document, document
        require_fit("clean", document)


def test_what_archive_and_restore_print_fits(golden_a: Golden, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    archived = printed("archive", golden_a.root / "before", url, "--active")
    require_fit("archive", archived)
    assert archived["partitions"]
    restored = printed("restore", url, tmp_path / "restored")
    require_fit("restore", restored)
    assert restored["partitions"]


def test_what_erase_prints_fits(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [erasable_log("x-0")])
    shutil.copytree(root, tmp_path / "copy")
    key = ("--topic", "x", "--key", KEY.decode(), "--also", tmp_path / "copy")
    for options in ((*key, "--dry-run"), key, ("--from-ledger", root / LEDGER_NAME)):
        document = printed("erase", root, *options)
        assert document["failed"] == {}, document
        require_fit("erase", document)


def files_to_dump(root: Path) -> list[Path]:
    """A file of each kind with records or entries, and one with each thing that may be missing."""
    data = build_batch([Record(0, NOW_MS, b"k", b"v", (Header("h", b"\xff"),))], base_offset=0)
    message = build_legacy_message(offset=0, magic=1, key=None, value=b"v")
    for name, content in (
        (f"{0:020}.log", data + message + b"cut off"),
        (f"{0:020}.index", b""),
        (f"{0:020}.timeindex", bytes(12)),
        (f"{0:020}-{0:010}.checkpoint", data),
        ("bootstrap.checkpoint", data),
    ):
        (root / name).write_bytes(content)
    return sorted(root.iterdir())


@pytest.mark.parametrize("option", ["--deep-iteration", "--print-data-log", "--index-sanity-check"])
def test_what_dump_log_prints_fits(golden_a: Golden, tmp_path: Path, option: str) -> None:
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    found = [path for path in (golden_a.root / "before").rglob("*") if path.suffix in suffixes]
    files = ",".join(map(str, [*files_to_dump(tmp_path), *found]))
    result = CliRunner().invoke(app, ["dump-log", "--files", files, option, "--json"])
    assert result.exit_code == 0
    by_keys: dict[tuple[str, ...], list[Any]] = {}
    for line in result.stdout.splitlines():
        document = json.loads(line)
        by_keys.setdefault((document["kind"], *document), []).append(document)
    for documents in by_keys.values():
        for document in documents[:20]:
            require_fit("dump-log", document)
    if option == "--print-data-log":
        classes = {each for each in get_args(AnyItem) if each not in {DumpedRecord, SaneIndex}}
        assert {tuple(sorted(keys[1:])) for keys in by_keys} == {
            tuple(sorted(keys_of(each))) for each in classes
        }


def test_what_is_printed_of_a_trash_fits(tmp_path: Path) -> None:
    root, trash = log_dir(tmp_path / "logs", "x-0"), tmp_path / "trash"
    CliRunner().invoke(app, ["clean", str(root), "--trash", str(trash), *EXPIRE])
    for command, words in OF_A_TRASH.items():
        given = [root if word == "LOG_DIR" else word for word in words]
        document = printed(*command.split(), trash, *given)
        assert "error" not in document, document
        require_fit(command, document)


def leave_open(served: Broker) -> None:
    """Leaves an old transaction in a partition that no coordinator knows."""
    log = served.replicas.log("hangs", 0)
    log.append_as_follower(
        build_batch(
            [Record(0, 1_700_000_000_000, b"k", b"v")],
            base_offset=0,
            producer_id=77,
            producer_epoch=3,
            base_sequence=0,
            is_transactional=True,
        )
    )
    log.maybe_update_high_watermark(1)


def begin_transaction(broker: RunningBroker) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer(settings | {"transactional.id": "jt"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("open", b"v")
    assert producer.flush(30) == 0
    return producer


def require_one_document_that_fits(line: str, *options: str) -> None:
    words = [*shlex.split(line), *options, "--json"]
    result = CliRunner().invoke(app, words, input="1\n")
    assert result.exit_code == 0, (line, result.output)
    (text,) = result.stdout.splitlines()
    require_fit(action_of(line), json.loads(text))


def test_what_every_action_of_a_tool_prints_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The only broker stays registered.
    monkeypatch.setattr(Admin, "unregister_broker", lambda *_: None)
    monkeypatch.setattr(Admin, "unregister_controller", lambda *_: None)
    (tmp_path / "offsets.json").write_text(
        '{"partitions": [{"topic": "js", "partition": 0, "offset": 1}]}', encoding="utf-8"
    )
    with RunningBroker({"log.retention.ms": "-1"}, engine=NoEngine) as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        for topic in ("open", "hangs"):
            require_one_document_that_fits(f"topics --create --topic {topic}", *address)
        producer = begin_transaction(broker)
        broker.call(leave_open)
        for line in OF_TOOLS:
            require_one_document_that_fits(line.replace("%", str(tmp_path)), *address)
        del producer


def test_what_storage_prints_fits(tmp_path: Path) -> None:
    write_files(tmp_path)
    for line in OF_STORAGE:
        require_one_document_that_fits(line.replace("%", str(tmp_path)))


def test_what_docs_prints_fits() -> None:
    for words in ((), ("--path",), ("install",), ("install", "--path")):
        require_fit("docs", printed("docs", *words))
